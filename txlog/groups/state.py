"""Committed and pending offsets of consumer groups: events, rules and state. Pure.

Keeps I6 (ranges committed in transactions follow each other: compare-and-set) and the offsets' half
of I5: pending offsets become committed only under the TxId of their pend (rule R6). A command is
the event that its caller proposes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from txlog.errors import CommitFailed, UnknownGroup, UnstableOffsetCommit, UsageError
from txlog.journal.codec import encode
from txlog.journal.machine import Decided
from txlog.layout import SMALL_BYTES_MAX
from txlog.model import (
    CoordinatorNumber,
    Offset,
    OffsetOrNone,
    Partition,
    TopicPartition,
    TxId,
    WallMs,
)
from txlog.sorted_map import SortedMap
from txlog.stored import stored, stored_list

UNCHECKED = -1
"""A start that is not compared, because the caller does not have the group's position."""

OFFSETS_BYTES_MAX = SMALL_BYTES_MAX - 10_000
"""Largest size of the positions in one commit or pend (I16): what an entry holds, without 10,000
bytes for its header and the ids of group and transaction. Enough for about 13,000 partitions
without metadata."""


@stored_list(
    "pending_offset",
    topic="topic",
    topic_id="topic_id",
    partition="partition",
    start="start",
    end="end",
    metadata="metadata",
    replaced="replaced",
)
@dataclass(frozen=True, slots=True)
class PendingOffset:
    """A partition's new position, `end`, after the group has consumed [start, end)."""

    topic: str
    topic_id: str
    partition: Partition
    start: OffsetOrNone
    end: Offset
    metadata: str = ""
    replaced: str = ""
    """The earlier incarnation of the topic in which the caller saw the group's position; empty if
    the position was in this incarnation, or there was none (rule R11)."""

    @property
    def where(self) -> TopicPartition:
        """The partition by its topic's name."""
        return TopicPartition(self.topic, self.partition)

    @property
    def bytes_at_most(self) -> int:
        """Upper bound of its size in an entry; a character of metadata takes at most 6 bytes."""
        names = len(self.topic) + len(self.topic_id) + len(self.replaced)
        return names + 6 * len(self.metadata) + 80


def event_bytes(offsets: tuple[PendingOffset, ...]) -> int:
    """Their size in an event; the upper bound if that is within the limit, else the exact size."""
    at_most = sum(offset.bytes_at_most for offset in offsets)
    if at_most <= OFFSETS_BYTES_MAX:
        return at_most
    rows = [encode(offset) for offset in offsets]
    # As entries are encoded: metadata may contain half a surrogate pair.
    text = json.dumps(rows, separators=(",", ":"), ensure_ascii=False)
    return len(text.encode(errors="surrogatepass"))


def in_parts(offsets: tuple[PendingOffset, ...]) -> Iterator[tuple[PendingOffset, ...]]:
    """The offsets in parts that each fit in an event; one part if all of them fit."""
    if event_bytes(offsets) <= OFFSETS_BYTES_MAX:
        yield offsets
        return
    part: list[PendingOffset] = []
    size_bytes = 0
    for offset in offsets:
        size_bytes += offset.bytes_at_most
        if part and size_bytes > OFFSETS_BYTES_MAX:
            yield tuple(part)
            part, size_bytes = [], offset.bytes_at_most
        part.append(offset)
    yield tuple(part)


@stored(
    "committed_offset",
    topic_id="topic_id",
    offset="offset",
    metadata="metadata",
    committed_ms="committed_ms",
)
@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A group's position in a partition of one incarnation of a topic."""

    topic_id: str
    offset: Offset
    metadata: str = ""
    committed_ms: WallMs = 0


@stored(
    "pending",
    transactional_id="transactional_id",
    coordinator="coordinator",
    offsets="offsets",
    pended_ms="pended_ms",
    timeout_ms="timeout_ms",
)
@dataclass(frozen=True, slots=True)
class Pending:
    """Offsets that a transaction will commit, and the coordinator that decides it."""

    transactional_id: str
    coordinator: CoordinatorNumber
    offsets: tuple[PendingOffset, ...]
    pended_ms: WallMs
    timeout_ms: Offset


@dataclass(frozen=True, slots=True)
class GroupState:
    """One consumer group."""

    committed: SortedMap[TopicPartition, CommittedOffset] = field(default_factory=SortedMap)
    pending: SortedMap[TxId, Pending] = field(default_factory=SortedMap)
    last_commit: TxId | None = None
    """LAST-COMMIT: the transaction that last committed offsets."""


EMPTY_GROUP = GroupState()


