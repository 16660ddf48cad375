"""SIGKILL to a driver at each step of the commit: after the restart nothing is lost or doubled."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pytest

from tests.spark.drill import Drill, until
from tests.spark.pausing_source import AFTER, BEFORE, COMMIT_RETURNS, Place
from tests.spark.small_log import small_log

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

GROUP = "splitters"
COUNT = 20
NUMBER = pa.schema([("n", pa.int64())])
COUNTS = pa.schema([("n", pa.int64()), ("count", pa.int64())])

OFFSETS, TRANSACTIONS, TOPICS = "__consumer_offsets/", "transactions/", "topics/"
PENDED = Place(AFTER, OFFSETS, ("offsets_pended",))
PREPARED = Place(AFTER, TRANSACTIONS, ("commit_prepared",))


@dataclass(frozen=True)
class Step:
    """A step of the commit, and what the log shows while it is not yet done."""

    name: str
    place: Place
    topics_written: int
    """Of the two topics, those that show the batch's records."""
    is_group_there: bool
    """Whether the group's committed offsets include the batch."""
    pending: int
    open: str | None
    """State of the transaction in the coordinator."""


STEPS = [
    Step("before pend", Place(BEFORE, OFFSETS, ("offsets_pended",)), 0, False, 0, None),
    Step("after pend", PENDED, 0, False, 1, None),
    Step("after prepare", PREPARED, 0, False, 1, "PrepareCommit"),
    Step(
        "between two applies",
        Place(BEFORE, TOPICS, ("marker_written", "COMMIT"), number=2),
        1,
        False,
        1,
        "PrepareCommit",
    ),
    Step(
        "after the topics and before the offsets (R8)",
        Place(BEFORE, OFFSETS, ("pending_applied",)),
        2,
        False,
        1,
        "PrepareCommit",
    ),
    Step(
        "before complete",
        Place(BEFORE, TRANSACTIONS, ("transaction_completed",)),
        2,
        True,
        0,
        "PrepareCommit",
    ),
    Step("after complete, before Spark's commit file", Place(COMMIT_RETURNS), 2, True, 0, None),
]


@pytest.fixture(scope="module")
def drill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drill]:
    """One log and one query; each test kills the driver, and the next one goes on with another."""
    folder = tmp_path_factory.mktemp("drill")
    topics = {"numbers": 2, "even": NUMBER, "odd": NUMBER, "tens": COUNTS}
    drill = Drill(small_log(folder / "log", topics), folder)
    drill.log.put("numbers", COUNT)
    yield drill
    drill.close()


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_I5_I10_a_query_killed_at_any_step_of_the_commit_loses_and_doubles_nothing(
    drill: Drill, step: Step
) -> None:
    drill.run_into(step.place, COUNT)
    if step.place.moment == COMMIT_RETURNS:
        until(lambda: open_state(drill) is None, "the completion")
    written, moved = progress(drill)
    assert written == step.topics_written
    assert moved == step.is_group_there
    assert len(drill.log.connection.offsets.group(GROUP).pending) == step.pending
    assert open_state(drill) == step.open
    drill.kill()
    drill.running()
    check_whole(drill)


def progress(drill: Drill) -> tuple[int, bool]:
    """How many topics show the last batch, and whether the group has moved over it."""
    seen = [len(drill.log.rows(topic)) for topic in ("even", "odd")]
    return seen.count(drill.log.next_number // 2), drill.log.lag(GROUP) == 0


def open_state(drill: Drill) -> str | None:
    """State of the sink's open transaction, if there is one."""
    listed = drill.log.admin.list_transactions()
    found = [str(t.open.state) for t in listed if t.open and t.transactional_id != "input"]
    return found[0] if found else None


def check_whole(drill: Drill) -> None:
    """Everything is there once, the group is at the end, and nothing is left open."""
    drill.check_exactly_once()
    assert drill.log.lag(GROUP) == 0
    until(lambda: open_state(drill) is None, "the completion")
    assert not drill.log.connection.offsets.group(GROUP).pending
