"""`txlog sql` prints the rows of a query in each form, and refuses everything else."""

import contextlib
import csv
import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.docs.pages import Page
from tests.logs.empty_log import empty_log
from tests.processes.command_line import PROCESS_TIMEOUT_S, command, environment, run
from tests.source_tree import ROOT
from tests.unit.cli.sample_log import SampleLog
from txlog.cli.sql.results import TABLE_ROWS_MAX, _duration
from txlog.client.admin import Admin
from txlog.client.producer.producer import Producer
from txlog.distribution import install_command

QUERY = 'select carrier, delay, raw, "at" from flights order by _offset'
EVIL = "=cmd|' /C calc'!A0 \x1b]0;title\x07\x1b[31mred\u202e <b>[red]"


def test_table_has_the_rows_under_their_columns(log: SampleLog) -> None:
    done = run("sql", QUERY, root=log.root)
    assert (done.code, done.err) == (0, "")
    assert done.rows[:3] == [
        ["carrier", "delay", "raw", "at"],
        ["UA", "2", '{"base64": "/g=="}', "2013-01-01T05:15:00.000000Z"],
        ["-", "-", "plain", "-"],
    ]


def test_json_is_one_document_with_an_object_for_each_row(log: SampleLog) -> None:
    done = run("sql", QUERY, "-o", "json", root=log.root)
    assert done.json == [
        {
            "carrier": "UA",
            "delay": 2,
            "raw": {"base64": "/g=="},
            "at": "2013-01-01T05:15:00.000000Z",
        },
        {"carrier": None, "delay": None, "raw": "plain", "at": None},
    ]
    assert run("sql", f"{QUERY} limit 0", "-o", "json", root=log.root).json == []


def test_types_that_no_topic_has_are_printed(log: SampleLog) -> None:
    query = (
        "select sum(n)::hugeint as s, interval 1 day as i, 'a'::enum('a') as e, "
        "'00000000-0000-0000-0000-000000000001'::uuid as u, {'k': 'x'::blob, 'f': 'nan'::float} "
        "as st, map{'a': 1} as m, [1.5, 'inf'::double] as l, 'x'::bit is null as b, "
        "1.50::decimal(9,2) as d, time '10:00' as t, null as z from range(4) r(n)"
    ).replace("'x'::bit is null", "true")
    (row,) = run("sql", query, "-o", "json", root=log.root).json
    assert row == {
        "s": 6,
        "i": "P1D",
        "e": "a",
        "u": "00000000-0000-0000-0000-000000000001",
        "st": {"k": "x", "f": "NaN"},
        "m": [["a", 1]],
        "l": [1.5, "Infinity"],
        "b": True,
        "d": "1.50",
        "t": "10:00:00.000000",
        "z": None,
    }
    done = run("sql", query, "--format", "csv", root=log.root)
    (cells,) = csv.DictReader(io.StringIO(done.out))
    assert (cells["s"], cells["b"], cells["st"]) == ("6", "true", '{"k": "x", "f": "NaN"}')


@pytest.mark.parametrize(
    ("parts", "text"),
    [((0, 0, 0), "PT0S"), ((14, 3, 0), "P14M3D"), ((0, 0, -1_500_000_000), "PT-1.5S"),
     ((1, 0, 60_000_000_000), "P1MT60S")],
)  # fmt: skip
def test_interval_is_an_iso_duration(parts: tuple[int, int, int], text: str) -> None:
    assert _duration(*parts) == text


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "csv"])
def test_file_has_the_rows_and_is_never_replaced(
    suffix: str, log: SampleLog, tmp_path: Path
) -> None:
    file = tmp_path / f"x.{suffix}"
    query = "select _offset as n, value from orders where _partition = 0"
    done = run("sql", query, "--file", file, "-o", "json", root=log.root)
    assert done.json == {"file": str(file), "rows": 10}
    if suffix == "csv":
        found = [int(row["n"]) for row in csv.DictReader(io.StringIO(file.read_text()))]
    else:
        table = pq.read_table(file) if suffix == "parquet" else pa.ipc.open_file(file).read_all()
        found = table["n"].to_pylist()
    assert found == list(range(10))
    again = run("sql", "select 1", "--file", file, root=log.root)
    assert again.code == 2
    assert "nothing is overwritten" in again.err


def test_failed_query_leaves_no_file(log: SampleLog, tmp_path: Path) -> None:
    query = "select (value::varchar)::int from orders"
    done = run("sql", query, "--file", tmp_path / "x.csv", root=log.root)
    assert done.code == 2
    assert list(tmp_path.iterdir()) == []


def test_arrow_on_stdout_is_a_stream(log: SampleLog) -> None:
    done = subprocess.run(
        command("sql", "select _offset from orders order by 1", "--format", "arrow"),
        env=environment(TXLOG_ROOT=str(log.root)), capture_output=True, check=True,
    )  # fmt: skip
    assert pa.ipc.open_stream(done.stdout).read_all().num_rows == 11


def test_query_may_come_on_stdin(log: SampleLog) -> None:
    done = subprocess.run(
        command("sql", "-o", "json"), input="select count(*) as n\nfrom orders;\n", text=True,
        env=environment(TXLOG_ROOT=str(log.root)), capture_output=True, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout) == [{"n": 11}]


