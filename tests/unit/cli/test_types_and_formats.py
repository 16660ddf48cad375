"""Every type that a topic can have goes out and comes in unchanged, in every format.

The table below has each flat type with its extremes; a topic has a column of each, and of each kind
of nesting of each.
"""

import base64
import datetime as dt
import io
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from tests.logs.empty_log import empty_log
from tests.processes.command_line import Run, command, environment, run
from tests.unit.topic.records.arrow_strategies import physical_batches
from txlog.cli.input import input_tables
from txlog.cli.input.input_formats import csv_blocks
from txlog.cli.input.input_lines import LineBlock
from txlog.cli.input.input_records import RecordForm
from txlog.cli.output.export_files import FileFormat, record_file
from txlog.client.admin import Admin
from txlog.client.consumer.consumer import Consumer
from txlog.client.consumer.consumer_record import arrow_batch, arrow_schema
from txlog.client.producer.producer import Producer
from txlog.documents.type_text import PRINTED
from txlog.topic.read.reader import FetchedBatch
from txlog.topic.records.schema import is_kafka_schema

DAY_MS = 86_400_000
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def whole(bits: int, is_signed: bool) -> list[int]:
    return [-(2 ** (bits - 1)), 2 ** (bits - 1) - 1, 7] if is_signed else [0, 2**bits - 1, 7]


FLAT: dict[pa.DataType, list[Any]] = {
    **{getattr(pa, f"int{bits}")(): whole(bits, True) for bits in (8, 16, 32, 64)},
    **{getattr(pa, f"uint{bits}")(): whole(bits, False) for bits in (8, 16, 32, 64)},
    pa.bool_(): [True, False, True],
    pa.float16(): [1.5, -0.0, float("-inf")],
    pa.float32(): [float(np.float32(0.1)), float(np.finfo(np.float32).max), 1e-45],
    pa.float64(): [0.1, 5e-324, 1.7976931348623157e308],
    pa.string(): ["", 'a "b",\r\nc', "\0{\\N"],
    pa.binary(): [b"", b"\xff\x00", b'{"base64": "/w=="}'],
    pa.binary(2): [b"ab", b"\xff\x00", b", "],
    pa.date32(): [-(2**31), 2**31 - 1, 20_130_131],
    pa.date64(): [15_000 * DAY_MS, -719_163 * DAY_MS, 99_999_999 * DAY_MS],
    pa.time32("s"): [0, 86_399, 5],
    pa.time32("ms"): [0, DAY_MS - 1, 5],
    pa.time64("us"): [0, DAY_MS * 10**3 - 1, 5],
    pa.time64("ns"): [0, DAY_MS * 10**6 - 1, 5],
    pa.decimal128(9, 2): [Decimal("1.50"), Decimal("-0.01"), Decimal(0)],
    pa.decimal128(38, 0): [Decimal("9" * 38), Decimal(0), Decimal(-5)],
    pa.decimal256(76, 10): [Decimal("9" * 66 + ".5"), Decimal("1e-10"), Decimal(0)],
    **{
        pa.timestamp(unit, zone): [-(2**63 // 1000) if unit == "s" else -(2**63),
                                   2**63 // 1001 if unit == "s" else 2**63 - 1,
                                   1_357_017_300 * count]
        for unit, count in PER_SECOND.items() for zone in (None, "UTC")
    },
    **{pa.duration(unit): [-(2**63), 2**63 - 1, 5] for unit in PER_SECOND},
}  # fmt: skip


def nested(kind: pa.DataType, values: list[Any]) -> dict[pa.DataType, list[Any]]:
    first, second, third = values
    strict = pa.field("item", kind, nullable=False)
    return {
        pa.list_(kind): [[first, None, second], [], [third]],
        pa.list_(strict): [[first, second], [], [third]],
        pa.list_(kind, 2): [[first, None], [second, third], [third, third]],
        pa.struct([("x", kind), strict]): [
            {"x": None, "item": first}, {"x": second, "item": third}, {"x": third, "item": third}
        ],
        pa.map_(kind, kind): [[(first, None)], [], [(second, third)]],
        pa.map_(pa.string(), strict.with_name("value")): [[("a", first)], [], [("b", third)]],
        pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.list_(kind)))])): [
            [{"m": [("a", [first, None])]}], [None], []
        ],
    }  # fmt: skip


