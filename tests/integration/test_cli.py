"""The installed command on a log of real flights: pipes, signals, terminals, two processes, S3."""

import json
import os
import pty
import select
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from examples.demo.flights import FLIGHTS_SCHEMA, read_flights
from tests.logs.empty_log import empty_log
from tests.processes.command_line import (
    PROCESS_TIMEOUT_S,
    command,
    environment,
    files,
    run,
    run_process,
)
from txlog.client.admin import Admin
from txlog.client.consumer.consumer import Consumer
from txlog.client.producer.producer import Producer
from txlog.testing.s3_server import S3Server, S3ServerKind, free_port

pytestmark = pytest.mark.slow
"""Tests of process behaviour start the command in a process of its own, which takes a second; the
others run it in this one."""

FLIGHTS = 5_000
"""The first week of 2013: much more than the buffer of a pipe holds."""

BATCH = 1_250
PARTITIONS = 4


@dataclass(frozen=True)
class FlightsLog:
    """A log with topic `flights`, written in transactions, some of them aborted."""

    root: Path
    flights: pa.Table


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> FlightsLog:
    """A shared log; tests must not change it."""
    root = tmp_path_factory.mktemp("flights") / "log"
    flights = read_flights().slice(0, FLIGHTS)
    produce(root, flights)
    return FlightsLog(root, flights)


def produce(root: Path, flights: pa.Table) -> None:
    """In transactions of BATCH records; every second one is aborted first, and sent again."""
    admin = Admin(empty_log(root))
    admin.create_topic("flights", PARTITIONS, FLIGHTS_SCHEMA, {"key.column": "carrier"})
    producer = Producer(str(root), transactional_id="loader", transaction_records="in.log")
    producer.init_transactions()
    for number, start in enumerate(range(0, flights.num_rows, BATCH)):
        batch = flights.slice(start, BATCH)
        if number % 2:
            producer.begin_transaction()
            producer.send_batch("flights", batch)
            producer.flush()
            producer.abort_transaction()
        with producer.transaction():
            producer.send_batch("flights", batch)


def start(*arguments: object, **variables: str) -> subprocess.Popen[str]:
    """Start a command that runs concurrently with the test."""
    return subprocess.Popen(
        command(*arguments),
        env=environment(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_consume_prints_every_committed_flight_once(log: FlightsLog) -> None:
    done = run_process("--root", log.root, "consume", "flights")
    assert (done.code, done.err) == (0, "")
    values = [record["value"] for record in done.json_lines]
    assert len(values) == FLIGHTS
    columns = ("event_time", "carrier", "flight", "dep_delay", "tailnum")
    printed = sorted(json.dumps([value[name] for name in columns]) for value in values)
    stamps = pa.compute.strftime(log.flights["event_time"], "%Y-%m-%dT%H:%M:%SZ")
    sent = log.flights.set_column(
        log.flights.column_names.index("event_time"), "event_time", stamps
    )
    rows = sent.select(list(columns)).to_pylist()
    assert printed == sorted(json.dumps(list(row.values())) for row in rows)


@pytest.mark.parametrize("form", ["json", "table"])
def test_consume_exits_quietly_when_stdout_is_closed(form: str, log: FlightsLog) -> None:
    """As `txlog consume flights | head -n 3` does."""
    with start("--root", log.root, "consume", "flights", "-o", form) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        lines = [process.stdout.readline() for _ in range(3)]
        process.stdout.close()
        assert process.wait(PROCESS_TIMEOUT_S) == 0
        assert process.stderr.read() == ""
    assert all(lines)


def test_follow_prints_new_records_until_ctrl_c(tmp_path: Path) -> None:
    root = empty_log(tmp_path / "log")
    Admin(root).create_topic("orders")
    producer = Producer(root)
    with start("--root", root, "consume", "orders", "--follow") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for number in range(3):
            producer.send("orders", b"order %d" % number)
            producer.flush()
            assert json.loads(process.stdout.readline())["value"] == f"order {number}"
        process.send_signal(signal.SIGINT)
        assert process.wait(PROCESS_TIMEOUT_S) == 130
        assert (process.stdout.read(), process.stderr.read()) == ("", "")


def test_follow_ends_after_max_messages(tmp_path: Path) -> None:
    root = empty_log(tmp_path / "log")
    Admin(root).create_topic("orders")
    producer = Producer(root)
    for value in (b"1", b"2", b"3"):
        producer.send("orders", value)
    producer.flush()
    done = run("consume", "orders", "--follow", "-n", 2, root=root)
    assert (done.code, [record["value"] for record in done.json_lines]) == (0, ["1", "2"])


def test_group_lag_falls_to_zero_as_offsets_are_committed(tmp_path: Path, log: FlightsLog) -> None:
    root = tmp_path / "log"
    produce(root, log.flights.slice(0, 2 * BATCH))

    def lag() -> int:
        return int(run("group", "describe", "report", "-o", "json", root=root).json["lag"])

    with Consumer(
        "flights",
        root=str(root),
        group_id="report",
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        first = consumer.poll_arrow(max_records=400)
        consumer.commit()
        assert first is not None
        assert lag() == 2 * BATCH - first.num_rows
        while consumer.poll_arrow() is not None:
            pass
        consumer.commit()
        assert lag() == 0


def test_verify_reads_the_whole_log(log: FlightsLog) -> None:
    done = run("verify", "-o", "json", root=log.root)
    (flights,) = (row for row in done.json["journals"] if row["journal"] == "flights")
    assert (done.code, flights["records"], flights["damaged"]) == (0, FLIGHTS + FLIGHTS // 2, 0)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["topic", "describe", "flights"], 0),
        (["topic", "create", "flights"], 4),
        (["nope"], 2),
    ],
)
def test_exit_codes_reach_the_shell_and_nothing_is_written(
    arguments: list[str], code: int, log: FlightsLog
) -> None:
    before = files(log.root)
    done = run_process("--root", log.root, *arguments)
    assert done.code == code
    if code:
        assert (done.out, done.err.count("\n")) == ("", 1)
        assert "Traceback" not in done.err
    assert files(log.root) == before


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["topic", "describe", "nope"], 3),
        (["topic", "create", "a b"], 2),
        (["consume", "flights", "--from", "soon"], 2),
    ],
)
def test_a_refused_command_writes_nothing(arguments: list[str], code: int, log: FlightsLog) -> None:
    before = files(log.root)
    done = run(*arguments, root=log.root)
    assert (done.code, done.out) == (code, "")
    assert files(log.root) == before


