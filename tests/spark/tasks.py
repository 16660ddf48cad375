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

Rows = Iterator[pa.RecordBatch]


def gated(frame: DataFrame, gate: Path) -> DataFrame:
    """The frame, by tasks that touch `<gate>.reached` and wait for the file `gate`."""
    return _through(frame, partial(_wait, str(gate)))


def dying(frame: DataFrame, flag: Path) -> DataFrame:
    """The frame, by tasks the first of which is killed after its rows; it makes the file `flag`."""
    return _through(frame, partial(_die_once, str(flag)))


def _through(frame: DataFrame, pass_on: Callable[[Rows], Rows]) -> DataFrame:
    return frame.mapInArrow(pass_on, frame.schema)


def _wait(gate: str, batches: Rows) -> Rows:
    Path(f"{gate}.reached").touch()
    while not Path(gate).exists():
        time.sleep(0.01)
    yield from batches


def _die_once(flag: str, batches: Rows) -> Rows:
    yield from batches
    try:
        Path(flag).touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)
