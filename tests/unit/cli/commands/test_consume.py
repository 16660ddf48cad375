"""`txlog consume`: which records it prints, in which form, and when it ends."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from tests.logs.empty_log import empty_log
from tests.logs.memory_log import SEGMENTS
from tests.processes.command_line import files, run
from tests.unit.cli.sample_log import ORDERS, SampleLog
from txlog.cli.commands import consume
from txlog.client.admin import Admin
from txlog.client.producer.producer import Producer
from txlog.engine.connection import connect


def offsets(log: SampleLog, *arguments: object) -> dict[int, list[int]]:
    """Offsets of topic `orders` that a command prints, by partition."""
    found: dict[int, list[int]] = {}
    for record in run("consume", "orders", *arguments, root=log.root).json_lines:
        found.setdefault(record["partition"], []).append(record["offset"])
    return found


def test_default_output_is_all_committed_records_as_json_lines(log: SampleLog) -> None:
    done = run("consume", "orders", root=log.root)
    assert done.code == 0
    by_place = {(r["partition"], r["offset"]): r for r in done.json_lines}
    assert set(by_place) == {(0, n) for n in range(ORDERS)} | {(1, 0)}
    assert by_place[0, 0] == {
        "topic": "orders",
        "partition": 0,
        "offset": 0,
        "timestamp": "2013-01-01T05:15:00.000Z",
        "key": "k0",
        "value": "order 0",
        "headers": [{"key": "source", "value": "shop"}],
    }
    assert by_place[1, 0]["value"] == {"base64": "/wA="}


def test_blocking_open_transaction_is_named_on_stderr(log: SampleLog) -> None:
    said = run("consume", "orders", root=log.root).err
    assert said.startswith(f"orders-0 is blocked at offset 11 by transaction {log.opened};")
    assert run("consume", "orders", "-p", "1", root=log.root).err == ""
    assert run("consume", "orders", "-q", root=log.root).err == ""


def test_typed_topic_values_are_printed_as_objects(log: SampleLog) -> None:
    assert [r["value"] for r in run("consume", "flights", root=log.root).json_lines] == [
        {
            "carrier": "UA",
            "delay": 2,
            "at": "2013-01-01T05:15:00.000000Z",
            "raw": {"base64": "/g=="},
        },
        {"carrier": None, "delay": None, "at": None, "raw": "plain"},
    ]


def test_read_uncommitted_includes_aborted_and_open_records(log: SampleLog) -> None:
    found = offsets(log, "--isolation", "read_uncommitted", "--partition", 0, "--from", 8)
    assert found == {0: [8, 9, 10, 11]}


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("earliest", range(10)),
        ("latest", range(0)),
        ("7", range(7, 10)),
        ("11", range(0)),
        ("@2013-01-01T05:15:04Z", range(4, 10)),
        ("@1357017304000", range(4, 10)),
        ("@1357017303001", range(4, 10)),
        ("@2030-01-01", range(0)),
        ("@0", range(10)),
    ],
)
def test_from_option_accepts_edges_offsets_and_times(
    start: str, expected: range, log: SampleLog
) -> None:
    found = offsets(log, "--from", start, "--partition", 0)
    assert found == ({0: list(expected)} if expected else {})


def test_partition_option_selects_partitions_and_may_be_repeated(log: SampleLog) -> None:
    assert offsets(log, "-p", 1) == {1: [0]}
    assert sorted(offsets(log, "-p", 1, "-p", 0, "-p", 1)) == [0, 1]


@pytest.mark.parametrize("count", [1, 3, 11, 50])
def test_max_messages_is_exact(count: int, log: SampleLog) -> None:
    assert sum(map(len, offsets(log, "-n", count).values())) == min(count, 11)


def test_max_messages_counts_over_several_polls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consume, "POLL_RECORDS_MAX", 7)
    root = numbers(tmp_path, 100)
    found = run("consume", "numbers", "-n", 40, root=root).json_lines
    assert len(found) == 40
    assert len(run("consume", "numbers", root=root).json_lines) == 100
    for partition in (0, 1):
        own = [r["offset"] for r in found if r["partition"] == partition]
        assert own == list(range(len(own)))


def numbers(folder: Path, count: int) -> Path:
    """A log with a typed topic that holds `count` records in two partitions."""
    root = folder / "log"
    Admin(str(root), create=True).create_topic("numbers", 2, pa.schema([("n", pa.int64())]))
    producer = Producer(str(root))
    producer.send_batch("numbers", pa.table({"n": range(count)}))
    producer.flush()
    return root


def test_consume_ends_at_the_records_present_at_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each printed line adds two records, so a naive reader would never end."""
    monkeypatch.setattr(consume, "POLL_RECORDS_MAX", 10)
    root = numbers(tmp_path, 20)
    producer, write = Producer(str(root)), consume.write_json_lines

    def write_and_produce(table: pa.Table) -> None:
        write(table)
        producer.send_batch("numbers", pa.table({"n": range(100, 100 + 2 * table.num_rows)}))
        producer.flush()

    monkeypatch.setattr(consume, "write_json_lines", write_and_produce)
    found = run("consume", "numbers", root=root).json_lines
    assert sorted(record["value"]["n"] for record in found) == list(range(20))