EVERY = FLAT | {k: v for kind, values in FLAT.items() for k, v in nested(kind, values).items()}
SCHEMA = pa.schema([(f"c{number}", kind) for number, kind in enumerate(EVERY)])
ROWS = pa.record_batch(
    [pa.array([*values, None], kind) for kind, values in EVERY.items()], schema=SCHEMA
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = empty_log(tmp_path_factory.mktemp("types") / "log")
    Admin(root).create_topic("every", 1, SCHEMA)
    with Producer(root) as producer:
        producer.send_batch("every", ROWS)
    return root


def stored(root: str, topic: str) -> dict[str, pa.Array]:
    with Consumer(topic, root=root, auto_offset_reset="earliest") as consumer:
        table = consumer.poll_arrow()
    return {name: table[name].combine_chunks() for name in table.column_names if name[0] != "_"}


def test_table_of_types_has_all_that_a_schema_can_name() -> None:
    unnamed = {pa.binary(2), pa.decimal128(9, 2), pa.decimal128(38, 0), pa.decimal256(76, 10)}
    zoned = {pa.timestamp(unit, "UTC") for unit in PER_SECOND}
    assert set(FLAT) - unnamed - zoned == set(PRINTED.values())


@pytest.mark.parametrize("form", ["parquet", "arrow", "csv", "json", "arrows"])
def test_column_of_every_type_goes_out_and_comes_in_unchanged(
    form: str, root: str, tmp_path: Path
) -> None:
    file = tmp_path / f"every.{form}"
    if form in list(FileFormat):
        done = run("export", "every", "--file", file, root=root)
        assert done.code == 0, done.err
    else:
        way = "arrow" if form == "arrows" else "json"
        words = command("--root", root, "consume", "every", "--format", way)
        with file.open("wb") as out:
            subprocess.run(words, stdout=out, env=environment(), check=True, timeout=60)
    Admin(root).create_topic(form, 1, SCHEMA)
    done = run("produce", form, file, root=root)
    assert done.code == 0, done.err
    found, given = stored(root, form), stored(root, "every")
    changed = [str(SCHEMA.field(n).type) for n in SCHEMA.names if not found[n].equals(given[n])]
    assert changed == []
    if form not in ("csv", "json"):
        made = run("topic", "create", f"{form}-schema", "--schema", f"@{file}", root=root)
        assert made.code == 0, made.err
        assert Admin(root).describe_topic(f"{form}-schema").schema == SCHEMA


@given(physical_batches())
def test_exported_batch_of_any_schema_is_read_back_from_csv(batch: pa.RecordBatch) -> None:
    table = arrow_batch("t", FetchedBatch(3, 7, batch))
    file = io.BytesIO()
    with record_file(file, FileFormat.CSV, arrow_schema(batch.schema)) as write:
        write(table)
    schema = pa.schema(list(batch.schema)[:-1])
    form = RecordForm(schema, is_kafka_schema(schema), keeps_partitions=True)
    lines = LineBlock("file", 1, file.getvalue().split(b"\n"))
    found = [block.batch for block in csv_blocks(iter([lines]), form, 1 << 20)]
    again = pa.Table.from_batches(found).drop_columns(["_partition"])
    assert again.equals(pa.Table.from_batches([batch]).cast(again.schema))


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        (pa.decimal128(5, -2), Decimal(12_300), "has no form in Parquet"),
        (pa.list_(pa.decimal128(5, -2)), [Decimal(0)], "has no form in Parquet"),
        (pa.timestamp("s"), 2**63 - 1, "Parquet has no form for a value"),
    ],
)
def test_what_parquet_lacks_is_refused_with_a_way_out_before_a_file_exists(
    kind: pa.DataType, value: Any, reason: str, tmp_path: Path
) -> None:
    root = empty_log(tmp_path / "log")
    for name, column in (("a", pa.int8()), ("b", kind)):
        Admin(root).create_topic(name, 1, pa.schema([("x", column)]))
    with Producer(root) as producer:
        producer.send_batch("b", pa.record_batch([pa.array([value], kind)], names=["x"]))
    done = run("export", "b", "--file", tmp_path / "b.parquet", root=root)
    assert (done.code, reason in done.err, "give --format arrow or csv" in done.err) == (2, 1, 1)
    assert not (tmp_path / "b.parquet").exists()
    for suffix in ("arrow", "csv"):
        assert run("export", "b", "--file", tmp_path / f"b.{suffix}", root=root).code == 0
        assert run("produce", "b", tmp_path / f"b.{suffix}", root=root).code == 0
    assert stored(root, "b")["x"].equals(pa.array([value] * 4, kind))