def test_unreachable_store_exits_with_5() -> None:
    unreachable = S3Server(f"http://127.0.0.1:{free_port()}", "bucket", Path("unused"))
    done = run_process("--root", unreachable.url("log"), "topic", "list", **unreachable.env)
    assert (done.code, done.out) == (5, "")
    assert "attempts in" in done.err
    assert done.err.count("\n") == 1


@pytest.mark.s3
def test_commands_work_on_s3(tmp_path: Path) -> None:
    with S3Server.start(S3ServerKind.LOCALBUCKET) as server:
        root, env = server.url("log"), server.env
        assert run("topic", "list", root=root, env=env).code == 3
        created = run_process("--root", root, "topic", "create", "orders", "-p", 2, **env)
        assert created.err == f"Created a log at {root}.\nCreated topic orders with 2 partitions.\n"
        producer = Producer(root, storage_options=server.storage_options)
        producer.send("orders", b"on S3")
        producer.flush()
        (record,) = run("consume", "orders", env={"TXLOG_ROOT": root, **env}).json_lines
        assert record["value"] == "on S3"
        within = run_process("--root", root, "export", "orders", "--file", f"{root}/a/b.csv", **env)
        assert (within.code, f"is within the log at {root}," in within.err) == (2, True)
        assert run("verify", root=root, env=env).code == 0
        checks = run("doctor", "-o", "json", root=root, env=env).json["checks"]
        found = {check["check"]: check["status"] for check in checks}
        assert (found["store"], found["log"]) == ("ok", "ok")


def on_terminal(*arguments: object, **variables: str) -> str:
    """The output of a command on a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    env = environment(TERM="xterm-256color", COLUMNS="80", **variables)
    with subprocess.Popen(command(*arguments), env=env, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        text = b"".join(chunks(ours))
        assert process.wait(PROCESS_TIMEOUT_S) in (0, 1)
    os.close(ours)
    return text.decode()


def chunks(descriptor: int) -> Iterator[bytes]:
    """The output on a terminal until the other side has closed it."""
    while select.select([descriptor], [], [], PROCESS_TIMEOUT_S)[0]:
        try:
            data = os.read(descriptor, 65_536)
        except OSError:  # Linux raises this when the other side is closed.
            return
        if not data:
            return
        yield data


def test_terminal_output_is_coloured_unless_disabled(log: FlightsLog) -> None:
    arguments = ("--root", log.root, "topic", "describe", "flights")
    assert "\x1b[" in on_terminal(*arguments)
    assert "\x1b[3" not in on_terminal(*arguments, NO_COLOR="1")
    assert "\x1b[3" not in on_terminal(*arguments, "--no-color")
    assert "\x1b[" not in run("topic", "describe", "flights", root=log.root).out


def test_narrow_terminal_does_not_wrap_kafka_terms(log: FlightsLog) -> None:
    shown = on_terminal("--root", log.root, "txn", "list", NO_COLOR="1")
    assert "TransactionState" in shown
    assert "CompleteCommit" in shown


def test_json_output_is_lossless_in_ascii_encoding(tmp_path: Path) -> None:
    root = empty_log(tmp_path / "log")
    Admin(root).create_topic("orders")
    producer = Producer(root)
    producer.send("orders", "Käse 😀".encode())
    producer.flush()
    done = run_process("--root", root, "consume", "orders", PYTHONIOENCODING="ascii")
    assert (done.code, done.json_lines[0]["value"]) == (0, "Käse 😀")
    table = run_process(
        *("--root", root, "consume", "orders", "-o", "table"), PYTHONIOENCODING="ascii"
    )
    assert (table.code, "K\\xe4se" in table.out) == (0, True)


def test_full_disk_behind_stdout_prints_one_line_and_exits_with_6(log: FlightsLog) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command("--root", log.root, "consume", "flights"),
            env=environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PROCESS_TIMEOUT_S,
            check=False,
        )
    assert done.returncode == 6
    assert done.stderr == "txlog: No space left on device: the output could not be written.\n"
