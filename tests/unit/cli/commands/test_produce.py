"""`txlog produce`: what it writes, what it refuses, and what a refusal leaves in the log."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from tests.processes.command_line import (
    PROCESS_TIMEOUT_S,
    UNSET,
    Run,
    command,
    environment,
    files,
    run,
)
from tests.unit.cli.sample_log import FIRST_MS, FLIGHTS, SampleLog
from txlog.cli.main import app
from txlog.client.producer.producer import Producer

ORDER_LINES = b"k1:one\nk2:two\n"


def produce(log: SampleLog, *arguments: object, stdin: bytes = b"") -> Run:
    words = ["--root", str(log.root), "produce", *map(str, arguments)]
    variables: dict[str, str | None] = dict.fromkeys(UNSET)
    done = CliRunner().invoke(app, words, input=stdin, env={**variables, "COLUMNS": "200"})
    return Run(done.exit_code, done.stdout, done.stderr)


def consumed(log: SampleLog, topic: str, *arguments: object) -> list[dict[str, Any]]:
    return run("consume", topic, *arguments, root=log.root).json_lines


@pytest.fixture
def new(own_log: SampleLog) -> SampleLog:
    """A log with the empty topics `new` (3 partitions) and `typed` (the columns of flights)."""
    own_log.admin.create_topic("new", 3)
    own_log.admin.create_topic("typed", 1, FLIGHTS, {"key.column": "carrier"})
    return own_log


def values(log: SampleLog, topic: str = "new") -> list[Any]:
    return [record["value"] for record in consumed(log, topic)]


# What the command writes.


def test_each_line_of_stdin_is_a_value(new: SampleLog) -> None:
    done = produce(new, "new", stdin=b"one\n\ntwo")
    assert (done.code, done.out, done.err) == (0, "", "Wrote 3 records to topic new.\n")
    assert values(new) == ["one", "", "two"]


def test_options_set_key_headers_partition_and_timestamp(new: SampleLog) -> None:
    more = ("-K", ":", "-H", "a=1", "-H", "b=x=y", "-p", 2, "--timestamp", "2013-01-31T12:00:00Z")
    assert produce(new, "new", *more, stdin=ORDER_LINES).code == 0
    first, second = consumed(new, "new")
    assert (first["key"], first["value"], first["partition"]) == ("k1", "one", 2)
    assert first["headers"] == [{"key": "a", "value": "1"}, {"key": "b", "value": "x=y"}]
    assert second["timestamp"] == "2013-01-31T12:00:00.000Z"


def test_summary_lists_the_offsets_written_per_partition(new: SampleLog) -> None:
    produce(new, "new", "-p", 1, stdin=b"before\n")
    done = produce(new, "new", "-p", 1, "-o", "json", stdin=ORDER_LINES)
    assert done.json == {
        "topic": "new",
        "records": 2,
        "transaction": None,
        "partitions": [{"partition": 1, "records": 2, "first_offset": 1, "last_offset": 2}],
    }
    table = produce(new, "new", "-p", 1, "-o", "table", "-q", stdin=b"x\n")
    assert (table.rows[1], table.err) == (["1", "1", "3", "3"], "")


@pytest.mark.parametrize("arguments", [(), ("--transactional-id", "t")])
def test_empty_input_writes_no_records_and_succeeds(
    new: SampleLog, arguments: tuple[str, ...]
) -> None:
    done = produce(new, "new", *arguments, "-o", "json")
    assert (done.code, done.json["records"], done.json["partitions"]) == (0, 0, [])


@pytest.mark.parametrize("topic", ["orders", "flights"])
def test_topic_is_copied_by_producing_the_output_of_consume(new: SampleLog, topic: str) -> None:
    copy = {"orders": "new", "flights": "typed"}[topic]
    source = run("consume", topic, root=new.root)
    done = produce(new, copy, "--format", "json", "--keep-partitions", stdin=source.out.encode())
    assert done.code == 0
    ours, theirs = consumed(new, copy), source.json_lines
    names = ("partition", "timestamp", "key", "value", "headers")
    assert [[r.get(n) for n in names] for r in ours] == [[r.get(n) for n in names] for r in theirs]


def test_without_keep_partitions_the_key_selects_the_partition(new: SampleLog) -> None:
    source = run("consume", "orders", root=new.root).out.encode()
    produce(new, "new", "--format", "json", stdin=source)
    found = consumed(new, "new")
    assert len(found) == 11
    assert len({(r["key"], r["partition"]) for r in found if r["key"]}) == 3


def test_format_of_each_file_is_detected_from_its_name(new: SampleLog, tmp_path: Path) -> None:
    rows = {"carrier": ["UA"], "delay": [3], "at": [5], "raw": [b"\xff"]}
    table = pa.table(rows, FLIGHTS)
    pq.write_table(table, tmp_path / "a.parquet")
    with pa.ipc.new_file(tmp_path / "b.arrow", FLIGHTS) as writer:
        writer.write_table(table)
    with pa.ipc.new_stream(tmp_path / "c.arrows", FLIGHTS) as stream:
        stream.write_table(table)
    (tmp_path / "d.csv").write_text("delay,carrier\n3,UA\n")
    (tmp_path / "e.jsonl").write_text('{"delay": 3, "carrier": "UA"}\n')
    names = ["a.parquet", "b.arrow", "c.arrows", "d.csv", "e.jsonl"]
    done = produce(new, "typed", *(tmp_path / name for name in names))
    assert done.err == "Wrote 5 records to topic typed.\n"
    found = values(new, "typed")
    assert [(row["carrier"], row["delay"]) for row in found] == [("UA", 3)] * 5
    assert [row["raw"] for row in found] == [{"base64": "/w=="}] * 3 + [None] * 2


def test_parquet_file_with_the_columns_of_poll_arrow_can_be_produced(
    new: SampleLog, tmp_path: Path
) -> None:
    stamps = pa.array([FIRST_MS, None], pa.timestamp("ms", "UTC"))
    table = pa.table(
        {"key": ["a", None], "value": ["x", "y"], "_topic": ["t", "t"], "_partition": [2, 0],
         "_offset": [5, 6], "_timestamp": stamps}
    )  # fmt: skip
    pq.write_table(table, tmp_path / "t.parquet")
    assert produce(new, "new", tmp_path / "t.parquet", "--keep-partitions").code == 0
    by_partition = {record["partition"]: record for record in consumed(new, "new")}
    assert by_partition[2]["timestamp"] == "2013-01-01T05:15:00.000Z"
    assert (by_partition[0]["key"], by_partition[0]["value"]) == (None, "y")


def test_timestamp_column_option_sets_the_record_timestamp(new: SampleLog) -> None:
    line = b'{"carrier": "UA", "at": "2013-01-31T12:00:00Z"}\n'
    produce(new, "typed", "--timestamp-column", "at", stdin=line)
    (record,) = consumed(new, "typed")
    assert record["timestamp"] == "2013-01-31T12:00:00.000Z"
    assert record["value"]["at"] == "2013-01-31T12:00:00.000000Z"


def test_config_option_sets_producer_settings_by_name(new: SampleLog) -> None:
    config = ("--config", "enable.idempotence=false", "--config", "retries=0")
    assert produce(new, "new", *config, stdin=b"x\n").code == 0
    wrong = produce(new, "new", "--config", "retires=0", stdin=b"x\n")
    assert (wrong.code, "did you mean 'retries'" in wrong.err) == (2, True)
    foreign = produce(new, "new", "--config", "linger.ms=5", stdin=b"x\n")
    assert (foreign.code, values(new)) == (2, ["x"])


# Transactions.


def test_transactional_id_option_commits_and_prints_the_transaction(new: SampleLog) -> None:
    done = produce(new, "new", "--transactional-id", "t", "-o", "json", stdin=b"x\n")
    tx_id = done.json["transaction"]
    assert run("txn", "outcome", tx_id, "-o", "json", root=new.root).json["outcome"] == "COMMITTED"
    assert values(new) == ["x"]


@pytest.mark.parametrize("way", ["staged", "in.log"])
def test_invalid_line_aborts_the_whole_transaction(
    new: SampleLog, tmp_path: Path, way: str
) -> None:
    path = tmp_path / "many.json"
    path.write_text('{"value": "x"}\n' * 20_050 + "oops\n")
    config = ("--config", f"transaction.records={way}")
    done = produce(new, "new", "--transactional-id", "t", path, *config)
    assert done.code == 2
    assert done.err.startswith(f"txlog: {path} line 20051: it is not JSON: ")
    assert done.err.endswith(" Nothing is written.\n")
    assert values(new) == []
    in_the_topic = consumed(new, "new", "--isolation", "read_uncommitted")
    assert bool(in_the_topic) == (way == "in.log")


def test_without_a_transaction_only_blocks_before_an_invalid_line_are_written(
    new: SampleLog, tmp_path: Path
) -> None:
    path = tmp_path / "many.json"
    path.write_text('{"value": "x"}\n' * 10_050 + "oops\n" + '{"value": "y"}\n' * 10_000)
    done = produce(new, "new", path)
    assert (done.code, done.err.endswith("10000 records are written before.\n")) == (2, True)
    assert set(values(new)) == {"x"}


def test_second_transaction_with_the_same_tag_is_refused(new: SampleLog) -> None:
    arguments = ("new", "--transactional-id", "t", "--tag", "day-1")
    assert produce(new, *arguments, stdin=b"x\n").code == 0
    again = produce(new, *arguments, stdin=b"x\n")
    assert (again.code, "'day-1' is committed already" in again.err) == (4, True)
    assert values(new) == ["x"]


def test_a_newer_instance_fences_the_command(new: SampleLog, monkeypatch: Any) -> None:
    """Another instance with the same id starts while this one reads."""
    real = Producer.send_batch

    def send_batch(self: Producer, *arguments: Any, **options: Any) -> int:
        sent = real(self, *arguments, **options)
        monkeypatch.setattr(Producer, "send_batch", real)
        Producer(new.connection, transactional_id="t").init_transactions()
        return sent

    monkeypatch.setattr(Producer, "send_batch", send_batch)
    done = produce(new, "new", "--transactional-id", "t", stdin=b"x\n")
    assert (done.code, values(new)) == (4, [])
    assert "Nothing is written." in done.err


# What the command refuses.


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["nope"], 3, "there is no topic 'nope'"),
        (["__consumer_offsets"], 3, "no topic"),
        (["a b"], 2, "not allowed"),
        (["new", "-p", "3"], 3, "partitions 0 to 2, not 3"),
        (["new", "-p", "-1"], 2, "--partition"),
        (["new", "nope.json"], 2, "nope.json cannot be read"),
        (["new", "-", "-"], 2, "more than once"),
        (["new", "--format", "xml"], 2, "xml"),
        (["new", "-K", ""], 2, "--key-separator is empty"),
        (["new", "-K", ":", "--format", "json"], 2, "is for --format lines"),
        (["new", "-K", ":", "-k", "x"], 2, "contradict each other"),
        (["new", "-H", "x"], 2, "is not a header"),
        (["new", "-H", "=x"], 2, "is not a header"),
        (["new", "--null-marker", "x", "--format", "json"], 2, "--null-marker"),
        (["new", "--keep-partitions"], 2, "lines name no partitions"),
        (["new", "--keep-partitions", "-p", "1", "--format", "json"], 2, "contradict"),
        (["new", "--timestamp", "soon"], 2, "is not a time"),
        (["new", "--timestamp", "9" * 20], 2, "is not a time"),
        (["new", "--timestamp-column", "x"], 2, "is not a column"),
        (["new", "--tag", "x"], 2, "give --transactional-id"),
        (["new", "--transactional-id", ""], 2, "--transactional-id is empty"),
        (["new", "--transactional-id", "t", "--tag", ""], 2, "tag"),
        (["new", "--transactional-id", "t", "--config", "transactional.id=u"], 2, "differ"),
        (["new", "--transactional-id", "t", "--config", "acks=1"], 2, "acks"),
        (["new", "--config", "acks"], 2, "NAME=VALUE"),
        (["new", "--config", "root=/elsewhere", "--format", "parquet"], 2, "name the file"),
        (["typed", "--format", "lines"], 2, "is typed"),
        (["typed", "-k", "x"], 2, "columns instead of keys"),
        (["typed", "-H", "a=b"], 2, "columns instead of keys"),
        (["typed"], 2, "stdin line 1: it is not JSON"),
        (["new", "--format", "json"], 2, "stdin line 1: it is not JSON"),
        (["new", "--format", "arrow"], 2, "stdin is not a complete arrow file"),
    ],
)
def test_invalid_call_is_refused_with_the_reason_and_writes_no_record(
    new: SampleLog, arguments: list[str], code: int, reason: str
) -> None:
    before = files(new.root / "topics")
    done = produce(new, *arguments, stdin=b"one\ntwo\n")
    assert (done.code, done.out) == (code, "")
    assert reason in done.err
    assert done.err.count("\n") == 1
    assert files(new.root / "topics") == before


@pytest.mark.parametrize(
    ("topic", "line", "reason"),
    [
        ("new", {"value": "x" * 2_000}, "over its max.message.bytes of 1000"),
        ("new", {"value": "x", "partition": 9}, "partitions 0 to 2"),
        ("new", {"value": "x", "timestamp": 2**52}, "message.timestamp.after.max.ms is 3600000"),
        ("typed", {"carrier": "UA", "delay": 2**40}, "column 'delay'"),
        ("typed", {"carrier": "UA", "gate": 1}, "no such columns"),
    ],
)
def test_record_that_the_topic_refuses_is_reported_with_its_line_number(
    new: SampleLog, topic: str, line: dict[str, Any], reason: str
) -> None:
    new.admin.alter_topic_config("new", {"max.message.bytes": 1_000})
    good = {"value": "v", "partition": 0} if topic == "new" else {"carrier": "UA"}
    lines = [good] * 700 + [line] + [good] * 300
    before = files(new.root / "topics")
    more = ("--keep-partitions",) if "partition" in line else ()
    done = produce(
        *(new, topic, "--format", "json", *more),
        stdin="".join(json.dumps(each) + "\n" for each in lines).encode(),
    )
    assert done.code in (2, 3)
    assert done.err.startswith("txlog: stdin line 701: ")
    assert reason in done.err
    assert done.err.endswith(" Nothing is written.\n")
    assert files(new.root / "topics") == before


def test_refused_parquet_row_is_reported_with_its_row_number(
    new: SampleLog, tmp_path: Path
) -> None:
    values_ = [b"x"] * 300 + [b"y" * 2_000_000] + [b"x"]
    pq.write_table(pa.table({"value": values_}), tmp_path / "t.parquet")
    done = produce(new, "new", tmp_path / "t.parquet")
    assert (done.code, f"{tmp_path}/t.parquet row 301: " in done.err) == (2, True)


@pytest.mark.parametrize("name", ["t.parquet", "t.arrow", "t.arrows"])
def test_truncated_file_is_refused(new: SampleLog, tmp_path: Path, name: str) -> None:
    table = pa.table({"value": [b"x" * 100] * 1_000})
    path = tmp_path / name
    if name == "t.parquet":
        pq.write_table(table, path)
    else:
        new_writer = pa.ipc.new_file if name == "t.arrow" else pa.ipc.new_stream
        with new_writer(path, table.schema) as writer:
            writer.write_table(table)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    done = produce(new, "new", path)
    assert (done.code, f"{name} is not a complete" in done.err) == (2, True)
    assert values(new) == []


def test_endless_line_is_refused_at_the_size_limit(new: SampleLog) -> None:
    done = produce(new, "new", "/dev/zero")
    assert (done.code, "line 1 is longer than 1048588 bytes" in done.err) == (2, True)


def test_time_of_day_beyond_the_day_is_refused_and_topic_stays_readable(new: SampleLog) -> None:
    new.admin.create_topic("shifts", 1, pa.schema([("start", pa.time32("s"))]))
    done = produce(new, "shifts", stdin=b'{"start": 86399}\n{"start": 86400}\n{"start": -5}\n')
    assert (done.code, "stdin line 2: column 'start'" in done.err) == (2, True)
    assert produce(new, "shifts", stdin=b'{"start": 86399}\n').code == 0
    assert values(new, "shifts") == [{"start": "23:59:59"}]


def test_csv_cell_may_be_as_long_as_a_record(new: SampleLog) -> None:
    cell = "x" * 300_000
    done = produce(new, "new", "--format", "csv", stdin=f"key,value\nk,{cell}\n".encode())
    assert (done.code, values(new)) == (0, [cell])


@pytest.mark.parametrize("names", [("a.csv", "b.json"), ("b.json", "a.csv")])
def test_values_of_json_and_csv_files_of_one_call_are_each_read_by_their_format(
    new: SampleLog, tmp_path: Path, names: tuple[str, str]
) -> None:
    new.admin.create_topic("both", 1, pa.schema([("n", pa.int32()), ("yes", pa.bool_())]))
    (tmp_path / "a.csv").write_text("n,yes\n1,true\n")
    (tmp_path / "b.json").write_text('{"n": 2, "yes": true}\n')
    assert produce(new, "both", *(tmp_path / name for name in names)).code == 0
    assert sorted(row["n"] for row in values(new, "both")) == [1, 2]
    (tmp_path / "c.json").write_text('{"n": 5.7}\n')
    done = produce(new, "both", tmp_path / "a.csv", tmp_path / "c.json")
    assert (done.code, "5.7 does not fit unchanged" in done.err) == (2, True)


def test_records_are_read_from_a_named_pipe(new: SampleLog, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = ["sh", "-c", 'printf "one\\ntwo\\n" > "$1"', "sh", str(pipe)]
    reader = command("--root", new.root, "produce", "new", pipe)
    with subprocess.Popen(writer) as writing:
        done = subprocess.run(
            reader, env=environment(), capture_output=True, text=True, check=False,
            timeout=PROCESS_TIMEOUT_S,
        )  # fmt: skip
        writing.kill()
    assert (done.returncode, done.stderr) == (0, "Wrote 2 records to topic new.\n")


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_binary(), pa.null()])
def test_key_option_is_the_key_of_parquet_rows_without_one(
    new: SampleLog, tmp_path: Path, kind: pa.DataType
) -> None:
    own = None if pa.types.is_null(kind) else "own"
    table = pa.table({"key": pa.array([None, own], kind), "value": ["x", "y"]})
    pq.write_table(table, tmp_path / "t.parquet")
    assert produce(new, "new", "--key", "k", tmp_path / "t.parquet").code == 0
    found = {record["value"]: record["key"] for record in consumed(new, "new")}
    assert found == {"x": "k", "y": own or "k"}