# Files of other programs.


def produced(tmp_path: Path, file: Path, schema: pa.Schema | str) -> tuple[Run, pa.Table | None]:
    root = empty_log(tmp_path / "log")
    if isinstance(schema, pa.Schema):
        Admin(root).create_topic("t", 1, schema)
    else:
        made = run("topic", "create", "t", "--schema", schema, root=root)
        assert made.code == 0, made.err
    done = run("produce", "t", file, root=root)
    return done, None if done.code else pa.table(stored(root, "t"))


FAR = [dt.datetime(9999, 12, 31), dt.datetime(1600, 2, 29), None]  # noqa: DTZ001 - no zone


@pytest.mark.parametrize("nesting", ["flat", "list"])
def test_int96_times_of_spark_keep_their_years(nesting: str, tmp_path: Path) -> None:
    times = pa.array(FAR, pa.timestamp("us"))
    if nesting == "list":
        times = pa.array([[time] for time in FAR], pa.list_(pa.timestamp("us")))
    file = tmp_path / "t.parquet"
    table = pa.table({"at": times})
    pq.write_table(table, file, use_deprecated_int96_timestamps=True, store_schema=False)
    _, found = produced(tmp_path, file, f"@{file}")
    assert found is not None
    assert found["at"].to_pylist() == times.to_pylist()


@pytest.mark.parametrize(
    ("times_ns", "unit", "reason"),
    [
        ([1_000_000_001, None], "ns", None),
        ([1_000_000_001, None], "us", "the types do not fit"),
        ([1_000_000_000], "us", None),
    ],
)
def test_int96_times_with_nanoseconds_are_kept_or_refused(
    times_ns: list[int | None], unit: str, reason: str | None, tmp_path: Path
) -> None:
    table = pa.table({"at": pa.array(times_ns, pa.timestamp("ns"))})
    pq.write_table(table, tmp_path / "t.parquet", use_deprecated_int96_timestamps=True)
    kind = pa.timestamp(unit)
    done, found = produced(tmp_path, tmp_path / "t.parquet", pa.schema([("at", kind)]))
    if reason is None:
        assert found is not None, done.err
        assert found["at"].cast(pa.timestamp("ns")).combine_chunks().equals(table["at"].chunk(0))
    else:
        assert (done.code, reason in done.err) == (2, True)


def test_int96_times_that_no_unit_holds_together_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "t.parquet"
    table = pa.table({"at": pa.array([1, 1_700_000_000_123_456_789], pa.timestamp("ns"))})
    pq.write_table(table, file, use_deprecated_int96_timestamps=True, compression="none",
                   use_dictionary=False)  # fmt: skip
    # pyarrow writes no such file: the day of the first time, the Julian day 2,440,588, is another.
    data = file.read_bytes()
    day = (2_440_588).to_bytes(4, "little")
    assert data.count(day) >= 1
    file.write_bytes(data.replace(day, (5_373_484).to_bytes(4, "little")))
    done, _ = produced(tmp_path, file, pa.schema([("at", pa.timestamp("ns"))]))
    assert (done.code, "Write the file with times in microseconds" in done.err) == (2, True)


@pytest.mark.parametrize("note", ["seconds", "no base64", "AAAA"])
def test_stale_note_of_the_writers_types_is_not_obeyed(note: str, tmp_path: Path) -> None:
    """Another program rewrote the file's seconds as milliseconds, and kept the note."""
    table = pa.table({"at": pa.array([1_500], pa.timestamp("ms"))})
    seconds = pa.schema([("at", pa.timestamp("s"))])
    stored = base64.b64encode(seconds.serialize()) if note == "seconds" else note
    with pq.ParquetWriter(tmp_path / "t.parquet", table.schema, store_schema=False) as writer:
        writer.add_key_value_metadata({"ARROW:schema": stored})
        writer.write_table(table)
    done, _ = produced(tmp_path, tmp_path / "t.parquet", seconds)
    assert (done.code, done.err.startswith(f"txlog: {tmp_path}/t.parquet ")) == (2, True)
    assert ("timestamp[ms] in the batch and timestamp[s]" in done.err) == (note == "seconds")


