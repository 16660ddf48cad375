"""`txlog drill` without Spark: its plan, its report, what it refuses, and checks that see."""

import json
import re
import signal
import subprocess
import tempfile
import time
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from spark_plugin.checkpoint import Checkpoint, open_checkpoint
from spark_plugin.drill_points import POINTS, DrillPoints, Moment, Place
from spark_plugin.offsets import PartitionRange, SourceOffset, TopicOffsets, encode
from spark_plugin.query_progress import BatchInHand
from tests.command_line import Run, command, environment, run
from txlog.cli.drill_checks import DrillCheck, drill_checks
from txlog.cli.drill_log import PARTITIONS, PORTION, DrillLog
from txlog.cli.drill_report import DrillResult, document, html_report, same_again, sections
from txlog.cli.drill_rounds import AT_RANDOM, Kill, plan_rounds
from txlog.cli.exit_codes import INTERRUPTED
from txlog.cli.output import Grid
from txlog.clients.admin import Admin
from txlog.clients.connection import Connection, open_connection
from txlog.clients.producer import Producer
from txlog.clock import Runtime
from txlog.coordinator.coordinator import InitOptions
from txlog.coordinator.events import ReplayMark
from txlog.model import TopicPartition, TxId
from txlog.storage.local import LocalStore
from txlog.storage.store import Created
from txlog.testing.clock import ManualClock

QUERY = "spark.query"
"""Transactional id of the query that the checkpoint names."""

# The plan.


def test_one_seed_gives_one_plan_with_every_point_and_random_moments() -> None:
    assert plan_rounds(12, 7) == plan_rounds(12, 7)
    planned = [planned.point for planned in plan_rounds(12, 7)]
    assert [point for point in planned if point != AT_RANDOM] == list(POINTS)
    assert planned.count(AT_RANDOM) == 3
    delays = {r.delay_ms for seed in range(20) for r in plan_rounds(4, seed)} - {0.0}
    assert len(delays) == 20


def test_a_short_drill_begins_at_any_point_and_ends_at_random() -> None:
    plans = [[r.point for r in plan_rounds(3, seed)] for seed in range(200)]
    assert all(plan[-1] == AT_RANDOM for plan in plans)
    assert {point for plan in plans for point in plan} == {*POINTS, AT_RANDOM}
    assert plan_rounds(1, 0)[0].point in POINTS


# The points.


def test_a_process_stops_at_the_object_that_was_meant(tmp_path: Path) -> None:
    points = DrillPoints(tmp_path)
    points.set("second", Place(Moment.AFTER, "topics/", ('"marker_written"',), number=2))
    points.release("second")  # Nobody waits for ever here.
    calls: list[str] = []

    def create(path: str, data: bytes) -> None:
        def done() -> Created:
            calls.append(path)
            return Created()

        points.create(path, data, done)

    create("topics/a/1", b'{"type":"marker_written"}')
    create("transactions/0", b'{"type":"marker_written"}')
    assert len(list(tmp_path.glob("second.created *"))) == 1
    create("topics/b/1", b'{"type":"marker_written"}')
    assert len(list(tmp_path.glob("second.created *"))) == 2
    assert calls == ["topics/a/1", "transactions/0", "topics/b/1"]
    points.clear()
    assert list(tmp_path.glob("*.*")) == []


# The report.

FOUND = BatchInHand(3, True, False, True)
RESULT = DrillResult(
    "/data",
    "<script>alert(1)</script>",
    7,
    61_000.0,
    (
        Kill(1, "after pend", True, True, 9, FOUND, "replayed: was in the log", 12_345.6),
        Kill(2, AT_RANDOM, True, False, 2, BatchInHand(4, False, False, False), "went on", None),
    ),
    (DrillCheck("input = output", True, "500 in, 500 out"),),
    "txlog --root /data drill --kills 2 --seed 7",
)


