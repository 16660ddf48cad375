"""`spark.read` without Spark: options as a user writes them, and the offsets that are read."""

from __future__ import annotations

import pytest

from spark_plugin.options import parse_reader_options
from spark_plugin.source import batch_reader
from spark_plugin.source.batch_reader import TxlogBatchReader
from spark_plugin.source.read_plan import ReadTask
from tests.logs.memory_log import MemoryLog
from tests.unit.spark_plugin.spark_query import COLUMNS
from txlog.engine.connection import Connection


def tasks_of(
    log: MemoryLog, options: dict[str, str], process: Connection | None = None
) -> list[ReadTask]:
    """The tasks of a batch read, planned by another process."""
    parsed = parse_reader_options({"root": "memory://log", **options}, streaming=False)
    with pytest.MonkeyPatch.context() as patch:
        connection = process or log.process()
        patch.setattr(batch_reader, "open_log", lambda options: connection)
        return list(TxlogBatchReader(parsed, COLUMNS).partitions())


def ranges_of(
    log: MemoryLog, options: dict[str, str], process: Connection | None = None
) -> dict[str, tuple[int, int]]:
    """Partition -> what a batch read reads of it; without those that it does not read."""
    found: dict[str, tuple[int, int]] = {}
    for task in tasks_of(log, options, process):
        for span in task.spans:
            where = f"{span.topic}-{span.partition}"
            first, _ = found.get(where, (span.start, 0))
            found[where] = (first, span.end)
    return found
