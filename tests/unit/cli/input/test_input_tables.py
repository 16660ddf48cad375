"""Records from Arrow files, with what the command line adds to each."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from txlog.cli.input import input_tables
from txlog.cli.input.input_records import RecordForm
from txlog.cli.input.input_tables import table_blocks
from txlog.cli.output.record_printing import line_writer
from txlog.errors import InvalidRecord, UsageError
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


NUMBERS = RecordForm(pa.schema([("n", pa.int64())]), False)


def file_of(folder: Path, *batches: pa.RecordBatch, opened: Any = pa.ipc.new_file) -> str:
    """An Arrow file, or a file with an Arrow stream, of these batches."""
    path = folder / "numbers.arrow"
    with opened(path, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return str(path)


def numbers(first: int, count: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(first, first + count), pa.int64())})


@pytest.mark.parametrize("opened", [pa.ipc.new_file, pa.ipc.new_stream])
def test_batch_of_many_rows_is_divided_and_its_rows_are_counted_on(
    opened: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_tables, "BATCH_ROWS", 4)
    batches = numbers(0, 10), numbers(0, 0), numbers(10, 4), numbers(14, 1)
    blocks = list(table_blocks(file_of(tmp_path, *batches, opened=opened), NUMBERS, "arrow"))
    assert [block.batch.num_rows for block in blocks] == [2, 3, 2, 3, 4, 1]
    assert [block.place(0).split()[-1] for block in blocks] == ["1", "3", "6", "8", "11", "15"]
    assert [n for block in blocks for n in block.batch.column("n").to_pylist()] == list(range(15))


def test_batch_of_many_bytes_is_divided_to_single_rows_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file_of(tmp_path, numbers(0, 5))
    for limit, rows in ((40, [5]), (39, [2, 3]), (16, [2, 1, 2]), (1, [1] * 5)):
        monkeypatch.setattr(input_tables, "BATCH_BYTES", limit)
        blocks = list(table_blocks(path, NUMBERS, "arrow"))
        assert [block.batch.num_rows for block in blocks] == rows


@pytest.mark.parametrize("rows", [1, 4, 5, 9])
def test_parquet_file_is_read_in_batches_of_about_so_many_bytes(
    rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "numbers.parquet"
    pq.write_table(pa.Table.from_batches([numbers(0, 9)]), path, row_group_size=5)
    groups = pq.ParquetFile(path).metadata
    stored_bytes = sum(groups.row_group(n).total_byte_size for n in range(2))
    monkeypatch.setattr(input_tables, "BATCH_BYTES", stored_bytes * rows // 9)
    seen: list[int] = []

    def kept(self: pq.ParquetFile, count: int) -> Any:
        seen.append(count)
        return iter_batches(self, count)

    iter_batches = pq.ParquetFile.iter_batches
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", kept)
    blocks = list(table_blocks(str(path), NUMBERS, "parquet"))
    assert [n for block in blocks for n in block.batch.column("n").to_pylist()] == list(range(9))
    assert seen == [max(rows * stored_bytes // 9 * 9 // stored_bytes, 1)]


def test_columns_that_readers_add_are_left_out_unless_the_topic_has_them(tmp_path: Path) -> None:
    added = {"_topic": ["t"], "_offset": [5], "_partition": [3], "__index_level_0__": [9]}
    batch = pa.record_batch({"n": [1], **added})
    (block,) = table_blocks(file_of(tmp_path, batch), NUMBERS, "arrow")
    assert block.batch.to_pylist() == [{"n": 1}]
    own = pa.schema([("n", pa.int64()), ("__index_level_0__", pa.int64())])
    (block,) = table_blocks(file_of(tmp_path, batch), RecordForm(own, False), "arrow")
    assert block.batch.to_pylist() == [{"n": 1, "__index_level_0__": 9}]


def test_partitions_of_a_file_are_kept_where_asked_for(tmp_path: Path) -> None:
    keeps = RecordForm(NUMBERS.schema, False, keeps_partitions=True)
    batch = pa.record_batch({"n": [1], "_partition": [3]})
    (block,) = table_blocks(file_of(tmp_path, batch), keeps, "arrow")
    assert block.batch.to_pylist() == [{"n": 1, "_partition": 3}]
    with pytest.raises(InvalidRecord, match="has no column '_partition'; leave out --keep-part"):
        list(table_blocks(file_of(tmp_path, numbers(0, 1)), keeps, "arrow"))


def test_time_of_the_command_line_replaces_those_of_a_file(tmp_path: Path) -> None:
    stamps = pa.array([5, None], pa.timestamp("ms", "UTC"))
    path = file_of(tmp_path, pa.record_batch({"n": [1, 2], "_timestamp": stamps}))
    for given, expected in ((7, [7, 7]), (0, [0, 0]), (None, [5, None])):
        form = RecordForm(NUMBERS.schema, False, timestamp_ms=given)
        (block,) = table_blocks(path, form, "arrow")
        assert block.batch.column("_timestamp").cast(pa.int64()).to_pylist() == expected


def test_key_of_another_type_is_left_to_the_topic_to_refuse(tmp_path: Path) -> None:
    form = RecordForm(KAFKA_SCHEMA, True, key=b"given")
    for key in (pa.array([1, None]), pa.array(["text", None]), pa.array([b"own", None])):
        batch = pa.record_batch({"key": key})
        (block,) = table_blocks(file_of(tmp_path, batch), form, "arrow")
        keys = block.batch.column("key").to_pylist()
        assert keys == ([1, None] if key[0].as_py() == 1 else [keys[0], b"given"])
        assert keys[0] in (1, b"text", b"own")
    (block,) = table_blocks(file_of(tmp_path, pa.record_batch({"value": [b"v"]})), form, "arrow")
    assert block.batch.to_pylist() == [{"value": b"v", "key": b"given"}]


@pytest.mark.parametrize("file_format", ["parquet", "arrow"])
def test_file_of_another_format_or_cut_off_is_named(file_format: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    for data in (b"ARROW1 and so on", b"PAR1 and so on", b"{}"):
        path.write_bytes(data)
        with pytest.raises(UsageError, match=f"{path} is not a complete {file_format} file"):
            list(table_blocks(str(path), NUMBERS, file_format))


def test_empty_file_has_no_records_as_arrow(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.touch()
    assert list(table_blocks(str(path), NUMBERS, "arrow")) == []
    with pytest.raises(UsageError, match="a Parquet file is read from its end: name the file"):
        list(table_blocks("-", NUMBERS, "parquet"))
