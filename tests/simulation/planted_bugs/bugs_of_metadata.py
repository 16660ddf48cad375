"""Planted bugs in the state that Spark's driver passes to tasks, and in what coordinators know of
state that is old.

Simulated queries pass no state, so that only direct tests detect these.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from txlog.coordinator import rules
from txlog.coordinator.state import DeletedTopics
from txlog.engine.transaction_session import TransactionSession
from txlog.journal.replication.replica import Replica

Patch = pytest.MonkeyPatch


def _passed_state_counts_as_read(patch: Patch) -> None:
    """State passed by the driver counts as read by this process itself."""

    def show(self: Any, state: Any) -> None:
        self._at, self._opened = replace(self._at, state=state), True

    patch.setattr(Replica, "show", show)


def _instances_pickled(patch: Patch) -> None:
    """A registered instance is passed to other processes like other state."""
    patch.setattr(TransactionSession, "__reduce__", object.__reduce__)


def _without_R55(patch: Patch) -> None:
    """Only the newest deleted topics are remembered."""
    patch.setattr(DeletedTopics, "__contains__", lambda self, topic_id: topic_id in self.newest)


def _content_not_compared(patch: Patch) -> None:
    """A committed transaction id counts as done, even if the repeat would commit something else."""
    patch.setattr(rules, "require_same_content", lambda command, committed: None)


_CONTENT = "tests/unit/coordinator/test_content.py::"
_METADATA = "tests/unit/catalog/test_task_metadata.py::"
_DELETION = "tests/unit/coordinator/test_topic_deletion.py::"

BUGS_OF_METADATA: Mapping[str, tuple[Callable[[Patch], None], str]] = {
    "state passed by the driver counts as read (R31)": (
        _passed_state_counts_as_read,
        f"{_METADATA}test_R31_handed_over_state_is_readable_but_decides_nothing",
    ),
    "registered instance can be pickled (R35)": (
        _instances_pickled,
        f"{_METADATA}test_R35_a_registered_instance_cannot_be_handed_over",
    ),
    "repeat recognised by its id alone (R35)": (
        _content_not_compared,
        f"{_CONTENT}test_R35_commit_by_a_copied_producer_with_other_records_is_fenced",
    ),
    "without R55": (
        _without_R55,
        f"{_DELETION}test_R55_deleted_topics_are_never_forgotten_and_take_little_space",
    ),
}
"""Planted bug -> the function that plants it, and the test that detects it."""
