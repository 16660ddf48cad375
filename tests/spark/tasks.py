"""Tasks that wait for a test, or die in the middle of their rows."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from spark_plugin.datasource import TxlogDataSource
from spark_plugin.options import parse_writer_options
from spark_plugin.sink.staging import TaskMessage
from spark_plugin.sink.stream_writer import TxlogStreamWriter

Rows = Iterator[pa.RecordBatch]


def gated(frame: DataFrame, gate: Path) -> DataFrame:
    """The DataFrame, read by tasks that create `<gate>.reached` and wait for the file `gate`."""
    return _through(frame, partial(_wait, str(gate)))


def dying(frame: DataFrame, flag: Path) -> DataFrame:
    """The DataFrame; the first task creates the file `flag` and is killed after its rows."""
    return _through(frame, partial(_pass_on_and_die_once, str(flag)))


def _through(frame: DataFrame, pass_on: Callable[[Rows], Rows]) -> DataFrame:
    return frame.mapInArrow(pass_on, frame.schema)


def _wait(gate: str, batches: Rows) -> Rows:
    Path(f"{gate}.reached").touch()
    while not Path(gate).exists():
        time.sleep(0.01)
    yield from batches


def _pass_on_and_die_once(flag: str, batches: Rows) -> Rows:
    yield from batches
    _die_once(flag)


def _die_once(flag: str) -> None:
    try:
        Path(flag).touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


class DyingSink(TxlogDataSource):
    """The sink, whose first task is killed after it has staged; the query's name is its file."""

    @classmethod
    def name(cls) -> str:
        return "dying"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DyingWriter:
        writer = DyingWriter.for_batch(parse_writer_options(self.options), schema)
        assert isinstance(writer, DyingWriter)
        return writer


class DyingWriter(TxlogStreamWriter):
    """The writer of DyingSink."""

    def write(self, iterator: Rows) -> TaskMessage:
        message = super().write(iterator)
        _die_once(self._options.query_name or "")
        return message