def test_cut_isolation_and_moment_can_be_chosen(log: SampleLog) -> None:
    query = "select count(*) as n from orders where _partition = 0"
    for options, count in (
        ((), 10),
        (("--isolation", "read_uncommitted"), 12),
        (("--as-of", str(log.committed)), 10),
    ):
        assert run("sql", query, *options, "-o", "json", root=log.root).json == [{"n": count}]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["select nope from orders"], 2, '"nope".*orders: key, value'),
        (["select * from nope"], 3, "no topic 'nope'"),
        (["copy orders to 'x.csv'"], 2, "only one query"),
        (["select * from read_text('/etc/passwd')"], 2, "read_text() reads more"),
        ([""], 2, "nly one query"),
        (["select 1", "--format", "parquet"], 2, "give --file FILE"),
        (["select 1", "--format", "csv", "-o", "json"], 2, "contradict each other"),
        (["select 1", "--file", "x.txt"], 2, "give --format"),
        (["select 1", "--as-of", "soon"], 2, "is no moment"),
        (["select 1", "--as-of", "1", "--isolation", "read_uncommitted"], 2, "leave --isolation"),
        (["select '" + "x" * (1 << 20) + "'"], 2, "more than 1048576 characters"),
    ],
)
def test_refusal_has_its_exit_code_and_a_line(
    words: list[str], code: int, message: str, log: SampleLog
) -> None:
    done = run("sql", *words, root=log.root)
    assert (done.code, done.out, done.err.count("\n")) == (code, "", 1)
    assert all(part in done.err for part in message.split(".*"))
    if not {"-o", "--format"} & set(words):
        done = run("sql", *words, "-o", "json", root=log.root)
        assert json.loads(done.err)["error"]["exit_code"] == done.code


def test_long_result_is_cut_in_a_table_and_says_so(log: SampleLog) -> None:
    query = f"select n from range({TABLE_ROWS_MAX + 5}) r(n) order by n"
    done = run("sql", query, root=log.root)
    assert len(done.out.splitlines()) == TABLE_ROWS_MAX + 1
    assert "first 1000 rows" in done.err
    assert len(run("sql", query, "-o", "json", root=log.root).json) == TABLE_ROWS_MAX + 5
    assert run("sql", query, "-q", root=log.root).err == ""


@pytest.fixture
def evil(tmp_path: Path) -> str:
    """A log whose records, and a column, would control a terminal or run in a spreadsheet."""
    root = empty_log(tmp_path / "log")
    Admin(root).create_topic("evil", 1, pa.schema([("=1+1", pa.string())]))
    Producer(root).send_batch("evil", pa.table({"=1+1": [EVIL, "-2", "plain"]}))
    return root


@pytest.mark.parametrize("form", [(), ("-o", "json"), ("-o", "table")])
def test_no_control_character_of_a_record_is_printed(form: tuple[str, ...], evil: str) -> None:
    for query in ("from evil", 'select "=1+1"::int from evil', "select '\x1b[31m' from evl"):
        done = run("sql", query, *form, root=evil)
        assert [c for c in done.out + done.err if not c.isprintable() and c != "\n"] == []


def test_csv_has_no_formula(evil: str) -> None:
    query = """select "=1+1", -5 as n, -1.5::decimal(9, 2) as d, '-inf'::double as f from evil"""
    done = run("sql", f"{query} order by _offset", "--format", "csv", root=evil)
    rows = list(csv.reader(io.StringIO(done.out)))
    numbers = ["-5", "-1.50", "-Infinity"]
    assert rows == [
        ["'=1+1", "n", "d", "f"],
        [f"'{EVIL}", *numbers],
        ["'-2", *numbers],
        ["plain", *numbers],
    ]


def test_without_duckdb_the_error_says_what_to_install(log: SampleLog) -> None:
    program = (
        "import sys; sys.modules['duckdb'] = None\n"
        "from txlog.cli.main import main\n"
        "sys.argv[1:] = ['sql', 'select 1']; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(TXLOG_ROOT=str(log.root)),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == (
        f"txlog: txlog sql needs DuckDB, which is not installed; run {install_command('sql')!r}.\n"
    )


def test_query_of_the_readme_runs(tmp_path: Path) -> None:
    (query,) = (block.text for block in Page(ROOT / "README.md").blocks if block.info == "sql")
    root = empty_log(tmp_path / "log")
    producer = Producer(root)
    for topic in ("orders", "payments"):
        Admin(root).create_topic(topic, 1)
        producer.send(topic, b"12", key=b"bob", timestamp_ms=0)
    producer.flush()
    done = run("sql", query, "-o", "json", root=root)
    latest = "1970-01-01T00:00:00.000000Z"
    assert done.json == [{"customer": "bob", "payments": 1, "latest": latest}]


def on_terminal(root: str, *words: str) -> tuple[int, str]:
    """Exit code and all that a command prints on a terminal."""
    own, theirs = pty.openpty()
    process = subprocess.Popen(
        command("sql", *words), stdin=theirs, stdout=theirs, stderr=theirs,
        env=environment(TXLOG_ROOT=root, TERM="dumb", NO_COLOR="1"),
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # The other side is closed.
        while data := os.read(own, 65_536):
            shown += data
    os.close(own)
    return process.wait(PROCESS_TIMEOUT_S), shown.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("form", [(), ("-o", "json"), ("--format", "csv")])
def test_terminal_gets_no_control_character_of_a_record(form: tuple[str, ...], evil: str) -> None:
    code, shown = on_terminal(evil, "from evil", *form)
    assert code == 0
    assert "plain" in shown
    assert [c for c in shown if not c.isprintable() and c != "\n"] == []


def test_terminal_gets_no_bytes_of_arrow(evil: str) -> None:
    code, shown = on_terminal(evil, "from evil", "--format", "arrow")
    assert (code, "not for a terminal" in shown) == (2, True)
