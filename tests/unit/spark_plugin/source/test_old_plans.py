"""A plan of a batch read that micro-batches use again: the warning that it does not grow."""

from __future__ import annotations

import pytest

from spark_plugin.python_worker import NO_BATCH, TaskIdentity
from spark_plugin.source import batch_reader
from spark_plugin.source.batch_reader import PLANS_MAX, warn_of_old_plan


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_reader, "_first_batches", {})


def warnings(caplog: pytest.LogCaptureFixture, *reads: tuple[str, str, int]) -> list[str]:
    """Read (plan, query, batch) in turn. Returns the warnings."""
    for plan, query, batch in reads:
        warn_of_old_plan(plan, "dim", TaskIdentity(query, "run", batch))
    return [record.getMessage() for record in caplog.records]


def test_plan_that_a_later_batch_uses_again_is_warned_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reads = [("plan", "query", batch) for batch in (3, 3, 4, 5, 4)]
    (said,) = warnings(caplog, *reads)
    assert said.startswith("batch 4 reads dim as it was in batch 3, without later records")


@pytest.mark.parametrize(
    "reads",
    [
        [("plan", "query", 3), ("again", "query", 4)],
        [("plan", "query", 3), ("plan", "other", 4)],
        [("plan", "", NO_BATCH), ("plan", "", 7), ("plan", "query", NO_BATCH)],
    ],
    ids=["a plan for each batch", "another query", "jobs"],
)
def test_other_reads_are_not_warned_of(
    caplog: pytest.LogCaptureFixture, reads: list[tuple[str, str, int]]
) -> None:
    assert warnings(caplog, *reads) == []


def test_number_of_remembered_plans_is_limited(caplog: pytest.LogCaptureFixture) -> None:
    warnings(caplog, *((f"plan {n}", "query", n) for n in range(PLANS_MAX + 10)))
    assert len(batch_reader._first_batches) == PLANS_MAX
