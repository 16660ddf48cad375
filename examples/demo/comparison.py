"""Two tables compared record by record, as multisets, in any order."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

_EXPECTED, _FOUND = "__expected", "__found"


@dataclass(frozen=True, slots=True)
class Difference:
    """Counts of records. A changed record counts as one lost and one wrong."""

    expected: int
    found: int
    lost: int
    duplicated: int
    """Additional copies of expected records."""
    wrong: int
    """Records that are not expected at all."""

    @property
    def is_none(self) -> bool:
        """Whether both contain the same records."""
        return not (self.lost or self.duplicated or self.wrong)


def compare(expected: pa.Table, found: pa.Table) -> Difference:
    """Compare all columns, in the types of `found`.

    Raises pa.ArrowException if a value of `expected` does not fit its type in `found`, and KeyError
    if one table has a column that the other lacks.
    """
    if set(expected.column_names) != set(found.column_names):
        names = set(expected.column_names) ^ set(found.column_names)
        raise KeyError(f"only one side has the columns {sorted(names)}.")
    kinds = pa.schema([pa.field(f.name, f.type) for f in found.schema])
    wanted = expected.select(found.column_names).cast(kinds)
    sides = pa.concat_tables([_marked(wanted, 1, 0), _marked(found.cast(kinds), 0, 1)])
    counted = sides.group_by(kinds.names).aggregate([(_EXPECTED, "sum"), (_FOUND, "sum")])
    due, there = counted[f"{_EXPECTED}_sum"], counted[f"{_FOUND}_sum"]
    missing, surplus = _positive(pc.subtract(due, there)), _positive(pc.subtract(there, due))
    is_known = pc.cast(pc.greater(due, 0), pa.int64())
    duplicated = _total(pc.multiply(surplus, is_known))
    return Difference(
        expected.num_rows,
        found.num_rows,
        _total(missing),
        duplicated,
        _total(surplus) - duplicated,
    )


def _marked(table: pa.Table, expected: int, found: int) -> pa.Table:
    def constant(value: int) -> pa.Array:
        return pa.repeat(pa.scalar(value, pa.int64()), table.num_rows)

    return table.append_column(_EXPECTED, constant(expected)).append_column(_FOUND, constant(found))


def _positive(counts: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.max_element_wise(counts, 0)


def _total(counts: pa.ChunkedArray) -> int:
    return int(pc.sum(counts).as_py() or 0)
