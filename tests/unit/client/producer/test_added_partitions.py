"""Every process sees an added partition, however far the process lags (R15)."""

import pyarrow as pa
import pytest

from tests.logs.memory_log import MemoryLog
from txlog.client.producer.producer import Producer
from txlog.errors import UnknownPartition
from txlog.model import PARTITIONS_MAX
from txlog.testing.counting_store import CountingStore


def test_record_is_sent_to_partition_added_since_first_record_of_flush(
    log: MemoryLog,
) -> None:
    producer = log.elsewhere()
    producer.send("u", b"0", partition=0)
    log.admin.create_partitions("u", 2)
    producer.send("u", b"1", partition=1)
    producer.flush()
    assert log.values("u") == [b"0", b"1"]


def add_partition_and_prune(log: MemoryLog) -> None:
    """Prune the entry that added the partition; only the snapshot holds it then."""
    log.admin.create_partitions("u", 2)
    for _ in range(5):
        log.producer().send("u", b"0", partition=0).get()
    log.connection.cluster.topic("u").journal.prune(1)


def test_record_is_sent_to_added_partition_after_pruning(
    log: MemoryLog,
) -> None:
    producer = log.elsewhere()
    producer.send("u", b"0", partition=0).get()
    add_partition_and_prune(log)
    producer.send("u", b"1", partition=1).get()
    assert log.values("u")[-1] == b"1"


def test_table_is_sent_to_added_partition_after_pruning(
    log: MemoryLog,
) -> None:
    producer = log.elsewhere()
    producer.send("u", b"0", partition=0).get()
    add_partition_and_prune(log)
    table = pa.table({"value": [b"1", b"2"], "to": [0, 1]})
    producer.send_batch("u", table, partition="to")
    assert log.values("u")[-2:] == [b"1", b"2"]


@pytest.mark.parametrize("partition", [-1, PARTITIONS_MAX, 1 << 40])
def test_impossible_partition_number_is_refused_without_request(
    log: MemoryLog, partition: int
) -> None:
    store = CountingStore(log.memory)
    producer = Producer(log.process(store))
    producer.send("u", b"0")
    store.reset()
    with pytest.raises(UnknownPartition, match=rf"partitions 0 to 0, not {partition}\."):
        producer.send("u", b"1", partition=partition)
    assert store.reset().gets == 0
    with pytest.raises(UnknownPartition, match=r"partitions 0 to 0, not 1\."):
        producer.send("u", b"1", partition=1)
    producer.flush()
    assert log.values("u") == [b"0"], "what was refused is not taken"
