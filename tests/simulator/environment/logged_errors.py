"""Checks the errors that the product logs in a simulated world without raising them.

Maintenance, snapshots, check-backs and blocked readers continue after an error. That is right for a
store that fails, but would hide a mistake of the product: an unexpected error becomes a failure in
the history. It must not know which call failed.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tests.simulator.actors.role import EXPECTED
from tests.simulator.environment.world_state import WorldState
from txlog.errors import IllegalTransition, UnknownPartition, UnknownTopic, UnknownTransaction

_LIVED_WITH = (*EXPECTED, IllegalTransition, UnknownTopic, UnknownPartition, UnknownTransaction)
"""Errors that may be logged. Topics are deleted during their maintenance; a transaction that a
reader found open may have ended since, and its id may be forgotten; an abort after an unknown
outcome may find the decision COMMIT. Transactions that stay open are found at the end."""

_RAISES_WHAT_IT_LOGS = "spark_plugin.python_worker"


class _LoggedErrorChecker(logging.Handler):
    """A log handler that checks the error which is being handled at each line."""

    def __init__(self, world_state: WorldState) -> None:
        super().__init__(logging.DEBUG)
        self._world_state = world_state

    def emit(self, record: logging.LogRecord) -> None:
        error = sys.exception()
        if not isinstance(error, Exception):  # There is no error, or the process is dying.
            return
        if record.name == _RAISES_WHAT_IT_LOGS:
            return
        who = self._world_state.scheduler.actor_name
        if isinstance(error, _LIVED_WITH):
            self._world_state.note(who, "lived_with", text=record.getMessage())
            return
        text = "".join(traceback.format_exception(error))
        self._world_state.note(who, "failure", text=f"logged only: {record.getMessage()}\n{text}")


@contextmanager
def logged_errors_checked(world_state: WorldState) -> Iterator[None]:
    """Check every line of the product's log, and print none."""
    listener = _LoggedErrorChecker(world_state)
    with ExitStack() as stack:
        for name in ("txlog", "spark_plugin"):
            stack.enter_context(_given_to(listener, logging.getLogger(name)))
        yield


@contextmanager
def _given_to(listener: logging.Handler, log: logging.Logger) -> Iterator[None]:
    level, propagates = log.level, log.propagate
    log.addHandler(listener)
    log.setLevel(logging.DEBUG)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(listener)
        log.setLevel(level)
        log.propagate = propagates
