"""A transaction coordinator: a library on its part of one journal, not a server.

The methods under "The steps" are those of docs/architecture.md, and each may be repeated.
`rules.py` decides each step. Keeps I4 and I8: it does nothing that the rules did not decide. It
must not know consumer groups, whose offsets are passed in as an `OffsetsParticipant`.

A decision is applied to every topic, then to the offsets (rule R8): if offsets were applied before
all topics, they could be visible without their records, and no pend would be left as evidence. A
crash at any point leaves the transaction PrepareCommit or PrepareAbort in the journal; the next
process that meets it repeats all steps, and each step recognises by order whether it was done (rule
R6). A transaction that cannot be finished does not block others.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeAlias

from txlog.catalog.cluster import Cluster
from txlog.clock import back_off
from txlog.coordinator.events import (
    CheckBack,
    ClaimCheck,
    CommitPrepared,
    CommitTogether,
    CoordinatorCommand,
    ExpireTransactionalId,
    InitProducer,
    Participant,
    PrepareAbort,
    Registration,
    ReplayMark,
    TransactionBegun,
    TransactionCompleted,
)
from txlog.coordinator.rules import is_past, require_current
from txlog.coordinator.state import CoordinatorState
from txlog.coordinator.transaction import PREPARED, Transaction
from txlog.errors import (
    ConcurrentTransactions,
    IllegalTransition,
    MissingObject,
    OutcomeUnknown,
    ProducerFenced,
    SegmentExpired,
    StoreUnavailable,
    TxlogError,
)
from txlog.fan_out import WIDE
from txlog.journal.replication.replica import Replica
from txlog.layout import is_entry, is_manifest
from txlog.model import Decision, TransactionOutcome, TxId
from txlog.topic.events import AdvanceHorizon, WriteMarker
from txlog.topic.producer_state import NEW_PRODUCER, holds
from txlog.topic.topic_log import TopicLog

log = logging.getLogger(__name__)

Ending: TypeAlias = Callable[[], bool]
"""Ends a transaction if it is decided or past its timeout; returns whether it was."""


class OffsetsParticipant(Protocol):
    """Consumer groups' offsets, as the coordinator uses them."""

    def apply_pending(self, group: str, tx_id: TxId) -> None:
        """Commit the transaction's pending offsets; does nothing if there are none."""

    def release_pending(self, group: str, tx_id: TxId) -> None:
        """Drop the pending offsets of a transaction that is durably aborted (rule R3)."""


def coordinator_number_of(key: str, count: int) -> int:
    """The journal, of `count`, that serves a transaction group or consumer group: CRC32 of the
    UTF-8 text, modulo. This must never change, as ids cannot move between journals."""
    return zlib.crc32(key.encode()) % count