@dataclass(frozen=True, slots=True)
class OffsetsState:
    """The consumer groups of a coordinator's journal."""

    groups: SortedMap[str, GroupState] = field(default_factory=SortedMap)

    def group(self, name: str) -> GroupState:
        """The group; empty if it has never committed."""
        return self.groups.get(name, EMPTY_GROUP)


@stored("offsets_pended", group="group", tx_id="tx_id", pending="pending")
@dataclass(frozen=True, slots=True)
class OffsetsPended:
    """Offsets are set aside for a transaction, and become the group's if it commits.

    As a command: raises CommitFailed, UnstableOffsetCommit, and UsageError if an entry cannot hold
    the offsets.
    """

    group: str
    tx_id: TxId
    pending: Pending


@stored("pending_applied", group="group", tx_id="tx_id", at_ms="at_ms")
@dataclass(frozen=True, slots=True)
class PendingApplied:
    """LAST-COMMIT: the transaction committed, and its offsets are the group's. As a command:
    ignored if nothing is pending for the transaction."""

    group: str
    tx_id: TxId
    at_ms: WallMs


@stored("pending_released", group="group", tx_id="tx_id")
@dataclass(frozen=True, slots=True)
class PendingReleased:
    """The transaction aborted, and its offsets are dropped. As a command: ignored if nothing is
    pending for the transaction."""

    group: str
    tx_id: TxId


@stored("offsets_committed", group="group", offsets="offsets", at_ms="at_ms")
@dataclass(frozen=True, slots=True)
class OffsetsCommitted:
    """Offsets are committed outside of any transaction. As a command: starts other than UNCHECKED
    are compared; raises as OffsetsPended does."""

    group: str
    offsets: tuple[PendingOffset, ...]
    at_ms: WallMs


@stored("offsets_deleted", group="group", partitions="partitions")
@dataclass(frozen=True, slots=True)
class OffsetsDeleted:
    """The group no longer has a position in these partitions. As a command: raises
    UnstableOffsetCommit while a transaction is pending on one of them."""

    group: str
    partitions: tuple[tuple[str, Partition], ...]
    """Topic and partition of each."""


@stored("group_deleted", group="group")
@dataclass(frozen=True, slots=True)
class GroupDeleted:
    """The group is deleted. As a command: raises UnknownGroup, UnstableOffsetCommit."""

    group: str


OffsetsEvent: TypeAlias = (
    OffsetsPended
    | PendingApplied
    | PendingReleased
    | OffsetsCommitted
    | OffsetsDeleted
    | GroupDeleted
)


def decide(state: OffsetsState, command: OffsetsEvent) -> Decided:
    """The events of `command`. Raises the rejection."""
    group = state.group(command.group)
    match command:
        case OffsetsPended():
            return _decide_pend(group, command)
        case PendingApplied() | PendingReleased():
            # A process that completes a transaction late finds another pend here, or none (R6).
            is_pending = command.tx_id in group.pending
            return Decided((command,) if is_pending else (), is_pending)
        case OffsetsCommitted():
            _check_not_pending(command.group, group, _partitions(command.offsets), None)
            _check_starts(command.group, group, command.offsets)
            if not command.offsets:
                return Decided()
            require_size(command.group, command.offsets)
            return Decided((command,))
        case OffsetsDeleted():
            partitions = {TopicPartition(*where) for where in command.partitions}
            _check_not_pending(command.group, group, partitions, None)
            gone = tuple(where for where in command.partitions if where in group.committed)
            return Decided((OffsetsDeleted(command.group, gone),) if gone else ())
        case GroupDeleted():
            if command.group not in state.groups:
                raise UnknownGroup(
                    f"there is no consumer group {command.group!r}; 'txlog group list' shows them."
                )
            _check_not_pending(command.group, group, None, None)
            return Decided((command,))


def _decide_pend(group: GroupState, command: OffsetsPended) -> Decided:
    offsets = command.pending.offsets
    known = group.pending.get(command.tx_id)
    # A repeat, whose answer was lost.
    if known is not None and set(offsets) <= set(known.offsets):
        return Decided()
    # Another pend has compared the same committed offset: if both were applied, their ranges would
    # overlap (I6).
    _check_not_pending(command.group, group, _partitions(offsets), command.tx_id)
    _check_starts(command.group, group, offsets)
    pending = command.pending if known is None else _merged(known, command.pending)
    require_size(command.group, pending.offsets)
    return Decided((OffsetsPended(command.group, command.tx_id, pending),))


def _merged(known: Pending, more: Pending) -> Pending:
    # The timeout of the transaction runs from its first pend.
    offsets = merged_offsets(known.offsets, more.offsets)
    return replace(more, offsets=offsets, pended_ms=known.pended_ms)


