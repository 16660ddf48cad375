"""Files of exported records: what writing them costs."""

import io
import sys

import pyarrow as pa

from txlog.cli.output.export_files import FileFormat, record_file

SCHEMA = pa.schema([("value", pa.binary())])


def steps(batches: int) -> int:
    """How many functions and steps of generators are run to write so many batches."""
    one = pa.record_batch([pa.array([b"v"])], schema=SCHEMA)
    count = 0

    def count_one(*_: object) -> None:
        nonlocal count
        count += 1

    with record_file(io.BytesIO(), FileFormat.ARROW, SCHEMA) as write:
        sys.setprofile(count_one)
        try:
            for _ in range(batches):
                write(one)
        finally:
            sys.setprofile(None)
    return count


def test_cost_of_a_batch_does_not_grow_with_the_batches_before_it() -> None:
    assert steps(400) < 3 * steps(200)
