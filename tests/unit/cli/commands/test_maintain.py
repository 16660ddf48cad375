"""`txlog maintain`, `vacuum`, `topic delete-records` and `compact` as users see them."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from tests.logs.empty_log import empty_log
from tests.logs.memory_log import SEGMENTS
from tests.processes.command_line import files, run
from txlog.client.admin import Admin
from txlog.client.consumer.consumer import Consumer
from txlog.client.producer.producer import Producer

TWICE = (
    '{"partitions": [{"topic": "orders", "partition": 0, "offset": 1},'
    ' {"topic": "orders", "partition": 0, "offset": 2}]}'
)
LATER = ("--config", "file.delete.delay.ms=1")
QUICK = ("--config", "staging.retention.ms=1", "--config", "file.delete.delay.ms=1")


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    """A copy of the log for one test."""
    return Path(shutil.copytree(made, tmp_path / "log"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log with `orders`, to be cut down to 1,000 bytes, and `prices`, which is compacted."""
    root = tmp_path_factory.mktemp("made") / "log"
    admin = Admin(empty_log(root, SEGMENTS))
    admin.create_topic("orders", 1, config={"retention.bytes": 1_000})
    admin.create_topic("prices", 1, config={"cleanup.policy": "compact"})
    producer = Producer(str(root))
    for number in range(20):
        producer.send("orders", value=b"%d" % number).get()
        producer.send("prices", key=b"%d" % (number % 2), value=b"%d" % number).get()
    return root


def values(root: Path, topic: str) -> list[bytes]:
    consumer = Consumer(topic, root=str(root), auto_offset_reset="earliest")
    return [record.value for records in consumer.poll().values() for record in records]


def test_maintain_once_reports_its_actions_and_a_second_pass_has_none(root: Path) -> None:
    done = run("maintain", "--once", "--no-vacuum", "-o", "json", root=root)
    assert [(line["task"], line["subject"], line["status"]) for line in done.json] == [
        ("retention", "orders", "ok"),
        ("compaction", "prices", "ok"),
    ]
    assert done.json[1]["detail"] == "records removed: 18 of 20"
    assert values(root, "prices") == [b"18", b"19"]
    assert 0 < len(values(root, "orders")) < 20
    again = run("maintain", "--once", "--no-vacuum", root=root)
    assert (again.code, again.err) == (0, "There was nothing to do.\n")


def test_maintain_once_waits_for_file_delete_delay_before_it_deletes(root: Path) -> None:
    run("maintain", "--once", "--no-vacuum", root=root)
    before = files(root)
    done = run("maintain", "--once", *QUICK, root=root)
    assert re.search(
        r"Nothing refers to \d+ objects with [\d,]+ bytes, such as topics/\S+\.", done.err
    )
    assert "Waiting 0 s (file.delete.delay.ms) until readers have moved on" in done.err
    assert "objects deleted:" in done.out
    assert len(files(root)) < len(before) - 20
    assert values(root, "prices") == [b"18", b"19"]


def test_damage_is_reported_and_exits_1(root: Path) -> None:
    segment = min(root.glob("topics/prices/*/segments/*"))
    segment.write_bytes(b"garbage")
    done = run("maintain", "--once", "--no-vacuum", "-o", "json", root=root)
    assert done.code == 1
    assert [(line["status"], line["task"], line["subject"]) for line in done.json] == [
        ("ok", "retention", "orders"),
        ("fail", "compaction", "prices"),
        ("fail", "merging", "prices"),
    ]
    assert segment.name in done.json[1]["detail"]


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("maintain --once --config no.such=1", 2, "unknown setting 'no.such'"),
        ("maintain --once --config compaction.keys.max=0", 2, "must be at least 1"),
        ("maintain --once --config nothing", 2, "write NAME=VALUE"),
        ("maintain --once --interval-ms 0", 2, "greater than or equal to 1"),
        ("maintain --once --topic none", 3, "there is no topic 'none'"),
        ("vacuum --config x=1", 2, "unknown setting 'x'; known names: append.attempts.max,"),
        ("vacuum --execute --config x=1", 2, "unknown setting 'x'"),
        ("vacuum --execute --config staging.retention.ms=a", 2, "must be a whole number, not 'a'"),
        ("vacuum --execute --config staging.retention.ms=0", 2, "must be at least 1"),
        ("vacuum --execute --config staging.retention=1", 2, "mean 'staging.retention.ms'"),
        ("vacuum --execute prices", 2, "'txlog vacuum --help' shows how"),
        ("topic compact", 2, "Missing argument 'TOPIC'"),
        ("topic compact price", 3, "there is no topic 'price' in"),
        ("topic compact price --execute", 3, "did you mean 'prices'? 'txlog topic list' shows all"),
        ("topic compact ../prices --execute", 2, "'../prices' is not allowed: use letters"),
    ],
)
def test_invalid_input_is_refused_before_anything_is_written(
    root: Path, line: str, code: int, said: str
) -> None:
    before = files(root)
    done = run(*line.split(), root=root)
    assert (done.code, said in done.err) == (code, True), done.err
    assert (done.out, len(done.err.splitlines())) == ("", 1)
    assert files(root) == before


