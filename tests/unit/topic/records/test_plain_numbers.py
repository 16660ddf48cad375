"""Numbers of Arrow columns without pandas: a new process that reads does not wait for it."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.source_tree import ROOT
from txlog import Admin, Producer
from txlog.topic.records.plain_numbers import whole_numbers

COLUMN = pa.array([3, 1, 4, 1, 5], pa.int64())


@pytest.mark.parametrize(
    ("column", "numbers"),
    [
        (COLUMN, [3, 1, 4, 1, 5]),
        (COLUMN.slice(1, 3), [1, 4, 1]),
        (COLUMN.slice(2, 0), []),
        (pa.array([], pa.int64()), []),
        (COLUMN.cast(pa.uint32()), [3, 1, 4, 1, 5]),
        (COLUMN.view(pa.timestamp("ms", "UTC")).view(pa.int64()), [3, 1, 4, 1, 5]),
    ],
)
def test_a_column_comes_with_its_values_and_type(column: pa.Array, numbers: list[int]) -> None:
    found = whole_numbers(column)
    assert found.tolist() == numbers
    assert found.dtype == np.dtype(str(column.type))


def test_nothing_is_copied() -> None:
    assert not whole_numbers(COLUMN).flags.owndata


def test_nulls_come_as_pyarrow_has_them() -> None:
    assert np.isnan(whole_numbers(pa.array([1, None]))[1])


_READS = """
import sys
from txlog import Consumer
consumer = Consumer("t", root=sys.argv[1], auto_offset_reset="earliest")
while not (polled := consumer.poll()):
    pass
assert [record.value for found in polled.values() for record in found] == [b"x"]
print("pandas" in sys.modules)
"""


def test_a_process_that_reads_imports_no_pandas(tmp_path: Path) -> None:
    assert find_spec("pandas") is not None, "else this proves nothing"
    root = str(tmp_path / "log")
    Admin(root, create=True).create_topic("t", 1)
    with Producer(root) as producer:
        producer.send("t", b"x", key=b"k", headers=[("h", b"v")])
    done = subprocess.run(
        [sys.executable, "-c", _READS, root], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout == "False\n"