def test_table_output_has_one_column_per_record_field(log: SampleLog) -> None:
    rows = run("consume", "orders", "-p", 0, "-n", 2, "-o", "table", root=log.root).rows
    assert rows[0] == ["PARTITION", "OFFSET", "TIMESTAMP", "KEY", "VALUE", "HEADERS"]
    assert rows[2] == ["0", "1", "2013-01-01T05:15:01.000Z", "k1", "order 1", "-"]
    typed = run("consume", "flights", "-o", "table", root=log.root).rows
    assert typed[0] == ["PARTITION", "OFFSET", "TIMESTAMP", "CARRIER", "DELAY", "AT", "RAW"]
    assert typed[1][3:] == ["UA", "2", "2013-01-01T05:15:00.000000Z", '{"base64": "/g=="}']


def test_escape_sequences_in_records_do_not_reach_the_terminal(own_log: SampleLog) -> None:
    evil = "\x1b[2J\x9b31m\x7f".encode()
    producer = Producer(own_log.connection)
    producer.send("flights", {"carrier": evil.decode(), "raw": evil})
    producer.flush()
    table = run("consume", "flights", "--from", 2, "-o", "table", root=own_log.root).out
    lines = run("consume", "flights", "--from", 2, root=own_log.root)
    for text in (table, lines.out):
        assert all(character.isprintable() for character in text.replace("\n", ""))
    assert lines.json_lines[0]["value"]["raw"] == evil.decode()


def test_consume_without_a_group_writes_nothing(own_log: SampleLog) -> None:
    before = files(own_log.root)
    run("consume", "orders", root=own_log.root)
    run("consume", "flights", "--from", "latest", root=own_log.root)
    assert files(own_log.root) == before


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (["nope"], 3, "there is no topic 'nope'"),
        (["../../etc"], 2, "is not allowed"),
        ([""], 2, "it is empty"),
        (["orders", "--from", "first"], 2, "--from is 'first'"),
        (["orders", "--from", "@soon"], 2, "'soon' is not a time"),
        (["orders", "--from", "99"], 2, "offset 99 of topic 'orders' partition"),
        (["orders", "--partition", "2"], 3, "topic 'orders' has partitions 0 to 1, not 2"),
        (["orders", "--partition", "-1"], 2, "--partition"),
        (["orders", "--partition", "all"], 2, "--partition"),
        (["orders", "-n", "0"], 2, "--max-messages"),
        (["orders", "--isolation", "committed"], 2, "'read_committed', 'read_uncommitted'"),
        (["orders", "-o", "csv"], 2, "'table', 'json'"),
        (["orders", "extra"], 2, "unexpected extra argument"),
        ([], 2, "Missing argument 'TOPIC'"),
    ],
)
def test_invalid_input_is_refused_in_one_line_and_writes_nothing(
    arguments: list[str], code: int, why: str, own_log: SampleLog
) -> None:
    before = files(own_log.root)
    done = run("consume", *arguments, root=own_log.root)
    assert (done.code, done.out) == (code, "")
    assert why in done.err
    assert done.err.startswith("txlog: ")
    assert done.err.count("\n") == 1
    assert files(own_log.root) == before


def test_I15_consume_fails_at_a_damaged_segment_and_prints_nothing_after_it(tmp_path: Path) -> None:
    root = empty_log(tmp_path / "log", SEGMENTS)
    Admin(root).create_topic("t", 1)
    with Producer(root) as producer:
        for number in range(3):
            producer.send("t", b"%d" % number).get()
    damaged = Path(root, connect(root).cluster.present_topic("t").state.tail[1].segment)
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 0xFF
    damaged.write_bytes(data)
    done = run("consume", "t", root=root)
    assert done.code == 1
    assert damaged.name in done.err
    assert done.err.count("\n") == 1
    assert [record["offset"] for record in done.json_lines] in ([], [0])
    after = run("consume", "t", "--from", 2, root=root)
    assert (after.code, [record["offset"] for record in after.json_lines]) == (0, [2])


def test_table_shows_a_column_added_while_reading(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write = consume.table_writer()
    for columns in ({"n": [1]}, {"n": [2], "t": ["x"]}):
        stamp = pa.array([0], pa.timestamp("ms", "UTC"))
        table = pa.table(
            {**columns, "_topic": ["t"], "_partition": [0], "_offset": [0], "_timestamp": stamp}
        )
        write(table)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[3:] for line in lines] == [["N"], ["1"], ["N", "T"], ["2", "x"]]


def test_json_output_has_one_document_per_line(log: SampleLog) -> None:
    out = run("consume", "orders", root=log.root).out
    assert out.endswith("}\n")
    assert all(json.loads(line) for line in out.splitlines())
