"""The driver's commit of one micro-batch: records of all tasks and the groups' offsets, or nothing.

The steps, and what a crash after each leaves:

    1  read the checkpoint's plan, apply the replay tests    nothing
    2  register the run                                      an epoch
    3  pend the groups' offsets                              a pend, which is barred and released
    4  PREPARE_COMMIT: the decision                          a transaction that any process finishes
    5  markers in the topics                                 the same
    6  the offsets and COMMITTED                             the same

If the groups are in the coordinator's journal, as the only group of a query always is, steps 3 and
4 are one entry, and so is step 6.

It guards I6 and I10 (R1, R2, R23, R24, R26, R27, R29). It must not know how records were staged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from weakref import WeakKeyDictionary

from spark_plugin.checkpoints.checkpoint import BatchPlan, Checkpoint
from spark_plugin.checkpoints.offset_log import BatchRange, GroupTopicPartition
from spark_plugin.options import WriterOptions
from spark_plugin.sink.participants import (
    BatchIdentity,
    Pends,
    append_first,
    fit_one_entry,
    is_large,
    participants,
    read_for_commit,
)
from spark_plugin.sink.replay import BatchDecision, decide_batch, offset_ranges
from spark_plugin.sink.staging import TaskMessage
from spark_plugin.source.starting_points import UNSTABLE_WAIT_MS, UNSTABLE_WAITS_MAX
from txlog.coordinator.coordinator import Coordinator
from txlog.coordinator.events import Participant, ReplayMark
from txlog.coordinator.transaction import TransactionalId
from txlog.engine.connection import Connection
from txlog.engine.transaction_session import TransactionSession
from txlog.errors import (
    CheckpointConflict,
    CommitFailed,
    InvalidOption,
    TransactionAborted,
    TxlogError,
    UnstableOffsetCommit,
)
from txlog.groups.state import (
    OFFSETS_BYTES_MAX,
    CommittedOffset,
    GroupState,
    PendingOffset,
    event_bytes,
)
from txlog.model import TopicPartition

log = logging.getLogger(__name__)

STAGED_TIMEOUT_MS = 10_000
"""After this time any process may bar an undecided run's pend. A commit takes milliseconds."""

DECIDE_ATTEMPTS_MAX = 3

_sessions: dict[tuple[int, str, str], TransactionSession] = {}
"""Registered runs of this process. Losing one costs a registration, nothing else.

Spark gives each commit to any idle Python process, so that queries of one driver swap processes: a
run registers again if its last commit came from another process.
"""


_LABELS_REMEDY = (
    "The writes of one foreachBatch need different labels: leave the first one as "
    "it is, give each of the others its own .option('label', ...), and start the query again."
)


_replayed: WeakKeyDictionary[Connection, dict[str, BatchIdentity]] = WeakKeyDictionary()
"""Transactional id -> the last write of a `foreachBatch` that was found in the log. A second write
of the batch under that label is another write, whose rows are not stored. Losing an entry loses
this distinction (docs/design/0007)."""


