"""Moving a consumer group by hand: Kafka's reset strategies. It only reads: `groups.py` writes.

Keeps I6: a plan has the offsets that it was made for, and a group moves only while its owner is not
alive.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from txlog.client.positions.listed_offsets import present_topics
from txlog.client.positions.position_arguments import (
    checked_offsets,
    checked_time,
    whole_number,
)
from txlog.engine.connection import Connection
from txlog.errors import GroupOwned, NoOffsetForPartition, UnknownGroup, UsageError
from txlog.fan_out import unnoted
from txlog.groups.state import CommittedOffset, OffsetsCommitted, OffsetsEvent, PendingOffset
from txlog.model import IsolationLevel, TopicPartition, validate_group_id
from txlog.topic.read.time_lookup import offset_for_time
from txlog.topic.topic_log import TopicLog

OWNER_LIVE_MS = 60_000
"""An owner that has been idle for this long counts as stopped. It protects from a mistake only: if
the owner still runs, its next commit is refused, because the offsets no longer fit (I6). A longer
time makes users wait after they have stopped the query."""

_COMMITTED = IsolationLevel.READ_COMMITTED


@dataclass(frozen=True, slots=True)
class ToEarliest:
    """To the log start."""


@dataclass(frozen=True, slots=True)
class ToLatest:
    """To the last stable offset, so that existing records are skipped."""


@dataclass(frozen=True, slots=True)
class ToCurrent:
    """No change; a partition without a committed offset gets the latest."""


@dataclass(frozen=True, slots=True)
class ToOffset:
    """To that offset, or the nearest readable one."""

    offset: int


@dataclass(frozen=True, slots=True)
class ShiftBy:
    """By this many offsets, backwards if negative, to the nearest readable offset."""

    offsets: int


@dataclass(frozen=True, slots=True)
class ToTime:
    """To the first record of that time (ms) or later; to the latest if there is none."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class ToTable:
    """To the offset that a table has for each partition."""

    offsets: Mapping[TopicPartition, int]


ResetTo: TypeAlias = ToEarliest | ToLatest | ToCurrent | ToOffset | ShiftBy | ToTime | ToTable


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """One partition of a plan."""

    where: TopicPartition
    topic_id: str
    current: int | None
    """The group's committed offset; None if it has none in the partition."""
    new: int
    asked: int
    """The offset of the strategy, before it was moved to the nearest readable one."""
    replaced: str = ""
    """The id of an earlier topic of that name, if the group's offset is in it (rule R11)."""


def plan_resets(
    connection: Connection, group: str, partitions: Iterable[TopicPartition], to: ResetTo
) -> list[OffsetReset]:
    """Plan a reset. Raises InvalidName, InvalidRecord, UnknownTopic, UnknownPartition,
    NoOffsetForPartition (a shift in a partition without an offset, or one not in the table)."""
    target = _checked_target(to)
    committed = connection.offsets.shown(validate_group_id(group)).committed
    # Each once: `orders` and `orders:0` name a partition twice.
    wanted = list(dict.fromkeys(partitions))
    topics = present_topics(connection, wanted)
    return [_planned(topics[where.topic], group, where, committed, target) for where in wanted]


def _checked_target(to: object) -> ResetTo:
    """The target, with ints. Raises InvalidRecord, UsageError."""
    match to:
        case ToOffset():
            return ToOffset(whole_number("the offset of a reset", to.offset))
        case ShiftBy():
            return ShiftBy(whole_number("the shift of a reset", to.offsets))
        case ToTime():
            return ToTime(checked_time("the time of a reset", to.timestamp_ms))
        case ToTable():
            return ToTable(checked_offsets(to.offsets))
        case ToEarliest() | ToLatest() | ToCurrent():
            return to
        case _:
            raise UsageError(
                f"{to!r:.80} is not a target of a reset; give one of ToEarliest(), ToLatest(), "
                "ToCurrent(), ToOffset(n), ShiftBy(n), ToTime(ms), ToTable({TopicPartition: n})."
            )


