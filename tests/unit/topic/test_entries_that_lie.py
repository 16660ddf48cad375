"""Entries whose events say something else than their records: an error names the object, and no
record is served twice or from another place."""

from collections.abc import Callable
from dataclasses import replace
from json import dumps, loads
from typing import Any

import pytest

from tests.logs.memory_log import MemoryLog
from tests.unit.topic.inline_log import findings, log_with, read, topic_of
from txlog.checksum import crc32_of
from txlog.errors import CorruptData
from txlog.groups.machine import CoordinatorMachine
from txlog.journal.entry import RECORDS_BYTES_MAX, decode_entry, encode_entry
from txlog.journal.machine import Machine
from txlog.layout import parse_number
from txlog.topic.events import AppendBatches, BatchesAppended, PartitionsAdded
from txlog.topic.machine import TopicMachine
from txlog.topic.records.batch import SegmentBatch
from txlog.topic.records.conversion import with_timestamp
from txlog.topic.records.python_rows import record_batch_from_rows
from txlog.verify.invariants import check_log


def forge(
    log: MemoryLog,
    path: str,
    machine: Machine[Any],
    events: Callable[..., list[Any]],
    records: bytes | None = None,
) -> None:
    """Replace the one event of an entry, and its records, with right checksums."""
    entry, _ = decode_entry(log.memory.get(path) or b"", path, parse_number(path) or 0)
    (event,) = map(machine.decode_event, entry.events)
    forged = tuple(map(machine.encode_event, events(event)))
    lying = replace(entry, events=forged, records=entry.records if records is None else records)
    log.memory.delete(path)
    log.memory.create(path, encode_entry(lying)[0])


def log_of_one_flush() -> tuple[MemoryLog, str]:
    """A log with a record in each partition of `a`, and the entry that holds them."""
    log = log_with()
    producer = log.producer()
    for partition in (0, 1):
        producer.send("a", b"%d" % partition, partition=partition)
    producer.flush()
    return log, topic_of(log.connection).layout.entry(1)


def with_batches(event: BatchesAppended, *batches: SegmentBatch) -> list[Any]:
    return [replace(event, segments=(replace(event.segments[0], batches=batches),))]


def moved(batch: SegmentBatch, by: int, longer: int = 0) -> SegmentBatch:
    return replace(batch, position=batch.position + by, length=batch.length + longer)


def named_twice(event: BatchesAppended) -> list[Any]:
    return [event, replace(event, base_offsets={0: 1, 1: 1})]


def named_in_two_segments(event: BatchesAppended) -> list[Any]:
    return [replace(event, segments=event.segments * 2)]


def overlapping(event: BatchesAppended) -> list[Any]:
    first, second = event.segments[0].batches
    return with_batches(event, first, moved(second, -8, 8))


def overlapping_in_two_segments(event: BatchesAppended) -> list[Any]:
    (segment,) = event.segments
    first, second = segment.batches
    parts = ((first,), (moved(second, -8, 8),))
    return [replace(event, segments=tuple(replace(segment, batches=part) for part in parts))]


def in_another_order(event: BatchesAppended) -> list[Any]:
    (segment,) = event.segments
    parts = ((segment.batches[1],), (segment.batches[0],))
    return [replace(event, segments=tuple(replace(segment, batches=part) for part in parts))]


def not_all(event: BatchesAppended) -> list[Any]:
    return with_batches(event, event.segments[0].batches[0])


def not_the_first(event: BatchesAppended) -> list[Any]:
    return with_batches(event, event.segments[0].batches[1])


def beyond(event: BatchesAppended) -> list[Any]:
    first, second = event.segments[0].batches
    return with_batches(event, first, moved(second, 0, 8))


def far_beyond(event: BatchesAppended) -> list[Any]:
    first, second = event.segments[0].batches
    return with_batches(event, first, moved(second, RECORDS_BYTES_MAX))


def in_the_header(event: BatchesAppended) -> list[Any]:
    first, second = event.segments[0].batches
    return with_batches(event, moved(first, -256), second)


def none(event: BatchesAppended) -> list[Any]:
    return [PartitionsAdded(3)]


def elsewhere(path: str) -> Callable[[BatchesAppended], list[Any]]:
    def event_elsewhere(event: BatchesAppended) -> list[Any]:
        return [replace(event, segments=(replace(event.segments[0], path=path),))]

    return event_elsewhere


@pytest.mark.parametrize(
    "events",
    [
        named_twice,
        named_in_two_segments,
        overlapping,
        overlapping_in_two_segments,
        in_another_order,
        not_all,
        not_the_first,
        beyond,
        far_beyond,
        in_the_header,
        none,
    ],
)
def test_I15_entry_whose_records_are_not_each_named_once_is_refused(
    events: Callable[..., list[Any]],
) -> None:
    log, path = log_of_one_flush()
    forge(log, path, TopicMachine(), events)
    with pytest.raises(CorruptData, match=path):
        read(log.process())
    assert any(path in str(found) for found in findings(log.process()))


