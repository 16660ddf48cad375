"""The demo's parts without Spark: its input, its producer, its kills, and a verifier that sees."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from examples.demo.__main__ import main, parse, prepare_work
from examples.demo.comparison import compare
from examples.demo.drill import plans
from examples.demo.expected import expected_outputs
from examples.demo.flights import FLIGHT_COUNT, FLIGHTS_SCHEMA, csv_archive, read_flights
from examples.demo.job_process import JobFailed, JobProcess, start
from examples.demo.report import TOPICS, _record_rows
from examples.demo.root import prepare_root
from examples.demo.spark_progress import NONE, is_without_records, query_progress
from examples.demo.transactions import PRODUCER
from examples.demo.verify import SOURCE
from tests.integration.small_demo import DAY_ROWS, SmallDemo, Tables, one_day
from txlog.clients.admin import Admin
from txlog.clients.connection import connect
from txlog.clients.consumer import Consumer
from txlog.errors import TopicExists, UsageError
from txlog.layout import CLUSTER_FILE


@pytest.fixture(scope="module")
def flights() -> pa.Table:
    return read_flights()


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return one_day(tmp_path_factory.mktemp("archive"))


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "log")


# The input.


def test_every_flight_of_2013_is_read_in_its_type(flights: pa.Table) -> None:
    assert flights.num_rows == FLIGHT_COUNT
    assert flights.schema.equals(FLIGHTS_SCHEMA)
    assert pa.types.is_timestamp(flights.schema.field("event_time").type)
    nulls = {name: flights[name].null_count for name in flights.column_names}
    assert {name: count for name, count in nulls.items() if count} == {
        "dep_time": 8_255,
        "dep_delay": 8_255,
        "arr_time": 8_713,
        "arr_delay": 9_430,
        "tailnum": 2_512,
        "air_time": 9_430,
    }


def test_flights_are_in_order_of_their_scheduled_departure(flights: pa.Table) -> None:
    times = flights["event_time"].cast(pa.int64()).combine_chunks()
    assert pc.all(pc.greater_equal(times[1:], times[:-1])).as_py()
    first = flights.slice(0, 1).to_pylist()[0]
    assert (first["carrier"], first["flight"], first["sched_dep_time"]) == ("UA", 1545, 515)
    assert first["event_time"].isoformat() == "2013-01-01T10:15:00+00:00"


def test_the_verifier_reads_the_same_flights_in_another_way(flights: pa.Table) -> None:
    expected = expected_outputs(csv_archive())
    assert compare(expected.flights, flights).is_none
    assert expected.delays.num_rows + expected.cancellations.num_rows == FLIGHT_COUNT
    assert expected.cancellations.num_rows == 8_255


# The verifier, on a log of one day.


def test_a_sound_log_is_proven(root: str, archive: Path) -> None:
    proof = SmallDemo(root, archive).proof()
    assert proof.problems() == []
    rows = _record_rows(proof)
    assert rows["records in"] == rows["records out"]
    assert (rows["records in"][SOURCE], rows["records in"]["cancellations"]) == (DAY_ROWS, 4)
    assert min(rows["records in"][name] for name in TOPICS) > 0
    assert len(proof.endings[PRODUCER].committed) == 9
    assert len(proof.endings["delays"].committed) == 2
    assert proof.endings["hourly"].watermark_only == 1


def test_aborted_records_are_in_the_log_and_are_left_out(root: str, archive: Path) -> None:
    demo = SmallDemo(root, archive)
    proof = demo.proof()
    consumer = Consumer(
        SOURCE, root=demo.connection, auto_offset_reset="earliest", enable_auto_commit=False
    )
    seen = 0
    while (table := consumer.poll_arrow()) is not None:
        seen += table.num_rows
    assert len(proof.endings[PRODUCER].aborted) == 2
    assert proof.records_aborted == seen - DAY_ROWS > 100


def lose(batches: list[Tables]) -> None:
    batches[0]["delays"] = batches[0]["delays"].slice(1)


def double(batches: list[Tables]) -> None:
    rows = batches[0]["delays"]
    batches[0]["delays"] = pa.concat_tables([rows, rows.slice(0, 1)])


def alter(batches: list[Tables]) -> None:
    rows = batches[0]["delays"]
    place = rows.schema.get_field_index("delay_minutes")
    minutes = rows["delay_minutes"].to_pylist()
    minutes[0] += 1
    batches[0]["delays"] = rows.set_column(place, "delay_minutes", [pa.array(minutes)])


def move(batches: list[Tables]) -> None:
    """A record comes with the other batch: all are there, and a crash would have shown it."""
    moved = batches[0]["delays"].slice(0, 1)
    lose(batches)
    batches[1]["delays"] = pa.concat_tables([batches[1]["delays"], moved])


@pytest.mark.parametrize(
    ("change", "lost", "duplicated", "wrong", "torn"),
    [(lose, 1, 0, 0, 0), (double, 0, 1, 0, 0), (alter, 1, 0, 1, 0), (move, 0, 0, 0, 2)],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_the_verifier_sees_one_record_that_is_not_right(
    root: str, archive: Path, change: object, lost: int, duplicated: int, wrong: int, torn: int
) -> None:
    proof = SmallDemo(root, archive, change).proof()  # type: ignore[arg-type]
    found = proof.topics["delays"]
    assert (found.lost, found.duplicated, found.wrong) == (lost, duplicated, wrong)
    assert proof.torn == {SOURCE: 0, "delays": torn}
    assert len(proof.problems()) == 1
    assert all(proof.topics[name].is_none for name in TOPICS if name != "delays")


def test_the_verifier_sees_a_group_that_has_not_reached_the_end(root: str, archive: Path) -> None:
    demo = SmallDemo(root, archive, batches_left_out=1)
    proof = demo.proof()
    behind = sum(end - end // 2 for end in _ends(demo))
    assert proof.groups["delays"].offsets_behind == behind > 0
    assert f"group delays is {behind} offsets from the ends of flights" in proof.problems()
    assert proof.topics["delays"].lost > 0


def _ends(demo: SmallDemo) -> list[int]:
    state = demo.connection.cluster.topic(SOURCE).catch_up()
    return [bounds.next_offset for bounds in state.partitions]


def test_the_verifier_sees_damage_that_no_reader_meets(root: str, archive: Path) -> None:
    demo = SmallDemo(root, archive)
    cancelled = demo.connection.cluster.topic("cancellations")
    entry = Path(root, cancelled.layout.entry(0))
    entry.write_bytes(entry.read_bytes().replace(b'"cancellations"', b'"cancellationz"'))
    found = [str(finding) for finding in demo.proof().findings]
    assert any(cancelled.layout.entry(0) in text for text in found), found


def test_tables_of_other_columns_are_not_compared() -> None:
    left, right = pa.table({"a": [1], "b": [2]}), pa.table({"a": [1]})
    with pytest.raises(KeyError, match="'b'"):
        compare(left, right)


# The place of the log.


def test_an_earlier_demo_is_refused_with_the_remedy(root: str) -> None:
    prepare_root(root, fresh=False)
    with pytest.raises(TopicExists, match="--fresh"):
        prepare_root(root, fresh=False)
    assert main(["--root", root]) == 1


def test_fresh_deletes_an_earlier_demo_and_nothing_else(root: str) -> None:
    prepare_root(root, fresh=False)
    before = (Path(root) / CLUSTER_FILE).read_bytes()
    prepare_root(root, fresh=True)
    assert (Path(root) / CLUSTER_FILE).read_bytes() != before
    Admin(root).create_topic("of-somebody-else")
    with pytest.raises(TopicExists, match="of-somebody-else"):
        prepare_root(root, fresh=True)
    assert "of-somebody-else" in connect(root).cluster.state().topics


def test_a_folder_for_checkpoints_must_be_empty(tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / "delays").mkdir(parents=True)
    with pytest.raises(UsageError, match="--work"):
        prepare_work(tmp_path, fresh=False)
    prepare_work(tmp_path, fresh=True)
    assert list(tmp_path.iterdir()) == []


# The drill.


def test_each_job_is_killed_often_enough_and_one_checkpoint_is_lost() -> None:
    for seed in range(20):
        delays, hourly = plans(3, seed)
        assert (delays.kills, hourly.kills) == (4, 3)
        assert delays.checkpoint_lost_at in range(1, 4)
        assert hourly.checkpoint_lost_at is None
        assert hourly.dry_kill in range(3)
    assert plans(3, 7) == plans(3, 7)


def test_a_number_of_kills_that_makes_no_sense_is_refused() -> None:
    for kills in ("0", "21"):
        with pytest.raises(SystemExit):
            parse(["--kills", kills])


PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                         start_new_session=True)
print(child.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def family(tmp_path: Path) -> Iterator[tuple[JobProcess, psutil.Process]]:
    """A job and a child of it in a process group of its own, as Spark's workers are."""
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    log = tmp_path / "log"
    job = start("family", script, [], folder=tmp_path, log=log, scratch=tmp_path)
    while not log.read_text().strip():
        job.require_running()
        time.sleep(0.01)
    child = psutil.Process(int(log.read_text()))
    yield job, child
    job.kill()
    if child.is_running():
        child.kill()