class Coordinator:
    """One coordinator, by its number. Safe to use from threads."""

    def __init__(
        self,
        cluster: Cluster,
        number: int,
        offsets: OffsetsParticipant,
        journal: Replica[Any],
    ) -> None:
        """`journal` has the coordinator's state as the field `transactions` of its state."""
        self.number = number
        self.journal = journal
        self._cluster = cluster
        self._offsets = offsets
        self._now_ms = cluster.runtime.clock.wall_ms

    @property
    def state(self) -> CoordinatorState:
        """The newest state that this process has read."""
        state: CoordinatorState = self.journal.state.transactions
        return state

    def catch_up(self) -> CoordinatorState:
        """Read the journal to its end; what the state lacks has not happened (rule R15)."""
        state: CoordinatorState = self.journal.catch_up(linearizable=True).transactions
        return state

    def execute(self, command: Any) -> Any:
        """Execute a command on the journal, of the transactions or of the groups."""
        return self.journal.execute(command)

    def require_current(self, transactional_id: str, tx_id: TxId, tag: str = "") -> None:
        """Raises ProducerFenced or DuplicateTransaction if the transaction can no longer commit, so
        that its owner does no useless work. PREPARE_COMMIT checks it again."""
        require_current(self.journal.follow().transactions, transactional_id, tx_id, tag)

    # The steps of a transaction.

    def init_producer(self, command: InitProducer) -> Registration:
        """Register a new epoch for an instance, and finish or abort transactions that its
        predecessor left (rule R5).

        Raises GroupOwned, ProducerFenced, and ConcurrentTransactions if one of them cannot be
        finished within the limit.
        """
        # Drawn in advance: only the rules know whether it is needed, and they do no I/O.
        fresh_pid = self._cluster.producer_id()
        registration: Registration = self._until_finished(
            replace(command, fresh_pid=fresh_pid, now_ms=self._now_ms())
        )
        for tx_id in registration.to_finish:
            self.finish(command.transactional_id, tx_id)
        return registration

    def _until_finished(
        self,
        command: CoordinatorCommand | CommitTogether,
        participants: tuple[Participant, ...] = (),
        before: Sequence[Any] = (),
    ) -> Any:
        """Execute a command, in one entry with those in `before` if they fit; decided transactions
        that block it are finished first."""
        limit = self._cluster.process.finish_attempts_max
        for attempt in range(limit):
            try:
                # A retry sends `before` again, whose commands change nothing the second time (R6).
                return self.journal.execute_each((*before, command))[-1]
            except ConcurrentTransactions as error:
                name = str(error.facts["transactional_id"])
                for tx_id in error.facts["tx_ids"]:  # type: ignore[attr-defined]
                    self._finish_earlier(name, tx_id)
            except SegmentExpired:
                self._raise_horizons(participants)
                raise
            # Not before the first repeat, as what blocked the command is finished. If another
            # transaction blocks it then, a live instance of the id is in the way.
            if attempt:
                back_off(
                    self._cluster.runtime, attempt - 1, self._cluster.process.finish_backoff_ms
                )
        raise ConcurrentTransactions(
            f"the previous transaction could not be finished in {limit} tries; try again.",
            attempts=limit,
        )

    def _finish_earlier(self, transactional_id: str, tx_id: TxId) -> None:
        """Finish a decided transaction that blocks a command. Its errors name it, because the
        caller's command is about another one."""
        try:
            self.finish(transactional_id, tx_id)
        except TxlogError as error:
            what = f"transaction {tx_id} of {transactional_id!r} is decided, but not complete"
            raise error.during(what) from error

    def _raise_horizons(self, participants: tuple[Participant, ...]) -> None:
        """Raise the topics' staging horizons to the coordinator's. Producers name segments above
        the topic's horizon, and a topic that was created after a vacuum whose clock was far ahead
        has none."""
        command = AdvanceHorizon(self.state.horizon)
        for participant in participants:
            topic = self._cluster.topic_of_id(participant.topic, participant.topic_id)
            try:
                topic.execute(command)
            except TxlogError as error:  # The next commit tries again.
                log.info("the staging horizon of %s was not raised: %s", participant.topic, error)

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
        """BEGIN. The commands in `before` go into the same entry; each of them succeeds or fails on
        its own.

        Raises ProducerFenced, IllegalTransition, TransactionAborted, SegmentExpired.
        """
        now_ms = self._now_ms()
        command = TransactionBegun(
            transactional_id, tx_id, now_ms, timeout_ms, participants, tag, check_back
        )
        self._until_finished(command, participants, before)

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
        """PREPARE_COMMIT: the decision. Its entry also holds the commands in `before`, which each
        succeed or fail on their own, and those in `together`, which are stored only with it; they
        may raise their own refusals.

        With `dead_letter` a half transaction is given up, and these participants replace its own
        with its dead letters.

        Raises ProducerFenced, GroupOwned, TransactionAborted, SegmentExpired, CommitFailed (another
        run has committed this micro-batch), OutcomeUnknown.
        """
        command = CommitPrepared(
            transactional_id, tx_id, self._now_ms(), participants, groups, mark, tag, dead_letter
        )
        self._until_finished(CommitTogether(command, tuple(together)), participants, before)

    def claim_check(self, transactional_id: str, tx_id: TxId) -> bool:
        """Claim a check of a half transaction; returns whether this caller makes it."""
        answer: bool = self.execute(ClaimCheck(transactional_id, tx_id, self._now_ms()))
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

        `undecided`: the caller is its owner and has not sent PREPARE_COMMIT. Raises
        IllegalTransition if COMMIT is decided, and OutcomeUnknown if the outcome is forgotten and
        may be COMMIT (rule R39).
        """
        self.execute(PrepareAbort(transactional_id, tx_id, self._now_ms(), fence, undecided))

    def completion(self, transactional_id: str, tx_id: TxId) -> TransactionCompleted:
        """The command for COMMITTED or ABORTED, for `execute`, perhaps with other commands."""
        return TransactionCompleted(transactional_id, tx_id, self._now_ms())

    def expire_ids(self, before_ms: int) -> list[str]:
        """Forget transactional ids that were not used after `before_ms`; returns them."""
        # A preselection: the rules check each id again, because it may be used meanwhile.
        idle = [
            name
            for name, known in self.catch_up().ids.items()
            if known.updated_ms <= before_ms and not known.open and not known.is_run
        ]
        return [name for name in idle if self.execute(ExpireTransactionalId(name, before_ms))]

    # Finishing.

    def apply(self, transactional_id: str, tx_id: TxId) -> dict[str, Mapping[int, int]]:
        """Apply the decision in every topic, then to the offsets, without completing it. Returns
        as `write_markers` does."""
        found = self._prepared(transactional_id, tx_id)
        if found is None:
            return {}
        base_offsets = self._write_markers(*found)
        self._end_offsets(found[0])
        return base_offsets

    def write_markers(self, transactional_id: str, tx_id: TxId) -> dict[str, Mapping[int, int]]:
        """Write the marker in every topic, in parallel. Does nothing if the transaction is
        complete. Raises the store's errors; then call it again.

        Returns the offsets of staged records, as far as they are known: topic id -> partition ->
        first offset. On return every topic has the marker, whichever process wrote it. Only then
        may the transaction be completed (R43).
        """
        found = self._prepared(transactional_id, tx_id)
        return {} if found is None else self._write_markers(*found)

    def end_offsets(self, transactional_id: str, tx_id: TxId) -> None:
        """Apply the decision to the offsets, after its markers are in every topic (R8)."""
        found = self._prepared(transactional_id, tx_id)
        if found is not None:
            self._end_offsets(found[0])

    def _prepared(self, transactional_id: str, tx_id: TxId) -> tuple[Transaction, int] | None:
        """The transaction and its floor if it is decided and not complete, else None."""
        state = self.state
        transaction = state.open_transaction(transactional_id, tx_id)
        if transaction is None or transaction.state not in PREPARED:
            return None
        return transaction, state.ids[transactional_id].floor(tx_id)

    def _write_markers(self, transaction: Transaction, floor: int) -> dict[str, Mapping[int, int]]:
        def write_marker(participant: Participant) -> Mapping[int, int] | None:
            topic = self._cluster.topic_of_id(participant.topic, participant.topic_id)
            marker = transaction.marker(participant, floor, self.number, self._now_ms())
            base_offsets: Mapping[int, int] | None = topic.execute(
                with_records_of_decision(topic, marker)
            )
            return base_offsets

        participants = transaction.participants
        fan_out = self._cluster.runtime.fan_out
        run_all = fan_out.run_together if len(participants) in WIDE else fan_out.run_all
        written = run_all([partial(write_marker, participant) for participant in participants])
        return {
            participant.topic_id: base_offsets
            for participant, base_offsets in zip(participants, written, strict=True)
            if base_offsets is not None
        }

    def _end_offsets(self, transaction: Transaction) -> None:
        offsets = self._offsets
        is_commit = transaction.decision is Decision.COMMIT
        end = offsets.apply_pending if is_commit else offsets.release_pending
        for group in transaction.groups:
            end(group, transaction.tx_id)

    def finish(self, transactional_id: str, tx_id: TxId) -> None:
        """Apply a decision and complete it. Any process may call this, any number of times."""
        # Another process may have decided or completed it since this process last read.
        self.catch_up()
        if self._prepared(transactional_id, tx_id) is not None:
            # Last: once COMMITTED is stored, no process looks for a missing marker or offset (R36).
            self.apply(transactional_id, tx_id)
            self.execute(self.completion(transactional_id, tx_id))

    def abort(
        self,
        transactional_id: str,
        tx_id: TxId,
        *,
        fence: bool = False,
        undecided: bool = False,
    ) -> None:
        """Abort and finish. Raises the errors of `prepare_abort`."""
        self.prepare_abort(transactional_id, tx_id, fence=fence, undecided=undecided)
        self.finish(transactional_id, tx_id)

    def maintain(self, first: TxId | None = None) -> list[TxId]:
        """One pass: abort transactions past their timeout and finish decided ones, `first` before
        the others. Returns them; raises as `end_each` does.

        Clocks only start an attempt: no timeout ends a decided transaction (I14).
        """
        # A store that stops answering ends the pass, so what a reader waits for comes first.
        found = sorted(self.catch_up().open_transactions(), key=lambda one: one[1].tx_id != first)
        return end_each((known.tx_id, partial(self._end_due, name, known)) for name, known in found)

    def _end_due(self, transactional_id: str, transaction: Transaction) -> bool:
        """End the transaction if it is decided or past its timeout; returns whether it was."""
        if transaction.state in PREPARED:
            self.finish(transactional_id, transaction.tx_id)
            return True
        is_late = transaction.is_late(self._now_ms())
        if is_late:
            self._end_late(transactional_id, transaction.tx_id)
        return is_late

    def _end_late(self, transactional_id: str, tx_id: TxId) -> None:
        """Abort the transaction, or finish the decision that its owner has made meanwhile."""
        with suppress(IllegalTransition, ProducerFenced):  # Decided, or its id is forgotten.
            # The owner may still be alive: with the fence its next call in this epoch fails.
            self.prepare_abort(transactional_id, tx_id, fence=True)
        self.finish(transactional_id, tx_id)

    # Queries.

    def outcome(self, tx_id: TxId) -> TransactionOutcome:
        """How a transaction ended, as far as rule R39 allows if its outcome was dropped."""
        state = self.catch_up()
        # A decision is the final outcome (I4), even if it is not applied everywhere yet.
        transaction = state.found_open(tx_id)
        if transaction is not None:
            decided = transaction.decided
            return TransactionOutcome.OPEN if decided is None else decided.transaction_outcome
        known = state.outcome(tx_id)
        return state.presumed_outcome(tx_id) if known is None else known.transaction_outcome

    def is_superseded(self, transactional_id: str, tx_id: TxId) -> bool:
        """Whether the transaction is unknown and can never prepare: a later epoch is registered
        (rule R3), or its id has expired, whose next registration gets another producer id."""
        # Catching up proves the absence: a PREPARE that this process has not read yet may have won.
        known = self.catch_up().ids.get(transactional_id)
        if known is None:
            return self.state.outcome(tx_id) is None
        if tx_id in known.open or self.state.outcome(tx_id) is not None:
            return False
        return is_past(known, tx_id)

    def outcome_of_tag(self, tag: str) -> TransactionOutcome:
        """How the transactions with that tag ended: COMMITTED if one of them committed, else the
        outcome of the newest."""
        state = self.catch_up()
        # An aborted repeat of a committed transaction may be the newest with the tag.
        if state.committed_with_tag(tag) is not None:
            return TransactionOutcome.COMMITTED
        for _, transaction in state.open_transactions():
            if transaction.tag == tag:
                return self.outcome(transaction.tx_id)
        found = state.outcome_of_tag(tag)
        return TransactionOutcome.UNKNOWN_ID if found is None else found[1].transaction_outcome


def with_records_of_decision(topic: TopicLog, marker: WriteMarker) -> WriteMarker:
    """The marker with the records that are in the entry of the decision, and with the parts of
    manifests. Raises MissingObject, CorruptData."""
    segments = topic.for_marker(marker.segments)
    if segments is None:
        # Both stay until the transaction is complete (R65, R66): then the topic has the marker.
        producer = topic.catch_up(linearizable=True).producers.get(marker.tx_id.pid, NEW_PRODUCER)
        is_gone = topic.state.closed or holds(topic.state.retired, marker.tx_id.pid)
        if not (is_gone or producer.is_finished(marker.tx_id)):
            named = (one.path for one in marker.segments)
            path = next(path for path in named if is_entry(path) or is_manifest(path))
            raise MissingObject(
                f"{path} is missing, or has no records of transaction {marker.tx_id}, which is "
                f"decided, and topic {topic.name!r} lacks them. Restore it from a backup.",
                path=path,
            )
        segments = ()
    return replace(marker, segments=segments)


def end_each(endings: Iterable[tuple[TxId, Ending]]) -> list[TxId]:
    """Run every ending, even if others fail; returns the transactions that were ended.

    It stops only if the store does not answer, because each further ending would wait for all
    retries of a request. Raises the first error, at the end.
    """
    ended: list[TxId] = []
    first_error: TxlogError | None = None
    for tx_id, end in endings:
        try:
            if end():
                ended.append(tx_id)
        except TxlogError as error:
            log.info("transaction %s could not be ended: %s", tx_id, error)
            first_error = first_error or error
            if isinstance(error, StoreUnavailable | OutcomeUnknown):
                break
    if first_error is not None:
        raise first_error
    return ended
