"""Numbers of an Arrow column as NumPy has them, without pandas.

pyarrow's own conversion imports pandas wherever it is installed, which takes half a second of a
core: longer than a new process needs to open a log far away and read its first records. It must not
know what the numbers mean.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def whole_numbers(column: pa.Array) -> npt.NDArray[Any]:
    """A view of a column of whole numbers. One with nulls comes as pyarrow makes it."""
    if column.null_count:
        return np.asarray(column)
    numbers: Any = np.from_dlpack(column)
    return np.asarray(numbers)
