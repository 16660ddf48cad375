"""Arrow columns are built without pandas, so that a new process need not import it."""

import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.source_tree import ROOT
from txlog import Admin, Producer
from txlog.arrow_columns import (
    binary_column,
    flags_column,
    list_column,
    missing_values,
    numbers_column,
    optional_numbers_column,
    text_column,
    validate,
    whole_numbers,
)
from txlog.errors import InternalError

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
def test_whole_numbers_returns_the_values_and_type_of_a_column(
    column: pa.Array, numbers: list[int]
) -> None:
    found = whole_numbers(column)
    assert found.tolist() == numbers
    assert found.dtype == np.dtype(str(column.type))


def test_whole_numbers_does_not_copy_the_column() -> None:
    assert not whole_numbers(COLUMN).flags.owndata


def test_whole_numbers_returns_nan_for_a_null() -> None:
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


_WRITES = """
import sys
from txlog import Producer
with Producer(sys.argv[1], transactional_id="a") as producer:
    producer.init_transactions()
    producer.begin_transaction()
    for number in range(3):
        producer.send("t", b"v%d" % number, headers=[("h", b"x"), ("none", None)])
    producer.commit_transaction()
print("pandas" in sys.modules)
"""


def test_a_process_that_writes_imports_no_pandas(tmp_path: Path) -> None:
    assert find_spec("pandas") is not None, "else this proves nothing"
    root = str(tmp_path / "log")
    Admin(root, create=True).create_topic("t", 2)
    done = subprocess.run(
        [sys.executable, "-c", _WRITES, root], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout == "False\n"


VALUES = st.lists(st.none() | st.binary(max_size=5), max_size=20)


@given(VALUES)
def test_binary_column_and_missing_values_match_pyarrow(values: list[bytes | None]) -> None:
    column = binary_column(values)
    column.validate(full=True)
    assert column.equals(pa.array(values, pa.binary()))
    assert missing_values(column).tolist() == [value is None for value in values]
    part = column.slice(len(values) // 2)
    assert missing_values(part).tolist() == [value is None for value in part.to_pylist()]


def test_column_of_2_gib_is_refused_before_it_is_copied() -> None:
    quarter = bytes(1 << 29)
    with pytest.raises(InternalError, match="2147483648 bytes is larger than Arrow's 2147483647"):
        binary_column([quarter] * 4)


def test_binary_column_of_string_type_takes_utf_8_bytes() -> None:
    column = binary_column(["é".encode(), None, b""], pa.string())
    column.validate(full=True)
    assert column.to_pylist() == ["é", None, ""]


@given(st.lists(st.none() | st.integers(0, 3), max_size=10))
def test_list_column_matches_pyarrow(counts: list[int | None]) -> None:
    numbers = iter(range(100))
    lists = [None if n is None else [next(numbers) for _ in range(n)] for n in counts]
    items = pa.array([number for found in lists for number in found or ()], pa.int64())
    column = list_column(counts, items, pa.list_(pa.int64()))
    column.validate(full=True)
    assert column.equals(pa.array(lists, pa.list_(pa.int64())))


@pytest.mark.parametrize("kind", [pa.int64(), pa.timestamp("ms", "UTC"), pa.int32()])
def test_numbers_column_keeps_type_and_values(kind: pa.DataType) -> None:
    dtype = np.dtype(np.int32 if kind == pa.int32() else np.int64)
    column = numbers_column(np.arange(6, dtype=dtype)[::2], kind)
    column.validate(full=True)
    assert (column.type, whole_numbers(column.view(str(dtype))).tolist()) == (kind, [0, 2, 4])


def test_missing_values_of_null_column_are_all_true_and_without_nulls_all_false() -> None:
    assert missing_values(pa.nulls(3)).tolist() == [True] * 3
    assert missing_values(pa.array([1, 2])).tolist() == [False] * 2


@given(st.lists(st.booleans(), max_size=20))
def test_flags_column_matches_pyarrow(values: list[bool]) -> None:
    column = flags_column(values)
    column.validate(full=True)
    assert column.equals(pa.array(values, pa.bool_()))


@given(st.lists(st.text(max_size=3), max_size=10))
def test_text_column_matches_pyarrow(values: list[str]) -> None:
    assert text_column(values).equals(pa.array(values, pa.string()))


TEXT_BYTES = st.one_of(
    st.text("ab\x7f", max_size=12).map(str.encode),
    st.text("a\u00e9\u20ac\U0001f600", max_size=6).map(str.encode),
    st.binary(max_size=12),
)


def is_valid(check: Callable[[pa.Array], object], column: pa.Array) -> bool:
    try:
        check(column)
    except pa.ArrowInvalid:
        return False
    return True


@given(TEXT_BYTES, st.data())
def test_text_is_valid_if_arrow_finds_it_valid(data: bytes, drawn: st.DataObject) -> None:
    """Forged offsets, too, and bytes below a null or outside the slice."""
    place = st.integers(-1, len(data) + 1) if drawn.draw(st.booleans()) else st.just(len(data))
    ends = drawn.draw(st.lists(st.one_of(place, st.integers(0, len(data))), min_size=1, max_size=6))
    offsets = np.array(sorted(ends) if drawn.draw(st.booleans()) else ends, np.int32)
    flags = drawn.draw(st.lists(st.booleans(), min_size=len(ends), max_size=len(ends)))
    validity = drawn.draw(st.sampled_from([None, pa.py_buffer(np.packbits(flags))]))
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
    try:
        column = pa.Array.from_buffers(pa.string(), len(ends) - 1, buffers)
    except pa.ArrowInvalid:  # It looks at the first and the last offset already.
        return
    if is_valid(lambda column: column.validate(full=True), column) and drawn.draw(st.booleans()):
        column = column.slice(drawn.draw(st.integers(0, len(column))))
    expected = is_valid(lambda column: column.validate(full=True), column)
    assert is_valid(validate, column) is expected


@pytest.mark.parametrize(
    "column",
    [
        pa.array([], pa.string()),
        pa.array([None, None], pa.string()),
        pa.array(["", "a", "\u00e9", None]),
        pa.array([["a"], None], pa.list_(pa.string())),
        COLUMN,
    ],
)
def test_columns_of_each_kind_are_valid(column: pa.Array) -> None:
    validate(column)


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), pa.timestamp("ms", "UTC")])
@pytest.mark.parametrize("values", [[], [None], [1, None, -3], [2**31 - 1, 0], [None] * 9 + [7]])
def test_optional_numbers_are_those_of_pyarrow(kind: pa.DataType, values: list[int | None]) -> None:
    column = optional_numbers_column(values, kind)
    column.validate(full=True)
    assert column.equals(pa.array(values, kind))