class _Reader(HTMLParser):
    """Every tag, attribute and text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.references: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.references += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_the_report_is_one_file_that_needs_nothing_else_and_obeys_no_text() -> None:
    reader = _Reader()
    reader.feed(html_report(RESULT))
    assert reader.references == []
    assert "script" not in reader.tags
    assert "<script>alert(1)</script>" in reader.texts
    text = " ".join(reader.texts)
    for wanted in ("12.3 s", "after pend", "replayed: was in the log", "500 in, 500 out"):
        assert wanted in text
    assert "txlog --root /data drill --kills 2 --seed 7" in text
    assert "Nothing was lost" in text


def test_of_a_job_whose_output_nobody_knows_the_report_does_not_say_that_nothing_was_lost() -> None:
    text = html_report(replace(RESULT, checks=(DrillCheck("invariants", True, "one story"),)))
    assert "lost" not in text
    assert "what the log holds is whole" in text


def test_the_same_kills_again_are_those_of_the_same_job() -> None:
    options = {"--job": Path("my job.py"), "--checkpoint": "c", "--kills": 3, "--wait": None}
    assert same_again("s3://b/log", options, ["--root", "x y"]) == (
        "txlog --root s3://b/log drill --job 'my job.py' --checkpoint c --kills 3 -- --root 'x y'"
    )
    assert same_again(None, {"--seed": 7}, []) == "txlog drill --seed 7"


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--password", "hush", "--root", "r"], "--password '***' --root r"),
        (["--API-Token=hush", "x"], "'--API-Token=***' x"),
        (["--password", "-hush"], "--password '***'"),
        (["--conf", "spark.hadoop.fs.s3a.secret.key=hush"], "fs.s3a.secret.key=***'"),
        (["jdbc:x://h/db?user=me&password=hush&ssl=on"], "user=me&password=***'"),
        (["--options", '{"secret": "hush"}'], "--options '{\"secret\":***'"),
        (["https://me:hush@host/path"], "'https://***@host/path'"),
        (["--use-key", "--root", "r"], "--use-key --root r"),
        (["--key=hush-key", "r"], "'--key=***' r"),
        (["keys.py", "--root", "s3://b/log"], "keys.py --root s3://b/log"),
    ],
)
def test_no_secret_of_the_jobs_arguments_is_in_the_command(
    arguments: list[str], shown: str
) -> None:
    again = same_again(None, {}, arguments)
    assert shown in again
    assert "hush" not in again


def test_a_drill_that_killed_nothing_is_not_well() -> None:
    kills = tuple(replace(kill, processes=0) for kill in RESULT.kills)
    assert RESULT.is_well
    assert not replace(RESULT, kills=kills).is_well
    assert not replace(RESULT, kills=()).is_well
    assert not replace(RESULT, checks=()).is_well


def test_a_drill_that_reached_none_of_its_points_says_so_everywhere() -> None:
    first, at_random = RESULT.kills
    missed = replace(RESULT, kills=(replace(first, is_reached=False), at_random))
    assert missed.is_well
    assert "No named point was reached" in html_report(missed)
    assert "No named point was reached" in str(document(missed)["warning"])
    assert Grid(("WARNING",), [(missed.warning,)]) in list(sections(missed))
    assert (RESULT.warning, document(RESULT)["warning"]) == ("", None)


def test_a_failure_is_told_everywhere() -> None:
    failed = DrillResult(
        "/data", "job", 7, 1.0, (), (DrillCheck("open transactions", False, "one"),), "", "it died"
    )
    assert document(failed)["ok"] is False
    page = html_report(failed)
    assert "The drill failed." in page
    assert "it died" in page
    assert json.loads(json.dumps(document(RESULT)))["replays"] == 1


# What is refused.


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (["--job", "nowhere.py", "--checkpoint", "c"], 2, "there is no job nowhere.py"),
        (["--job", __file__], 2, "--job needs --checkpoint"),
        (["--checkpoint", "c"], 2, "give --job FILE"),
        (["--kills", "0"], 2, "--kills"),
        (["--job", __file__, "--checkpoint", "c"], 2, "no log was named"),
    ],
)
def test_a_drill_that_cannot_be_is_refused_at_once(
    arguments: list[str], code: int, why: str
) -> None:
    done = run("drill", *arguments)
    assert (done.code, done.out) == (code, "")
    assert why in done.err


def test_a_job_that_ends_by_itself_fails_the_drill_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    job = tmp_path / "job.py"
    job.write_text("raise SystemExit('out of paper')")
    open_connection(LocalStore(tmp_path / "log", Runtime()), Runtime(), create=True)
    report = tmp_path / "drill.html"
    done = run(
        *("drill", "--job", job, "--checkpoint", tmp_path / "checkpoint", "--report", report),
        *("--kills", 2, "-o", "json"),
        root=tmp_path / "log",
    )
    assert (done.code, done.json["ok"], done.json["kills"]) == (1, False, [])
    assert f"--root {tmp_path / 'log'} drill --job {job} " in done.json["again"]
    assert " --kills 2 --seed " in done.json["again"]
    assert "out of paper" in done.json["failure"]
    assert "out of paper" in report.read_text()
    kept = re.search(r"are in (\S+)\.\n", done.err)
    assert kept is not None
    assert (Path(kept[1]) / "run-1.log").read_text() == "out of paper\n"


DAMAGING_JOB = """
import os, pathlib, sys, time
log, checkpoint = map(pathlib.Path, sys.argv[1:])
for folder in ("offsets", "commits"):
    (checkpoint / folder).mkdir(parents=True)
    (checkpoint / folder / "0").write_text("v1")
