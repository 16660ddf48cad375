"""Files of exported records: their parts, their columns, and what writing them costs."""

import io
import sys
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from txlog.cli.output import export_files
from txlog.cli.output.export_files import FileFormat, record_file
from txlog.client.consumer.consumer_record import arrow_schema

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


def groups(rows: Sequence[int]) -> list[int]:
    """Rows of each group of a Parquet file that gets batches of so many rows of 100 bytes."""
    file = io.BytesIO()
    with record_file(file, FileFormat.PARQUET, SCHEMA) as write:
        for count in rows:
            write(pa.record_batch([pa.array([b"v" * 96] * count, pa.binary())], schema=SCHEMA))
    metadata = pq.ParquetFile(io.BytesIO(file.getvalue())).metadata
    found = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    assert {group.column(0).compression for group in found} <= {"ZSTD"}
    return [group.num_rows for group in found]


def test_row_group_is_full_at_its_records_or_at_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert groups([]) == []
    assert groups([4] * 6) == [24]
    monkeypatch.setattr(export_files, "ROW_GROUP_RECORDS", 8)
    assert groups([4] * 5) == [8, 8, 4]
    assert groups([3] * 5) == [8, 1, 6]  # The third batch fills the group and is divided.
    monkeypatch.setattr(export_files, "ROW_GROUP_RECORDS", 1_000)
    monkeypatch.setattr(export_files, "ROW_GROUP_BYTES", 800)
    assert groups([4] * 5) == [8, 8, 4]
    monkeypatch.setattr(export_files, "ROW_GROUP_BYTES", 801)
    assert groups([4] * 5) == [12, 8]


def test_csv_file_has_the_records_places_first_and_texts_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(export_files, "CSV_RECORDS", 2)
    stamp = pa.field("_timestamp", pa.timestamp("ms", "UTC"))
    for name, prefix in (("n", "_"), ("value", "")):
        own = [pa.field("n", pa.int64())]
        if name == "value":
            own = [pa.field("key", pa.binary()), pa.field("value", pa.binary())]
            headers = pa.list_(pa.struct([pa.field("key", pa.string()), ("value", pa.binary())]))
            own.append(pa.field("headers", headers))
        schema = arrow_schema(pa.schema([*own, stamp]))
        columns = [pa.array([None] * 3, field.type) for field in own]
        columns += [
            pa.DictionaryArray.from_arrays(pa.array([0] * 3, pa.int32()), pa.array(["t"])),
            pa.array([1] * 3, pa.int32()),
            pa.array([7, 8, 9], pa.int64()),
            pa.array([0] * 3, stamp.type),
        ]
        file = io.BytesIO()
        with record_file(file, FileFormat.CSV, schema) as write:
            write(pa.record_batch(columns, names=schema.names))
        header, *lines = file.getvalue().decode().splitlines()
        places = [f'"{prefix}{each}"' for each in ("topic", "partition", "offset", "timestamp")]
        assert header.split(",")[:4] == places
        assert [line.split(",")[2] for line in lines] == ["7", "8", "9"]
        assert lines[0].split(",")[3].strip('"') == "1970-01-01T00:00:00.000Z"


def test_text_in_a_nested_column_of_csv_is_written_as_it_is() -> None:
    stamp = pa.field("_timestamp", pa.timestamp("ms", "UTC"))
    schema = arrow_schema(pa.schema([pa.field("tags", pa.list_(pa.string())), stamp]))
    values = [[["ü", 'a"b']], ["t"], [1], [7], [0]]
    columns = [pa.array(v).cast(f.type) for v, f in zip(values, schema, strict=True)]
    file = io.BytesIO()
    with record_file(file, FileFormat.CSV, schema) as write:
        write(pa.record_batch(columns, names=schema.names))
    _, line = file.getvalue().decode().splitlines()
    assert line.endswith(r'''"[""ü"", ""a\""b""]"''')
