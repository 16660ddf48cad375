"""A reader inside a batch that a deletion cuts and maintenance then stores elsewhere (R19)."""

import pyarrow as pa
import pytest

from tests.logs.memory_log import MemoryLog
from txlog.client.admin import Admin
from txlog.client.consumer.consumer import Consumer
from txlog.errors import OffsetOutOfRange
from txlog.maintenance.maintenance import Maintenance
from txlog.model import TopicPartition

pytestmark = pytest.mark.segments

U0 = TopicPartition("u", 0)
DAY_MS = 86_400_000


def reader_at_60(log: MemoryLog, reset: str) -> Consumer:
    """A reader at record 60 of a batch of 100; later batches are then merged with it."""
    table = pa.table({"value": [b"%d" % number for number in range(100)]})
    log.producer().send_batch("u", table, partition=0)
    log.consumer("u", group_id="g").commit({U0: 60})
    reader = log.consumer("u", group_id="g", auto_offset_reset=reset)
    assert reader.position(U0) == 60
    producer = log.producer()
    for number in range(100, 250):
        producer.send("u", b"%d" % number, partition=0).get()
    return reader


def delete_and_move(log: MemoryLog, log_start: int) -> None:
    """Run Kafka's deleteRecords and the maintenance of some days that follows from it."""
    Admin(log.process()).delete_records({U0: log_start})
    before = log.objects()
    maintenance = Maintenance(log.process())
    done = set()
    for _ in range(4):
        done |= {action.task for action in maintenance.run_once().actions}
        log.clock.advance(2 * DAY_MS)
    assert {"merging", "vacuum"} <= done
    assert before.keys() - log.objects().keys(), "the old segments are gone"


def polled(reader: Consumer) -> list[int]:
    return [record.offset for record in reader.poll(max_records=1_000).get(U0, [])]


@pytest.mark.parametrize("reset", ["latest", "earliest", "none"])
def test_R19_reader_at_retained_offset_skips_no_records(log: MemoryLog, reset: str) -> None:
    reader = reader_at_60(log, reset)
    delete_and_move(log, 60)
    assert polled(reader) == list(range(60, 250))


def test_R19_reader_at_deleted_offset_raises_with_reset_none(log: MemoryLog) -> None:
    reader = reader_at_60(log, "none")
    delete_and_move(log, 61)
    with pytest.raises(OffsetOutOfRange, match="offset 60 of topic 'u'.* it has 61 to 250"):
        polled(reader)


@pytest.mark.parametrize(("reset", "first"), [("earliest", 61), ("latest", 250)])
def test_R19_reader_at_deleted_offset_is_reset_per_auto_offset_reset(
    log: MemoryLog, reset: str, first: int
) -> None:
    reader = reader_at_60(log, reset)
    delete_and_move(log, 61)
    assert polled(reader) == list(range(first, 250))
