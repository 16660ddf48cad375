"""Errors that the product logs and lives with: in a simulated world they are checked.

Maintenance, snapshots, check-backs and blocked readers continue after an error. That is
right for a store that fails, and hides a mistake of the product's own: what may not be met becomes
a failure in the history. It must not know which call it was.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from txlog.errors import IllegalTransition, UnknownPartition, UnknownTopic, UnknownTransaction
from txlog.testing.simulation.actors.role import EXPECTED
from txlog.testing.simulation.environment.world_state import WorldState

_LIVED_WITH = (*EXPECTED, IllegalTransition, UnknownTopic, UnknownPartition, UnknownTransaction)
"""What may be logged: topics are deleted beneath those who look after them, and what a reader has
seen open may have been ended, and its id forgotten, since. An actor that aborts after an unknown
outcome may find it decided: COMMIT. What stays open is found at the end."""


class _LoggedErrorChecker(logging.Handler):
    """Takes every line of the log, and looks at the error that is being handled meanwhile."""

    def __init__(self, world_state: WorldState) -> None:
        super().__init__(logging.DEBUG)
        self._world_state = world_state

    def emit(self, record: logging.LogRecord) -> None:
        error = sys.exception()
        if not isinstance(error, Exception):  # Nothing went wrong, or the process is dying.
            return
        who = self._world_state.scheduler.actor_name
        if isinstance(error, _LIVED_WITH):
            self._world_state.note(who, "lived_with", text=record.getMessage())
            return
        text = "".join(traceback.format_exception(error))
        self._world_state.note(who, "failure", text=f"logged only: {record.getMessage()}\n{text}")


@contextmanager
def logged_errors_checked(world_state: WorldState) -> Iterator[None]:
    """Nothing is printed meanwhile, and every line of the product's log is looked at."""
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
