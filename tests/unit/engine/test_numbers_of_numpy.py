"""Numbers of numpy are numbers: programs take partitions, times and limits from its arrays."""

import math

import numpy as np
import pytest

from tests.logs.memory_log import MemoryLog
from txlog.client.consumer.consumer import Consumer
from txlog.client.consumer.consumer_config import ConsumerConfig
from txlog.engine.producer_config import ProducerConfig
from txlog.errors import InvalidConfig, InvalidRecord, UsageError
from txlog.settings import TopicConfig

KINDS = pytest.mark.parametrize("kind", [np.int64, np.uint8, np.int16])


@KINDS
def test_send_takes_partition_and_time_as_numpy_integers(
    log: MemoryLog, kind: type[np.integer]
) -> None:
    found = log.producer().send("t", b"x", partition=kind(1), timestamp_ms=kind(5)).get()
    assert (found.partition, found.timestamp) == (1, 5)
    assert type(found.timestamp) is int


@KINDS
def test_poll_takes_limit_and_timeout_as_numpy_numbers(
    log: MemoryLog, kind: type[np.integer]
) -> None:
    producer = log.producer()
    for _ in range(3):
        producer.send("u", b"x")
    producer.flush()
    consumer = log.consumer("u")
    assert [len(records) for records in consumer.poll(kind(0), kind(2)).values()] == [2]
    assert [len(records) for records in consumer.poll(np.float32(0)).values()] == [1]


@KINDS
def test_configuration_takes_numpy_integers(kind: type[np.integer]) -> None:
    assert ConsumerConfig.from_dotted({"max.poll.records": kind(7)}).max_poll_records == 7
    assert (
        ProducerConfig.from_user({"transaction.timeout.ms": kind(9)}).to_dotted()[
            "transaction.timeout.ms"
        ]
        == 9
    )
    ratio = TopicConfig.from_dotted({"min.cleanable.dirty.ratio": np.float32(0.25)})
    assert ratio.min_cleanable_dirty_ratio == 0.25


@pytest.mark.parametrize("value", [True, np.bool_(True), 1.0, np.float64(1), "1", None, [1]])
def test_other_types_are_refused_as_whole_numbers(log: MemoryLog, value: object) -> None:
    producer = log.producer()
    if value is not None:
        with pytest.raises(InvalidRecord, match="partition must be a whole number"):
            producer.send("t", b"x", partition=value)  # type: ignore[arg-type]
        with pytest.raises(InvalidRecord, match="timestamp_ms must be whole milliseconds"):
            producer.send("t", b"x", timestamp_ms=value)  # type: ignore[arg-type]
        with pytest.raises(InvalidConfig, match="max_records is"):
            log.consumer("u").poll(max_records=value)  # type: ignore[arg-type]
    with pytest.raises(InvalidConfig, match="must be a whole number"):
        ConsumerConfig.from_dotted({"max.poll.records": [value]})


@pytest.mark.parametrize("value", [math.inf, math.nan, -1, 1 << 63, True, "5", None])
def test_timeout_error_names_both_bounds(log: MemoryLog, value: object) -> None:
    consumer: Consumer = log.consumer("u")
    with pytest.raises(UsageError, match="give milliseconds from 0 to 9223372036854775807"):
        consumer.poll(value)  # type: ignore[arg-type]


@KINDS
def test_partition_counts_may_be_numpy_integers(log: MemoryLog, kind: type[np.integer]) -> None:
    log.admin.create_topic("n", kind(2))
    log.admin.create_partitions("n", kind(3))
    assert len(log.process_admin().describe_topic("n").partitions) == 3
