"""What a topic has got since a producer's buffer was begun is there for its next record (R15)."""

import pyarrow as pa
import pytest

from tests.memory_log import MemoryLog
from txlog.errors import InvalidRecord, RecordTooLarge

NARROW = pa.schema([("id", pa.int64())])
WIDE = NARROW.append(pa.field("name", pa.string()))


@pytest.fixture
def typed(log: MemoryLog) -> MemoryLog:
    log.admin.create_topic("typed", num_partitions=1, schema=NARROW)
    return log


def test_a_record_with_a_column_that_was_added_is_taken_behind_those_that_wait(
    typed: MemoryLog,
) -> None:
    producer = typed.elsewhere()
    producer.send("typed", {"id": 1})
    typed.admin.evolve_schema("typed", WIDE)
    second = producer.send("typed", {"id": 2, "name": "two"})
    producer.flush()
    assert typed.values("typed") == [{"id": 1, "name": None}, {"id": 2, "name": "two"}]
    assert second.get().offset == 1


def test_it_is_in_the_transaction_of_those_that_wait(typed: MemoryLog) -> None:
    producer = typed.elsewhere("shop")
    producer.begin_transaction()
    producer.send("typed", {"id": 1})
    typed.admin.evolve_schema("typed", WIDE)
    producer.send("typed", {"id": 2, "name": "two"})
    producer.abort_transaction()
    assert typed.values("typed") == []


def test_a_column_that_nobody_added_is_refused_and_those_that_wait_go_on_waiting(
    typed: MemoryLog,
) -> None:
    producer = typed.elsewhere()
    producer.send("typed", {"id": 1})
    before = typed.objects()
    with pytest.raises(InvalidRecord, match="no such columns"):
        producer.send("typed", {"id": 2, "name": "two"})
    assert typed.changed_since(before) == []
    producer.flush()
    assert typed.values("typed") == [{"id": 1}]


def test_a_record_within_a_limit_that_was_raised_is_taken(log: MemoryLog) -> None:
    log.admin.alter_topic_config("u", {"max.message.bytes": 10})
    producer = log.elsewhere()
    producer.send("u", b"0")
    with pytest.raises(RecordTooLarge):
        producer.send("u", b"1" * 11)
    log.admin.alter_topic_config("u", {"max.message.bytes": 20})
    producer.send("u", b"1" * 11)
    producer.flush()
    assert log.values("u") == [b"0", b"1" * 11]