def merged_offsets(
    known: tuple[PendingOffset, ...], more: tuple[PendingOffset, ...]
) -> tuple[PendingOffset, ...]:
    """Both pends of one transaction: of a partition in both, the first start and the later end."""
    starts = {offset.where: offset.start for offset in known}
    merged = {offset.where: offset for offset in known}
    for offset in more:
        start = starts.get(offset.where, offset.start)
        merged[offset.where] = replace(offset, start=start)
    return tuple(merged.values())


def require_size(name: str, offsets: tuple[PendingOffset, ...]) -> None:
    """Offsets of one event must fit in one entry, because an event is stored as a whole. Raises
    UsageError."""
    size_bytes = event_bytes(offsets)
    if size_bytes > OFFSETS_BYTES_MAX:
        raise UsageError(
            f"positions of group {name!r} in {len(offsets)} partitions take {size_bytes} bytes; "
            f"at most {OFFSETS_BYTES_MAX} can be committed at once. Shorten the metadata, or "
            "commit fewer partitions at once.",
            group=name,
            partitions=len(offsets),
            size_bytes=size_bytes,
            limit_bytes=OFFSETS_BYTES_MAX,
        )


def _partitions(offsets: Iterable[PendingOffset]) -> set[TopicPartition]:
    return {offset.where for offset in offsets}


def _check_not_pending(
    name: str,
    group: GroupState,
    partitions: set[TopicPartition] | None,
    tx_id: TxId | None,
) -> None:
    """Raises UnstableOffsetCommit if another transaction is pending on one of the partitions, or,
    without `partitions`, on any partition of the group."""
    for other, pending in group.pending.items():
        blocked = _partitions(pending.offsets)
        if partitions is not None:
            blocked &= partitions
        if other != tx_id and blocked:
            raise UnstableOffsetCommit(
                f"transaction {other} of {pending.transactional_id!r} is pending on "
                f"{min(blocked)} of group {name!r}; it is being finished, or will time out. Try "
                "again.",
                group=name,
                tx_id=other,
                transactional_id=pending.transactional_id,
                coordinator=pending.coordinator,
            )


def _check_starts(name: str, group: GroupState, offsets: tuple[PendingOffset, ...]) -> None:
    """Compare-and-set (I6). A partition without a committed offset accepts any start."""
    for offset in offsets:
        committed = group.committed.get(offset.where)
        if offset.start == UNCHECKED or committed is None:
            continue
        if committed.topic_id not in (offset.topic_id, offset.replaced):
            raise CommitFailed(
                f"group {name!r} has committed in a topic {offset.topic!r} with the id "
                f"{committed.topic_id}, and this commit is for the id {offset.topic_id}: the topic "
                "was deleted and created again, and another instance of the group committed "
                "first. Start again from the committed offsets.",
                group=name,
                committed_topic_id=committed.topic_id,
                topic_id=offset.topic_id,
            )
        # A position in the replaced incarnation says nothing about offsets in this one (R11).
        if committed.topic_id == offset.topic_id and committed.offset != offset.start:
            raise CommitFailed(
                f"group {name!r} has committed {committed.offset} in {offset.where}, but this "
                f"commit goes from {offset.start} to {offset.end}: another instance of the group "
                "committed first. Start again from the committed offsets.",
                group=name,
                committed=committed.offset,
                start=offset.start,
                end=offset.end,
            )


def apply(state: OffsetsState, event: OffsetsEvent) -> OffsetsState:
    """The state after `event`."""
    group = state.group(event.group)
    match event:
        case OffsetsPended():
            group = replace(group, pending=group.pending.with_item(event.tx_id, event.pending))
        case PendingApplied():
            offsets = group.pending[event.tx_id].offsets
            group = _committed(_released(group, event.tx_id), offsets, event.at_ms)
            group = replace(group, last_commit=event.tx_id)
        case PendingReleased():
            group = _released(group, event.tx_id)
        case OffsetsCommitted():
            group = _committed(group, event.offsets, event.at_ms)
        case OffsetsDeleted():
            deleted = [TopicPartition(*where) for where in event.partitions]
            group = replace(group, committed=group.committed.without(deleted))
        case GroupDeleted():
            return OffsetsState(state.groups.without([event.group]))
    return OffsetsState(state.groups.with_item(event.group, group))


def _released(group: GroupState, tx_id: TxId) -> GroupState:
    return replace(group, pending=group.pending.without([tx_id]))


def _committed(group: GroupState, offsets: tuple[PendingOffset, ...], at_ms: int) -> GroupState:
    changes = {
        offset.where: CommittedOffset(offset.topic_id, offset.end, offset.metadata, at_ms)
        for offset in offsets
    }
    return replace(group, committed=group.committed.with_items(changes))
