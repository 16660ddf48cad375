"""How bad input is made and read: more examples on demand, answers, hand-made snapshots."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable

import pyarrow as pa
from hypothesis import HealthCheck, settings

from tests.examples import examples
from tests.logs.memory_log import MemoryLog
from txlog.errors import TxlogError
from txlog.verify.log_audit import LogReport, audit_log, stored_objects

TIMES = int(os.environ.get("FUZZ_TIMES", "1"))
"""Multiplies the number of examples, which then differ in each run; by default they never
change."""


def fuzz(count: int) -> settings:
    """Hypothesis' settings for a test with this many examples."""
    return settings(
        max_examples=examples(count * TIMES),
        deadline=None,
        derandomize=TIMES == 1,
        suppress_health_check=[HealthCheck.too_slow],
        print_blob=True,
    )


def journal_of(path: str) -> str:
    """The folder of the journal."""
    return re.sub(
        r"/(entries|snapshots|chunks|boundaries|segments|manifests)/.*|/hint.json", "", path
    )


def answer(use: Callable[[MemoryLog], object], log: MemoryLog) -> object:
    """The result of a call, or the error of txlog that it raises; any other error fails the
    test."""
    try:
        return use(log)
    except TxlogError as error:
        return error


def look(log: MemoryLog) -> LogReport:
    """The findings, object by object, as `txlog verify` reports them."""
    connection = log.process()
    return audit_log(connection, (), stored_objects(connection))


def snapshot_of(*rows: tuple[str, str]) -> bytes:
    """A snapshot of these rows with a valid checksum."""
    names, texts = [name for name, _ in rows], [text for _, text in rows]
    names.append("checksum")
    crc32 = zlib.crc32("\n".join(texts).encode(), zlib.crc32("\n".join(names).encode()))
    texts.append(str(crc32))
    return arrow_file(pa.record_batch({"section": names, "row": texts}))


def arrow_file(batch: pa.RecordBatch) -> bytes:
    """An Arrow file, in the form of snapshots and chunks."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())
