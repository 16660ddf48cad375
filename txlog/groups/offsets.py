"""Consumer groups' offsets: fetch, commit, pend, and how to resolve a blocking transaction.

A group's offsets are in the journal of the coordinator that its name selects; `groups/state.py`
holds the rules. A pend is released only after its transaction's ABORT is durable in the coordinator
(rule R3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, cast

from txlog.catalog.cluster import Cluster
from txlog.clock import elapsed_ms
from txlog.coordinator.coordinator import Coordinator, coordinator_number_of, end_each
from txlog.coordinator.events import TopicsPresent
from txlog.coordinator.rules import deleted_meanwhile
from txlog.errors import (
    IllegalTransition,
    ProducerFenced,
    UnknownTopic,
    UnstableOffsetCommit,
)
from txlog.fan_out import OnError, unless_unread
from txlog.groups.machine import CoordinatorJournalState
from txlog.groups.state import (
    CommittedOffset,
    GroupDeleted,
    GroupState,
    OffsetsCommitted,
    OffsetsDeleted,
    OffsetsEvent,
    OffsetsPended,
    OffsetsState,
    Pending,
    PendingApplied,
    PendingOffset,
    PendingReleased,
    apply,
    decide,
    in_parts,
)
from txlog.journal.machine import Together
from txlog.journal.replication.replica import Replica
from txlog.model import TopicPartition, TransactionOutcome, TxId, validate_group_id
from txlog.sorted_map import SortedMap

DELETED_POSITIONS_MAX = 3_000
"""Partitions in one command: its event takes 780 KB with the longest topic names, so it fits in an
entry (I16). With fewer, deleting a large group takes more entries."""


class GroupOffsets:
    """The offsets of all consumer groups of a log. Safe to use from threads."""

    def __init__(self, cluster: Cluster, coordinator: Callable[[int], Coordinator]) -> None:
        """The state of a coordinator's journal is a CoordinatorJournalState."""
        self._cluster = cluster
        self._coordinator = coordinator

    def coordinator_number_of(self, group: str) -> int:
        """The coordinator whose journal holds the group. Raises InvalidName."""
        validate_group_id(group)
        return coordinator_number_of(group, self._count)

    @property
    def _count(self) -> int:
        return self._cluster.file.settings.transaction_state_log_num_partitions

    def _journal_of(self, group: str) -> Replica[CoordinatorJournalState]:
        return self._coordinator(self.coordinator_number_of(group)).journal

    # Reading.

    def group(self, group: str) -> GroupState:
        """The group as of now; empty if it has never committed. Raises InvalidName."""
        return self._journal_of(group).catch_up(linearizable=True).offsets.group(group)

    def seen(self, group: str) -> GroupState:
        """The group as of the newest journal entry that this process has read. Raises
        InvalidName."""
        return self._journal_of(group).state.offsets.group(group)

    def shown(self, group: str) -> GroupState:
        """The group as of now, with the offsets of decided transactions; see `with_decided`."""
        state = self.group(group)
        # What the group's own journal says of a transaction was read with the group.
        for number in {p.coordinator for p in state.pending.values()} - {
            self.coordinator_number_of(group)
        }:
            self._coordinator(number).catch_up()
        return self.with_decided(group, state)

    def with_decided(self, group: str, state: GroupState) -> GroupState:
        """The group once the pends whose transactions are decided COMMIT are applied: a caller
        that shows positions shows these, as their process may have died. Nothing is written. The
        caller has caught up with the coordinators after reading `state`."""
        if not state.pending:
            return state
        groups = OffsetsState(SortedMap({group: state}))
        for tx_id, pending in state.pending.items():
            if self._coordinator(pending.coordinator).state.is_decided_commit(tx_id):
                groups = apply(groups, self.apply_command(group, tx_id))
        return groups.group(group)

    def groups(
        self, *, linearizable: bool = False, on_error: OnError | None = None
    ) -> dict[str, GroupState]:
        """All groups of the log. Unless `linearizable`, the answer may lag for a few calls. Those
        of coordinators that cannot be read are left out if `on_error` is given."""
        journals = [self._coordinator(number).journal for number in range(self._count)]
        reads = [partial(journal.catch_up, linearizable=linearizable) for journal in journals]
        found: dict[str, GroupState] = {}
        for state in self._cluster.answers(
            [
                unless_unread(on_error, "coordinator", str(number), read)
                for number, read in enumerate(reads)
            ]
        ):
            found.update({} if state is None else state.offsets.groups)
        return dict(sorted(found.items()))

    def resolve_and_fetch(
        self,
        group: str,
        partitions: Iterable[TopicPartition],
        topic_ids: Mapping[str, str] | None = None,
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """Committed positions; None where the group has none in this incarnation of the topic.

        A transaction that is pending on one of them, of any process, is ended first: finished if it
        is decided, aborted if it is late. Raises UnstableOffsetCommit if it is open (KIP-447).
        """
        wanted = set(partitions)
        state = self.group(group)
        for tx_id, pending in state.pending.items():
            blocked = sorted(wanted & {offset.where for offset in pending.offsets})
            if blocked and not self._resolved(group, tx_id, pending):
                raise UnstableOffsetCommit(
                    f"transaction {tx_id} of {pending.transactional_id!r} is pending on "
                    f"{blocked[0]} of group {group!r}; try again once it is finished, or abort it "
                    f"with 'txlog txn abort {tx_id}'.",
                    group=group,
                    tx_id=tx_id,
                )
        # A transaction that was resolved may have moved the group.
        state = self.group(group) if state.pending else state
        return {where: _of_incarnation(state, where, topic_ids) for where in wanted}

    def replaced(
        self, where: TopicPartition, topic_id: str, committed: CommittedOffset | None
    ) -> str:
        """The id of the earlier incarnation that `committed` belongs to; empty if it belongs to
        `topic_id`.

        Raises CommitFailed if the incarnation `topic_id` was deleted (rule R11): a group never
        returns to a deleted topic. The caller has read `committed` before this call, so it cannot
        belong to an incarnation later than the present one.
        """
        if committed is None or committed.topic_id == topic_id:
            return ""
        try:
            is_present = (
                self._cluster.present_topic(where.topic, linearizable=True).topic_id == topic_id
            )
        except UnknownTopic:
            is_present = False
        if not is_present:
            raise deleted_meanwhile(where.topic)
        return committed.topic_id

    # Outside of transactions.

    def commit(
        self, group: str, offsets: tuple[PendingOffset, ...], *, whole: bool = False
    ) -> None:
        """Commit without a transaction. Raises CommitFailed, UnstableOffsetCommit.

        Offsets that do not fit in one entry are committed in parts; after an error some of the
        parts may be stored, as in Kafka some of the partitions. With `whole` all offsets are stored
        or none, and UsageError is raised if one entry cannot hold them.
        """
        now_ms = self._cluster.runtime.clock.wall_ms()
        for part in (offsets,) if whole else in_parts(offsets):
            self._execute(OffsetsCommitted(group, part, now_ms))

    def delete_offsets(self, group: str, partitions: tuple[TopicPartition, ...]) -> None:
        """Delete positions, in as many entries as they need. Raises UnstableOffsetCommit."""
        for first in range(0, max(len(partitions), 1), DELETED_POSITIONS_MAX):
            part = partitions[first : first + DELETED_POSITIONS_MAX]
            self._execute(OffsetsDeleted(group, part))

    def delete(self, group: str) -> None:
        """Delete a group. Raises UnknownGroup, UnstableOffsetCommit."""
        self._execute(GroupDeleted(group))

    def require_allowed(self, command: OffsetsEvent) -> None:
        """Raises what `commit` with `whole`, `delete_offsets` or `delete` would raise now for this
        command. Writes nothing, so a transaction that it could end stays as it is."""
        group = self.group(command.group)
        done = [tx for tx, pend in group.pending.items() if not self._is_undecided(tx, pend)]
        known = group.committed or group.pending
        left = replace(group, pending=group.pending.without(done))
        decide(OffsetsState(SortedMap({command.group: left} if known else {})), command)

    def _execute(self, command: OffsetsEvent) -> None:
        self.with_resolution(partial(self._journal_of(command.group).execute, command))

    # In transactions.

    def pend(
        self, command: OffsetsPended, before: Sequence[Any] = (), conditions: Sequence[Any] = ()
    ) -> None:
        """Set offsets aside for a transaction (docs/architecture.md). The commands in `before` go
        into the same entry; each of them succeeds or fails on its own. `conditions` are commands
        that may refuse the pend.

        A transaction that blocks the pend is finished if it is decided, and aborted if it is an
        earlier one of the same transactional id or past its timeout. Raises CommitFailed,
        UnstableOffsetCommit, and UsageError if an entry cannot hold these offsets together with
        those already set aside for the transaction.
        """
        journal, pend = self._journal_of(command.group), Together((*conditions, command))
        self.with_resolution(partial(journal.execute_each, (*before, pend)), command.tx_id)

    def has_deleted(self, group: str, topic_id: str) -> bool:
        """Whether the group's coordinator, as this process last read it, has the topic as
        deleted."""
        return topic_id in self._journal_of(group).state.transactions.deleted_topics

    def apply_command(self, group: str, tx_id: TxId) -> PendingApplied:
        """The command that `apply_pending` executes, for an entry that holds others, too."""
        return PendingApplied(group, tx_id, self._cluster.runtime.clock.wall_ms())

    def settle(self, group: str, tx_id: TxId) -> None:
        """Finish or abort a transaction, and apply or release its pending offsets.

        For operators: the transaction need not be past its timeout.
        """
        pending = self.group(group).pending.get(tx_id)
        if pending is not None:
            self._resolved(group, tx_id, pending, may_abort=True)

    def maintain(self) -> list[TxId]:
        """One pass: end the pends of transactions that are decided or past their timeout, and
        return those transactions. Raises the errors of `end_each`."""
        return end_each(
            (tx_id, partial(self._resolved, name, tx_id, pending))
            for name, state in self.groups().items()
            for tx_id, pending in state.pending.items()
        )

    def with_resolution(self, call: Callable[[], object], own: TxId | None = None) -> None:
        """Make a call; if a pending transaction blocks it, end that one if the rules allow it, and
        call again. `own` is the transaction that the call is made for. Raises what the call raises.
        """
        for _ in range(self._cluster.process.finish_attempts_max):
            try:
                call()
                return
            except UnstableOffsetCommit as error:
                tx_id = cast("TxId", error.facts["tx_id"])
                group = str(error.facts["group"])
                pending = self.group(group).pending.get(tx_id)
                # The transaction has ended since the refusal.
                if pending is None:
                    continue
                # An earlier one of the same producer id, and so of the same transactional id; never
                # one of a newer instance (I8).
                may_abort = own is not None and tx_id.pid == own.pid and tx_id < own
                if not self._resolved(group, tx_id, pending, may_abort):
                    raise
        call()

    def _resolved(self, group: str, tx_id: TxId, pending: Pending, may_abort: bool = False) -> bool:
        """Finish the blocking transaction if the rules allow it; returns whether they did."""
        coordinator = self._coordinator(pending.coordinator)
        # If it is decided: an abort, too, is completed before its offsets are released.
        coordinator.finish(pending.transactional_id, tx_id)
        outcome = coordinator.outcome(tx_id)
        is_late = self._is_late(pending)
        if _may_prepare(coordinator, outcome, tx_id, pending):
            if not (may_abort or is_late):
                return False
            # A timeout ends the epoch of the owner. An earlier transaction of the caller's own id
            # must not: that would fence the caller.
            with suppress(IllegalTransition, ProducerFenced):  # Decided, or its id is forgotten.
                coordinator.abort(pending.transactional_id, tx_id, fence=is_late)
            outcome = coordinator.outcome(tx_id)
        if outcome is TransactionOutcome.COMMITTED:
            # First in its topics (R8). Then in this group, which the transaction may not name.
            coordinator.finish(pending.transactional_id, tx_id)
            self.apply_pending(group, tx_id)
        else:
            # Also if the outcome is forgotten: a commit completes only after its offsets are
            # applied (R8), so a transaction with a pend left did not commit.
            self.release_pending(group, tx_id)
        return True

    def _is_undecided(self, tx_id: TxId, pending: Pending) -> bool:
        """Whether `_resolved` would leave the transaction as it is."""
        coordinator = self._coordinator(pending.coordinator)
        outcome = coordinator.outcome(tx_id)
        return _may_prepare(coordinator, outcome, tx_id, pending) and not self._is_late(pending)

    def _is_late(self, pending: Pending) -> bool:
        now_ms = self._cluster.runtime.clock.wall_ms()
        return elapsed_ms(pending.pended_ms, now_ms) > pending.timeout_ms

    def apply_pending(self, group: str, tx_id: TxId) -> None:
        """Commit the transaction's pending offsets, after its markers in all topics (rule R8)."""
        self._journal_of(group).execute(self.apply_command(group, tx_id))

    def release_pending(self, group: str, tx_id: TxId) -> None:
        """Drop the pending offsets of a transaction that is durably aborted (rule R3)."""
        self._journal_of(group).execute(PendingReleased(group, tx_id))


def topics_present(offsets: Iterable[PendingOffset]) -> TopicsPresent:
    """The condition that no topic of these offsets is deleted (R11)."""
    return TopicsPresent(tuple(dict.fromkeys((one.topic, one.topic_id) for one in offsets)))


def _of_incarnation(
    state: GroupState, where: TopicPartition, topic_ids: Mapping[str, str] | None
) -> CommittedOffset | None:
    committed = state.committed.get(where)
    if committed is None or topic_ids is None:
        return committed
    return committed if committed.topic_id == topic_ids.get(where.topic) else None


def _may_prepare(
    coordinator: Coordinator, outcome: TransactionOutcome, tx_id: TxId, pending: Pending
) -> bool:
    """Whether the transaction may still commit. A superseded one can never prepare: its pend is
    released without an abort (R3)."""
    is_open = outcome in (TransactionOutcome.OPEN, TransactionOutcome.UNKNOWN_ID)
    return is_open and not coordinator.is_superseded(pending.transactional_id, tx_id)
