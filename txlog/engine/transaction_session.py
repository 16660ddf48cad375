"""The client's side of a transaction: register, begin, declare, pend, commit, abort.

The steps are those of docs/architecture.md; each is durable before the next begins. A crash before
PREPARE_COMMIT leaves a transaction that times out or that the next instance aborts; after it, any
process can finish the transaction. It must not know how records are buffered.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any, NoReturn, TypeAlias

from txlog.coordinator.events import (
    InitProducer,
    Participant,
    ParticipantsAdded,
    Registration,
    ReplayMark,
)
from txlog.coordinator.rules import require_current
from txlog.coordinator.transaction import TransactionalId
from txlog.engine.append.appender import STORED_BATCH_BYTES
from txlog.engine.connection import Connection
from txlog.engine.large_transactions import decidable, weight
from txlog.engine.producer_config import STAGED, ProducerConfig
from txlog.engine.transaction_completion import Completion, NextStep
from txlog.errors import (
    CommitFailed,
    InternalError,
    InvalidConfig,
    InvalidProducerEpoch,
    OutcomeUnknown,
    ProducerFenced,
    RetriableError,
    StoreDenied,
    StoreUnavailable,
    TransactionAborted,
    TxlogError,
    UnknownTopic,
    UnstableOffsetCommit,
)
from txlog.fan_out import in_background
from txlog.groups.state import (
    OFFSETS_BYTES_MAX,
    OffsetsPended,
    Pending,
    PendingOffset,
    event_bytes,
)
from txlog.model import TxId
from txlog.settings import ProcessSettings
from txlog.topic.records.batch import InlineSegment
from txlog.topic.topic_log import TopicLog

log = logging.getLogger(__name__)

Pends: TypeAlias = Mapping[str, tuple[PendingOffset, ...]]
"""Group -> its positions after the transaction."""

NO_PENDS: Pends = MappingProxyType({})

PEND_BYTES = 8_000
"""Space in an entry for a pend without its positions: the group's name twice and the transactional
id, of at most 512 characters each. An entry then has fewer pends than it may have events."""


class TransactionSession:
    """A registered instance of a transactional id, and its one open transaction."""

    def __init__(
        self,
        connection: Connection,
        transactional_id: str,
        transaction_group: str = "",
        timeout_ms: int | None = None,
        *,
        is_staged: bool = False,
        is_visible: bool = True,
        on_markers: Callable[[bool], object] = lambda _: None,
    ) -> None:
        """`is_staged`: transactions begin with PREPARE_COMMIT, unless partitions are declared.
        `is_visible`: `commit` returns once every topic has the marker, not with the decision; then
        `on_markers` is told in the background whether they are written.

        Raises InvalidConfig if staged segments could be deleted before the transaction times out
        (R42).
        """
        process = connection.cluster.process
        self.transactional_id = transactional_id
        self._connection = connection
        self._coordinator = connection.coordinator_of(transaction_group or transactional_id)
        self._timeout_ms = timeout_ms or process.transaction_timeout_ms
        if is_staged:
            _require_outlived(self._timeout_ms, process)
        self._instance = ""
        self._registration: Registration | None = None
        self.tx_id = TxId(-1, -1, -1)
        """The id of the open transaction, or of the last one."""
        self._tag = ""
        self._is_staged = is_staged
        self._is_visible, self._on_markers = is_visible, on_markers
        self.has_begun = False
        """Whether BEGIN is written."""
        self._opened_ms = 0.0
        """When `begin` was called, by the monotonic clock."""
        self._state_at_begin: Callable[[], Any] | None = None
        """The coordinator's journal when `begin` was called, or shortly after."""
        self._fencing_check: Callable[[], Any] | None = None
        """The read for the next check for a newer instance, running or done."""
        self.may_be_decided = False
        """Whether PREPARE_COMMIT was sent, and not refused because the transaction is aborted."""
        self._declared: dict[str, set[int]] = {}
        """Topic id -> declared partitions."""
        self._groups: list[str] = []
        """Consumer groups with a pend of this transaction."""
        self._decidable: tuple[tuple[Participant, ...], tuple[Participant, ...]] | None = None
        """Participants that were to be committed, and what the decision names instead."""
        self._completion: Completion | None = None
        """The completion of the previous transaction."""

    @classmethod
    def of_producer(cls, connection: Connection, config: ProducerConfig) -> TransactionSession:
        """The session of a producer with that configuration. Raises InvalidConfig."""
        return cls(
            connection,
            config.transactional_id,
            config.transaction_group,
            config.transaction_timeout_ms,
            is_staged=config.transaction_records == STAGED,
            is_visible=config.commit_returns == "visible",
        )

    def __reduce__(self) -> NoReturn:
        raise InternalError(
            "a registered instance cannot be passed to another process, which could use the same "
            "transaction ids again (rule R35). Please report this."
        )

    @property
    def registration(self) -> Registration:
        """The producer id and epoch of this instance."""
        if self._registration is None:
            raise InternalError("the transactional id is not registered yet. Please report this.")
        return self._registration

    def register(
        self,
        instance: str,
        *,
        is_run: bool = False,
        groups: tuple[str, ...] = (),
        take_over: bool = False,
        may_skip: bool = False,
    ) -> Registration:
        """Register as the newest instance of the id. Raises GroupOwned, ProducerFenced."""
        self._instance = instance
        return self._register(is_run=is_run, groups=groups, take_over=take_over, may_skip=may_skip)

    def renew(self) -> Registration:
        """Register a new epoch of the same instance. Raises ProducerFenced if another instance has
        taken over."""
        return self._register(succeeds=self._instance)

    def _register(self, **changes: Any) -> Registration:
        # A registration is refused while a transaction of the id is decided and not complete (R5).
        self.join()
        command = InitProducer(self.transactional_id, self._instance, self._timeout_ms, **changes)
        self._registration = found = self._coordinator.init_producer(command)
        self.tx_id = TxId(found.pid, found.epoch, -1)
        return found

    def begin(self, tag: str = "", *, checks_fencing: bool = True) -> TxId:
        """Give the next transaction its id; nothing is written yet. `tag` is its idempotency key.

        With `checks_fencing` one request checks whether another instance has taken over, so that a
        fenced instance does no useless work; a staged transaction without a tag makes this check
        during its first upload, and only begins to read which topics are deleted. Raises
        ProducerFenced, DuplicateTransaction.

        The previous transaction may still be completing (R8); the next request that needs the
        coordinator waits for it.
        """
        is_awaited = checks_fencing and (not self._is_staged or tag != "")
        known = self.registration
        following = TxId(known.pid, known.epoch, self.tx_id.number + 1)
        if is_awaited:
            # The number rises after the check, so that a refused begin uses none.
            self._coordinator.require_current(self.transactional_id, following, tag)
        self.tx_id = following
        self._fencing_check = self._state_at_begin = None
        self._opened_ms = self._connection.runtime.clock.monotonic_ms()
        self._tag = tag
        self.has_begun = self.may_be_decided = False
        self._declared = {}
        self._groups = []
        self._decidable = None
        if checks_fencing and not is_awaited:
            self._state_at_begin = self._begin_read()
        return self.tx_id

    def _begin_read(self) -> Callable[[], Any]:
        return in_background(
            self._connection.cluster.request_fan_out, self._coordinator.journal.follow
        )

    def ensure_fencing_check(self) -> None:
        """Start to check in the background whether another instance has taken over, unless a check
        is running, or was not yet asked for its result."""
        if self._fencing_check is None:
            self._fencing_check = self._begin_read()

    def require_not_fenced(self) -> None:
        """Raises the result of the check: ProducerFenced, TransactionAborted."""
        read, self._fencing_check = self._fencing_check, None
        if read is None:
            return
        with self.aborted_unless_fenced():
            try:
                state = read().transactions
                require_current(state, self.transactional_id, self.tx_id, self._tag)
            # The check only saves useless work: PREPARE_COMMIT is refused all the same (I8).
            except (StoreUnavailable, OutcomeUnknown, StoreDenied) as error:
                log.info("%s: the check for a fence failed: %s", self.transactional_id, error)

    def has_deleted(self, topic: TopicLog) -> bool:
        """Whether the coordinator, as this process last read it, refuses decisions that name the
        topic (R40)."""
        return topic.topic_id in self._coordinator.state.deleted_topics

    def had_deleted(self, topic: TopicLog) -> bool:
        """Whether it did so when the transaction began, as far as is known: then its records were
        sent to the topic that has the name now."""
        if self._state_at_begin is None:
            return False
        try:
            return topic.topic_id in self._state_at_begin().transactions.deleted_topics
        except TxlogError:
            return False

    def has_declared(self, topic: TopicLog, partitions: set[int]) -> bool:
        """Whether records may be appended to these partitions now."""
        return self.has_begun and partitions <= self._declared.get(topic.topic_id, set())

    def declare(self, topic: TopicLog, partitions: set[int]) -> None:
        """Add partitions to the transaction before the first record is appended there."""
        if self.has_declared(topic, partitions):
            return
        participant = Participant(topic.topic_id, topic.name, tuple(sorted(partitions)))
        with self.aborted_unless_fenced():
            self._add(participant)
        self._declared.setdefault(topic.topic_id, set()).update(partitions)

    def _add(self, *participants: Participant) -> None:
        """BEGIN, or add participants to a begun transaction. Without participants this only checks
        that a begun transaction is still open: nothing is written."""
        if self.has_begun:
            self._coordinator.execute(
                ParticipantsAdded(self.transactional_id, self.tx_id, participants)
            )
            return
        self.require_in_time()
        begin = partial(
            self._coordinator.begin,
            self.transactional_id,
            self.tx_id,
            self._timeout_ms,
            participants,
            self._tag,
        )
        self._after_completion(begin)
        # Not before BEGIN is answered: after an unknown outcome it is sent again, as a repeat.
        self.has_begun = True

    def store_begin(self) -> None:
        """Write BEGIN although no partition is declared: the transaction is listed from here on,
        and any process can end it. Raises as `declare`."""
        if not self.has_begun:
            with self.aborted_unless_fenced():
                self._add()

    def _after_completion(self, decide: NextStep) -> None:
        """Send BEGIN or PREPARE_COMMIT, in one entry with COMMITTED of the previous transaction if
        that is still missing (R5)."""
        if self._completion is None:
            decide(before=())
        else:
            self._end_completion(partial(self._completion.include_in_decision, decide))

    @contextmanager
    def aborted_unless_fenced(self) -> Iterator[None]:
        """Raise TransactionAborted instead of a fencing error, unless another instance has taken
        over.

        A timeout or an operator that aborts a transaction also ends its epoch. The owner may then
        abort and continue in a new epoch (KIP-588).
        """
        try:
            yield
        except (ProducerFenced, InvalidProducerEpoch) as error:
            self._require_newest()
            raise TransactionAborted(
                f"transaction {self.tx_id} was ended by a timeout or an operator. Abort it here, "
                "then begin again.",
                tx_id=str(self.tx_id),
            ) from error

    def decides(self, group: str) -> bool:
        """Whether the group is in the journal of this coordinator, so that `commit` can store its
        pend in the entry of the decision (R56)."""
        offsets = self._connection.offsets
        return offsets.coordinator_number_of(group) == self._coordinator.number

    def pend(
        self, group: str, offsets: tuple[PendingOffset, ...], conditions: Sequence[Any] = ()
    ) -> None:
        """Pend a group's offsets now; `conditions` as in GroupOffsets.pend.

        Raises CommitFailed, UnstableOffsetCommit, TransactionAborted, FencedError.
        """
        if self.has_begun or not self._is_staged:
            with self.aborted_unless_fenced():
                self._add()
            self.pend_staged(group, offsets, conditions)
            return
        # At the same time as the pend, so that the check costs no wait.
        self._fencing_check = self._begin_read()
        try:
            self.pend_staged(group, offsets, conditions)
        # If it is a newer instance that has committed, or pended, these first, this one is fenced.
        except (CommitFailed, UnstableOffsetCommit):
            self.require_not_fenced()
            raise
        self.require_not_fenced()

    def pend_staged(
        self, group: str, offsets: tuple[PendingOffset, ...], conditions: Sequence[Any] = ()
    ) -> None:
        """Pend without BEGIN; the pend times out with the transaction (R41)."""

        def pend(*, before: Sequence[Any]) -> None:
            command = self._pend_command(group, offsets)
            self._connection.offsets.pend(command, before, conditions)

        if self._completion is None:
            pend(before=())
        else:
            self._completion.include_in_pend(group, pend)
        self.name_group(group)

    def name_group(self, group: str) -> None:
        """The decision names the group, of which this process or another one pends offsets."""
        if group not in self._groups:
            self._groups.append(group)

    def commit(
        self,
        participants: tuple[Participant, ...] = (),
        mark: ReplayMark | None = None,
        *,
        pends: Pends = NO_PENDS,
        conditions: Sequence[Any] = (),
    ) -> dict[str, Mapping[int, int]]:
        """Decide, write the markers, and complete in the background (rule R8). Unless the
        transaction is staged, or its entry has pends, the offsets are applied before this returns.

        `pends` are stored in the entry of the decision as far as it can hold them, and the others
        before it (R56). `conditions` are commands that may refuse that entry.

        Returns the offsets of staged records, if this call has written the markers: topic id ->
        partition -> first offset. May be repeated after a retriable error: each step is idempotent.
        After UnstableOffsetCommit or CommitFailed nothing is, or will be, decided.
        """
        is_empty = not (participants or pends or self._groups or self._tag or mark is not None)
        # An empty transaction writes nothing, but a fenced instance learns of the fence.
        if is_empty and not self.has_begun:
            with self.aborted_unless_fenced():
                self._coordinator.require_current(self.transactional_id, self.tx_id)
            return {}
        # Once: after PREPARE was sent, only the coordinator's answer may end a repeat (R39). Before
        # any pend: what is refused here leaves none.
        if self._decidable is None or self._decidable[0] != participants:
            self._decidable = participants, decidable(self._connection, participants, mark)
        participants = self._decidable[1]
        own = {group: offsets for group, offsets in pends.items() if self.decides(group)}
        riding = own if own and _fit_in_entry(participants, mark, own) else NO_PENDS
        # A repeat may find them applied: they were answered before PREPARE was sent (R37).
        for group in () if self.may_be_decided else pends:
            if group not in riding:
                self.pend_staged(group, pends[group])
        # PREPARE names every group with a pend, so that any process can apply them all (R37).
        waiting = tuple(dict.fromkeys((*self._groups, *riding)))
        together = [*conditions, *(self._pend_command(*item) for item in riding.items())]
        self._prepare(participants, waiting, mark, together)
        base_offsets: dict[str, Mapping[int, int]] = {}
        try:
            # Staged: the next pend includes the offsets. In the log BEGIN comes before that pend
            # and waits for offsets in another journal (R36), so they are applied here; and so are
            # those that a Spark query has pended in an entry of their own.
            if self._is_visible and (self._is_staged or riding):
                base_offsets = self._coordinator.write_markers(self.transactional_id, self.tx_id)
            elif self._is_visible:
                base_offsets = self._coordinator.apply(self.transactional_id, self.tx_id)
                waiting = ()
        except TxlogError as error:
            what = f"transaction {self.tx_id} is committed, but may not be visible everywhere yet"
            raise error.during(what) from error
        # The other steps follow in the background.
        self._completion = Completion(
            self._connection,
            self._coordinator,
            self.transactional_id,
            self.tx_id,
            waiting,
            is_visible=self._is_visible,
            on_markers=self._on_markers,
        )
        return base_offsets

    def _pend_command(self, group: str, offsets: tuple[PendingOffset, ...]) -> OffsetsPended:
        now_ms, number = self._connection.runtime.clock.wall_ms(), self._coordinator.number
        pending = Pending(self.transactional_id, number, offsets, now_ms, self._timeout_ms)
        return OffsetsPended(group, self.tx_id, pending)

    def require_in_time(self) -> None:
        """Raises TransactionAborted if a transaction without BEGIN is past its timeout, which no
        other process can check (R42)."""
        elapsed_ms = self._connection.runtime.clock.monotonic_ms() - self._opened_ms
        if self._is_staged and not self.has_begun and elapsed_ms > self._timeout_ms:
            raise TransactionAborted(
                f"transaction {self.tx_id} was open for {elapsed_ms:.0f} ms, and its "
                f"transaction.timeout.ms is {self._timeout_ms}. Abort it and repeat all of it, or "
                "open a producer with a longer timeout.",
                tx_id=str(self.tx_id),
            )

    def _prepare(
        self,
        participants: tuple[Participant, ...],
        groups: tuple[str, ...],
        mark: ReplayMark | None,
        together: Sequence[Any],
    ) -> None:
        # A repeat is never too late: it asks how the transaction was decided.
        if not self.may_be_decided:
            self.require_in_time()
        # Before it is sent: after any failure only the coordinator can tell the outcome (R38).
        self.may_be_decided = True

        prepare = partial(
            self._coordinator.prepare_commit,
            self.transactional_id,
            self.tx_id,
            participants,
            groups,
            mark,
            self._tag,
            together=together,
        )
        try:
            resolved = self._connection.offsets.with_resolution
            resolved(partial(self._after_completion, prepare), self.tx_id)
        # Refused by the newest state: nothing was sent, or the slot that was tried is taken.
        except (UnknownTopic, CommitFailed, UnstableOffsetCommit):
            self.may_be_decided = False
            raise
        except TransactionAborted:
            self.may_be_decided = False
            self._require_newest()
            raise

    def _require_newest(self) -> TransactionalId:
        """The coordinator's state of the id. Raises ProducerFenced if another instance has taken
        over, or the coordinator has forgotten the id because it was idle for too long."""
        known = self._coordinator.catch_up().ids.get(self.transactional_id)
        if known is None:
            raise ProducerFenced(
                f"{self.transactional_id!r} was forgotten after transactional.id.expiration.ms "
                "without a transaction. Close this producer and open a new one.",
                transactional_id=self.transactional_id,
            )
        if known.instance != self._instance:
            raise ProducerFenced(
                f"instance {known.instance} of {self.transactional_id!r} has taken over, and "
                f"aborted transaction {self.tx_id} of this one. Close this one.",
                transactional_id=self.transactional_id,
                current_instance=known.instance,
            )
        return known

    def abort(self) -> bool:
        """Abort; writes nothing if nothing was declared, pended or prepared (R38). Returns whether
        the transaction's epoch has ended.

        Raises IllegalTransition if COMMIT is decided, OutcomeUnknown if it may have committed and
        its outcome is forgotten, and, after the abort, ProducerFenced.
        """
        if self.has_begun or self._groups or self.may_be_decided:
            undecided = not self.may_be_decided
            self._coordinator.abort(self.transactional_id, self.tx_id, undecided=undecided)
            # The abort is durable now: no PREPARE can commit these offsets any more (R3).
            for group in self._groups:
                self._connection.offsets.release_pending(group, self.tx_id)
        newest = self._require_newest()
        return (newest.pid, newest.epoch) != (self.tx_id.pid, self.tx_id.epoch)

    def join(self) -> None:
        """Wait for the completion of the previous transaction."""
        if self._completion is not None:
            self._end_completion(self._completion.join)

    def close(self) -> None:
        """Wait for the completion of the previous transaction. If its records are visible, an error
        of the store is logged only: a program that ends with an error might write them again."""
        completion = self._completion
        try:
            self.join()
        except (RetriableError, OutcomeUnknown, StoreDenied) as error:
            if completion is None or not completion.is_visible:
                raise
            log.warning("%s Its next instance, or `txlog maintain`, completes it.", error)

    def _end_completion(self, end: Callable[[], None]) -> None:
        try:
            end()
        except TxlogError:
            self._completion = None  # The next process that meets the transaction completes it.
            raise
        self._completion = None


def _fit_in_entry(
    participants: Sequence[Participant], mark: ReplayMark | None, pends: Pends
) -> bool:
    """Whether an entry can hold these pends with the decision and its mark."""
    positions = sum(PEND_BYTES + event_bytes(offsets) for offsets in pends.values())
    segments = [segment for participant in participants for segment in participant.segments]
    records = sum(len(each.data) for each in segments if isinstance(each, InlineSegment))
    names = STORED_BATCH_BYTES * weight(participants, mark)
    return positions + names + records <= OFFSETS_BYTES_MAX


def _require_outlived(timeout_ms: int, process: ProcessSettings) -> None:
    """Raises InvalidConfig unless staged segments and ids are kept longer than the timeout."""
    for name in ("staging.retention.ms", "transactional.id.expiration.ms"):
        kept_ms = getattr(process, name.replace(".", "_"))
        if timeout_ms >= kept_ms:
            raise InvalidConfig(
                f"transaction.timeout.ms is {timeout_ms}, and {name} is {kept_ms}: with "
                "transaction.records=staged the timeout must be less. Lower it, or set "
                "transaction.records=in.log.",
                name="transaction.timeout.ms",
            )