points = pathlib.Path(os.environ["TXLOG_DRILL_POINTS"])
while not (found := list(points.glob("*.json"))):
    time.sleep(0.01)
entry = log / "transactions" / "0" / "entries" / f"{0:020}.json"
entry.parent.mkdir(parents=True, exist_ok=True)
entry.write_text("{}")
found[0].with_suffix(".reached").touch()
time.sleep(600)
"""
"""It says that it has finished a batch, and spoils the log when it stands at its point."""


def drilled(folder: Path, text: str, *options: object) -> tuple[Run, Path]:
    """A drill of a job with these lines, and the folder that it kept."""
    job, root, checkpoint = folder / "job.py", folder / "log", folder / "checkpoint"
    job.write_text(text)
    open_connection(LocalStore(root, Runtime()), Runtime(), create=True)
    done = run(
        *("drill", "--job", job, "--checkpoint", checkpoint, "--kills", 1, *options),
        *("--", root, checkpoint),
        root=root,
    )
    kept = re.search(r"are in (\S+)\.\n", done.err)
    assert kept is not None, done.err
    return done, Path(kept[1])


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where drills have their folders."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_log_that_cannot_be_read_fails_the_drill_which_keeps_its_evidence(
    temporary: Path,
) -> None:
    report = temporary / "drill.html"
    done, kept = drilled(temporary, DAMAGING_JOB, "--report", report, "-o", "json")
    assert (done.code, done.json["ok"]) == (1, False)
    assert "transactions/0/entries/00000000000000000000.json" in done.json["failure"]
    assert "What ended the drill" in report.read_text()
    assert (kept / "run-1.log").exists()


@pytest.mark.parametrize(
    ("name", "why"), [("none/drill.html", "there is no folder"), ("folder", "is a folder")]
)
def test_a_report_that_cannot_be_written_is_told_before_the_drill_starts(
    temporary: Path, name: str, why: str
) -> None:
    (temporary / "folder").mkdir()
    done = run("drill", "--report", temporary / name)
    assert (done.code, done.out) == (2, "")
    assert why in done.err
    assert str(temporary / name) in done.err
    assert list(temporary.glob("txlog-drill-*")) == []


ENDING_JOB = """
import os, pathlib, sys, time
root, checkpoint = map(pathlib.Path, sys.argv[1:])
for folder in ("offsets", "commits"):
    (checkpoint / folder).mkdir(parents=True)
    (checkpoint / folder / "0").write_text("v1")
points = pathlib.Path(os.environ["TXLOG_DRILL_POINTS"])
while not list(points.glob("*.json")):
    time.sleep(0.01)
