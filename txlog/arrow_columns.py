"""Columns of numbers and bytes between Arrow and NumPy, without pandas.

pyarrow's own conversions, in both directions, import pandas wherever it is installed. That takes
half a second of a core: longer than a new process needs to open a log far away and to read or write
its first records. This module must not know what the columns mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txlog.errors import InternalError

_INT32_MAX = 2**31 - 1
_NOT_ASCII = 0x80
"""The lowest byte of a character that is not of ASCII."""


def whole_numbers(column: pa.Array) -> npt.NDArray[Any]:
    """A view of a column of whole numbers; a column with nulls is converted by pyarrow."""
    if column.null_count:
        return np.asarray(column)
    numbers: Any = np.from_dlpack(column)
    return np.asarray(numbers)


def numbers_column(numbers: npt.NDArray[Any], kind: pa.DataType | None = None) -> pa.Array:
    """A column over these whole numbers, without nulls. Values of `kind` must be as wide."""
    # Arrow reads the values one after the other, and a view may have gaps between them.
    buffer = pa.py_buffer(np.ascontiguousarray(numbers))
    arrow = pa.from_numpy_dtype(numbers.dtype) if kind is None else kind
    return pa.Array.from_buffers(arrow, len(numbers), [None, buffer])


def optional_numbers_column(values: Sequence[int | None], kind: pa.DataType) -> pa.Array:
    """A column of whole numbers, or times, of 32 or 64 bits; None is null."""
    width = np.int32 if kind.bit_width == 32 else np.int64
    numbers = np.fromiter((value or 0 for value in values), width, len(values))
    return pa.Array.from_buffers(kind, len(values), [_validity(values), pa.py_buffer(numbers)])


def missing_values(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Which values are null, in order."""
    count = len(column)
    if pa.types.is_null(column.type):
        return np.ones(count, dtype=np.bool_)
    validity = column.buffers()[0]
    if validity is None:
        return np.zeros(count, dtype=np.bool_)
    # Arrow counts bits from the lowest, and a slice shares the bitmap of its whole column.
    bits = np.unpackbits(np.frombuffer(validity, dtype=np.uint8), bitorder="little")
    missing: npt.NDArray[np.bool_] = bits[column.offset : column.offset + count] == 0
    return missing


def validate(column: pa.Array) -> None:
    """As `column.validate(full=True)`: raises ArrowInvalid for a value outside its buffers or its
    type. Arrow decodes texts one by one; those of ASCII are found valid in a quarter of its time.
    """
    if pa.types.is_string(column.type) and len(column):
        plain = column.view(pa.binary())
        plain.validate(full=True)  # Else the offsets below may be anything.
        _, offsets, data = plain.buffers()
        ends = np.frombuffer(offsets, np.int32)[plain.offset : plain.offset + len(plain) + 1]
        if ends[0] == ends[-1]:
            return
        if np.frombuffer(data, np.uint8)[ends[0] : ends[-1]].max() < _NOT_ASCII:
            return
    column.validate(full=True)


def binary_column(values: Sequence[bytes | None], kind: pa.DataType | None = None) -> pa.Array:
    """A column of bytes; None is null. If `kind` is text, the values must be UTF-8.

    Raises InternalError for 2 GiB and more, which no caller may collect (I16)."""
    lengths = (len(value or b"") for value in values)
    data = b"".join(filter(None, values))
    return _joined(
        lengths, len(values), data, pa.binary() if kind is None else kind, _validity(values)
    )


def _joined(
    lengths: Iterable[int], count: int, data: bytes, kind: pa.DataType, validity: pa.Buffer | None
) -> pa.Array:
    """A column of `count` values of these lengths, which follow each other in `data`."""
    if len(data) > _INT32_MAX:
        raise InternalError(
            f"a column of {len(data)} bytes is larger than Arrow's {_INT32_MAX}. Please report "
            "this."
        )
    offsets = np.zeros(count + 1, dtype=np.int32)
    np.add.accumulate(np.fromiter(lengths, np.int32, count), out=offsets[1:])
    return pa.Array.from_buffers(kind, count, [validity, pa.py_buffer(offsets), pa.py_buffer(data)])


def text_column(values: Sequence[str]) -> pa.Array:
    """A column of strings."""
    joined = "".join(values)
    if not joined.isascii():
        return binary_column([value.encode() for value in values], pa.string())
    # Each character is a byte: a large snapshot is one copy then, and not one for each row.
    return _joined(map(len, values), len(values), joined.encode(), pa.string(), None)


def list_column(counts: Sequence[int | None], items: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column of lists. Each takes its count of the items, in order; None is null."""
    offsets = np.zeros(len(counts) + 1, dtype=np.int32)
    offsets[1:] = np.cumsum(np.fromiter((count or 0 for count in counts), np.int64, len(counts)))
    buffers = [_validity(counts), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(kind, len(counts), buffers, children=[items])


def flags_column(values: Sequence[bool]) -> pa.Array:
    """A column of true and false."""
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, _bits(values)])


def _validity(values: Sequence[object]) -> pa.Buffer | None:
    """One bit per value; None if no value is null."""
    return None if None not in values else _bits([value is not None for value in values])


def _bits(values: Sequence[bool]) -> pa.Buffer:
    flags = np.fromiter(values, np.bool_, len(values))
    return pa.py_buffer(np.packbits(flags, bitorder="little"))
