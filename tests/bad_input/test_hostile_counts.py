"""Counts and numbers that no journal needs, in objects with valid checksums (I15, I16).

Each is refused with the object named, before it takes memory; an audit names it, too.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tests.bad_input.fuzzing import journal_of, snapshot_of
from tests.bad_input.small_log import copy, everything
from tests.bad_input.test_forgeries import snapshot_rows
from tests.bad_input.test_hostile_objects import (
    COORDINATORS,
    OF_A,
    TOPIC_ID,
    bounded,
    damage,
    newest,
    next_entry,
    participant,
    seen,
)
from tests.logs.memory_log import MemoryLog
from tests.unit.segments import segment_views
from txlog.coordinator.coordinator import coordinator_number_of as coordinator_of
from txlog.errors import MESSAGE_MAX, CorruptData, InternalError, TxlogError
from txlog.journal.entry import EVENTS_MAX, Entry, decode_entry, encode_entry
from txlog.journal.snapshot import ROWS_MAX, decode_snapshot
from txlog.layout import parse_number
from txlog.model import OFFSET_MAX, PARTITIONS_MAX
from txlog.settings import LogSettings
from txlog.topic.events import AppendBatches
from txlog.topic.records.batch import Segment
from txlog.topic.records.schema import physical_schema

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

OF_G = f"{COORDINATORS}/{coordinator_of('g', 8)}"


def with_rows(path: str, section: str, rows: list[Any]) -> dict[str, bytes]:
    """The snapshot with these rows in a section, and a hint that points to it."""
    kept = [(name, text) for name, text in snapshot_rows(path) if name != section]
    forged = [(section, row if isinstance(row, str) else json.dumps(row)) for row in rows]
    hint = {f"{journal_of(path)}/hint.json": b'{"snapshot":%d}' % parse_number(path)}
    return {path: snapshot_of(*kept, *forged), **hint}


def outcomes(count: int) -> str:
    """The text of a generation of so many outcomes."""
    columns = {"producer_ids": [0] * count, "producer_epochs": [0] * count}
    columns |= {"numbers": list(range(count)), "steps_ms": [0] * count}
    return json.dumps(json.dumps(columns))


SNAPSHOT_OF_U = newest("snapshot", "topics/u/")
SNAPSHOT_OF_A = newest("snapshot", f"{OF_A}/")
SNAPSHOT_OF_G = newest("snapshot", f"{OF_G}/")

HOSTILE_ROWS: dict[str, tuple[str, str, Callable[[], list[Any]]]] = {
    "partitions without number": (SNAPSHOT_OF_U, "partition", lambda: [{}] * 200_000),
    "partitions beyond the limit": (
        SNAPSHOT_OF_U,
        "partition",
        lambda: [{}] * (PARTITIONS_MAX + 1),
    ),
    "two heads": (SNAPSHOT_OF_U, "topic", lambda: [{}] * 2),
    "two million outcomes in one row": (SNAPSHOT_OF_A, "outcomes", lambda: [outcomes(2_000_000)]),
    "two million outcomes in many rows": (
        SNAPSHOT_OF_A,
        "outcomes",
        lambda: [outcomes(128)] * 16_000,
    ),
    "one outcome more than a generation": (SNAPSHOT_OF_A, "outcomes", lambda: [outcomes(129)]),
    "an outcome that is damaged": (
        SNAPSHOT_OF_A,
        "outcomes",
        lambda: ['"{\\"producer_ids\\":[1]}"'],
    ),
    "an outcome of no time": (
        SNAPSHOT_OF_A,
        "outcomes",
        lambda: [outcomes(2).replace("[0, 0]}", f"[0, {1 << 60}]}}")],
    ),
}
"""A snapshot, a section of it, and how its rows are made: of two million not while collecting."""


@pytest.mark.parametrize("case", HOSTILE_ROWS)
def test_I16_snapshot_with_rows_that_no_state_needs_is_refused_and_named(case: str) -> None:
    path, section, rows = HOSTILE_ROWS[case]
    changed = with_rows(path, section, rows())
    assert any(path in text for text in damage(copy(changed)))
    seen(copy(changed))


def test_I16_snapshot_of_too_many_rows_is_refused_before_they_are_read() -> None:
    data = snapshot_of(*[("thing", "1")] * (ROWS_MAX + 1))
    with bounded(), pytest.raises(CorruptData, match=f"some/object.*at most {ROWS_MAX} are read"):
        decode_snapshot(data, "some/object")


EMPTY = Entry(0, "token", "writer", 0, 0, ())
LOG_START = {"type": "log_start_advanced", "log_start_offsets": [[0, 1]]}


def test_I16_entry_of_too_many_events_is_refused_and_not_written() -> None:
    most = replace(EMPTY, events=(LOG_START,) * EVENTS_MAX)
    assert decode_entry(encode_entry(most)[0], "some/object", 0)[0] == most
    with pytest.raises(InternalError, match="1001 events"):
        encode_entry(replace(most, events=(*most.events, LOG_START)))
    changed = next_entry("topics/u/", *[LOG_START] * 15_000)
    (path,) = changed
    assert any(path in text for text in damage(copy(changed)))
    found = seen(copy(changed))
    assert isinstance(found, CorruptData)
    assert path in found.message


def test_I16_event_with_30_000_groups_costs_what_its_bytes_justify() -> None:
    event = {"type": "producer_initialised", "transactional_id": "n", "producer_id": 99}
    event |= {"producer_epoch": 0, "instance": "i", "timeout_ms": 1, "at_ms": 1}
    groups = [f"{number * 7919 % 30_011}" for number in range(30_000)]
    changed = next_entry(OF_A, {**event, "groups": groups})
    seen(copy(changed))
    damage(copy(changed))


def pend(coordinator: int) -> dict[str, Any]:
    offsets = [["u", SNAPSHOT_OF_U.split("/")[2], 0, 0, 7]]
    pending = {"transactional_id": "a", "coordinator": coordinator, "offsets": offsets}
    pending |= {"pended_ms": 1, "timeout_ms": 1}
    return {"type": "offsets_pended", "group": "g", "tx_id": [0, 0, 50], "pending": pending}


LONG_PATH = f"topics/w/{TOPIC_ID}/segments/{'a' * 101_000}.arrow"
MARKER = {"type": "marker_written", "tx_id": [0, 0, 5], "decision": "ABORT", "finished_floor": 0}
HOSTILE_NUMBERS: dict[str, tuple[str, dict[str, Any]]] = {
    "a pend of coordinator 2^62": (OF_G, pend(OFFSET_MAX)),
    "a pend of a coordinator that this log does not have": (OF_G, pend(8)),
    "a marker of coordinator 2^62": ("topics/u/", {**MARKER, "coordinator": OFFSET_MAX}),
    "the last producer id": (
        "cluster/",
        {"type": "producer_ids_allocated", "next_producer_id": OFFSET_MAX},
    ),
    "a path of 101 KB": (
        OF_A,
        {
            "type": "commit_prepared",
            "transactional_id": "a",
            "tx_id": [0, 0, 5],
            "at_ms": 1,
            "participants": [participant(LONG_PATH)],
        },
    ),
    "the same log start again": (
        "topics/u/",
        {"type": "log_start_advanced", "log_start_offsets": [[0, 0]]},
    ),
    "as many partitions as before": (
        "topics/u/",
        {"type": "partitions_added", "partition_count": 2},
    ),
    "a batch of 100 GB": (
        "topics/u/",
        {
            "type": "batches_appended",
            "segments": [
                {
                    "path": newest("segment", "topics/u/"),
                    "schema_id": 0,
                    "batches": [[0, 1, 8, 100 << 30, 0, 0, 0]],
                }
            ],
            "base_offsets": [[0, 7]],
        },
    ),
}


@pytest.mark.parametrize("case", HOSTILE_NUMBERS)
def test_I15_event_with_a_number_that_no_log_reaches_is_refused_and_named(case: str) -> None:
    folder, event = HOSTILE_NUMBERS[case]
    changed = next_entry(folder, event)
    (path,) = changed
    texts = damage(copy(changed))
    assert any(path in text for text in texts)
    assert max(map(len, texts)) < 1_000
    found = seen(copy(changed), everything_with_a_producer)
    assert isinstance(found, CorruptData)
    assert path in found.message
    assert len(found.message) < 1_000


def everything_with_a_producer(log: Any) -> object:
    """What a user reads, and what a new producer writes."""
    log.elsewhere().close()
    return everything(log)


def test_I15_snapshot_with_the_last_producer_id_is_refused_and_named() -> None:
    log = MemoryLog(LogSettings(journal_snapshot_entries=2))
    for name in "uvwx":
        log.admin.create_topic(name, 1)
    path = max(path for path in log.objects() if re.fullmatch("cluster/.*/snapshots/.*", path))
    table = pa.ipc.open_file(log.objects()[path]).read_all().to_pylist()[:-1]
    rows = [(row["section"], row["row"]) for row in table]
    assert ("next_producer_id", "0") in rows
    forged = [(name, str(OFFSET_MAX) if name == "next_producer_id" else row) for name, row in rows]
    log.memory.replace(path, snapshot_of(*forged))
    log.elsewhere().send("u", b"by the entries, from which the state is rebuilt")
    assert any(path in text for text in damage(MemoryLog(objects=log.objects())))


def test_I15_pend_in_a_snapshot_names_a_coordinator_that_the_log_has() -> None:
    row = {"group": "g", "committed": [], "pending": [[[0, 0, 50], pend(8)["pending"]]]}
    changed = with_rows(SNAPSHOT_OF_G, "group", [row])
    assert any(SNAPSHOT_OF_G in text for text in damage(copy(changed)))


def test_a_long_text_is_shown_with_its_beginning_and_its_end() -> None:
    error = TxlogError(f"first {'x' * 101_000} last", path="y" * 101_000, count=3)
    assert len(error.message) < MESSAGE_MAX + 10
    assert error.message.startswith("first ")
    assert error.message.endswith(" last")
    assert len(str(error.facts["path"])) < MESSAGE_MAX + 10
    assert error.facts["count"] == 3


# A record that its topic cannot hold.


def with_large_record(log: MemoryLog, size_bytes: int) -> str:
    """The segment of one record of so many bytes in topic `z`, whatever the topic's limit is."""
    topic = log.process().cluster.topic("z")
    value = pa.py_buffer(bytes(size_bytes))
    offsets = pa.py_buffer(struct.pack("<ii", 0, size_bytes))
    schema = physical_schema(topic.schema())
    columns = [pa.nulls(1, field.type) for field in schema]
    columns[schema.get_field_index("value")] = pa.BinaryArray.from_buffers(
        pa.binary(), 1, [None, offsets, value]
    )
    columns[-1] = pa.array([1], schema[-1].type)
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    body, parts = segment_views({0: [batch]}, compression="zstd")
    segment = Segment(topic.layout.segment(topic.new_name()), 0, parts)
    topic.store.put_new(segment.path, body)
    topic.execute(AppendBatches((segment,)))
    return segment.path