print("all is done")
"""
"""As with availableNow: it is at its end when it is to be killed."""


def test_a_job_that_is_gone_when_it_is_to_be_killed_fails_the_drill(temporary: Path) -> None:
    done, _ = drilled(temporary, ENDING_JOB, "-o", "json")
    assert (done.code, done.json["ok"], done.json["kills"]) == (1, False, [])
    assert "the job ended by itself with status 0" in done.json["failure"]
    assert "all is done" in done.json["failure"]
    assert "leave out triggers such as availableNow" in done.json["failure"]


RECOVERING_JOB = """
import os, pathlib, sys, time
checkpoint = pathlib.Path(sys.argv[2])
for folder in ("offsets", "commits"):
    (checkpoint / folder).mkdir(parents=True, exist_ok=True)
batch = len(list((checkpoint / "commits").iterdir()))
for folder in ("offsets", "commits"):
    (checkpoint / folder / str(batch)).write_text("v1")
points = pathlib.Path(os.environ["TXLOG_DRILL_POINTS"])
while True:
    for found in points.glob("*.json"):
        found.with_suffix(".reached").touch()
    time.sleep(0.01)
"""
"""A batch a run, and none of it in the log."""


def test_a_job_is_killed_started_again_and_ended_and_then_all_is_proven(temporary: Path) -> None:
    done, _ = drilled(temporary, RECOVERING_JOB, "--kills", 2, "--seed", 11, "-o", "json")
    assert (done.json["failure"], done.json["warning"]) == (None, None)
    kills = [(k["is_reached"], k["processes"], k["outcome"]) for k in done.json["kills"]]
    assert kills == [(True, 1, "went on")] * 2
    assert len(done.json["checks"]) == 6
    failed = [check["name"] for check in done.json["checks"] if not check["is_well"]]
    assert failed == ["batches in the log", "checkpoint and log"]


WAITING_JOB = """
import os, pathlib, sys, time
pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))
time.sleep(600)
"""


def test_whoever_ends_a_drill_ends_its_job_and_is_told_what_is_left(tmp_path: Path) -> None:
    job, root, pid = tmp_path / "job.py", tmp_path / "log", tmp_path / "pid"
    job.write_text(WAITING_JOB)
    open_connection(LocalStore(root, Runtime()), Runtime(), create=True)
    line = command("--root", root, "drill", "--job", job, "--checkpoint", "c", "--", pid)
    with subprocess.Popen(
        line, env=environment(TMPDIR=str(tmp_path)), stderr=subprocess.PIPE, text=True
    ) as drill:
        while not (pid.exists() and pid.read_text()):
            assert drill.poll() is None
            time.sleep(0.01)
        drill.send_signal(signal.SIGTERM)
        _, said = drill.communicate(timeout=60)
    assert drill.returncode == INTERRUPTED
    assert not psutil.pid_exists(int(pid.read_text()))
    (kept,) = tmp_path.glob("txlog-drill-*")
    assert f"its log are in {kept}." in said
    assert (kept / "run-1.log").exists()


def test_a_drill_that_is_ended_names_its_topics_in_a_log_that_stays(tmp_path: Path) -> None:
    """Of the bundled job; nothing of Spark need have started."""
    root = tmp_path / "log"
    line = command("--root", root, "drill", "--seed", 7)
    with subprocess.Popen(
        line, env=environment(TMPDIR=str(tmp_path)), stderr=subprocess.PIPE, text=True
    ) as drill:
        while not list(tmp_path.glob("txlog-drill-*/run-1.log")):
            assert drill.poll() is None
            time.sleep(0.01)
        drill.send_signal(signal.SIGTERM)
        _, said = drill.communicate(timeout=60)
    topics = Admin(str(root)).list_topics()
    assert drill.returncode == INTERRUPTED
    assert len(topics) == 3
    assert all(f"{topic}" in said and topic.startswith("drill-7-") for topic in topics)
    assert f"stay in {root}" in said


def test_a_report_that_cannot_be_written_after_all_costs_nothing_else(temporary: Path) -> None:
    report = temporary / "drill.html"
    taking_its_place = f"import os; os.mkdir({str(report)!r}); raise SystemExit('out of paper')"
    done, kept = drilled(temporary, taking_its_place, "--report", report)
    assert done.code == 1
    assert "out of paper" in done.out
    assert f"{report}: Is a directory" in done.err
    assert (kept / "run-1.log").exists()


# The checks.


class SmallDrill:
    """What a drill leaves whose job has copied all numbers, but for what a test spoils."""

    def __init__(self, folder: Path, runtime: Runtime | None = None) -> None:
        runtime = runtime or Runtime()
        store = LocalStore(folder / "log", runtime, durable=False)
        self.connection = open_connection(store, runtime, create=True)
        self.data = DrillLog(self.connection, "drill-1")
        self.data.create()
        self.data.feed()
        self.data.close()
        self.folder = folder / "checkpoint"
        (self.folder / "offsets").mkdir(parents=True)
        (self.folder / "commits").mkdir()
        (self.folder / "metadata").write_text('{"id":"query"}')
        cluster, ends = self.connection.cluster, self.ends()
        ranges = {p: PartitionRange(0, end) for p, end in ends.items()}
        topics = {self.data.numbers: TopicOffsets(self.topic().topic_id, ranges)}
        line = encode(SourceOffset(cluster.log_id, self.data.numbers, topics))
        (self.folder / "offsets" / "0").write_text(f'v1\n{{"batchWatermarkMs":0}}\n{line}')
        (self.folder / "commits" / "0").write_text("v1\n{}")

    def topic(self) -> object:
        return self.connection.cluster.topic(self.data.numbers)

    def ends(self) -> dict[int, int]:
        state = self.topic().catch_up()  # type: ignore[attr-defined]
        return {p: state.end_offset(p) for p in range(PARTITIONS)}

    def copy(self, numbers: list[int], behind: int = 0) -> None:
        """In one transaction with the group's offsets."""
        producer = Producer(self.connection, transactional_id="copier")
        producer.init_transactions()
        even, odd = self.data.outputs
        with producer.transaction():
            for number in numbers:
                producer.send(odd if number % 2 else even, {"n": number})
            ends = self.ends()
            ends[0] -= behind
            offsets = {TopicPartition(self.data.numbers, p): end for p, end in ends.items()}
            producer.send_offsets_to_transaction(offsets, self.data.numbers)
        producer.close()
        self.note_batch()

    def note_batch(self) -> None:
        """What the sink leaves of a query's batch 0, but for its records."""
        coordinator = self.connection.coordinator_of(QUERY)
        run = coordinator.init_producer(QUERY, "run", InitOptions(60_000, is_run=True))
        tx_id = TxId(run.pid, run.epoch, 0)
        coordinator.prepare_commit(QUERY, tx_id, (), (), ReplayMark("query", 0))
        coordinator.finish(QUERY, tx_id)

    def seen_anew(self) -> DrillLog:
        """Its data, by such a process."""
        return replace(self.data, connection=self.fresh())

    def fresh(self) -> Connection:
        """The log as a process opens it that has seen nothing of it yet."""
        return open_connection(self.connection.cluster.store, Runtime())

    @property
    def checkpoint(self) -> Checkpoint:
        return open_checkpoint(str(self.folder), Runtime())

    def failed(self) -> dict[str, str]:
        """Name -> what was found, of the checks that fail."""
        return self._failed(self.data)

    def proven(self) -> dict[str, str]:
        """The same, of what is checked of a job that nobody knows."""
        return self._failed(None)

    def _failed(self, data: DrillLog | None) -> dict[str, str]:
        checks = drill_checks(self.connection, self.checkpoint, data)
        return {check.name: check.found for check in checks if not check.is_well}


