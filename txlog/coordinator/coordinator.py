"""A transaction coordinator: a library on its part of one journal, not a server.

Each method is one step of a transaction (docs/architecture.md), and each is safe to repeat.
`rules.py` decides what a step may lead to; `recovery.py` finishes decided transactions. It guards
I4 and I8 by doing nothing that its machine did not decide. It must not know consumer groups: their
offsets are passed in as an `OffsetsParticipant`.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from txlog.catalog.cluster import Cluster
from txlog.clock import Runtime, back_off
from txlog.coordinator.events import (
    CheckBack,
    ClaimCheck,
    CommitPrepared,
    CoordinatorCommand,
    ExpireTransactionalId,
    GroupReleased,
    InitProducer,
    Participant,
    ParticipantsAdded,
    PrepareAbort,
    Registration,
    ReplayMark,
    StagingHorizonAdvanced,
    TransactionBegun,
    TransactionCompleted,
)
from txlog.coordinator.recovery import (
    OffsetsParticipant,
    apply_decision,
    end_each,
    end_offsets,
    write_markers,
)
from txlog.coordinator.rules import is_past, require_current
from txlog.coordinator.state import CoordinatorState
from txlog.coordinator.transaction import PREPARED, Transaction
from txlog.errors import (
    ConcurrentTransactions,
    IllegalTransition,
    ProducerFenced,
    SegmentExpired,
    TxlogError,
    UnknownTransaction,
)
from txlog.journal.machine import Together
from txlog.journal.part import JournalPart
from txlog.model import TransactionOutcome, TxId
from txlog.topic.events import AdvanceHorizon

log = logging.getLogger(__name__)

LOOKED_AHEAD = 1
"""Entries that a carrier asks for in a round: a journal of decisions grows more slowly."""


def journal_of(key: str, count: int) -> int:
    """Which of `count` journals serves a transaction group or consumer group.

    CRC32 of the UTF-8 text, modulo: stable for ever, as ids may never move between journals.
    """
    return zlib.crc32(key.encode()) % count


class Coordinator:
    """One partition of the transaction log, as one process sees it. Safe to use from threads."""

    def __init__(
        self,
        cluster: Cluster,
        partition: int,
        offsets: OffsetsParticipant,
        journal: JournalPart[CoordinatorState],
    ) -> None:
        """`journal` is the coordinator's part of its journal."""
        self.partition = partition
        self._cluster = cluster
        self._offsets = offsets
        self._runtime: Runtime = cluster.runtime
        self._journal = journal

    @property
    def state(self) -> CoordinatorState:
        """The newest state that this process has seen."""
        return self._journal.state

    def catch_up(self) -> CoordinatorState:
        """The state as of now; what is missing from it did not happen (rule R15)."""
        return self._journal.catch_up(linearizable=True)

    @property
    def is_open(self) -> bool:
        """Whether this process follows its journal."""
        return self._journal.is_open

    def look_ahead(self) -> CoordinatorState:
        """The state after the next entries, as far as one round of requests shows; it may lag."""
        return self._journal.look_ahead(LOOKED_AHEAD)

    def _execute(self, command: CoordinatorCommand) -> Any:
        return self._journal.execute(command)

    def _now_ms(self) -> int:
        return self._runtime.clock.wall_ms()

    def require_current(self, transactional_id: str, tx_id: TxId, tag: str = "") -> None:
        """Refuse what can no longer commit before any work is done: a fenced instance, a tag that
        is used up. The coordinator decides it again at PREPARE_COMMIT.

        Raises ProducerFenced, DuplicateTransaction.
        """
        require_current(self._journal.follow(), transactional_id, tx_id, tag)

    # The steps of a transaction.

    def init_producer(self, command: InitProducer) -> Registration:
        """A new epoch for an instance; finishes or aborts what its predecessor left (rule R5).

        Raises GroupOwned, ProducerFenced, and ConcurrentTransactions if what was left cannot be
        finished within the limit.
        """
        fresh_pid = self._cluster.producer_id()
        registration: Registration = self._until_finished(
            replace(command, fresh_pid=fresh_pid, now_ms=self._now_ms())
        )
        for tx_id in registration.to_finish:
            self.finish(command.transactional_id, tx_id)
        return registration

    def _until_finished(
        self,
        command: CoordinatorCommand | Together,
        participants: tuple[Participant, ...] = (),
        before: Sequence[Any] = (),
    ) -> Any:
        """Execute, with those `before` it in the same entry if they fit; decided transactions that
        block it are finished first."""
        limit = self._cluster.process.finish_attempts_max
        for attempt in range(limit):
            try:
                return self._journal.execute_each((*before, command))[-1]
            except ConcurrentTransactions as error:
                name = str(error.facts["transactional_id"])
                for tx_id in error.facts["tx_ids"]:  # type: ignore[attr-defined]
                    self.finish(name, tx_id)
            except SegmentExpired:
                self._pass_horizon_on(participants)
                raise
            back_off(self._runtime, attempt, self._cluster.process.finish_backoff_ms)
        raise ConcurrentTransactions(
            f"the previous transaction could not be finished in {limit} tries; try again.",
            attempts=limit,
        )

    def _pass_horizon_on(self, participants: tuple[Participant, ...]) -> None:
        """A topic that was created after a vacuum with a clock far ahead has no horizon. Producers
        name staged segments above the topic's horizon, so it must be as high as this one."""
        command = AdvanceHorizon(self.state.horizon)
        for participant in participants:
            topic = self._cluster.topic_of_id(participant.topic, participant.topic_id)
            try:
                topic.execute(command)
            except TxlogError as error:  # The next attempt tries again.
                log.info("topic %s has no new horizon: %s", participant.topic, error)

    def begin(
        self,
        transactional_id: str,
        tx_id: TxId,
        timeout_ms: int,
        participants: tuple[Participant, ...] = (),
        tag: str = "",
        check_back: CheckBack | None = None,
        *,
        before: Sequence[Any] = (),
    ) -> None:
        """BEGIN. Its entry brings along the commands `before` it, each of which stands or falls
        alone.

        Raises ProducerFenced, IllegalTransition, TransactionAborted, SegmentExpired.
        """
        now_ms = self._now_ms()
        command = TransactionBegun(
            transactional_id, tx_id, now_ms, timeout_ms, participants, tag, check_back
        )
        self._until_finished(command, participants, before)

    def add_participants(
        self,
        transactional_id: str,
        tx_id: TxId,
        participants: tuple[Participant, ...] = (),
        groups: tuple[str, ...] = (),
    ) -> None:
        """Declare partitions before the first record goes there. Raises as `begin` does."""
        self._execute(ParticipantsAdded(transactional_id, tx_id, participants, groups))

    def prepare_commit(
        self,
        transactional_id: str,
        tx_id: TxId,
        participants: tuple[Participant, ...] = (),
        groups: tuple[str, ...] = (),
        mark: ReplayMark | None = None,
        tag: str = "",
        *,
        dead_letter: bool = False,
        before: Sequence[Any] = (),
        together: Sequence[Any] = (),
    ) -> None:
        """PREPARE_COMMIT: the point of no return. Its entry brings along the commands `before` it,
        each of which stands or falls alone, and those `together` with it, which stand if it does.

        With `dead_letter` a half transaction is given up instead, and these participants, which
        replace its own, are the letters.

        Raises ProducerFenced, GroupOwned, TransactionAborted, SegmentExpired, CommitFailed (this
        micro-batch was committed by another run), OutcomeUnknown.
        """
        command = CommitPrepared(
            transactional_id, tx_id, self._now_ms(), participants, groups, mark, tag, dead_letter
        )
        all_of_it = Together((*together, command)) if together else command
        self._until_finished(all_of_it, participants, before)

    def claim_check(self, transactional_id: str, tx_id: TxId) -> bool:
        """Whether it is this caller's turn to ask about a half transaction."""
        answer: bool = self._execute(ClaimCheck(transactional_id, tx_id, self._now_ms()))
        return answer

    def prepare_abort(
        self,
        transactional_id: str,
        tx_id: TxId,
        *,
        fence: bool = False,
        undecided: bool = False,
    ) -> None:
        """PREPARE_ABORT, or a bar for an unknown transaction (rule R3).

        `undecided`: the caller is its owner and has not asked for a commit. Raises
        IllegalTransition if the decision is COMMIT, OutcomeUnknown if it may be, and is forgotten
        (rule R39).
        """
        self._execute(PrepareAbort(transactional_id, tx_id, self._now_ms(), fence, undecided))

    def complete(self, transactional_id: str, tx_id: TxId) -> None:
        """COMMITTED or ABORTED."""
        self._execute(self.completion(transactional_id, tx_id))

    def completion(self, transactional_id: str, tx_id: TxId) -> TransactionCompleted:
        """The command that says so."""
        return TransactionCompleted(transactional_id, tx_id, self._now_ms())

    def execute(self, command: Any) -> Any:
        """A command of this coordinator's journal, whosever part it is of."""
        return self._journal.execute(command)

    def advance_horizon(self, segment_id: str) -> None:
        """Refuse staged segments below that id, which vacuum may delete from here on."""
        self._execute(StagingHorizonAdvanced(segment_id))

    def release_group(self, group: str) -> None:
        """Remove the owner of a consumer group."""
        self._execute(GroupReleased(group))

    def expire_ids(self, before_ms: int) -> list[str]:
        """Forget transactional ids that were not used since then; returns them."""
        idle = [
            name
            for name, known in self.catch_up().ids.items()
            if known.updated_ms <= before_ms and not known.open and not known.is_run
        ]
        return [name for name in idle if self._execute(ExpireTransactionalId(name, before_ms))]

    def prune(self, keep_entries: int, apart_entries: int = 1) -> int:
        """Delete old journal entries behind a boundary; returns how many."""
        return self._journal.prune(keep_entries, apart_entries)

    @property
    def kept_entries(self) -> int:
        """Entries that the last pruning left until their boundary is old enough (rule R14)."""
        return self._journal.kept_entries

    # Finishing.

    def apply(self, transactional_id: str, tx_id: TxId) -> dict[str, Mapping[int, int]]:
        """Apply the decision in every topic, then to the offsets; `complete` may follow later.

        Returns what `write_markers` returns.
        """
        transaction = self._prepared(transactional_id, tx_id)
        if transaction is None:
            return {}
        floor = self.state.ids[transactional_id].floor(tx_id)
        return apply_decision(self._cluster, self._offsets, self.partition, transaction, floor)

    def write_markers(self, transactional_id: str, tx_id: TxId) -> dict[str, Mapping[int, int]]:
        """Apply the decision in every topic: topic id -> partition -> offset of its first staged
        record, as far as that is known. Nothing if the transaction is complete."""
        transaction = self._prepared(transactional_id, tx_id)
        if transaction is None:
            return {}
        floor = self.state.ids[transactional_id].floor(tx_id)
        return write_markers(self._cluster, self.partition, transaction, floor)

    def end_offsets(self, transactional_id: str, tx_id: TxId) -> None:
        """Apply the decision to the offsets, once its markers are in every topic (R8)."""
        transaction = self._prepared(transactional_id, tx_id)
        if transaction is not None:
            end_offsets(self._offsets, transaction)

    def finish(self, transactional_id: str, tx_id: TxId) -> None:
        """Apply a decision, and complete it; any process may call it, any number of times."""
        self.catch_up()
        if self._prepared(transactional_id, tx_id) is not None:
            self.apply(transactional_id, tx_id)
            self.complete(transactional_id, tx_id)

    def abort(
        self,
        transactional_id: str,
        tx_id: TxId,
        *,
        fence: bool = False,
        undecided: bool = False,
    ) -> None:
        """Abort and finish. Raises as `prepare_abort` does."""
        self.prepare_abort(transactional_id, tx_id, fence=fence, undecided=undecided)
        self.finish(transactional_id, tx_id)

    def _prepared(self, transactional_id: str, tx_id: TxId) -> Transaction | None:
        """The transaction, if it is decided and not complete."""
        known = self.state.ids.get(transactional_id)
        transaction = known.open.get(tx_id) if known is not None else None
        return transaction if transaction and transaction.state in PREPARED else None

    def maintain(self, first: TxId | None = None) -> list[TxId]:
        """One pass: end what has timed out, finish what is decided. Returns what it touched.

        Clocks only start an attempt: a transaction that is decided is past every timeout (I14).
        Each is tried, `first` before the others; raises what `end_each` does.
        """
        found = sorted(self.catch_up().open_transactions(), key=lambda one: one[1].tx_id != first)
        return end_each((known.tx_id, partial(self._end_due, name, known)) for name, known in found)

    def _end_due(self, transactional_id: str, transaction: Transaction) -> bool:
        """End it if it is decided or late; returns whether it was."""
        if transaction.state in PREPARED:
            self.finish(transactional_id, transaction.tx_id)
            return True
        is_late = transaction.is_late(self._now_ms())
        if is_late:
            self._end_late(transactional_id, transaction.tx_id)
        return is_late

    def _end_late(self, transactional_id: str, tx_id: TxId) -> None:
        """Abort, unless its owner has decided meanwhile: then finish that."""
        with suppress(IllegalTransition, ProducerFenced):  # Over, and perhaps forgotten.
            self.prepare_abort(transactional_id, tx_id, fence=True)
        self.finish(transactional_id, tx_id)

    # Queries.

    def outcome(self, tx_id: TxId) -> TransactionOutcome:
        """How a transaction ended: as remembered, else as far as rule R39 allows a conclusion."""
        state = self.catch_up()
        for _, transaction in state.open_transactions():
            if transaction.tx_id == tx_id:
                decided = transaction.decided
                return TransactionOutcome.OPEN if decided is None else decided.transaction_outcome
        known = state.outcome(tx_id)
        return state.presumed_outcome(tx_id) if known is None else known.transaction_outcome

    def is_superseded(self, transactional_id: str, tx_id: TxId) -> bool:
        """Whether it is unknown and can never be prepared: a later epoch has begun (rule R3), or
        its id has expired: the next registration gets another producer id."""
        known = self.catch_up().ids.get(transactional_id)
        if known is None:
            return self.state.outcome(tx_id) is None
        if tx_id in known.open or self.state.outcome(tx_id) is not None:
            return False
        return is_past(known, tx_id)

    def outcome_of_tag(self, tag: str) -> TransactionOutcome:
        """How the transaction with that tag ended: COMMITTED if one of them did, whatever became
        of attempts to repeat it; otherwise how the newest one did."""
        state = self.catch_up()
        if state.committed_with_tag(tag) is not None:
            return TransactionOutcome.COMMITTED
        for _, transaction in state.open_transactions():
            if transaction.tag == tag:
                return self.outcome(transaction.tx_id)
        found = state.outcome_of_tag(tag)
        return TransactionOutcome.UNKNOWN_ID if found is None else self.outcome(found[0])

    def describe(self, transactional_id: str) -> Transaction | None:
        """The open transaction of an id, or None. Raises UnknownTransaction."""
        known = self.catch_up().ids.get(transactional_id)
        if known is None:
            raise UnknownTransaction(
                f"no transactional id {transactional_id!r}; 'txlog txn list' shows them.",
                transactional_id=transactional_id,
            )
        newest = max(known.open, default=None)
        return None if newest is None else known.open[newest]