def log_with_a_small_limit(size_bytes: int) -> tuple[MemoryLog, str]:
    log = MemoryLog()
    log.admin.create_topic("z", 1, config={"max.message.bytes": 1_000_000})
    return log, with_large_record(log, size_bytes)


def test_I16_record_far_over_its_topics_limit_is_refused_before_it_is_decoded() -> None:
    log, path = log_with_a_small_limit(400 << 20)
    assert len(log.objects()[path]) < 1_000_000
    for isolation in ("read_committed", "read_uncommitted"):
        found = seen(log, lambda log, level=isolation: log.values("z", isolation=level))
        assert isinstance(found, CorruptData)
        assert path in found.message
    assert any(path in text for text in damage(log))


def test_records_of_an_earlier_larger_limit_are_read_after_a_snapshot_too() -> None:
    log = MemoryLog(LogSettings(journal_snapshot_entries=2))
    log.admin.create_topic("z", 1, config={"max.message.bytes": 200 << 20})
    producer = log.elsewhere()
    producer.send("z", bytes(100 << 20))
    producer.close()
    for limit in (1_000_000, 2_000_000, 1_000):
        log.admin.alter_topic_config("z", {"max.message.bytes": limit})
    assert [len(value) for value in log.values("z")] == [100 << 20]
    log.check()
