"""SIGKILL to a driver with queries at every step of the commit: no record is lost or duplicated.

One driver runs all the queries. Each query is stopped at a step of its own, in the middle of a
batch. Then every process of the driver is killed, and a second driver continues from the
checkpoints. A third driver is started beside the second, on one of its checkpoints.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pytest

from spark_plugin.datasource import TxlogDataSource
from spark_plugin.drill.points import DrillPoint, DrillStep
from tests.spark.drill import Drill, Driver, Job, until
from tests.spark.small_log import small_log
from txlog.settings import LogSettings
from txlog.verify.invariants import check_log

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

COUNT = 20
NUMBERS = pa.schema([("n", pa.int64())])
COUNTS = pa.schema([("n", pa.int64()), ("count", pa.int64())])
MANY_JOURNALS = LogSettings(transaction_state_log_num_partitions=512)
"""So many that no two queries share one: a stopped process locks the journal that it writes to."""

TRANSACTIONS, TOPICS = "transactions/", "topics/"


@dataclass(frozen=True)
class Stop:
    """Where a query is stopped, and the state of its batch in the log at that point."""

    job: Job
    place: DrillPoint
    topics_written: int = 0
    """Which of its topics show the batch's records."""
    has_moved: bool = False
    """Whether the group's committed offsets include the batch."""
    has_pend: bool = True
    open: str | None = None
    """The state of its transaction in the coordinator."""


@dataclass(frozen=True)
class Sight:
    """The state that a reader found while a query was stopped: the changing fields of `Stop`."""

    topics_written: int
    has_moved: bool
    has_pend: bool
    open: str | None


def own(job: Job, step: DrillStep, path: str, *words: str, number: int = 1) -> DrillPoint:
    """A point of this query only: its entries contain the query's group or transactional id."""
    return DrillPoint(step, path, (*words, f'"{job.name}"'), number)


def stops() -> dict[str, Stop]:
    """The steps of a commit, in their order (docs/architecture.md, "Life of a transaction")."""
    found = {}

    def add(name: str, step: DrillStep, path: str, *words: str, **shows: object) -> None:
        job = Job(name.replace(" ", "-"))
        found[name] = Stop(job, own(job, step, path, *words), **shows)  # type: ignore[arg-type]

    decided = "PrepareCommit"
    add("before prepare", DrillStep.BEFORE, TRANSACTIONS, "commit_prepared", has_pend=False)
    add("after prepare", DrillStep.AFTER, TRANSACTIONS, "commit_prepared", open=decided)
    between = Job("between-applies")
    second = DrillPoint(DrillStep.BEFORE, f"{TOPICS}{between.name}.", ("marker_written",), number=2)
    found["between two applies"] = Stop(between, second, topics_written=1, open=decided)
    add(
        "before the offsets",
        DrillStep.BEFORE,
        TRANSACTIONS,
        "pending_applied",
        topics_written=2,
        open=decided,
    )
    last = Job("before-commit-file")
    found["before Spark's commit file"] = Stop(
        last, DrillPoint(DrillStep.RETURNED, words=(last.name,)), 2, True, False
    )
    return found


STOPS = stops()
LOST = Job("lost", is_named=False)
"""A query whose checkpoint is deleted after the kill."""
WINDOWS = Job("windows", is_stateful=True)
"""Killed after the decision of its watermark-only batch, the second batch after new numbers."""
FOREACH = Job("foreach", is_foreach=True)
"""Killed between the two writes of a batch, after the decision of the first."""
CONTENDED = Job("contended")
"""Two drivers run it at once later."""
JOBS = [*(stop.job for stop in STOPS.values()), LOST, WINDOWS, FOREACH, CONTENDED]


@dataclass
class Killed:
    """The drill after its only kill: a second driver has continued from the checkpoints."""

    drill: Drill
    driver: Driver
    seen: dict[str, Sight]
    """The state of the log at each stop."""
    cut: dict[str, int]
    """Records that Spark would have read of two topics while one transaction was half applied."""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killed]:
    """Run, stop at every point, read the log, kill, continue."""
    folder = tmp_path_factory.mktemp("drill")
    topics: dict[str, int | pa.Schema] = {"numbers": 2}
    for job in JOBS:
        topics |= dict.fromkeys(job.topics, COUNTS if job.is_stateful else NUMBERS)
    drill = Drill(small_log(folder / "log", topics, MANY_JOURNALS), folder)
    try:
        drill.log.put("numbers", COUNT)
        first = drill.start(JOBS)
        drill.settle(first, JOBS)
        run_into_the_stops(drill, first)
        seen = {name: sight(drill, stop.job) for name, stop in STOPS.items()}
        cut = {t: planned(drill, t) for t in STOPS["between two applies"].job.topics}
        cut["both"] = planned(drill, ",".join(cut))
        first.kill()
        drill.lose_checkpoint(LOST)
        second = drill.start(JOBS, taking_over=[LOST])
        drill.settle(second, JOBS)
        # One more batch: it completes a transaction that lacks only its last step.
        drill.log.put("numbers", COUNT)
        drill.settle(second, JOBS)
        yield Killed(drill, second, seen, cut)
    finally:
        drill.close()


