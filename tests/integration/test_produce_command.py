"""`txlog produce` as a process: pipes, slow input, signals, a full disk."""

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.logs.empty_log import empty_log
from tests.processes.command_line import PROCESS_TIMEOUT_S, command, environment, run
from txlog.client.admin import Admin
from txlog.client.consumer.consumer import Consumer
from txlog.model import TopicPartition

pytestmark = pytest.mark.slow
"""The command under test is a process of its own, which takes a second to start; commands that only
inspect the log afterwards run in this one."""

BLOCK = b'{"value": "x"}\n' * 10_000
"""As many records as the command sends at once."""


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A log with the empty topics `orders` and `copy`, of two partitions each."""
    root = empty_log(tmp_path / "log")
    admin = Admin(root)
    for name in ("orders", "copy"):
        admin.create_topic(name, 2)
    return root


def start(root: str, *arguments: object) -> subprocess.Popen[bytes]:
    """The command, reading from a pipe that the test writes to."""
    return subprocess.Popen(
        command("--root", root, "produce", *arguments),
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def feed(process: subprocess.Popen[bytes], data: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(data)
    process.stdin.flush()


def reader(root: str, isolation: str = "read_uncommitted") -> Consumer:
    return Consumer("orders", root=root, auto_offset_reset="earliest", isolation_level=isolation)


def wait_for(consumer: Consumer, count: int) -> None:
    """Wait until this many records exist."""
    found = 0
    while found < count:
        polled = consumer.poll(timeout_ms=PROCESS_TIMEOUT_S * 1_000, max_records=count)
        assert polled, f"{found} of {count} records came"
        found += sum(map(len, polled.values()))


IN_LOG = ("--config", "transaction.records=in.log")
"""Only records in the log can be read while their transaction is open; of staged records a test
sees just the segment."""


def wait_for_segment(root: str) -> None:
    """Wait until a segment of `orders` exists."""
    pause = reader(root)
    for _ in range(PROCESS_TIMEOUT_S * 20):
        if list(Path(root).glob("topics/orders/*/segments/*.arrow")):
            return
        assert pause.poll(timeout_ms=50) == {}, "an open transaction shows nothing"
    raise AssertionError("no segment was written")


def wait_until_written(root: str, way: tuple[str, ...]) -> None:
    """Wait until the first block is written."""
    if way:
        wait_for(reader(root), 10_000)
    else:
        wait_for_segment(root)


WAYS = pytest.mark.parametrize("way", [(), IN_LOG], ids=["staged", "in the log"])


def records(root: str, topic: str) -> list[dict[str, Any]]:
    return run("consume", topic, root=root).json_lines


def test_consume_piped_into_produce_copies_arbitrary_bytes(root: str, tmp_path: Path) -> None:
    lines = [b"text %d" % n for n in range(5_000)] + [bytes([n]) for n in range(256) if n != 10]
    (tmp_path / "input").write_bytes(b"\n".join(lines))
    assert run("produce", "orders", tmp_path / "input", "-H", "a=b", root=root).code == 0
    txlog = " ".join(command("--root", root))
    piped = f"{txlog} consume orders | {txlog} produce copy --format json --keep-partitions"
    done = subprocess.run(["bash", "-c", piped], capture_output=True, text=True, check=True)
    assert done.stderr == f"Wrote {len(lines)} records to topic copy.\n"
    ours, theirs = records(root, "copy"), records(root, "orders")
    assert [{**each, "topic": "orders"} for each in ours] == theirs


def test_slow_input_is_written_as_it_arrives(root: str) -> None:
    consumer = reader(root)
    with start(root, "orders") as process:
        for number in range(3):
            feed(process, b"%d\n" % number)
            wait_for(consumer, 1)
        out, err = process.communicate(timeout=PROCESS_TIMEOUT_S)
    assert (process.returncode, out, err) == (0, b"", b"Wrote 3 records to topic orders.\n")


def test_ctrl_c_reports_the_number_of_records_written(root: str) -> None:
    with start(root, "orders") as process:
        feed(process, b"a\nb\n")
        wait_for(reader(root), 2)
        process.send_signal(signal.SIGINT)
        assert process.wait(PROCESS_TIMEOUT_S) == 130
        assert process.stderr is not None
        assert process.stderr.read() == b"Interrupted: 2 records are written before.\n"
    assert len(records(root, "orders")) == 2


@WAYS
def test_ctrl_c_aborts_the_transaction(root: str, way: tuple[str, ...]) -> None:
    with start(root, "orders", "--format", "json", "--transactional-id", "t", *way) as process:
        feed(process, BLOCK)
        wait_until_written(root, way)
        process.send_signal(signal.SIGINT)
        assert process.wait(PROCESS_TIMEOUT_S) == 130
        assert process.stderr is not None
        assert process.stderr.read() == b"Interrupted: Nothing is written.\n"
    assert Admin(root).describe_topic("orders").open_transactions == ()
    assert records(root, "orders") == []


@WAYS
def test_killed_tagged_run_leaves_nothing_and_rerun_writes_all_once(
    root: str, tmp_path: Path, way: tuple[str, ...]
) -> None:
    arguments = ("orders", "--format", "json", "--transactional-id", "t", "--tag", "day-1", *way)
    with start(root, *arguments) as process:
        feed(process, BLOCK)
        wait_until_written(root, way)
        process.kill()
    assert records(root, "orders") == []
    (tmp_path / "input").write_bytes(BLOCK)
    assert run("produce", *arguments, tmp_path / "input", root=root).code == 0
    assert run("produce", *arguments, tmp_path / "input", root=root).code == 4
    assert len(records(root, "orders")) == 10_000
    assert run("verify", root=root).code == 0


@pytest.mark.parametrize("transaction", [(), ("--transactional-id", "t")])
def test_full_disk_exits_with_5_and_reports_nothing_written(
    root: str, tmp_path: Path, transaction: tuple[str, ...]
) -> None:
    """No file of the process may be larger than 32 KB, as its first segment would be."""
    (tmp_path / "input").write_bytes(b"".join(b"%d\n" % number for number in range(20_000)))
    words = command("--root", root, "produce", "orders", tmp_path / "input", *transaction)
    limited = ["bash", "-c", 'ulimit -f 32; exec "$@"', "bash", *words]
    done = subprocess.run(limited, env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (5, "", 1)
    assert "Nothing is written" in done.stderr
    assert records(root, "orders") == []
    assert run("verify", root=root).code == 0


def test_closed_stdout_is_not_an_error(root: str) -> None:
    with start(root, "orders", "-o", "json") as process:
        assert process.stdout is not None
        process.stdout.close()
        feed(process, b"x\n")
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(PROCESS_TIMEOUT_S) == 0
    assert len(records(root, "orders")) == 1


def test_closed_stdin_is_a_usage_error(root: str) -> None:
    words = ["bash", "-c", 'exec "$@" <&-', "bash", *command("--root", root, "produce", "orders")]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "txlog: stdin is closed; name a file, or pipe records in.\n"


def test_json_output_reports_the_first_offset_of_each_run(root: str) -> None:
    arguments = ("orders", "-p", 1, "-o", "json")
    nothing = run("produce", *arguments, "/dev/null", root=root)
    assert (nothing.code, nothing.json["records"]) == (0, 0)
    for expected in (0, 1):
        with start(root, *arguments) as process:
            out, _ = process.communicate(b"x\n", timeout=PROCESS_TIMEOUT_S)
        assert json.loads(out)["partitions"][0]["first_offset"] == expected
    assert reader(root).end_offsets([TopicPartition("orders", 1)]) == {
        TopicPartition("orders", 1): 2
    }
