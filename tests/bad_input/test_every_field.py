"""Every field of every kind of stored object, with every hostile value, under valid checksums.

`test_forgeries.py` draws at random and uses the whole log; this test is exhaustive (`make test`: a
third of it, another each day). A place is a
field, in whatever list or mapping: `entry batches_appended.segments[].path`. First the validating
layers get all values: they must refuse with CorruptData, or return a value that can be stored
again. Then a reader and an audit meet a value at each place, in bounded time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import pytest

from tests.bad_input.fuzzing import TIMES, answer, look, snapshot_of
from tests.bad_input.small_log import copy, everything, objects, opened, paths, unpruned
from tests.bad_input.test_forgeries import places, replaced, snapshot_rows, without_what_covers
from tests.examples import cases
from tests.unit.machine_without_journal import sections_of
from txlog.catalog.cluster_file import decode_cluster_file
from txlog.catalog.state import ClusterMachine
from txlog.errors import CorruptData, InternalError, NotATxlog, TxlogError, UnsupportedFormat
from txlog.groups.machine import CoordinatorMachine
from txlog.journal.boundaries.boundary import decode_boundary
from txlog.journal.entry import decode_entry, encode_entry, seal
from txlog.journal.machine import Machine, after_entry, decoded_state
from txlog.journal.snapshot import decode_snapshot
from txlog.layout import parse_number, segment_id_at
from txlog.topic.machine import TopicMachine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

VALUES: list[Any] = [
    0,
    -1,
    1 << 31,
    (1 << 62) - 1,
    1 << 62,
    1 << 63,
    10**30,
    3_093_527_980_800_000,
    1.5,
    float("inf"),
    True,
    None,
    "",
    "x" * 5_000,
    "\x1b[31m",
    "\u202e",
    "../../etc/passwd",
    segment_id_at(3_093_527_980_800_000),
    "topics/v/other/segments/" + "0" * 32 + ".arrow",
    [],
    [0] * 20_000,
    [[0] * 8] * 500,
    [[0, 0]] * 3,
    {},
    {"type": "topic_closed"},
]
COUNT = 4
PARTS = pytest.mark.parametrize("part", range(COUNT))
"""Each part has every fourth field: collecting the fields before the tests run would take long."""

SECONDS_MAX = 20
"""The limit of one use or audit, on a busy machine."""


def machine_of(path: str) -> Machine[Any]:
    kinds: list[tuple[str, Machine[Any]]] = [
        ("cluster", ClusterMachine()),
        ("topics", TopicMachine(4)),
        ("transactions", CoordinatorMachine()),
    ]
    return next(machine for name, machine in kinds if path.startswith(name))


def shape(value: Any, place: tuple[Any, ...]) -> str:
    """The place without the indexes that distinguish elements of a list."""
    found, part = "", value
    for step in place:
        found += f".{step}" if isinstance(part, dict) else f"[{step if step < 8 else ''}]"
        part = part[step]
    return found


def fields_of(kind: str, value: Any) -> Iterator[tuple[str, tuple[Any, ...]]]:
    for place in places(value):
        yield f"{kind}{shape(value, place)}", place


@cache
def entry_fields() -> dict[str, tuple[str, tuple[Any, ...]]]:
    """Field -> an entry that has it, and its place there."""
    found: dict[str, tuple[str, tuple[Any, ...]]] = {}
    for path in paths("entry"):
        body = json.loads(opened(objects()[path])[0])
        for name in sorted(set(body) - {"events"}):
            found.setdefault(f"entry.{name}", (path, (name,)))
        for number, event in enumerate(body["events"]):
            for name, place in fields_of(event["type"], event):
                found.setdefault(name, (path, ("events", number, *place)))
    return found


@cache
def row_fields() -> dict[str, tuple[str, int, tuple[Any, ...]]]:
    """Field -> a snapshot that has it, the number of its row, and its place there."""
    found: dict[str, tuple[str, int, tuple[Any, ...]]] = {}
    for path in paths("snapshot"):
        for number, (section, text) in enumerate(snapshot_rows(path)):
            kind = f"{path.split('/')[0]} {section}"
            for name, place in fields_of(kind, json.loads(text)):
                found.setdefault(name, (path, number, place))
    return found


def forged_entry(name: str, value: Any) -> tuple[str, bytes]:
    path, place = entry_fields()[name]
    body, records = opened(objects()[path])
    return path, seal(json.dumps(replaced(json.loads(body), place, value)).encode(), records)


def forged_rows(name: str, value: Any) -> tuple[str, bytes]:
    path, number, place = row_fields()[name]
    rows = snapshot_rows(path)
    section, text = rows[number]
    rows[number] = (section, json.dumps(replaced(json.loads(text), place, value)))
    return path, snapshot_of(*rows)


# The validating layers alone.


@cache
def state_before(path: str) -> Any:
    """The state before this entry, by all entries below it, also those that are pruned."""
    machine, slot = machine_of(path), parse_number(path) or 0
    folder = path.rsplit("/", 2)[0]
    state = machine.initial()
    for number in range(slot):
        below = f"{folder}/entries/{number:020d}.json"
        entry, _ = decode_entry(unpruned()[below], below, number)
        state = after_entry(machine, state, entry, below)
    return state


@PARTS
def test_I15_entry_with_a_forged_field_is_refused_or_round_trips(part: int) -> None:
    for name, value in cases([*product(list(entry_fields())[part::COUNT], VALUES)]):
        path, data = forged_entry(name, value)
        machine, before = machine_of(path), state_before(path)
        try:
            entry, _ = decode_entry(data, path, parse_number(path) or 0)
            events = tuple(map(machine.decode_event, entry.events))
            state = after_entry(machine, before, entry, path)
        except CorruptData:
            continue
        sections = sections_of(machine, state)
        assert decoded_state(machine, sections, path, data) == state, (name, value)
        # A value that was read can be written: no reader finds it damaged.
        again = replace(entry, events=tuple(map(machine.encode_event, events)))
        read, _ = decode_entry(encode_entry(again)[0], path, entry.slot)
        assert tuple(map(machine.decode_event, read.events)) == events


@PARTS
def test_I15_snapshot_with_a_forged_field_is_refused_or_round_trips(part: int) -> None:
    for name, value in cases([*product(list(row_fields())[part::COUNT], VALUES)]):
        path, data = forged_rows(name, value)
        machine = machine_of(path)
        try:
            _, sections = decode_snapshot(data, path)
            state = decoded_state(machine, sections, path, data)
            again = sections_of(machine, state)
            assert decoded_state(machine, again, path, data) == state
        except (CorruptData, UnsupportedFormat):
            continue


@pytest.mark.parametrize("kind", ["boundary", "cluster file"])
def test_I15_boundary_or_cluster_file_with_a_forged_field_is_refused_or_decoded(kind: str) -> None:
    path = paths(kind)[0]
    body = json.loads(objects()[path].split(b"\n")[1])
    for _, place in fields_of(kind, body):
        for value in VALUES:
            data = seal(json.dumps(replaced(body, place, value)).encode())
            try:
                if kind == "boundary":
                    decode_boundary(data, path)
                else:
                    decode_cluster_file(data, "some")
            except (CorruptData, NotATxlog, UnsupportedFormat):
                continue


# A whole log.


def check_whole(name: str, changed: dict[str, bytes], gone: list[str]) -> None:
    """Use and audit the log: within bounds, and without an error that asks to be reported."""
    for use in (everything, look):
        begun = time.monotonic()
        found = answer(use, copy(changed, gone))
        assert time.monotonic() - begun < SECONDS_MAX, name
        assert not isinstance(found, InternalError), found
        assert not isinstance(found, TxlogError) or found.message, name


def some_values(name: str) -> list[Any]:
    """One value for each field, a different one for the next field; with FUZZ_TIMES that many for
    each."""
    first = sum(name.encode()) % len(VALUES)
    return [VALUES[(first + turn) % len(VALUES)] for turn in range(min(TIMES, len(VALUES)))]


@PARTS
def test_I16_log_with_a_forged_entry_is_usable_or_raises_a_txlog_error(part: int) -> None:
    for name in cases(list(entry_fields())[part::COUNT]):
        for value in some_values(name):
            path, data = forged_entry(name, value)
            check_whole(name, {path: data}, without_what_covers(path))


@PARTS
def test_I16_log_with_a_forged_snapshot_is_usable_or_raises_a_txlog_error(part: int) -> None:
    for name in cases(list(row_fields())[part::COUNT]):
        for value in some_values(name):
            path, data = forged_rows(name, value)
            folder = path.rsplit("/", 2)[0]
            hint = {f"{folder}/hint.json": b'{"snapshot":%d}' % (parse_number(path) or 0)}
            check_whole(name, {path: data, **hint}, [])
