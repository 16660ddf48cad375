"""The driver's commit of one micro-batch: records of all tasks and the groups' offsets, or nothing.

The steps, and what a crash after each leaves:

    1  read the checkpoint's plan, apply the replay tests    nothing
    2  register the run                                      an epoch
    3  pend the groups' offsets                              a pend, which the next run releases
    4  PREPARE_COMMIT: the decision                          a transaction that any process finishes
    5  markers in the topics                                 the same
    6  the offsets and COMMITTED                             the same

If the groups are in the coordinator's journal, as the only group of a query is unless it took the
place of another one (`abandonedGroup`), steps 3 and 4 are one entry, and so is step 6.

A process that has committed a batch of this run before waits for steps 3 to 5 only: it applies the
tests to the states that it has in memory (R60), and step 6 follows in the background, or in the
entry of the next batch's decision (R61).

The decision is one journal entry, a conditional PUT of at most a megabyte, and so is each topic's
marker. If the segments are too many to be named there, each topic gets a manifest that names them,
before step 3 (docs/design/0039): one wait more, whatever the size of the batch. A crash leaves
manifests without a reference.

Keeps I6 and I10 (R1, R2, R23, R24, R26, R27, R29, R40, R60, R61). It must not know how records were
staged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property, partial
from operator import attrgetter
from typing import Any

from spark_plugin.checkpoints.checkpoint import Checkpoint
from spark_plugin.checkpoints.offset_log import BatchRange, GroupTopicPartition
from spark_plugin.options import WriterOptions
from spark_plugin.sink.replay import BatchDecision, decide_batch, offset_ranges
from spark_plugin.sink.staging import BatchIdentity, TaskMessage, participants
from spark_plugin.source.starting_points import UNSTABLE_WAIT_MS, UNSTABLE_WAITS_MAX
from txlog.coordinator.coordinator import Coordinator
from txlog.coordinator.events import NewestMark, Participant, ReplayMark
from txlog.coordinator.rules import require_not_deleted
from txlog.engine.append.appender import ENTRY_BATCHES_MAX
from txlog.engine.connection import Connection
from txlog.engine.large_transactions import weight
from txlog.engine.transaction_session import TransactionSession
from txlog.errors import (
    CheckpointConflict,
    CommitFailed,
    InvalidOption,
    ProducerFenced,
    TransactionAborted,
    TxlogError,
    UnknownTopic,
    UnstableOffsetCommit,
)
from txlog.groups.state import OFFSETS_BYTES_MAX, GroupState, PendingOffset, event_bytes

log = logging.getLogger(__name__)

STAGED_TIMEOUT_MS = 10_000
"""After this time any process may bar an undecided run's pend. A commit takes milliseconds, on a
distant store two round trips. The run after a killed one waits so long for its pend; a live run
that a store delays for longer decides its batch again (DECIDE_ATTEMPTS_MAX)."""

DECIDE_ATTEMPTS_MAX = 3
"""Attempts to decide a batch, and to read its groups and its mark at one moment. A second attempt
is needed if another run committed, or barred this run's pend, meanwhile; more attempts would only
let two runs of a query fence each other for longer."""

SESSIONS_MAX = 256
"""Sessions that a process keeps. A query has one for each of its labels; with more than this in
turn, each commit registers again."""

_sessions: dict[tuple[int, str, str], TransactionSession] = {}
"""Runs of which this process has committed a batch, the one that has waited longest first. A run
that commits is not in here, so a session in use is never dropped. Losing one costs a registration
only, as when Spark, which uses any idle Python process, changes to another one."""


class BatchCommitter:
    """Commits one batch of a query to one log."""

    def __init__(
        self,
        connection: Connection,
        options: WriterOptions,
        checkpoint: Checkpoint | None,
        identity: BatchIdentity,
        messages: Sequence[TaskMessage],
    ) -> None:
        self._connection = connection
        self._options = options
        self._checkpoint = checkpoint
        self._identity = identity
        self._messages = messages
        self._staged = participants(messages)
        self._groups: dict[str, GroupState] = {}
        """The groups' states to which the replay tests were applied."""
        self._tested_mark: ReplayMark | None = None
        """The coordinator's newest mark of the query to which they were applied."""

    def commit(self) -> None:
        """Commit the batch exactly once, however often it is replayed.

        Raises CheckpointConflict, GroupOwned, ProducerFenced, UnknownTopic (R40), and the store's
        errors.
        """
        with refused_if_deleted(self._connection):
            # The checkpoint first: a batch that it refuses reads nothing of the log.
            batch_id, cluster = self._batch.batch_id, self._connection.cluster
            for message in self._messages:
                # Skipped if another log has been put at this root since the tasks ran.
                if message.log is not None and message.log.file == cluster.file:
                    for topic in message.log.topics:
                        cluster.learn_topic(topic.opened)
            require_topics(self._connection, self._staged)
            if self._has_committed_from_memory():
                return
            for attempt in range(DECIDE_ATTEMPTS_MAX):
                self._read()
                if self._finish_and_test() is BatchDecision.ALREADY_IN:
                    self._require_replay(is_first_attempt=attempt == 0)
                    log.info("batch %d is in the log already", batch_id)
                    return
                try:
                    self._commit_transaction()
                    return
                except (CommitFailed, ProducerFenced, TransactionAborted) as error:
                    # Another run was faster, and the replay tests tell whether with this batch. Or
                    # this pend was barred as that of a dead run, and the batch is decided again.
                    if attempt == DECIDE_ATTEMPTS_MAX - 1:
                        raise
                    log.info("batch %d: %s", batch_id, error)

    # The batch's ranges and ids, each found once.

    @cached_property
    def _batch(self) -> BatchRange:
        """The batch's ranges, read from the checkpoint."""
        identity = self._identity
        if self._checkpoint is None:
            return BatchRange(identity.batch_id, {})
        plan = self._messages[0].plan if self._messages else None
        log_id = self._connection.cluster.log_id
        batch = self._checkpoint.checked_batch_range(
            identity.query_id, identity.batch_id, log_id, plan
        )
        if batch.ungrouped:
            raise InvalidOption(
                "a source of this query reads the log that the sink writes, without group.id, so "
                "its offsets cannot be in the transaction (rule R29). Add .option('group.id', "
                "...) to readStream, and start with a new checkpoint: this one's offsets have no "
                "group.",
                option="group.id",
            )
        return batch

    @cached_property
    def _transaction_group(self) -> str:
        """Chosen so that two queries on one group share a coordinator, which checks the owner
        (R12), and so do all runs of a query, whatever their options, for the replay test (R2)."""
        return min(self._batch.first_groups, default=self._query_name)

    @cached_property
    def _coordinator(self) -> Coordinator:
        return self._connection.coordinator_of(self._transaction_group)

    @cached_property
    def _query_name(self) -> str:
        return f"spark.{self._identity.query_id}"

    @cached_property
    def _transactional_id(self) -> str:
        named = self._options.transactional_id or self._query_name
        return f"{named}.{self._options.label}" if self._options.label else named

    @property
    def _may_skip(self) -> bool:
        """Whether this is a write of a `foreachBatch`, which may leave batches out (R30)."""
        return bool(self._options.label) or self._checkpoint is None

    @cached_property
    def _mark(self) -> ReplayMark:
        return ReplayMark(
            self._identity.query_id,
            self._identity.batch_id,
            offset_ranges(self._batch.ranges),
            self._batch.fingerprint,
            self._options.label,
        )

    @cached_property
    def _session_key(self) -> tuple[int, str, str]:
        return id(self._connection), self._transactional_id, self._identity.run_id

    @property
    def _is_registered(self) -> bool:
        """Whether this process has registered the run."""
        return self._session_key in _sessions

    # The state of the log.

    def _read(self) -> None:
        """Catch up the coordinator and read the groups, all at once.

        The answers are of different times and may disagree: the pend and PREPARE check again what
        follows from them. Raises the store's errors.
        """
        groups, coordinator = list(self._batch.by_group()), self._coordinator
        offsets = self._connection.offsets
        elsewhere = [g for g in groups if offsets.coordinator_number_of(g) != coordinator.number]
        calls: list[Callable[[], Any]] = [
            coordinator.catch_up,
            *(partial(offsets.group, group) for group in elsewhere),
        ]
        states = self._connection.cluster.request_fan_out.run_all(calls)[1:]
        found = dict(zip(elsewhere, states, strict=True))
        # The coordinator's own catch-up has read the groups in its journal.
        self._groups = {g: found[g] if g in found else offsets.seen(g) for g in groups}

    def _has_committed_from_memory(self) -> bool:
        """Commit the batch if the states that this process has in memory allow it (R60).

        They may be old. The command compares all that the tests rest on: the groups' positions, the
        newest mark, the epoch, and that nothing is prepared. If it is refused, or the tests say
        anything else, the states must be read. Raises the errors of `_commit_transaction`.
        """
        session = _sessions.get(self._session_key)
        if session is None or self._has_moved(session):
            return False
        offsets = self._connection.offsets
        # The batch before may be decided only: its offsets and COMMITTED can be in this decision.
        self._groups = {g: offsets.with_decided(g, offsets.seen(g)) for g in self._batch.by_group()}
        if not self._may_commit_early():
            return False
        try:
            self._commit_transaction()
        except (CommitFailed, ProducerFenced, TransactionAborted) as error:
            log.info("batch %d is tested again: %s", self._batch.batch_id, error)
            return False
        return True

    # The two replay tests.

    def _finish_and_test(self) -> BatchDecision:
        """Apply the replay tests, before any run is fenced (rule R27)."""
        known = self._coordinator.state.ids.get(self._transactional_id)
        unfinished = list(known.open if known else ())
        for tx_id in unfinished:
            self._coordinator.finish(self._transactional_id, tx_id)
        # The states were read before these were finished.
        if not unfinished and self._may_commit_early():
            return BatchDecision.COMMIT
        return self._apply_tests(self._read_consistently())

    def _may_commit_early(self) -> bool:
        """Whether the states at hand allow the commit; otherwise they must be read again.

        They are of different times, but the pend compares the group's positions again, and PREPARE
        the mark. No other answer may rest on them.
        """
        # The transaction of a pend may be decided: then the group is where its offsets end.
        if any(state.pending for state in self._groups.values()):
            return False
        former = self._former_mark()
        self._tested_mark = self._coordinator.state.marks.get(self._mark.key)
        try:
            return self._apply_tests(_newest((self._tested_mark, former))) is BatchDecision.COMMIT
        except CheckpointConflict:
            return False

    def _apply_tests(self, mark: ReplayMark | None) -> BatchDecision:
        return decide_batch(
            self._identity.query_id,
            self._identity.batch_id,
            self._batch.ranges,
            self._committed(),
            mark,
            joining=self._batch.joining,
            fingerprint=self._batch.fingerprint,
            previous_fingerprint=self._batch.previous_fingerprint,
            may_skip=self._may_skip,
        )

    def _committed(self) -> dict[GroupTopicPartition, int | None]:
        """The groups' offsets, as last read, in the partitions that the batch reads."""
        committed: dict[GroupTopicPartition, int | None] = {}
        for group, read in self._batch.by_group().items():
            for partition in read:
                at = self._groups[group].committed.get(partition.where)
                # A position in an earlier topic of that name is none in this one (R11).
                if at is not None and at.topic_id != self._batch.topic_ids[partition.topic]:
                    at = None
                committed[partition] = None if at is None else at.offset
        return committed

    def _read_consistently(self) -> ReplayMark | None:
        """Read the groups' positions and the query's newest batch again, both of one time: if
        another run committed a batch between the two reads, they would disagree."""
        key = self._mark.key
        mark = self._coordinator.state.marks.get(key)
        former = self._former_mark()
        for _ in range(DECIDE_ATTEMPTS_MAX):
            for group in self._groups:
                self._groups[group] = self._finished_group(group)
            asked_before, mark = mark, self._coordinator.catch_up().marks.get(key)
            if mark == asked_before:
                self._tested_mark = mark
                return _newest((mark, former))
        raise CommitFailed(
            f"batch {self._identity.batch_id}: other runs of the query commit faster than this one "
            "can read the log. Stop all but one of them.",
            batch_id=self._identity.batch_id,
        )

    def _finished_group(self, group: str) -> GroupState:
        """The group's state, after finishing every decided transaction on it."""
        offsets = self._connection.offsets
        state = offsets.group(group)
        for tx_id, pending in list(state.pending.items()):
            self._connection.coordinator(pending.coordinator).finish(
                pending.transactional_id, tx_id
            )
        return offsets.group(group) if state.pending else state

    def _former_mark(self) -> ReplayMark | None:
        """The mark in the coordinator of an earlier transaction group; `writeStream` has one group
        for ever. `ForeachCommitter` overrides this."""
        return None

    def _require_replay(self, *, is_first_attempt: bool) -> None:
        """A batch of `writeStream` that is in the log is a replay. Other writes may not be one:
        `ForeachCommitter` overrides this."""

    # The transaction.

    def _commit_transaction(self) -> None:
        # Before anything is written. PREPARE asks again.
        require_not_deleted(self._coordinator.state, self._staged)
        session = _sessions.pop(self._session_key, None)
        is_new = session is None
        if session is None or self._has_moved(session):
            session = self._registered()
        try:
            pends = {group: self._pending(group) for group in self._groups}
            pends = {g: self._transactional_part(g, pend) for g, pend in pends.items() if pend}
            # Without a check: all rows are staged, and PREPARE refuses a fenced run.
            session.begin(checks_fencing=False)
            if weight(self._staged) > self._connection.entry_batches_max:
                _recommend_repartition()
            after = NewestMark(self._mark.key, self._tested_mark)
            commit = partial(session.commit, self._staged, self._mark)
            self._wait(partial(commit, pends=pends, conditions=(after,)))
            # Spark may end a process with its first commit (R61).
            if is_new:
                session.join()
        except TxlogError:
            # The next attempt begins with a new epoch, so that no transaction id is used twice.
            # A pend that is left would block the group's present owner. If the decision is COMMIT,
            # or cannot be read, the abort changes nothing (R3, R26).
            try:
                session.abort()
            except TxlogError as error:
                log.info("batch %d was not aborted: %s", self._identity.batch_id, error)
            raise
        for oldest in list(_sessions)[: max(0, len(_sessions) - SESSIONS_MAX + 1)]:
            _sessions.pop(oldest, None)
        _sessions[self._session_key] = session

    def _registered(self) -> TransactionSession:
        # Not `is_staged`, which bounds the time from `begin` to PREPARE by this process's own
        # clock: a commit takes milliseconds, and others bar its pend after STAGED_TIMEOUT_MS.
        session = TransactionSession(
            self._connection, self._transactional_id, self._transaction_group, STAGED_TIMEOUT_MS
        )
        session.register(
            self._identity.run_id,
            is_run=True,
            # All groups, even if this batch advances none: the query owns them from here on (R12).
            groups=self._batch.groups,
            take_over=self._options.group_takeover,
            may_skip=self._may_skip,
        )
        return session

    def _has_moved(self, session: TransactionSession) -> bool:
        """Whether another process of the same run has registered since. Another run fences this."""
        newest = self._coordinator.state.ids.get(self._transactional_id)
        if newest is None:
            return False
        mine = session.registration
        is_newest = (newest.pid, newest.epoch) == (mine.pid, mine.epoch)
        return newest.instance == self._identity.run_id and not is_newest

    def _pending(self, group: str) -> tuple[PendingOffset, ...]:
        """The group's positions after the batch, in the partitions that advance, that join, or in
        which the group has none yet: it has one wherever the query reads (design 0015).

        Raises CommitFailed if the group reads a later topic of the same name by now.
        """
        batch, known = self._batch, self._groups[group].committed
        replaced = self._connection.offsets.replaced
        return tuple(
            PendingOffset(
                key.topic,
                batch.topic_ids[key.topic],
                key.partition,
                moved.start,
                moved.end,
                replaced=replaced(key.where, batch.topic_ids[key.topic], known.get(key.where)),
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

    def _wait(self, call: Callable[[], object]) -> None:
        """Retry until another query's pend is decided or times out. Raises CommitFailed."""
        for _ in range(UNSTABLE_WAITS_MAX):
            try:
                call()
                return
            except UnstableOffsetCommit:
                self._connection.runtime.clock.sleep_ms(UNSTABLE_WAIT_MS)
        call()


def _newest(marks: Iterable[ReplayMark | None]) -> ReplayMark | None:
    return max(filter(None, marks), key=attrgetter("batch_id"), default=None)


# Staged segments.


def require_topics(connection: Connection, staged: Sequence[Participant]) -> None:
    """Require that this process sees what the tasks have staged, and that the topics have its
    partitions and schemas. A bucket is one place for all processes, and is not asked. Raises
    NotATxlog, InvalidRecord, InternalError."""
    if connection.cluster.is_far:
        return
    for participant in staged:
        topic = connection.cluster.topic_of_id(participant.topic, participant.topic_id)
        if not topic.catch_up(linearizable=True, is_named=False).closed:
            topic.require_staged(participant.segments)


@contextmanager
def refused_if_deleted(connection: Connection) -> Iterator[None]:
    """Within it a decision is made. If it is refused because of a deleted topic (R40), whose
    deletion may be interrupted, this finishes the deletion, and says what to do."""
    try:
        yield
    except UnknownTopic as error:
        topic = str(error.facts["topic"])
        connection.cluster.finish_deletion(topic)
        raise UnknownTopic(
            f"topic {topic!r} was deleted since rows were staged for it; nothing of this batch was "
            "committed. Write it again, or restart the query: its rows then go into the present "
            "topic of that name, or into a new one if createTopics is true.",
            **error.facts,
        ) from error


@cache
def _recommend_repartition() -> None:
    log.warning(
        "the tasks of a batch have stored more than %d batches of records, which one entry cannot "
        "name, so the commit writes a manifest for each topic. Each task stores a batch for each "
        "partition that it has rows for: fewer, larger ones are read faster. Repartition the rows "
        "before the write, by .repartition('topic') if each row names its topic, else by the "
        "partition or the key.",
        ENTRY_BATCHES_MAX,
    )