def test_vacuum_is_a_dry_run_unless_execute_is_given(root: Path) -> None:
    run("maintain", "--once", "--no-vacuum", root=root)
    before = files(root)
    dry = run("vacuum", *QUICK, "-o", "json", root=root)
    assert dry.json["deleted"] is False
    assert "Nothing was done" in dry.err
    assert files(root) == before
    done = run("vacuum", "--execute", *QUICK, "-o", "json", root=root)
    assert done.json["objects"] == dry.json["objects"] == len(dry.json["paths"]) > 0
    assert done.json["bytes"] == dry.json["bytes"]
    rest = run("vacuum", *QUICK, "-o", "json", root=root).json
    assert (rest["objects"], rest["paths"]) == (0, [])
    again = run("vacuum", "--execute", *QUICK, "-o", "json", root=root)
    assert (again.json, again.err) == (
        {"objects": 0, "bytes": 0, "deleted_topics": [], "deleted": True},
        "",
    )
    assert run("verify", root=root).code == 0


def test_vacuum_deletes_the_remains_of_deleted_topics(root: Path) -> None:
    run("topic", "delete", "orders", "--execute", root=root)
    dry = run("vacuum", root=root)
    assert "the remains of the deleted topics orders" in dry.err
    done = run("vacuum", "--execute", *QUICK, "-o", "json", root=root)
    assert done.json["deleted_topics"] == ["orders"]
    assert list(root.glob("topics/orders/*/segments/*")) == []


def test_delete_records_shows_the_log_starts_before_and_after(root: Path) -> None:
    arguments = ("topic", "delete-records", "orders", "-p", "0", "--before-offset", "5")
    dry = run(*arguments, root=root)
    assert dry.out.splitlines() == [
        "TOPIC   PARTITION  LOG-START-OFFSET  NEW-LOG-START-OFFSET",
        "orders          0                 0                     5",
    ]
    assert dry.err == "Would delete 5 offsets. Nothing was done; add --execute to do it.\n"
    assert len(values(root, "orders")) == 20
    done = run(*arguments, "--execute", "-o", "json", root=root)
    assert done.json[0]["new_log_start_offset"] == 5
    assert values(root, "orders")[0] == b"5"


def test_delete_records_accepts_kafkas_offset_json_file(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    rows = [{"topic": "orders", "partition": 0, "offset": -1}]
    path.write_text(json.dumps({"partitions": rows, "version": 1}))
    done = run("topic", "delete-records", "--offset-json-file", str(path), "--execute", root=root)
    assert (done.code, values(root, "orders")) == (0, [])


@pytest.mark.parametrize(
    "rows",
    [
        "no JSON",
        "[]",
        '{"partitions": [{"topic": "orders"}]}',
        '{"partitions": [], "partitions": [{"topic": "orders", "partition": 0, "offset": 1}]}',
        '{"partitions": [{"topic": "orders", "partition": "0", "offset": 1}]}',
        '{"partitions": [{"topic": "orders", "partition": 0, "offset": true}]}',
        TWICE,
    ],
)
def test_invalid_offset_json_file_is_refused(root: Path, tmp_path: Path, rows: str) -> None:
    path = tmp_path / "offsets.json"
    path.write_text(rows)
    before = files(root)
    done = run("topic", "delete-records", "--offset-json-file", str(path), "--execute", root=root)
    assert (done.code, str(path) in done.err) == (2, True), done.err
    assert files(root) == before


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((), 2),
        (("orders",), 2),
        (("orders", "-p", "0"), 2),
        (("orders", "--all", "-p", "0"), 2),
        (("orders", "-p", "0", "--before-offset", "21"), 2),
        (("orders", "-p", "0", "--before-offset", "-2"), 2),
        (("orders", "-p", "1", "--before-offset", "1"), 3),
        (("none", "--all"), 3),
    ],
)
def test_invalid_delete_records_arguments_are_refused(
    root: Path, arguments: tuple[str, ...], code: int
) -> None:
    before = files(root)
    done = run("topic", "delete-records", *arguments, "--execute", root=root)
    assert done.code == code, done.err
    assert files(root) == before


def test_compact_ignores_min_cleanable_dirty_ratio(root: Path) -> None:
    run("topic", "config", "prices", "min.cleanable.dirty.ratio=1", root=root)
    idle = run("maintain", "--once", "--topic", "prices", "-o", "json", root=root)
    assert idle.json == []
    dry = run("topic", "compact", "prices", root=root)
    assert dry.err.startswith("Topic prices has 20 segments; its cleanup.policy is compact.")
    planned = run("topic", "compact", "prices", "-o", "json", root=root)
    assert planned.json == {"segments": 20, "cleanup_policy": "compact"}
    done = run("topic", "compact", "prices", "--execute", "-o", "json", root=root)
    assert (done.json["records_removed"], done.json["records_kept"]) == (18, 2)
    assert values(root, "prices") == [b"18", b"19"]


def test_maintain_deletes_old_temporary_files_and_keeps_young_ones(root: Path) -> None:
    (folder,) = root.glob("topics/orders/*/segments")
    old, young = folder / f".tmp-{'0' * 32}", folder / f".tmp-{'1' * 32}"
    for path in (old, young):
        path.write_bytes(b"half a segment")
    os.utime(old, (1, 1))
    done = run("maintain", "--once", "--topic", "orders", root=root)
    assert old.exists(), "a temporary file belongs to no topic"
    done = run("maintain", "--once", *LATER, "-o", "json", root=root)
    assert ("temporary files", "files deleted: 1") in [
        (line["task"], line["detail"]) for line in done.json
    ]
    assert (old.exists(), young.exists()) == (False, True)