class BatchCommitter:
    """Commits the batches of one query to one log."""

    def __init__(
        self,
        connection: Connection,
        options: WriterOptions,
        checkpoint: Checkpoint | None,
        *,
        is_one_of_many: bool = False,
    ) -> None:
        """`is_one_of_many`: a write within a `foreachBatch`, which may have others beside it."""
        self._connection = connection
        self._options = options
        self._checkpoint = checkpoint
        self._is_one_of_many = is_one_of_many
        self._offsets_by_group: dict[str, Mapping[TopicPartition, CommittedOffset]] = {}
        """group -> its committed offsets, as last read."""
        self._states: Mapping[str, GroupState] = {}
        """The groups' states, as this attempt has read them."""

    def commit(self, identity: BatchIdentity, messages: Sequence[TaskMessage]) -> None:
        """Commit a batch exactly once, however often it is replayed.

        Raises CheckpointConflict, GroupOwned, ProducerFenced, and the store's errors.
        """
        batch = self._batch_range(identity, messages)
        coordinator = self._connection.coordinator_of(self._transaction_group(identity, batch))
        groups, staged = tuple(batch.by_group()), participants(messages)
        for attempt in range(DECIDE_ATTEMPTS_MAX):
            self._states = read_for_commit(self._connection, coordinator, groups, messages, staged)
            decision = self._decide(identity, batch, coordinator)
            if decision is BatchDecision.ALREADY_IN:
                self._require_replay(identity, coordinator, is_first_attempt=attempt == 0)
                log.info("batch %d is in the log already", identity.batch_id)
                return
            try:
                self._run(identity, batch, staged, coordinator)
                return
            except (CommitFailed, TransactionAborted) as error:
                # Another run was faster, and the replay tests tell whether with this batch. Or this
                # pend was barred as that of a dead run, and the batch is decided again.
                if attempt == DECIDE_ATTEMPTS_MAX - 1:
                    raise
                log.info("batch %d: %s", identity.batch_id, error)

    # The batch's ranges and ids.

    def _batch_range(self, identity: BatchIdentity, messages: Sequence[TaskMessage]) -> BatchRange:
        if self._checkpoint is None:
            return BatchRange(identity.batch_id, {})
        plan = messages[0].plan if messages else None
        if plan is not None:
            _require_own_plan(plan, identity)
        log_id = self._connection.cluster.log_id
        batch = self._checkpoint.range_of(identity.query_id, identity.batch_id, log_id)
        if plan is not None:
            # Compared after the files were read: they, and the batch before, are of this plan.
            self._checkpoint.require_plan(plan, batch.digest)
        if batch.ungrouped:
            raise InvalidOption(
                "a source of this query reads the log that the sink writes, without group.id, so "
                "its offsets cannot be in the transaction (rule R29). Add .option('group.id', "
                "...) to readStream, and start with a new checkpoint: this one's offsets have no "
                "group.",
                option="group.id",
            )
        return batch

    @property
    def _may_skip(self) -> bool:
        """Whether this is a write of a `foreachBatch`, which may leave batches out (R30)."""
        return bool(self._options.label) or self._checkpoint is None

    def _transactional_id(self, identity: BatchIdentity) -> str:
        named = self._options.transactional_id or _query_name(identity)
        return f"{named}.{self._options.label}" if self._options.label else named

    def _transaction_group(self, identity: BatchIdentity, batch: BatchRange) -> str:
        """Chosen so that two queries on one group share a coordinator, which checks the owner
        (R12), and so do all runs of a query, whatever their options, for the replay test (R2)."""
        return min(batch.groups, default=_query_name(identity))

    # The two replay tests.

    def _decide(
        self, identity: BatchIdentity, batch: BatchRange, coordinator: Coordinator
    ) -> BatchDecision:
        """Apply the replay tests, before any run is fenced (rule R27)."""
        transactional_id = self._transactional_id(identity)
        known = coordinator.state.ids.get(transactional_id)
        unfinished = list(known.open if known else ())
        for tx_id in unfinished:
            coordinator.finish(transactional_id, tx_id)
        # The states were read before these were finished.
        early = None if unfinished else self._decide_early(identity, batch, coordinator)
        if early is not None:
            return early
        committed, mark = self._read_consistently(identity, batch, coordinator)
        return self._apply_tests(identity, batch, committed, mark)

    def _decide_early(
        self, identity: BatchIdentity, batch: BatchRange, coordinator: Coordinator
    ) -> BatchDecision | None:
        """Commit, if the states just read allow it; None if they must be read again.

        They are of different times, but the pend compares the group's positions again, and PREPARE
        the mark. No other answer may rest on them.
        """
        # The transaction of a pend may be decided: then the group is where its offsets end.
        if any(state.pending for state in self._states.values()):
            return None
        self._offsets_by_group = {group: state.committed for group, state in self._states.items()}
        former = self._former_mark(identity, batch, coordinator)
        mark = coordinator.state.marks.get(self._mark(identity, batch).key)
        try:
            decision = self._apply_tests(
                identity, batch, self._committed(batch), _newest((mark, former))
            )
        except CheckpointConflict:
            return None
        return decision if decision is BatchDecision.COMMIT else None

    def _apply_tests(
        self,
        identity: BatchIdentity,
        batch: BatchRange,
        committed: Mapping[GroupTopicPartition, int | None],
        mark: ReplayMark | None,
    ) -> BatchDecision:
        return decide_batch(
            identity.query_id,
            identity.batch_id,
            batch.ranges,
            committed,
            mark,
            joining=batch.joining,
            fingerprint=batch.fingerprint,
            previous_fingerprint=batch.previous_fingerprint,
            may_skip=self._may_skip,
        )

    def _committed(self, batch: BatchRange) -> dict[GroupTopicPartition, int | None]:
        """The groups' offsets, as last read, in the partitions that the batch reads."""
        committed: dict[GroupTopicPartition, int | None] = {}
        for group, read in batch.by_group().items():
            for partition in read:
                at = self._offsets_by_group[group].get(partition.where)
                # A position in an earlier topic of that name is none in this one (R11).
                if at is not None and at.topic_id != batch.topic_ids[partition.topic]:
                    at = None
                committed[partition] = None if at is None else at.offset
        return committed

    def _read_consistently(
        self, identity: BatchIdentity, batch: BatchRange, coordinator: Coordinator
    ) -> tuple[dict[GroupTopicPartition, int | None], ReplayMark | None]:
        """The groups' positions and the query's newest batch, both of one time: if another run
        committed a batch between the two reads, they would disagree."""
        key = self._mark(identity, batch).key
        mark = coordinator.state.marks.get(key)
        former = self._former_mark(identity, batch, coordinator)
        for _ in range(DECIDE_ATTEMPTS_MAX):
            for group in batch.by_group():
                self._offsets_by_group[group] = self._positions(group)
            asked_before, mark = mark, coordinator.catch_up().marks.get(key)
            if mark == asked_before:
                return self._committed(batch), _newest((mark, former))
        raise CommitFailed(
            f"batch {identity.batch_id}: other runs of the query commit faster than this one can "
            "read the log. Stop all but one of them.",
            batch_id=identity.batch_id,
        )

    def _former_mark(
        self, identity: BatchIdentity, batch: BatchRange, coordinator: Coordinator
    ) -> ReplayMark | None:
        """The mark of a `foreachBatch` write in the coordinator that it had before it was given the
        checkpoint and so a group. Once a run is registered here, none is added there."""
        is_known = self._session_key(identity) in _sessions
        if is_known or not (self._is_one_of_many and batch.groups):
            return None
        other = self._connection.coordinator_of(_query_name(identity))
        return (
            None
            if other is coordinator
            else other.catch_up().marks.get(self._mark(identity, batch).key)
        )

    def _session_key(self, identity: BatchIdentity) -> tuple[int, str, str]:
        return id(self._connection), self._transactional_id(identity), identity.run_id

    def _require_replay(
        self, identity: BatchIdentity, coordinator: Coordinator, *, is_first_attempt: bool
    ) -> None:
        """Refuse a second write of a `foreachBatch` under the label of the first.

        A replay comes from a later run; a repetition in the same run is another write, whose rows
        must not pass for the stored ones (R30). If the stored batch came while this run
        registered, the two cases cannot be distinguished.
        """
        if not self._is_one_of_many:
            return
        name = self._transactional_id(identity)
        known = coordinator.state.ids.get(name)
        replayed = _replayed.setdefault(self._connection, {})
        is_of_this_run = known is not None and known.instance == identity.run_id
        if is_of_this_run and not is_first_attempt:
            raise CommitFailed(
                f"batch {identity.batch_id} with the label {self._options.label!r} was "
                "committed at the same time by another writer: by an earlier run of the query "
                "that was still running, or by another write of this foreachBatch with the "
                f"same label. Nothing of this write was committed. {_LABELS_REMEDY}",
                batch_id=identity.batch_id,
            )
        if is_of_this_run or replayed.get(name) == identity:
            raise InvalidOption(
                f"batch {identity.batch_id} was written in this very run already, with the label "
                f"{self._options.label!r}, and nothing of this second write was committed. "
                f"{_LABELS_REMEDY}",
                option="label",
            )
        replayed[name] = identity

    def _positions(self, group: str) -> Mapping[TopicPartition, CommittedOffset]:
        """The group's committed offsets, after finishing every decided transaction on them."""
        offsets = self._connection.offsets
        state = offsets.group(group)
        for tx_id, pending in list(state.pending.items()):
            self._connection.coordinator(pending.coordinator).finish(
                pending.transactional_id, tx_id
            )
        return (offsets.group(group) if state.pending else state).committed

    def _mark(self, identity: BatchIdentity, batch: BatchRange) -> ReplayMark:
        return ReplayMark(
            identity.query_id,
            identity.batch_id,
            offset_ranges(batch.ranges),
            batch.fingerprint,
            self._options.label,
        )

    # The transaction.

    def _run(
        self,
        identity: BatchIdentity,
        batch: BatchRange,
        staged: tuple[Participant, ...],
        coordinator: Coordinator,
    ) -> None:
        name = self._transactional_id(identity)
        key = self._session_key(identity)
        # A large batch registers again: the sequences of an epoch begin at 0, and an earlier large
        # batch has used them (0011).
        mark = self._mark(identity, batch)
        is_too_large = is_large(staged, mark)
        session = _sessions.get(key)
        if (
            session is None
            or is_too_large
            or _has_moved(session, coordinator.state.ids.get(name), identity)
        ):
            session = self._registered(identity, batch)
        try:
            pends = {group: self._pending(group, batch) for group in batch.by_group()}
            pends = {
                group: self._transactional_part(group, pend)
                for group, pend in pends.items()
                if pend
            }
            # Without a check: all rows are staged, and PREPARE refuses a fenced run.
            session.begin(checks_fencing=False)
            if is_too_large:
                append_first(self._connection, session, staged)
                staged = ()
            if is_too_large or not self._fit_together(coordinator, pends, staged):
                for group, pend in pends.items():
                    # Answered before PREPARE, which names their groups (R37).
                    self._wait(partial(session.pend_staged, group, pend))
                pends = {}
            decide = partial(session.commit, staged, mark, pends=pends)
            self._wait(partial(self._connection.offsets.with_resolution, decide, session.tx_id))
            # Not left to the next transaction: the completion holds the group's offsets, and
            # another process may commit the next batch.
            session.join()
        except TxlogError:
            # The next attempt begins with a new epoch, so that no transaction id is used twice.
            _sessions.pop(key, None)
            # A pend that is left would block the group's present owner. If the decision is COMMIT,
            # or cannot be read, the abort changes nothing (R3, R26).
            try:
                session.abort()
            except TxlogError as error:
                log.info("batch %d was not aborted: %s", identity.batch_id, error)
            raise
        _sessions[key] = session

    def _fit_together(
        self, coordinator: Coordinator, pends: Pends, staged: Sequence[Participant]
    ) -> bool:
        """Whether pends and decision may share one entry."""
        partition_of = self._connection.offsets.partition_of
        is_one_journal = all(partition_of(group) == coordinator.partition for group in pends)
        return is_one_journal and fit_one_entry(pends, staged)

    def _pending(self, group: str, batch: BatchRange) -> tuple[PendingOffset, ...]:
        """The group's positions after the batch, in the partitions that advance, that join, or in
        which the group has none yet: it has one wherever the query reads (design 0015).

        Raises CommitFailed if the group reads a later topic of the same name by now.
        """
        offsets, known = self._connection.offsets, self._offsets_by_group[group]
        return tuple(
            PendingOffset(
                key.topic,
                batch.topic_ids[key.topic],
                key.partition,
                moved.start,
                moved.end,
                replaced=offsets.replaced(
                    key.where, batch.topic_ids[key.topic], known.get(key.where)
                ),
            )
            for key, moved in batch.by_group()[group].items()
            if key in batch.ranges or key in batch.joined or key.where not in known
        )

    def _transactional_part(
        self, group: str, pend: tuple[PendingOffset, ...]
    ) -> tuple[PendingOffset, ...]:
        """The part of a pend that the transaction contains: all of it, if it fits one entry.

        Otherwise the unchanged positions are committed first, in parts. They mark no record as
        consumed, and a replay finds them at its start. Raises CommitFailed.
        """
        if event_bytes(pend) <= OFFSETS_BYTES_MAX:
            return pend
        idle = tuple(offset for offset in pend if offset.start == offset.end)
        self._wait(partial(self._connection.offsets.commit, group, idle))
        return tuple(offset for offset in pend if offset.start < offset.end)

    def _wait(self, call: Callable[[], None]) -> None:
        """Retry until another query's pend is decided or times out. Raises CommitFailed."""
        for _ in range(UNSTABLE_WAITS_MAX):
            try:
                call()
                return
            except UnstableOffsetCommit:
                self._connection.runtime.clock.sleep_ms(UNSTABLE_WAIT_MS)
        call()

    def _registered(self, identity: BatchIdentity, batch: BatchRange) -> TransactionSession:
        session = TransactionSession(
            self._connection,
            self._transactional_id(identity),
            self._transaction_group(identity, batch),
            STAGED_TIMEOUT_MS,
        )
        session.register(
            identity.run_id,
            is_run=True,
            # All groups, even if this batch advances none: the query owns them from here on (R12).
            groups=batch.groups,
            take_over=self._options.group_takeover,
            may_skip=self._may_skip,
        )
        return session


def _query_name(identity: BatchIdentity) -> str:
    return f"spark.{identity.query_id}"


def _newest(marks: Iterable[ReplayMark | None]) -> ReplayMark | None:
    return max((m for m in marks if m is not None), key=lambda m: m.batch_id, default=None)


def _has_moved(
    session: TransactionSession, newest: TransactionalId | None, identity: BatchIdentity
) -> bool:
    """Whether another process of the same run has registered since. Another run fences this."""
    if newest is None:
        return False
    mine = session.registration
    is_newest = (newest.pid, newest.epoch) == (mine.pid, mine.epoch)
    return newest.instance == identity.run_id and not is_newest


def _require_own_plan(plan: BatchPlan, identity: BatchIdentity) -> None:
    """Require that the writer was made for this batch (R1). Raises CheckpointConflict."""
    if plan.batch_id != identity.batch_id:
        raise CheckpointConflict(
            f"the tasks ran batch {identity.batch_id}, but the newest plan in the checkpoint was "
            f"{plan.batch_id} when their writer was made: another run of this query uses the "
            "checkpoint, or the sink sees another folder than Spark does. Stop one of the two.",
            batch_id=identity.batch_id,
            planned=plan.batch_id,
        )
