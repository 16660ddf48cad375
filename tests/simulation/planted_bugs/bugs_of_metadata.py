"""Planted bugs in the state that Spark's driver passes to tasks, and in reading it again
nevertheless.

Simulated queries pass no state, so that only direct tests detect these.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from spark_plugin.sink import participants
from txlog.coordinator import rules
from txlog.engine.transaction_session import TransactionSession
from txlog.journal.replication.follower import Follower

Patch = pytest.MonkeyPatch


def _decided_by(patch: Patch) -> None:
    """State passed by the driver counts as read by this process itself."""

    def show(self: Any, state: Any) -> None:
        self._at, self._opened = replace(self._at, state=state), True

    patch.setattr(Follower, "show", show)


def _instances_too(patch: Patch) -> None:
    """A registered instance is passed to other processes like other state."""
    patch.setattr(TransactionSession, "__reduce__", object.__reduce__)


def _without_R40(patch: Patch) -> None:
    """A micro-batch is committed to the topics as its tasks saw them, without a new check."""
    patch.setattr(participants, "_require_topic", lambda connection, participant: None)


def _whatever_it_holds(patch: Patch) -> None:
    """A committed transaction id counts as done, even if the repeat would commit something else."""
    patch.setattr(rules, "require_same_content", lambda command, committed: None)


_CONTENT = "tests/unit/coordinator/test_content.py::test_R35_the_second_of_two_copies"
_METADATA = "tests/unit/catalog/test_task_metadata.py::"
_LOOK = "tests/unit/spark_plugin/sink/test_participants.py::"

BUGS_OF_METADATA: Mapping[str, tuple[Callable[[Patch], None], str]] = {
    "what is handed over is decided by (R31)": (
        _decided_by,
        f"{_METADATA}test_R31_what_was_handed_over_is_shown_and_not_decided_by",
    ),
    "an instance is handed over (R35)": (
        _instances_too,
        f"{_METADATA}test_R35_a_registered_instance_cannot_be_handed_over",
    ),
    "a repeat is known by its id alone (R35)": (
        _whatever_it_holds,
        f"{_CONTENT}_is_told_that_its_records_are_not_in",
    ),
    "without R40 in a query": (
        _without_R40,
        f"{_LOOK}test_R40_a_batch_for_a_topic_that_was_deleted_decides_nothing",
    ),
}
"""Planted bug -> the function that plants it, and the test that detects it."""
