"""Manifests that a hostile writer has stored: their checksums are valid, and so is what names them.

The decision, the marker or the index names such a manifest by its real length and checksum, as if
its transaction had been committed so.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bad_input.fuzzing import answer, arrow_file, fuzz, look
from tests.bad_input.test_forgeries import HOSTILE, can_be
from tests.logs.memory_log import SEGMENTS, MemoryLog
from tests.stores.scripted_store import unavailable
from txlog.checksum import crc32_of
from txlog.errors import InternalError, StoreUnavailable, TxlogError
from txlog.storage.store import Bytes
from txlog.topic import topic_log
from txlog.topic.manifest import Manifest, manifest_of
from txlog.verify.log_audit import LogReport

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

EXCHANGED = object()
"""The value of the row before it, which gets the row's."""

Change = tuple[str, int, Any]
"""A column, a row, and the new value."""


@st.composite
def changes(draw: st.DrawFn) -> Change:
    field = draw(st.sampled_from(list(sound()[1])))
    values = [value for value in (*HOSTILE, 2, 7, 100) if can_be(value, field.type)]
    return field.name, draw(st.integers(0, 3)), draw(st.sampled_from([EXCHANGED, *values]))


@contextmanager
def forging(change: Change | None, seen: list[pa.Schema]) -> Iterator[None]:
    """In it manifests are stored with that change, and named by what is stored."""

    def forged(layout: Any, segments: Any) -> tuple[Manifest, bytes]:
        manifest, data = manifest_of(layout, segments)
        table = pa.ipc.open_file(io.BytesIO(data)).read_all()
        cells = table.to_pydict()
        seen.append(table.schema)
        if change is not None:
            column, row, value = change
            values = cells[column]
            if value is EXCHANGED:
                value, values[row - 1] = values[row - 1], values[row]
            values[row] = value
            arrays = [pa.array(cells[f.name], f.type) for f in table.schema]
            (batch,) = pa.Table.from_arrays(arrays, schema=table.schema).to_batches()
            data = arrow_file(batch)
        return replace(manifest, crc32=crc32_of(data), length=len(data)), data

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topic_log, "manifest_of", forged)
        yield


def stored(
    change: Change | None, *, is_complete: bool, seen: list[pa.Schema] | None = None
) -> Mapping[str, bytes]:
    """The objects of a log with one transaction of four segments, which is decided or complete."""
    log = MemoryLog(SEGMENTS)
    log.admin.create_topic("u", 2)
    log.connection.entry_batches_max = 0
    if not is_complete:
        log.store.on("create", "topics/", unavailable, holding="marker_written", times=1_000)
    producer = log.producer("id")
    producer.begin_transaction()
    for number in range(4):
        for value in range(number + 1):
            producer.send("u", b"%d %d" % (number, value), partition=number % 2)
        producer.flush()
    with forging(change, [] if seen is None else seen):
        try:
            producer.commit_transaction()
        except StoreUnavailable:
            assert not is_complete
    return log.objects()


@cache
def sound() -> tuple[Mapping[str, bytes], pa.Schema]:
    """The objects of the log without a forgery, and the columns of its manifest."""
    seen: list[pa.Schema] = []
    return stored(None, is_complete=True, seen=seen), seen[0]


def read(log: MemoryLog) -> list[Bytes]:
    """All records, after the transaction is completed."""
    for coordinator in log.process().coordinators():
        coordinator.maintain()
    return log.values("u")


@pytest.mark.parametrize("is_complete", [True, False])
def test_sound_manifest_is_read(is_complete: bool) -> None:
    """A control for the forgeries below."""
    log = MemoryLog(objects=stored(None, is_complete=is_complete))
    assert len(read(log)) == 10
    assert look(log).findings == []


@given(changes(), st.booleans())
@fuzz(300)
def test_I15_R66_forged_manifest_is_an_error_that_names_an_object_or_is_harmless(
    change: Change, is_complete: bool
) -> None:
    expected = read(MemoryLog(objects=sound()[0]))
    objects = stored(change, is_complete=is_complete)
    found = answer(read, MemoryLog(objects=objects))
    report = answer(look, MemoryLog(objects=objects))
    assert not isinstance(found, InternalError), found
    assert isinstance(report, LogReport), report
    if isinstance(found, TxlogError):
        assert any(folder in found.message for folder in ("/manifests/", "/segments/")), found
        assert report.findings
    elif found != expected:
        # Records in another partition, or other batches of the segment: sound bytes, whose name is
        # wrong, which the audit tells by the segment.
        assert sorted(found) == sorted(expected)
        assert report.findings
