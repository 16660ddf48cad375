"""`txlog consume --group | --format`: positions follow the printed records; lines and Arrow."""

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from tests.processes.command_line import UNSET, run
from tests.unit.cli.sample_log import SampleLog
from txlog.cli.main import app
from txlog.client.producer.producer import Producer


def raw(log: SampleLog, *arguments: str) -> bytes:
    """What a command writes to stdout, as bytes."""
    words = ["--root", str(log.root), "consume", *arguments]
    variables: dict[str, str | None] = dict.fromkeys(UNSET)
    return CliRunner().invoke(app, words, env=variables).stdout_bytes


def offsets(log: SampleLog, *arguments: object) -> list[int]:
    done = run("consume", "orders", "-p", 0, *arguments, root=log.root)
    assert done.code == 0
    return [record["offset"] for record in done.json_lines]


def test_group_continues_at_its_committed_offset(own_log: SampleLog) -> None:
    assert offsets(own_log, "--group", "report", "-n", 3) == [0, 1, 2]
    assert offsets(own_log, "--group", "report", "-n", 3) == [3, 4, 5]
    assert offsets(own_log, "--group", "report") == [6, 7, 8, 9]
    assert offsets(own_log, "--group", "report") == []
    described = run("group", "describe", "report", "-o", "json", root=own_log.root).json
    assert [partition["lag"] for partition in described["partitions"]] == [0, None]


def test_from_option_overrides_the_committed_offset_of_a_group(own_log: SampleLog) -> None:
    offsets(own_log, "--group", "report")
    assert offsets(own_log, "--group", "report", "--from", "8") == [8, 9]
    assert offsets(own_log, "--group", "report", "--from", "earliest") == list(range(10))
    assert offsets(own_log, "--group", "report", "-n", 3, "--from", "@0") == [0, 1, 2]
    assert offsets(own_log, "--group", "report", "--from", "latest") == []


def test_without_a_group_nothing_is_committed(own_log: SampleLog) -> None:
    before = own_log.connection.offsets.groups()
    assert offsets(own_log, "-n", 3) == offsets(own_log, "-n", 3)
    assert own_log.connection.offsets.groups() == before


def test_record_produced_during_the_command_is_read_by_the_next_one(
    own_log: SampleLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The poll returns it together with the records that existed when the command began."""
    own_log.admin.create_topic("new")
    producer = Producer(own_log.connection)
    producer.send("new", b"before").get()
    wanted = "txlog.cli.commands.consume._seek"
    monkeypatch.setattr(wanted, lambda *_: producer.send("new", b"during").get())
    first = run("consume", "new", "--group", "g", "--from", "earliest", root=own_log.root)
    monkeypatch.undo()
    second = run("consume", "new", "--group", "g", root=own_log.root)
    found = [[record["value"] for record in done.json_lines] for done in (first, second)]
    assert found == [["before"], ["during"]]


def test_lines_format_prints_raw_values_and_keys(own_log: SampleLog) -> None:
    assert raw(own_log, "orders", "-p", "1", "--format", "lines") == b"\xff\x00\n"
    two = raw(own_log, "orders", "-p", "0", "-n", "2", "--format", "lines", "-K", "\\t")
    assert two == b"k0\torder 0\nk1\torder 1\n"


def test_arrow_format_is_one_stream_with_the_columns_of_the_topic(own_log: SampleLog) -> None:
    with pa.ipc.open_stream(raw(own_log, "flights", "--format", "arrow")) as reader:
        table = reader.read_all()
    assert table["carrier"].to_pylist() == ["UA", None]
    assert table.column_names[-4:] == ["_topic", "_partition", "_offset", "_timestamp"]
    assert raw(own_log, "flights", "--from", "latest", "--format", "arrow") == b""


@pytest.mark.parametrize(
    "arguments",
    [
        ("flights", "--format", "lines"),
        ("orders", "--format", "lines", "-o", "table"),
        ("orders", "-K", ":"),
        ("orders", "--format", "lines", "-K", ""),
        ("orders", "--group", "a\nb"),
        ("orders", "--group", ""),
        ("orders", "--format", "xml"),
    ],
)
def test_contradictory_or_invalid_options_exit_2(
    log: SampleLog, arguments: tuple[str, ...]
) -> None:
    done = run("consume", *arguments, root=log.root)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