def test_a_kill_hits_the_whole_tree(family: tuple[JobProcess, psutil.Process]) -> None:
    job, child = family
    assert job.kill().processes == 2
    assert psutil.wait_procs([child], timeout=10)[1] == [] or child.status() == "zombie"
    assert job.orphans == []


def test_a_kill_of_the_driver_leaves_its_workers_at_work(
    family: tuple[JobProcess, psutil.Process],
) -> None:
    job, child = family
    assert job.kill(with_workers=False).processes == 1
    assert child.is_running()
    assert child.status() not in ("stopped", "zombie")
    assert [orphan.pid for orphan in job.orphans] == [child.pid]


def test_a_job_that_ends_by_itself_is_reported_with_its_last_words(tmp_path: Path) -> None:
    script = tmp_path / "short.py"
    script.write_text("raise SystemExit('out of paper')")
    job = start("short", script, [], folder=tmp_path, log=tmp_path / "log", scratch=tmp_path)
    job.process.wait(30)
    with pytest.raises(JobFailed, match="out of paper"):
        job.require_running()


def test_the_workers_python_takes_the_project_from_here(tmp_path: Path) -> None:
    """And PySpark from where it is installed, whatever the JVM puts first."""
    script = tmp_path / "nothing.py"
    script.write_text("")
    start("x", script, [], folder=tmp_path, log=tmp_path / "log", scratch=tmp_path).process.wait()
    code = "import txlog, sys; print(sys.path[1:3], txlog.__file__)"
    told = subprocess.run(
        [tmp_path / "python", "-c", code],
        env={"PYTHONPATH": "/somewhere/pyspark.zip"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "pyspark.zip" not in told.stdout
    assert sys.executable in (tmp_path / "python").read_text()


def test_progress_is_read_from_a_checkpoint(tmp_path: Path) -> None:
    assert query_progress(tmp_path) == query_progress(tmp_path / "missing")
    assert query_progress(tmp_path).planned == NONE
    for folder, names in (("offsets", "0 1 2 10 .10.crc"), ("commits", "0 1 2 .2.crc")):
        (tmp_path / folder).mkdir()
        for name in names.split():
            (tmp_path / folder / name).write_text("v1\n{}\n{}")
    (tmp_path / "metadata").write_text(json.dumps({"id": "query"}))
    progress = query_progress(tmp_path)
    assert (progress.query_id, progress.planned, progress.finished) == ("query", 10, 2)
    assert progress.is_in_flight


def test_a_batch_that_repeats_its_sources_reads_nothing(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    for batch, source in enumerate(["a", "b", "b"]):
        (tmp_path / "offsets" / str(batch)).write_text(f'v1\n{{"batch": {batch}}}\n{source}')
    assert [is_without_records(tmp_path, batch) for batch in range(4)] == [
        False,
        False,
        True,
        False,
    ]
