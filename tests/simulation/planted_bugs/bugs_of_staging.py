"""Planted bugs about transactions with staged records: the absence of rules R36 to R42.

A simulated producer draws at random where it keeps the records of open transactions; a direct test
detects each of these bugs in any case.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from txlog.client.producer.open_transaction import InputOffsets
from txlog.engine.transaction_completion import Completion
from txlog.engine.transaction_session import TransactionSession
from txlog.errors import OutcomeUnknown

Patch = pytest.MonkeyPatch


def _without_R36(patch: Patch) -> None:
    """COMMITTED is written concurrently with the offsets."""
    original = Completion._schedule_next

    def schedule_next(self: Any) -> None:
        original(self)
        if self._groups:
            cluster = self._connection.cluster
            linger_ms = cluster.process.completion_linger_ms
            self._committed = cluster.runtime.fan_out.postpone(self._complete, linger_ms)

    patch.setattr(Completion, "_schedule_next", schedule_next)


def _without_R37(patch: Patch) -> None:
    """A transaction commits without the offsets of a pend whose outcome is unknown."""
    original = InputOffsets.pend

    def pend(self: Any, session: TransactionSession) -> None:
        try:
            original(self, session)
        except OutcomeUnknown:
            self._unpended.clear()

    patch.setattr(InputOffsets, "pend", pend)


def _without_R38(patch: Patch) -> None:
    """An abort assumes that nothing was decided."""
    original = TransactionSession.abort

    def abort(self: Any) -> bool:
        self.may_be_decided = False
        return original(self)

    patch.setattr(TransactionSession, "abort", abort)


def _without_R41(patch: Patch) -> None:
    """Every pend without BEGIN expires after ten seconds."""
    original = TransactionSession.pend_staged

    def pend(self: Any, *offsets: Any) -> None:
        timeout_ms, self._timeout_ms = self._timeout_ms, 10_000
        try:
            original(self, *offsets)
        finally:
            self._timeout_ms = timeout_ms

    patch.setattr(TransactionSession, "pend_staged", pend)


def _without_R42(patch: Patch) -> None:
    """A commit is accepted however late it comes."""
    patch.setattr(TransactionSession, "require_in_time", lambda self: None)


_TESTS = "tests/unit/client/producer/test_staged_transactions.py::"
_SESSION_TESTS = "tests/unit/engine/test_transaction_session.py::"

BUGS_OF_STAGING: Mapping[str, tuple[Callable[[Patch], None], str]] = {
    "without R36": (
        _without_R36,
        f"{_TESTS}test_R36_a_transaction_is_complete_after_its_offsets_are_applied",
    ),
    "without R37": (_without_R37, f"{_TESTS}test_R37_a_pend_of_unknown_outcome_stops_the_commit"),
    "without R38": (
        _without_R38,
        f"{_SESSION_TESTS}test_R38_once_a_prepare_was_sent_an_abort_is_the_coordinators",
    ),
    "without R41": (
        _without_R41,
        f"{_TESTS}test_R41_pend_lives_for_transaction_timeout",
    ),
    "without R42": (
        _without_R42,
        f"{_TESTS}test_R42_client_refuses_commit_past_timeout_without_BEGIN",
    ),
}
"""Planted bug -> the function that plants it, and the test that detects it."""
