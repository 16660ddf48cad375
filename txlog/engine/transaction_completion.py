"""The last steps of a decided transaction: markers, its groups' offsets, then COMMITTED.

Keeps R36 (COMMITTED after the offsets of every group, or in one entry with them), R8 (offsets after
all topics) and R45 (the next decision after the markers, which this process has seen).

The markers are usually written before this begins, otherwise at once. COMMITTED follows after
`completion.linger.ms`, in one entry with the offsets of groups in the same journal, so that the
producer's next transaction can include it in the entry of its own PREPARE_COMMIT. Offsets in other
journals take a step, and such a delay, of their own before it, and the next pend can include them.
A crash in between leaves a decided transaction, which the next process that meets it
finishes. It must not know how a transaction is decided.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from txlog.coordinator.coordinator import Coordinator
from txlog.engine.connection import Connection
from txlog.errors import TxlogError
from txlog.fan_out import Postponed, in_background
from txlog.journal.machine import Together
from txlog.model import TxId

log = logging.getLogger(__name__)


class NextStep(Protocol):
    """A step of the next transaction."""

    def __call__(self, *, before: Sequence[Any]) -> object:
        """Take the step; its entry includes the commands in `before`."""


class Completion:
    """The completion of one transaction. Its owner calls it from one thread at a time."""

    def __init__(
        self,
        connection: Connection,
        coordinator: Coordinator,
        transactional_id: str,
        tx_id: TxId,
        groups: tuple[str, ...],
        *,
        is_visible: bool,
        on_markers: Callable[[bool], object] = lambda _: None,
    ) -> None:
        """`is_visible`: every topic has the marker; otherwise the markers are written now, in the
        background, and `on_markers` is told there whether they are. `groups` are those whose
        offsets are still pending."""
        self._connection = connection
        self._coordinator = coordinator
        self._transactional_id = transactional_id
        self._tx_id = tx_id
        # Only commands of one journal fit in one entry. If a group is elsewhere, all offsets take a
        # step of their own before COMMITTED (R36).
        number_of = connection.offsets.coordinator_number_of
        is_one_journal = all(number_of(group) == coordinator.number for group in groups)
        self._own = groups if is_one_journal else ()
        """Groups in the coordinator's journal: their offsets are in the entry of COMMITTED."""
        self._groups = () if is_one_journal else groups
        self.is_visible = is_visible
        """Whether every topic has the marker."""
        self._on_markers = on_markers
        self._markers: Callable[[], object] | None = None
        self._committed: Postponed[None] | None = None
        self._offsets: Postponed[None] | None = None
        if is_visible:
            self._schedule_next()
        else:
            self._markers = in_background(connection.runtime.fan_out, self._write_markers)

    def _write_markers(self) -> None:
        try:
            self._coordinator.write_markers(self._transactional_id, self._tx_id)
            self.is_visible = True
        finally:
            self._on_markers(self.is_visible)
        self._schedule_next()

    def _schedule_next(self) -> None:
        """Schedule the next step."""
        cluster = self._connection.cluster
        postpone, linger_ms = cluster.runtime.fan_out.postpone, cluster.process.completion_linger_ms
        if self._groups:
            self._offsets = postpone(self._end_offsets, linger_ms)
        else:
            self._committed = postpone(self._complete, linger_ms)

    def _end_offsets(self) -> None:
        self._coordinator.end_offsets(self._transactional_id, self._tx_id)
        self._groups = ()
        self._schedule_next()

    def _complete(self) -> None:
        self._coordinator.execute(self._completed_command())

    def _completed_command(self) -> Any:
        completed = self._coordinator.completion(self._transactional_id, self._tx_id)
        if not self._own:
            return completed
        return Together((*map(self._apply_command, self._own), completed))

    def _apply_command(self, group: str) -> Any:
        return self._connection.offsets.apply_command(group, self._tx_id)

    def join(self) -> None:
        """Wait for the completion, or complete the transaction now. An error is raised once; then
        the next process that meets the transaction finishes it, as after a crash."""
        self._join_offsets()
        # Cleared before the call: an error is raised once, and the next call does not wait for it.
        committed, self._committed = self._committed, None
        if committed is not None:
            self._end(committed, self._complete)

    def _join_markers(self) -> None:
        markers, self._markers = self._markers, None
        if markers is not None:
            self._end(markers, self._write_markers)

    def _join_offsets(self) -> None:
        self._join_markers()
        offsets, self._offsets = self._offsets, None
        if offsets is not None:
            self._end(offsets, self._end_offsets)

    def _end(self, step: Callable[[], object], again: Callable[[], None]) -> None:
        """Wait for a step, or take it now. A step that failed in the background is taken again: the
        store may work again, and the caller, whose own transaction is another one, needs it."""
        try:
            if not _has_succeeded(step):
                again()
        except TxlogError as error:
            raise error.during(
                f"transaction {self._tx_id} is committed, but not complete"
            ) from error

    def include_in_pend(self, group: str, pend: NextStep) -> None:
        """Run the next transaction's pend on `group`, whose entry includes the group's offsets of
        this transaction. Raises the errors of the pend and of `join`."""
        # These offsets are in one entry with COMMITTED, so the pend shares that entry.
        if group in self._own:
            self.include_in_decision(pend)
            return
        if group not in self._groups:
            pend(before=())
            return
        # Offsets that are visible before the records would break I5: first the markers (R8).
        self._join_markers()
        if self._offsets is not None and self._offsets.take():
            self._include_offsets(group, pend)
        else:
            self._join_offsets()
            pend(before=())

    def _include_offsets(self, group: str, pend: NextStep) -> None:
        """If the pend fails, the offsets are applied later: applying them again changes nothing
        (R6)."""
        try:
            pend(before=(self._apply_command(group),))
            self._groups = tuple(other for other in self._groups if other != group)
        finally:
            self._offsets = None
            self._schedule_next()

    def include_in_decision(self, decide: NextStep) -> None:
        """Run the next transaction's BEGIN or PREPARE_COMMIT, whose entry includes COMMITTED of
        this one. Before, all topics have the markers (R45), and offsets in other journals are
        applied (R36). Raises the errors of `decide` and of `join`."""
        self._join_offsets()
        if self._committed is None or not self._committed.take():
            self.join()
            decide(before=())
            return
        try:
            decide(before=(self._completed_command(),))
            self._committed = None
        # Also after Ctrl-C: the postponed call was taken back, so another one must complete it.
        except BaseException:
            self._schedule_next()
            raise


def _has_succeeded(step: Callable[[], object]) -> bool:
    """Wait for a step that was begun in the background; False if it failed or was not begun."""
    if isinstance(step, Postponed) and step.take():
        return False
    try:
        step()
    except TxlogError as error:
        log.info("a transaction could not be completed in the background: %s", error)
        return False
    return True