def run_into_the_stops(drill: Drill, driver: Driver) -> None:
    """Send new numbers to all queries, and stop all but one within their batch."""
    places = {stop.job: stop.place for stop in STOPS.values()}
    places[LOST] = own(LOST, DrillStep.AFTER, TRANSACTIONS, "offsets_pended")
    places[WINDOWS] = own(WINDOWS, DrillStep.AFTER, TRANSACTIONS, "commit_prepared", number=2)
    first_write = ("commit_prepared", f'"{FOREACH.name}.even"')
    places[FOREACH] = DrillPoint(DrillStep.AFTER, TRANSACTIONS, first_write)
    for job, place in places.items():
        driver.pauses.set(job.name, place)
    drill.log.put("numbers", COUNT)

    def missing() -> list[str]:
        driver.check_alive()
        return [job.name for job in places if not driver.pauses.is_reached(job.name)]

    try:
        until(lambda: not missing(), "every stop")
    except AssertionError as error:
        raise AssertionError(f"{error}: {missing()} did not stop") from error
    # Its commit does not wait for the last step, which is done in the background.
    last = STOPS["before Spark's commit file"].job
    until(lambda: sight(drill, last).open is None, "the completion")


def sight(drill: Drill, job: Job) -> Sight:
    """The state of its newest batch, as a reader sees it."""
    connection = drill.log.connection
    expected = drill.expected_of(job)
    group = connection.offsets.group(job.name)
    state = connection.coordinator_of(job.name).catch_up()
    unfinished = [str(transaction.state) for _, transaction in state.open_transactions()]
    return Sight(
        topics_written=sum(a == b for a, b in zip(drill.output_of(job), expected, strict=True)),
        has_moved=drill.log.lag(job.name) == 0,
        has_pend=bool(group.pending),
        open=unfinished[0] if unfinished else None,
    )


def planned(drill: Drill, topics: str) -> int:
    """Number of records that a query would read of these topics now."""
    source = TxlogDataSource({"root": drill.log.url, "subscribe": topics})
    reader = source.reader(source.schema())
    return sum(span.end - span.start for task in reader.partitions() for span in task.spans)


@pytest.mark.parametrize("name", STOPS)
def test_log_state_at_each_stop_matches_the_completed_steps(killed: Killed, name: str) -> None:
    stop = STOPS[name]
    expected = Sight(stop.topics_written, stop.has_moved, stop.has_pend, stop.open)
    assert killed.seen[name] == expected


@pytest.mark.parametrize("name", STOPS)
def test_I5_I10_query_killed_at_any_step_loses_and_duplicates_nothing(
    killed: Killed, name: str
) -> None:
    check_whole(killed.drill, STOPS[name].job)


def check_whole(drill: Drill, job: Job) -> None:
    """Check that all records exist once, the group is at the end, and no transaction is open."""
    assert drill.output_of(job) == drill.expected_of(job)
    until(lambda: sight(drill, job).open is None, "the completion")
    assert drill.log.lag(job.name) == 0
    assert not drill.log.connection.offsets.group(job.name).pending


def test_I11_reading_both_topics_excludes_a_half_applied_transaction(
    killed: Killed,
) -> None:
    assert sorted(killed.cut.values()) == [COUNT // 2, COUNT, COUNT]
    assert killed.cut["both"] == COUNT


def test_R3_query_with_a_lost_checkpoint_resumes_after_the_old_pend_is_resolved(
    killed: Killed,
) -> None:
    check_whole(killed.drill, LOST)


def test_R23_watermark_only_batch_is_written_once_across_a_kill(
    killed: Killed,
) -> None:
    check_whole(killed.drill, WINDOWS)


def test_I10_R30_foreach_batch_killed_between_its_writes_stores_each_row_once(
    killed: Killed,
) -> None:
    check_whole(killed.drill, FOREACH)


def test_R12_R27_the_older_of_two_runs_on_one_checkpoint_is_fenced(killed: Killed) -> None:
    drill, older = killed.drill, killed.driver
    older.pauses.set(
        CONTENDED.name, own(CONTENDED, DrillStep.BEFORE, TRANSACTIONS, "commit_prepared")
    )
    drill.log.put("numbers", COUNT)
    until(lambda: older.pauses.is_reached(CONTENDED.name), "the older run's decision")
    newer = drill.start([CONTENDED])
    drill.settle(newer, [CONTENDED])
    check_whole(drill, CONTENDED)
    older.pauses.release(CONTENDED.name)
    until(lambda: older.error_of(CONTENDED.name) is not None, "the end of the older run")
    said = older.error_of(CONTENDED.name) or ""
    # It is fenced, or finds its batch committed: then Spark's own files conflict.
    assert "ProducerFenced" in said or "CONCURRENT_STREAM_LOG_UPDATE" in said
    drill.log.put("numbers", COUNT)
    drill.settle(newer, [CONTENDED])
    check_whole(drill, CONTENDED)


def test_log_satisfies_every_invariant_after_all_kills(killed: Killed) -> None:
    """The last test of the module: it first kills the drivers that still run."""
    killed.drill.close()
    assert check_log(killed.drill.log.connection) == []