@pytest.mark.parametrize("slot", [0, 2])
def test_I15_event_that_names_another_entry_is_refused(slot: int) -> None:
    log, path = log_of_one_flush()
    forge(log, path, TopicMachine(), elsewhere(topic_of(log.connection).layout.entry(slot)))
    with pytest.raises(CorruptData, match=path):
        read(log.process())


def test_I15_event_that_names_a_coordinators_entry_is_refused() -> None:
    log, path = log_of_one_flush()
    coordinator = log.connection.coordinator_of("id").journal.layout.entry(1)
    forge(log, path, TopicMachine(), elsewhere(coordinator))
    with pytest.raises(CorruptData, match=path):
        read(log.process())


def test_I15_decision_that_names_a_range_for_two_topics_is_refused() -> None:
    log = log_with()
    producer = log.producer("id", commit_returns="decided")
    producer.begin_transaction()
    producer.send("a", b"1")
    producer.send("b", b"2")
    producer.commit_transaction()
    coordinator = log.process().coordinator_of("id")
    coordinator.catch_up()
    path = next(
        found
        for slot in reversed(range(coordinator.journal.next_slot))
        if (found := coordinator.journal.layout.entry(slot))
        and decode_entry(log.memory.get(found) or b"", found, slot)[0].records
    )

    def same_range(event: Any) -> list[Any]:
        first, second = event.participants
        return [replace(event, participants=(first, replace(second, segments=first.segments)))]

    forge(log, path, CoordinatorMachine(), same_range)
    with pytest.raises(CorruptData, match=path):
        log.process().coordinator_of("id").catch_up()


# Records of another kind, or of other values, than the event says.


def lies_about(**changes: int) -> Callable[[BatchesAppended], list[Any]]:
    def lie(event: BatchesAppended) -> list[Any]:
        first, second = event.segments[0].batches
        return with_batches(event, replace(first, **changes), second)

    return lie


@pytest.mark.parametrize("changes", [{"crc32": 1}, {"row_count": 2}])
def test_I15_batch_in_an_entry_that_differs_from_its_event_is_named(
    changes: dict[str, int],
) -> None:
    log, path = log_of_one_flush()
    forge(log, path, TopicMachine(), lies_about(**changes))
    with pytest.raises(CorruptData, match=path):
        read(log.process())
    assert any(path in str(found) for found in findings(log.process()))


@pytest.mark.parametrize("changes", [{"timestamp_max_ms": 1 << 50}, {"partition": 1}])
def test_I15_plausible_values_of_a_batch_in_an_entry_are_audited(changes: dict[str, int]) -> None:
    log, path = log_of_one_flush()
    forge(log, path, TopicMachine(), lies_about(**changes))
    assert any(path in str(found) for found in check_log(log.process()))


@pytest.mark.parametrize(
    "kind", [b"\0" * 64, b"\xff" * 512, b'{"txlog": 1}', b"schema", b"footer", b"empty"]
)
def test_I15_records_in_an_entry_that_are_no_record_batch_are_named(kind: bytes) -> None:
    log, path = log_of_one_flush()
    schema = topic_of(log.connection).schema()
    data = {
        b"schema": schema.serialize().to_pybytes(),
        b"footer": b"ARROW1\0\0" + schema.serialize().to_pybytes() + b"ARROW1",
    }.get(kind, kind)

    def batch(event: BatchesAppended) -> list[Any]:
        first = event.segments[0].batches[0]
        made = with_batches(event, replace(first, length=len(data), crc32=crc32_of(data)))
        return [replace(made[0], base_offsets={0: 0}, base_sequences={0: 0})]

    forge(log, path, TopicMachine(), batch, records=data)
    with pytest.raises(CorruptData, match=path):
        read(log.process())
    assert any(path in str(found) for found in findings(log.process()))


@pytest.mark.parametrize("count", [-1, "1", RECORDS_BYTES_MAX + 1, 1 << 40, True])
def test_I15_header_with_a_wrong_number_of_records_is_refused(count: object) -> None:
    log, path = log_of_one_flush()
    data = log.memory.get(path)
    assert data is not None
    header = loads(data[:256]) | {"records": count}
    forged = dumps(header, separators=(",", ":")).encode().ljust(255) + data[255:]
    with pytest.raises(CorruptData, match=path):
        decode_entry(forged, path, 1)


def test_partial_repeat_stores_only_the_records_that_the_topic_lacks() -> None:
    log = log_with()
    topic = topic_of(log.connection)
    rows = [[{"key": None, "value": b"%d" % n, "headers": None}] for n in (0, 1)]
    batches = [with_timestamp(record_batch_from_rows(one, topic.schema()), 5) for one in rows]
    for count in (1, 2):
        parts = {p: [batches[p]] for p in range(count)}
        inline = topic.encode_inline(parts, 0, topic.inline_bytes_max)
        assert inline is not None
        topic.execute(AppendBatches((inline,), 7, 0, None, dict.fromkeys(parts, 0), 5))
    path = topic.layout.entry(2)
    entry, _ = decode_entry(log.memory.get(path) or b"", path, 2)
    assert len(entry.records) == inline.batches[1].length
    assert read(log.process()) == [b"0", b"1"]
    assert findings(log.process()) == []