@pytest.fixture
def small(tmp_path: Path) -> SmallDrill:
    return SmallDrill(tmp_path)


def test_a_drill_after_which_everything_is_there_once_is_proven(small: SmallDrill) -> None:
    small.copy(list(range(PORTION)))
    assert small.failed() == {}
    assert small.data.aborted == PORTION // 2


@pytest.mark.parametrize(
    ("numbers", "found"),
    [
        ([*range(1, PORTION)], "1 lost, 0 duplicated, 0 wrong"),
        ([*range(PORTION), 8], "0 lost, 1 duplicated, 0 wrong"),
        ([*range(PORTION), -2], "0 lost, 0 duplicated, 1 wrong"),
    ],
)
def test_one_number_that_is_not_right_is_seen(
    small: SmallDrill, numbers: list[int], found: str
) -> None:
    small.copy(numbers)
    assert list(small.failed()) == ["input = output"]
    assert found in small.failed()["input = output"]


def test_a_group_that_is_behind_is_seen(small: SmallDrill) -> None:
    small.copy(list(range(PORTION)), behind=3)
    failed = small.failed()
    assert list(failed) == ["group at the end", "checkpoint and log"]
    assert failed["group at the end"] == "3 records behind"


@pytest.mark.parametrize("name", ["spark.query", "spark.query.a-label"])
def test_a_transaction_that_is_left_open_is_seen_though_the_query_reads_no_group(
    tmp_path: Path, name: str
) -> None:
    """Its source is no txlog: no line of the checkpoint names a group, and so no owner."""
    small = SmallDrill(tmp_path, Runtime(ManualClock()))
    (small.folder / "offsets" / "0").write_text('v1\n{"batchWatermarkMs":0}\n{"n":3}')
    small.note_batch()
    assert small.proven() == {}
    producer = Producer(small.connection, transactional_id=name, transaction_timeout_ms=600_000)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(small.data.outputs[0], {"n": 2})
    producer.flush()
    failed = small.proven()
    assert list(failed) == ["open transactions"]
    assert f"of {name} is Ongoing" in failed["open transactions"]


