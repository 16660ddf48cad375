"""Records from Arrow files, with what the command line adds to each."""

from pathlib import Path

import pyarrow as pa
import pytest

from txlog.cli.input.input_records import RecordForm
from txlog.cli.input.input_tables import table_blocks
from txlog.cli.output.record_printing import line_writer
from txlog.errors import UsageError
from txlog.topic.records.schema import KAFKA_SCHEMA


def stored(folder: Path, table: pa.Table) -> str:
    path = folder / "records.arrow"
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return str(path)


def test_command_line_key_headers_and_time_are_added_to_rows(tmp_path: Path) -> None:
    table = pa.table({"key": [b"own", None, None], "value": [b"1", None, b"3"]})
    headers = (("source", b"file"), ("empty", b""))
    form = RecordForm(KAFKA_SCHEMA, True, key=b"given", headers=headers, timestamp_ms=7)
    first, second = table_blocks(stored(tmp_path, table), form, "arrow")
    assert (first.place(0), second.place(0)) == (
        f"{tmp_path}/records.arrow row 1",
        f"{tmp_path}/records.arrow row 3",
    )
    rows = [*first.batch.to_pylist(), *second.batch.to_pylist()]
    assert [row["key"] for row in rows] == [b"own", b"given", b"given"]
    assert [row["value"] for row in rows] == [b"1", None, b"3"]
    added = [{"key": name, "value": value} for name, value in headers]
    assert [row["headers"] for row in rows] == [added] * 3
    stamps = first.batch.column("_timestamp").view(pa.int64()).to_pylist()
    assert stamps == [7, 7]


def test_file_with_headers_of_its_own_takes_no_others(tmp_path: Path) -> None:
    kind = KAFKA_SCHEMA.field("headers").type
    table = pa.table({"value": [b"1"], "headers": pa.array([[]], kind)})
    form = RecordForm(KAFKA_SCHEMA, True, headers=(("source", b"file"),))
    with pytest.raises(UsageError, match="has headers of its own"):
        list(table_blocks(stored(tmp_path, table), form, "arrow"))


def test_missing_file_is_named_with_the_systems_reason(tmp_path: Path) -> None:
    path = str(tmp_path / "none.arrow")
    with pytest.raises(UsageError, match=f"^{path} cannot be read: No such file or directory"):
        list(table_blocks(path, RecordForm(KAFKA_SCHEMA, True), "arrow"))


def test_null_key_or_value_is_an_empty_text_in_a_line(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    table = pa.table({"key": [b"k", None, None], "value": [None, b"v", None]})
    line_writer(KAFKA_SCHEMA, b":")(table)
    line_writer(KAFKA_SCHEMA, None)(table)
    assert capfdbinary.readouterr().out == b"k:\n:v\n:\n\nv\n\n"