def _planned(
    topic: TopicLog,
    group: str,
    where: TopicPartition,
    committed: Mapping[TopicPartition, CommittedOffset],
    to: ResetTo,
) -> OffsetReset:
    known = committed.get(where)
    replaced = known.topic_id if known is not None and known.topic_id != topic.topic_id else ""
    current = known.offset if known is not None and not replaced else None
    low, high = _bounds(topic, where.partition)
    asked = _asked(topic, group, where, current, to)
    new = min(max(asked, low), high)
    return OffsetReset(where, topic.topic_id, current, new, asked, replaced)


def _bounds(topic: TopicLog, partition: int) -> tuple[int, int]:
    state = topic.state
    return state.partitions[partition].log_start, state.last_stable_offset(partition)


def _asked(
    topic: TopicLog, group: str, where: TopicPartition, current: int | None, to: ResetTo
) -> int:
    low, high = _bounds(topic, where.partition)
    match to:
        case ToEarliest():
            return low
        case ToLatest():
            return high
        case ToCurrent():
            return high if current is None else current
        case ToOffset():
            return to.offset
        case ToTable():
            if where not in to.offsets:
                raise NoOffsetForPartition(
                    f"the table has no offset of {where}; add it, or leave that partition out."
                )
            return to.offsets[where]
        case ToTime():
            found = offset_for_time(topic, where.partition, to.timestamp_ms, _COMMITTED)
            return high if found is None else found.offset
        case ShiftBy():
            if current is None:
                raise NoOffsetForPartition(
                    f"group {group!r} has no offset in {where}, so there is nothing to shift; "
                    "leave that partition out, or reset it to earliest or latest first."
                )
            return current + to.offsets


def require_no_live_owner(connection: Connection, group: str) -> None:
    """Raises GroupOwned if a query that owns the group was active a short time ago.

    An owner at a coordinator that cannot be read is not known; I6 holds without this check.
    """
    now_ms = connection.runtime.clock.wall_ms()
    for coordinator in connection.caught_up(unnoted):
        state = coordinator.state
        owner = state.owners.get(group)
        known = state.ids.get(owner) if owner is not None else None
        if known is None:
            continue
        idle_ms = now_ms - known.updated_ms
        if known.open or idle_ms < OWNER_LIVE_MS:
            raise GroupOwned(
                f"consumer group {group!r} belongs to {owner!r} (instance {known.instance}), which "
                f"was active {max(idle_ms, 0) // 1000} s ago. Stop it, and try again when it has "
                f"been idle for {OWNER_LIVE_MS // 1000} s.",
                group=group,
                owner=owner,
            )


def require_allowed(connection: Connection, command: OffsetsEvent) -> None:
    """Raises what an operator's command on a group would raise now. Writes nothing."""
    require_no_live_owner(connection, command.group)
    connection.offsets.require_allowed(command)


def reset_command(group: str, plan: Iterable[OffsetReset]) -> OffsetsCommitted:
    """The command that applies a plan."""
    offsets = tuple(
        PendingOffset(
            reset.where.topic,
            reset.topic_id,
            reset.where.partition,
            # The start is compared with the group's offset (I6); any start fits where it has none.
            reset.new if reset.current is None else reset.current,
            reset.new,
            replaced=reset.replaced,
        )
        for reset in plan
    )
    return OffsetsCommitted(group, offsets, 0)


def committed_partitions(connection: Connection, group: str) -> list[TopicPartition]:
    """The partitions of existing topics in which the group has an offset. Raises UnknownGroup."""
    found = connection.offsets.shown(validate_group_id(group)).committed
    if not found:
        raise unknown_group(group)
    names = sorted({where.topic for where in found})
    logs = connection.cluster.answers([partial(connection.cluster.find_topic, n) for n in names])
    topic_ids = {log.name: log.topic_id for log in logs if log is not None}
    return sorted(w for w, at in found.items() if topic_ids.get(w.topic) == at.topic_id)


def unknown_group(group: str) -> UnknownGroup:
    """The error for a group without offsets."""
    return UnknownGroup(
        f"there is no consumer group {group!r}; 'txlog group list' shows them.", group=group
    )
