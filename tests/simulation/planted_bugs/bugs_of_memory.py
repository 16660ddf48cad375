"""Planted bugs in the commit that rests on states in memory, and in what follows it (R60, R61)."""

from collections.abc import Callable, Mapping
from typing import Any

from spark_plugin.sink.batch_commit import BatchCommitter
from spark_plugin.sink.replay import BatchDecision
from tests.simulation.planted_bugs.mutant import Mutant, Patch
from txlog.coordinator import rules
from txlog.coordinator.coordinator import Coordinator
from txlog.coordinator.events import NewestMark
from txlog.engine.transaction_session import TransactionSession
from txlog.groups import machine
from txlog.groups import state as offsets_state
from txlog.groups.offsets import GroupOffsets
from txlog.journal.machine import Decided


def newest_mark_not_compared(patch: Patch) -> None:
    """A batch is refused only if its number, or a later one, is committed."""
    original = machine.decide_transactions

    def decide(state: Any, command: Any) -> Decided:
        return Decided() if isinstance(command, NewestMark) else original(state, command)

    patch.setattr(machine, "decide_transactions", decide)


def epoch_and_mark_not_compared(patch: Patch) -> None:
    """The replay tests have been applied: the decision compares the group's positions alone."""
    newest_mark_not_compared(patch)
    patch.setattr(rules, "_check_mark", lambda state, command: None)
    patch.setattr(rules, "_check_epoch", lambda name, known, tx_id: None)
    patch.setattr(rules, "_require_next", lambda name, known, tx_id: None)


def nothing_compared(patch: Patch) -> None:
    """The replay tests have been applied, so that the decision compares nothing."""
    epoch_and_mark_not_compared(patch)
    patch.setattr(offsets_state, "_check_starts", lambda name, group, offsets: None)


def answered_from_memory(patch: Patch) -> None:
    """What the tests say of the states in memory is the answer, whatever it is."""
    original = BatchCommitter._may_commit_early

    def may_commit_early(self: BatchCommitter) -> bool:
        if not self._is_registered:
            return original(self)
        self._tested_mark = self._coordinator.state.marks.get(self._mark.key)
        return self._apply_tests(self._tested_mark) is BatchDecision.COMMIT

    patch.setattr(BatchCommitter, "_may_commit_early", may_commit_early)


def offsets_before_the_marker(patch: Patch) -> None:
    """The transaction is decided, so its offsets may be applied at once."""
    original = Coordinator.write_markers

    def write_markers(self: Coordinator, *of_transaction: Any) -> Any:
        self.end_offsets(*of_transaction)
        return original(self, *of_transaction)

    patch.setattr(Coordinator, "write_markers", write_markers)


def position_read_past_a_pend(patch: Patch) -> None:
    """A reader takes the position that is stored, whatever is pending."""
    patch.setattr(GroupOffsets, "with_decided", lambda self, group, state: state)
    patch.setattr(GroupOffsets, "_resolved", lambda self, *named: True)


def return_before_the_marker(patch: Patch) -> None:
    """The commit returns with the decision, and the markers follow in the background."""
    original = TransactionSession.commit

    def commit(self: TransactionSession, *arguments: Any, **named: Any) -> Any:
        self._is_visible = False
        return original(self, *arguments, **named)

    patch.setattr(TransactionSession, "commit", commit)


def every_process_leaves_the_completion(patch: Patch) -> None:
    """A process leaves the completion of its first commit to the background, too, though Spark may
    end it with the call."""
    patch.setattr(TransactionSession, "join", lambda self: None)


OF_MEMORY: Mapping[str, Mutant] = {
    "epoch and mark not compared (R60)": Mutant(epoch_and_mark_not_compared, "numbers", 7),
    "nothing compared (R60)": Mutant(nothing_compared, "queries", 107),
}

_TESTS = "tests/unit/spark_plugin/sink/test_states_in_memory.py::"

BUGS_OF_MEMORY: Mapping[str, tuple[Callable[[Patch], None], str]] = {
    "newest mark not compared (R60)": (
        newest_mark_not_compared,
        f"{_TESTS}test_R60_batch_after_another_plan_of_the_batch_before_is_refused",
    ),
    "any answer rests on memory (R60)": (
        answered_from_memory,
        f"{_TESTS}test_R60_state_in_memory_that_allows_no_commit_is_read_again",
    ),
    "offsets before the marker (R61)": (
        offsets_before_the_marker,
        f"{_TESTS}test_R61_offsets_are_applied_after_every_marker",
    ),
    "position read past a pend (R61)": (
        position_read_past_a_pend,
        f"{_TESTS}test_R61_source_takes_the_position_of_a_decided_batch",
    ),
    "return before the marker (R61)": (
        return_before_the_marker,
        f"{_TESTS}test_R61_process_waits_for_the_completion_of_its_first_batch_only",
    ),
    "completion of a first commit in the background (R61)": (
        every_process_leaves_the_completion,
        f"{_TESTS}test_R61_process_waits_for_the_completion_of_its_first_batch_only",
    ),
}
"""Planted bug -> the function that plants it, and the test that detects it."""
