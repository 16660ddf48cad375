"""A producer's transaction as its client sees it: declare, append, pend, prepare, apply.

The steps are those of design section 6; each is durable before the next begins. A crash before
PREPARE_COMMIT leaves a transaction that times out or that the next instance aborts; after it,
whoever meets the transaction finishes it. It must not know how records are buffered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from txlog.clients.connection import Connection
from txlog.coordinator.coordinator import InitOptions
from txlog.coordinator.events import Participant, Registration, ReplayMark
from txlog.coordinator.state import TransactionalId
from txlog.errors import (
    InternalError,
    InvalidProducerEpoch,
    ProducerFenced,
    TransactionAborted,
    TxlogError,
)
from txlog.groups.offsets_state import PendingOffset
from txlog.log.topic_log import TopicLog
from txlog.model import TxId


class TransactionSession:
    """The registered instance of a transactional id, and its one open transaction."""

    def __init__(
        self,
        connection: Connection,
        transactional_id: str,
        transaction_group: str = "",
        timeout_ms: int | None = None,
    ) -> None:
        process = connection.cluster.process
        self.transactional_id = transactional_id
        self._connection = connection
        self._coordinator = connection.coordinator_of(transaction_group or transactional_id)
        self._timeout_ms = timeout_ms or process.transaction_timeout_ms
        self._instance = ""
        self._registration: Registration | None = None
        self._number = -1
        self._tag = ""
        self._begun = False
        self._may_be_decided = False
        """A commit was asked for, and not refused as aborted."""
        self._declared: dict[str, set[int]] = {}
        self._groups: list[str] = []
        self._completion: Callable[[], object] | None = None

    @property
    def registration(self) -> Registration:
        """The producer id and epoch of this instance."""
        if self._registration is None:
            raise InternalError("a transaction before its registration. Please report this.")
        return self._registration

    @property
    def tx_id(self) -> TxId:
        """The open transaction."""
        return TxId(self.registration.pid, self.registration.epoch, self._number)

    def register(
        self,
        instance: str,
        *,
        is_run: bool = False,
        groups: tuple[str, ...] = (),
        take_over: bool = False,
        may_skip: bool = False,
    ) -> Registration:
        """Become the id's newest instance. Raises GroupOwned, ProducerFenced."""
        self._instance = instance
        options = InitOptions(self._timeout_ms, False, is_run, groups, take_over, may_skip=may_skip)
        return self._register(options)

    def renew(self) -> Registration:
        """A new epoch for the same instance. Raises ProducerFenced if another has taken over."""
        return self._register(InitOptions(self._timeout_ms, succeeds=self._instance))

    def _register(self, options: InitOptions) -> Registration:
        self.join()
        self._registration = self._coordinator.init_producer(
            self.transactional_id, self._instance, options
        )
        self._number = self._registration.begun_number
        return self._registration

    def begin(self, tag: str = "") -> TxId:
        """Name the next transaction; nothing is written yet. `tag` is its idempotency key.

        One request tells whether another instance has taken over, so that a fenced one does no
        work in vain. Raises ProducerFenced, DuplicateTransaction.

        The one before may still be completing (R8): its completion is waited for where the
        coordinator is needed next.
        """
        following = replace(self.tx_id, number=self._number + 1)
        self._coordinator.require_current(self.transactional_id, following, tag)
        self._number += 1
        self._tag = tag
        self._begun = self._may_be_decided = False
        self._declared = {}
        self._groups = []
        return self.tx_id

    def has_declared(self, topic: TopicLog, partitions: set[int]) -> bool:
        """Whether records may go to these partitions now."""
        return self._begun and partitions <= self._declared.get(topic.topic_id, set())

    def declare(self, topic: TopicLog, partitions: set[int], timeout_ms: int | None = None) -> None:
        """Make partitions part of the transaction before the first record goes there.

        `timeout_ms` is of a transaction that begins with this; default: the session's.
        """
        if self.has_declared(topic, partitions):
            return
        participant = Participant(topic.topic_id, topic.name, tuple(sorted(partitions)))
        with self.told_apart():
            self._add(participant, timeout_ms=timeout_ms)
        self._declared.setdefault(topic.topic_id, set()).update(partitions)

    def _add(self, *participants: Participant, timeout_ms: int | None = None) -> None:
        """BEGIN if it has not begun. Without participants a begun one is only asked whether it
        goes on: nothing is written."""
        if self._begun:
            self._coordinator.add_participants(self.transactional_id, self.tx_id, participants)
            return
        self.join()
        timeout_ms = timeout_ms or self._timeout_ms
        self._coordinator.begin(
            self.transactional_id, self.tx_id, timeout_ms, participants, self._tag
        )
        self._begun = True

    @contextmanager
    def told_apart(self) -> Iterator[None]:
        """Who ended this epoch? Raises ProducerFenced only if another instance has taken over.

        A timeout or an operator that aborts a transaction ends its epoch, too. Its owner may abort
        and go on in a new one: it gets TransactionAborted (KIP-588).
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

    def pend(self, group: str, offsets: tuple[PendingOffset, ...]) -> None:
        """Put a group's offsets aside.

        Raises CommitFailed, UnstableOffsetCommit, TransactionAborted, FencedError.
        """
        with self.told_apart():
            self._add()
        self.pend_staged(group, offsets)

    def pend_staged(self, group: str, offsets: tuple[PendingOffset, ...]) -> None:
        """The same for a transaction that begins with its PREPARE_COMMIT."""
        self._connection.offsets.pend(
            group,
            self.tx_id,
            self.transactional_id,
            self._coordinator.partition,
            offsets,
            self._timeout_ms,
        )
        if group not in self._groups:
            self._groups.append(group)

    def commit(
        self,
        participants: tuple[Participant, ...] = (),
        mark: ReplayMark | None = None,
    ) -> None:
        """Decide, apply everywhere, and complete in the background (rule R8).

        May be called again after an error that says so: each step is idempotent.
        """
        if not (self._begun or participants or self._groups or self._tag or mark is not None):
            with self.told_apart():
                self._coordinator.require_current(self.transactional_id, self.tx_id)
        else:
            self.join()
            self._prepare(participants, mark)
            tx_id = self.tx_id
            self._coordinator.apply(self.transactional_id, tx_id)
            self._completion = self._connection.runtime.fan_out.start(
                lambda: self._coordinator.complete(self.transactional_id, tx_id)
            )

    def _prepare(self, participants: tuple[Participant, ...], mark: ReplayMark | None) -> None:
        self._may_be_decided = True
        try:
            self._coordinator.prepare_commit(
                self.transactional_id,
                self.tx_id,
                participants,
                tuple(self._groups),
                mark,
                self._tag,
            )
        except TransactionAborted:
            self._may_be_decided = False
            self._require_newest()
            raise

    def _require_newest(self) -> TransactionalId:
        """What is known of the id. Raises ProducerFenced if another instance has taken over, or
        the id was forgotten meanwhile: it was not used for too long."""
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
        """Abort; nothing is written if nothing was declared. Answers whether its epoch has ended.

        Raises IllegalTransition after the decision, OutcomeUnknown if it may have committed and is
        forgotten, and ProducerFenced once all of it is aborted.
        """
        if self._begun or self._groups:
            undecided = not self._may_be_decided
            self._coordinator.abort(self.transactional_id, self.tx_id, undecided=undecided)
            for group in self._groups:
                self._connection.offsets.release_pending(group, self.tx_id)
        newest = self._require_newest()
        return (newest.pid, newest.epoch) != (self.tx_id.pid, self.tx_id.epoch)

    def join(self) -> None:
        """Wait for the completion of the transaction before."""
        if self._completion is None:
            return
        try:
            self._completion()
        except TxlogError:
            self._completion = None
            raise
        self._completion = None