def test_int96_times_beyond_nanoseconds_do_not_fit_a_column_of_nanoseconds(tmp_path: Path) -> None:
    table = pa.table({"at": pa.array(FAR, pa.timestamp("us"))})
    pq.write_table(table, tmp_path / "t.parquet", use_deprecated_int96_timestamps=True)
    kind = pa.timestamp("ns")
    done, _ = produced(tmp_path, tmp_path / "t.parquet", pa.schema([("at", kind)]))
    assert (done.code, "t.parquet row 1: column 'at'" in done.err) == (2, True)


def test_pandas_file_with_categories_and_an_index_makes_a_topic_and_is_read(
    tmp_path: Path,
) -> None:
    frame = pd.DataFrame({"c": pd.Categorical(["a", "b", None]), "v": [1, 2, 3]}).query("v != 2")
    frame.to_parquet(tmp_path / "t.parquet")
    _, found = produced(tmp_path, tmp_path / "t.parquet", f"@{tmp_path / 't.parquet'}")
    assert found is not None
    assert found.schema == pa.schema([("c", pa.string()), ("v", pa.int64())])
    assert found.to_pylist() == [{"c": "a", "v": 1}, {"c": None, "v": 3}]


@pytest.mark.parametrize("key", [pa.dictionary(pa.int8(), pa.string()), pa.string_view()])
def test_keys_and_values_of_any_layout_are_read_and_get_the_key_option(
    key: pa.DataType, tmp_path: Path
) -> None:
    root = empty_log(tmp_path / "log")
    Admin(root).create_topic("t", 2)
    table = pa.table({"key": pa.array(["own", None], pa.string()).cast(key), "value": ["x", "y"]})
    with pa.ipc.new_file(tmp_path / "t.arrow", table.schema) as writer:
        writer.write_table(table)
    done = run("produce", "t", tmp_path / "t.arrow", "--key", "k", root=root)
    assert done.code == 0, done.err
    lines = run("consume", "t", root=root).json_lines
    assert {line["value"]: line["key"] for line in lines} == {"x": "own", "y": "k"}


def test_batches_of_a_file_are_divided_into_those_that_one_column_can_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file may have more than 2 GiB of text in 65,536 rows, and a column of a topic not."""
    monkeypatch.setattr(input_tables, "BATCH_BYTES", 1_000)
    rows = ["x" * (400 if number in (7, 8, 9) else 1) for number in range(40)] + ["y" * 3_000]
    pq.write_table(pa.table({"a": pa.array(rows, pa.large_string())}), tmp_path / "t.parquet")
    form = RecordForm(pa.schema([("a", pa.string())]), False)
    blocks = list(input_tables.table_blocks(str(tmp_path / "t.parquet"), form, "parquet"))
    assert [row for block in blocks for row in block.batch["a"].to_pylist()] == rows
    assert max(block.batch.nbytes for block in blocks if block.batch.num_rows > 1) <= 1_000
    assert [block.numbers[0] for block in blocks[1:]] == [
        block.numbers[-1] + 1 for block in blocks[:-1]
    ]


@pytest.mark.parametrize("kind", [pa.decimal32(9, 2), pa.decimal64(9, 2)])
def test_small_decimals_of_a_file_become_decimal128(kind: pa.DataType, tmp_path: Path) -> None:
    table = pa.table({"d": pa.array([Decimal("1.50"), None], kind)})
    with pa.ipc.new_file(tmp_path / "t.arrow", table.schema) as writer:
        writer.write_table(table)
    _, found = produced(tmp_path, tmp_path / "t.arrow", f"@{tmp_path / 't.arrow'}")
    assert found is not None
    assert found.schema == pa.schema([("d", pa.decimal128(9, 2))])
    assert found["d"].to_pylist() == [Decimal("1.50"), None]
