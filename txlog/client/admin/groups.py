"""Consumer groups as the admin client manages them: describe, move, forget.

How a group moves is planned in `offset_reset.py`. It must not know how offsets are stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from txlog.client.admin import offset_reset
from txlog.client.admin.group_description import GroupDescription, described_group
from txlog.client.admin.offset_reset import OffsetReset, ResetTo, ToTable
from txlog.client.positions.position_arguments import checked_partitions
from txlog.engine.connection import Connection
from txlog.errors import UnknownGroup, UsageError
from txlog.model import TopicPartition, validate_group_id


class GroupAdmin:
    """The part of `Admin` that manages consumer groups."""

    connection: Connection

    def list_groups(self) -> list[str]:
        """Names of all consumer groups that have committed offsets, or are about to."""
        groups = self.connection.offsets.groups(linearizable=True)
        return sorted(name for name, group in groups.items() if group.committed or group.pending)

    def describe_group(self, group_id: str) -> GroupDescription:
        """Positions and lag of one group. Raises UnknownGroup."""
        group = self.connection.offsets.group(group_id)
        if not group.committed and not group.pending:
            raise UnknownGroup(
                f"there is no consumer group {group_id!r}; 'txlog group list' shows them.",
                group=group_id,
            )
        return described_group(self.connection, group_id, group, self.owner_of(group_id))

    def describe_groups(self) -> list[GroupDescription]:
        """All of them, by name."""
        groups = self.connection.offsets.groups(linearizable=True)
        found = {n: group for n, group in groups.items() if group.committed or group.pending}
        owners: dict[str, str] = {}
        for coordinator in self.connection.caught_up() if found else ():
            owners = {**coordinator.state.owners, **owners}
        return list(
            self.connection.cluster.answers(
                [
                    partial(described_group, self.connection, name, group, owners.get(name, ""))
                    for name, group in sorted(found.items())
                ]
            )
        )

    def owner_of(self, group_id: str) -> str:
        """Transactional id that owns a group (rule R12); "" if none does. Raises InvalidName."""
        validate_group_id(group_id)
        for coordinator in self.connection.caught_up():
            owner = coordinator.state.owners.get(group_id)
            if owner is not None:
                return owner
        return ""

    def plan_group_reset(
        self, group_id: str, to: ResetTo, partitions: Iterable[TopicPartition] | None = None
    ) -> list[OffsetReset]:
        """Where a group would go; nothing is written. `reset_group` moves it there.

        `to` is one of ToEarliest, ToLatest, ToCurrent, ToOffset, ShiftBy, ToTime, ToTable of
        `txlog.client.admin.offset_reset`. Without `partitions` it is those of the table, or all
        that the group has a position in. Offsets that cannot be read from become the nearest that
        can.

        Raises UnknownGroup, UnknownTopic, UnknownPartition, NoOffsetForPartition (a shift of a
        partition without a position, or one that the table lacks), InvalidName, InvalidRecord.
        """
        if partitions is None:
            partitions = (
                to.offsets
                if isinstance(to, ToTable)
                else offset_reset.committed_partitions(self.connection, group_id)
            )
        wanted = checked_partitions(partitions)
        return offset_reset.plan_resets(self.connection, group_id, wanted, to)

    def reset_group(self, group_id: str, plan: Sequence[OffsetReset]) -> None:
        """Move a group as `plan_group_reset` planned it, in all partitions or in none.

        Raises GroupOwned while the query that owns the group lives, CommitFailed if the group has
        moved since, UnstableOffsetCommit while a transaction is pending on it, UsageError if there
        are more partitions than can be moved at once.
        """
        validate_group_id(group_id)
        offset_reset.apply_resets(self.connection, group_id, _given_plan(plan))

    def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> list[TopicPartition]:
        """Forget the group's positions there; answers where it had any.

        Raises UnknownGroup, GroupOwned, UnstableOffsetCommit.
        """
        wanted = checked_partitions(partitions)
        return offset_reset.delete_offsets(self.connection, group_id, wanted)

    def delete_group(self, group_id: str) -> None:
        """Forget a group, its positions and its owner.

        Raises UnknownGroup, GroupOwned, UnstableOffsetCommit.
        """
        offset_reset.delete_group(self.connection, group_id)


def _given_plan(plan: object) -> list[OffsetReset]:
    """Raises UsageError."""
    resets: list[OffsetReset] = []
    for reset in plan if isinstance(plan, Iterable) else [plan]:
        if not isinstance(reset, OffsetReset):
            raise UsageError(f"{reset!r:.80} is not what plan_group_reset() answers; give that.")
        resets.append(reset)
    return resets