def test_a_job_that_never_wrote_to_this_log_is_not_proven(small: SmallDrill) -> None:
    assert list(small.proven()) == ["batches in the log"]
    assert "the log has no batch of query query:" in small.proven()["batches in the log"]
    small.note_batch()
    assert "batches in the log" not in small.proven()
    (small.folder / "metadata").write_text('{"id":"another"}')
    assert "no batch of query another" in small.proven()["batches in the log"]


def test_a_drill_that_is_over_leaves_neither_topics_nor_a_group(small: SmallDrill) -> None:
    small.copy(list(range(PORTION)))
    small.data.delete()
    admin = Admin(small.connection)
    assert (admin.list_topics(), admin.list_groups()) == ([], [])


def test_damage_is_seen_by_every_check_that_meets_it(small: SmallDrill) -> None:
    small.copy(list(range(PORTION)))
    root = Path(small.connection.cluster.store.url)
    segment = next((root / "topics" / small.data.outputs[0]).rglob("segments/*.arrow"))
    data = bytearray(segment.read_bytes())
    data[data.index(pa.array([2, 4, 6]).buffers()[1].to_pybytes())] ^= 1
    segment.write_bytes(data)
    failed = small.failed()
    assert failed.pop("offsets of groups") == "not proven: bytes are damaged"
    assert list(failed) == ["input = output", "every stored byte", "invariants"]
    assert all(segment.name in found for found in failed.values())


def test_a_proof_that_damage_stands_in_the_way_of_is_not_called_well(small: SmallDrill) -> None:
    """What follows the damaged entry was not looked at, so that nothing may be said of it."""
    small.copy(list(range(PORTION)))
    damage(small, "transactions/*/entries/*.json")
    failed = small.failed()
    assert "is damaged" in failed["every stored byte"]
    assert failed["offsets of groups"] == "not proven: bytes are damaged"
    assert "invariants" in failed


@pytest.mark.parametrize("pattern", ["transactions/*/entries/*.json", "topics/*.odd/*/entries/*"])
def test_damage_that_one_check_meets_leaves_the_others_to_be_made(
    small: SmallDrill, pattern: str
) -> None:
    small.copy(list(range(PORTION)))
    damage(small, pattern)
    checks = list(drill_checks(small.fresh(), small.checkpoint, small.seen_anew()))
    assert len(checks) == 8
    assert not next(check for check in checks if check.name == "every stored byte").is_well


def damage(small: SmallDrill, pattern: str) -> None:
    """One byte in the midst of the last object of that name."""
    victim = sorted(Path(small.connection.cluster.store.url).glob(pattern))[-1]
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 0xFF
    victim.write_bytes(data)
