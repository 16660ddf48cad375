"""Consumer groups as the admin client manages them: describe, move, forget.

A group's description includes partitions in which it has no offset, so that their records do not
count as read. Lag counts only records that a reader can see. How a group moves is planned in
`offset_reset.py`. It must not know how offsets are stored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial

from txlog.client.admin.descriptions import GroupDescription, GroupPartition
from txlog.client.admin.offset_reset import (
    OffsetReset,
    ResetTo,
    ToTable,
    committed_partitions,
    plan_resets,
    require_no_live_owner,
    reset_command,
    unknown_group,
)
from txlog.client.positions.position_arguments import checked_partitions
from txlog.coordinator.events import GroupReleased
from txlog.engine.connection import Connection
from txlog.errors import UnknownGroup, UsageError
from txlog.fan_out import OnError, unless_unread
from txlog.groups.state import CommittedOffset, GroupState
from txlog.model import TopicPartition, validate_group_id
from txlog.topic.read.unread import unread
from txlog.topic.topic_log import TopicLog


class GroupAdmin:
    """The part of `Admin` that manages consumer groups."""

    connection: Connection

    def list_groups(self, *, on_error: OnError | None = None) -> list[str]:
        """Names of all consumer groups that have committed or pending offsets. `on_error` as in
        `describe_groups`."""
        groups = self.connection.offsets.groups(linearizable=True, on_error=on_error)
        return sorted(name for name, group in groups.items() if group.committed or group.pending)

    def describe_group(self, group_id: str, *, on_error: OnError | None = None) -> GroupDescription:
        """Offsets and lag of one group. With `on_error`, which is called with "coordinator", a
        number and the error, it lacks an owner of a coordinator that cannot be read. Raises
        UnknownGroup."""
        group = self.connection.offsets.group(group_id)
        if not group.committed and not group.pending:
            raise unknown_group(group_id)
        # First: it reads the coordinators, which decide the pends.
        owner = self.owner_of(group_id, on_error=on_error)
        group = self.connection.offsets.with_decided(group_id, group)
        return _described_group(self.connection, group_id, group, owner)

    def describe_groups(
        self, names: Collection[str] | None = None, *, on_error: OnError | None = None
    ) -> list[GroupDescription]:
        """All consumer groups, or those of `names` that exist, by name.

        One that cannot be read raises, or, with `on_error`, is left out: this is called with
        "group", its name and the error, or with "coordinator" and a number, whose groups are not
        known then.
        """
        groups = self.connection.offsets.groups(linearizable=True, on_error=on_error)
        found = {
            name: group
            for name, group in groups.items()
            if (group.committed or group.pending) and (names is None or name in names)
        }
        owners: dict[str, str] = {}
        for coordinator in self.connection.caught_up(on_error) if found else ():
            owners = {**coordinator.state.owners, **owners}
        found = {n: self.connection.offsets.with_decided(n, group) for n, group in found.items()}
        asked = [
            unless_unread(
                on_error,
                "group",
                name,
                partial(_described_group, self.connection, name, group, owners.get(name, "")),
            )
            for name, group in sorted(found.items())
        ]
        return [each for each in self.connection.cluster.answers(asked) if each is not None]

    def owner_of(self, group_id: str, *, on_error: OnError | None = None) -> str:
        """The transactional id that owns a group (rule R12), or "". `on_error` as in
        `describe_group`. Raises InvalidName."""
        validate_group_id(group_id)
        for coordinator in self.connection.caught_up(on_error):
            owner = coordinator.state.owners.get(group_id)
            if owner is not None:
                return owner
        return ""

    def plan_group_reset(
        self, group_id: str, to: ResetTo, partitions: Iterable[TopicPartition] | None = None
    ) -> list[OffsetReset]:
        """Plan a reset of a group's offsets; nothing is written until `reset_group`.

        `to` is one of ToEarliest, ToLatest, ToCurrent, ToOffset, ShiftBy, ToTime, ToTable, all of
        `txlog`. By default the partitions are those of the table, or all
        in which the group has an offset. An unreadable offset becomes the nearest readable one.

        Raises UnknownGroup, UnknownTopic, UnknownPartition, NoOffsetForPartition (a shift in a
        partition without an offset, or one that is not in the table), InvalidName, InvalidRecord.
        """
        if partitions is None:
            partitions = (
                to.offsets
                if isinstance(to, ToTable)
                else committed_partitions(self.connection, group_id)
            )
        return plan_resets(self.connection, group_id, checked_partitions(partitions), to)

    def reset_group(self, group_id: str, plan: Sequence[OffsetReset]) -> None:
        """Apply a plan of `plan_group_reset`, in all partitions or in none.

        Raises GroupOwned while the query that owns the group is alive, CommitFailed if the group's
        offsets have changed since, UnstableOffsetCommit while they are pending in a transaction,
        UsageError if there are more partitions than fit into one entry.
        """
        validate_group_id(group_id)
        resets = _checked_plan(plan)
        require_no_live_owner(self.connection, group_id)
        offsets = reset_command(group_id, resets).offsets
        self.connection.offsets.commit(group_id, offsets, whole=True)

    def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> list[TopicPartition]:
        """Delete the group's offsets in these partitions; returns those in which it had one.

        Raises UnknownGroup, GroupOwned, UnstableOffsetCommit.
        """
        wanted = sorted(set(checked_partitions(partitions)))
        known = self.connection.offsets.shown(validate_group_id(group_id))
        if not known.committed and not known.pending:
            raise unknown_group(group_id)
        require_no_live_owner(self.connection, group_id)
        self.connection.offsets.delete_offsets(group_id, tuple(wanted))
        return [where for where in wanted if where in known.committed]

    def delete_group(self, group_id: str, *, on_error: OnError | None = None) -> None:
        """Delete a group, its offsets and its owner; with `on_error` as in `describe_group`, so
        that such an owner stays.

        Raises UnknownGroup, GroupOwned, UnstableOffsetCommit.
        """
        validate_group_id(group_id)
        require_no_live_owner(self.connection, group_id)
        owned = [c for c in self.connection.caught_up(on_error) if group_id in c.state.owners]
        # The offsets first: while some are pending they stay, and so the group's owner does (R12).
        try:
            self.connection.offsets.delete(group_id)
        except UnknownGroup:
            if not owned:  # Otherwise an earlier call was interrupted here.
                raise
        for coordinator in owned:
            coordinator.execute(GroupReleased(group_id))


def _checked_plan(plan: object) -> list[OffsetReset]:
    """Raises UsageError."""
    resets: list[OffsetReset] = []
    for reset in plan if isinstance(plan, Iterable) else [plan]:
        if not isinstance(reset, OffsetReset):
            raise UsageError(
                f"{reset!r:.80} was not returned by plan_group_reset(); pass its result."
            )
        resets.append(reset)
    return resets


def _described_group(
    connection: Connection, group_id: str, group: GroupState, owner: str
) -> GroupDescription:
    """Every current partition of the topics in which the group has an offset, also a pending one:
    there its position may not be known, and then its records do not count as read."""
    pended = [offset for pending in group.pending.values() for offset in pending.offsets]
    by_topic: dict[str, dict[int, CommittedOffset]] = {offset.topic: {} for offset in pended}
    pended_in = {offset.topic_id for offset in pended}
    for where, committed in group.committed.items():
        by_topic.setdefault(where.topic, {})[where.partition] = committed
    find, answers = connection.cluster.find_topic, connection.cluster.answers
    now_ms = connection.runtime.clock.wall_ms()
    asked = [
        partial(_described_partition, topic, partition, offsets.get(partition), now_ms)
        for topic in answers([partial(find, name) for name in sorted(by_topic)])
        if topic is not None
        and ((offsets := _offsets_in(topic, by_topic[topic.name])) or topic.topic_id in pended_in)
        for partition in range(len(topic.state.partitions))
    ]
    return GroupDescription(
        group_id, owner, group.last_commit, tuple(group.pending), tuple(answers(asked))
    )


def _offsets_in(
    topic: TopicLog, committed: Mapping[int, CommittedOffset]
) -> Mapping[int, CommittedOffset]:
    """Those of a group's offsets, by partition, that are in this incarnation of the topic."""
    return {number: at for number, at in committed.items() if at.topic_id == topic.topic_id}


def _described_partition(
    topic: TopicLog, partition: int, committed: CommittedOffset | None, now_ms: int
) -> GroupPartition:
    state, where = topic.state, TopicPartition(topic.name, partition)
    end = state.last_stable_offset(partition)
    undecided = state.end_offset(partition) - end
    if committed is None:
        lag, _ = unread(topic, partition, state.partitions[partition].log_start, end)
        unknown = None if lag else 0
        return GroupPartition(where, None, end, unknown, undecided=undecided, lag_ms=unknown)
    lag, oldest_ms = unread(topic, partition, committed.offset, end)
    return GroupPartition(
        where,
        committed.offset,
        end,
        lag,
        committed.metadata,
        committed.committed_ms,
        undecided,
        0 if oldest_ms is None else max(now_ms - oldest_ms, 0),
    )
