"""What each consumer group has committed, and what is pending: its part of a journal. Pure.

It guards I6 (ranges that are committed in transactions follow each other: compare-and-set) and the
offsets' half of I5: pending offsets become committed only under the TxId of their pend (rule R6).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from txlog.errors import CommitFailed, UnknownGroup, UnstableOffsetCommit, UsageError
from txlog.journal.codec import encode
from txlog.journal.machine import Decided
from txlog.model import Offset, OffsetOrNone, Partition, TopicPartition, TxId, WallMs
from txlog.stored import stored, stored_list

UNCHECKED = -1
"""A start that is not compared: the caller does not know the group's position."""

OFFSETS_BYTES_MAX = 990_000
"""Positions of one commit or pend, as an entry holds them (I16): it takes 1,000,000 with the rest.
They are some 13,000 partitions without notes."""


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
    """A partition's new position, [start, end) having been consumed."""

    topic: str
    topic_id: str
    partition: Partition
    start: OffsetOrNone
    end: Offset
    metadata: str = ""
    replaced: str = ""
    """The earlier incarnation of the topic that the group was seen to stand in; empty if it stood
    in this one, or nowhere (rule R11)."""

    @property
    def where(self) -> TopicPartition:
        """The partition by its topic's name."""
        return TopicPartition(self.topic, self.partition)

    @property
    def bytes_at_most(self) -> int:
        """What it takes in an entry: names are plain, and a character of a note takes 6 at most."""
        names = len(self.topic) + len(self.topic_id) + len(self.replaced)
        return names + 6 * len(self.metadata) + 80


def event_bytes(offsets: tuple[PendingOffset, ...]) -> int:
    """What they take in an event; of few it is enough to know what it is at most."""
    at_most = sum(offset.bytes_at_most for offset in offsets)
    if at_most <= OFFSETS_BYTES_MAX:
        return at_most
    rows = [encode(offset) for offset in offsets]
    text = json.dumps(rows, separators=(",", ":"), ensure_ascii=False)
    return len(text.encode(errors="surrogatepass"))


def in_parts(offsets: tuple[PendingOffset, ...]) -> Iterator[tuple[PendingOffset, ...]]:
    """The same, as a whole if that fits in an event."""
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
    """Offsets that a transaction will commit, and the coordinator to ask about it."""

    transactional_id: str
    coordinator: Offset
    offsets: tuple[PendingOffset, ...]
    pended_ms: WallMs
    timeout_ms: Offset


@dataclass(frozen=True, slots=True)
class GroupState:
    """One consumer group."""

    committed: Mapping[TopicPartition, CommittedOffset] = field(default_factory=dict)
    pending: Mapping[TxId, Pending] = field(default_factory=dict)
    last_commit: TxId | None = None
    """LAST-COMMIT: the transaction that committed offsets last."""


EMPTY_GROUP = GroupState()


@dataclass(frozen=True, slots=True)
class OffsetsState:
    """Everything that a replica of a coordinator's journal knows of its groups."""

    groups: Mapping[str, GroupState] = field(default_factory=dict)

    def group(self, name: str) -> GroupState:
        """That group, empty if it has never committed."""
        return self.groups.get(name, EMPTY_GROUP)


# Events.


@stored("offsets_pended", group="group", tx_id="tx_id", pending="pending")
@dataclass(frozen=True, slots=True)
class OffsetsPended:
    """A transaction will commit these offsets if it commits."""

    group: str
    tx_id: TxId
    pending: Pending


@stored("pending_applied", group="group", tx_id="tx_id", at_ms="at_ms")
@dataclass(frozen=True, slots=True)
class PendingApplied:
    """LAST-COMMIT: the transaction committed, and its offsets are the group's."""

    group: str
    tx_id: TxId
    at_ms: WallMs


@stored("pending_released", group="group", tx_id="tx_id")
@dataclass(frozen=True, slots=True)
class PendingReleased:
    """The transaction aborted, and its offsets are forgotten."""

    group: str
    tx_id: TxId


@stored("offsets_committed", group="group", offsets="offsets", at_ms="at_ms")
@dataclass(frozen=True, slots=True)
class OffsetsCommitted:
    """Offsets that were committed outside of any transaction."""

    group: str
    offsets: tuple[PendingOffset, ...]
    at_ms: WallMs


@stored("offsets_deleted", group="group", partitions="partitions")
@dataclass(frozen=True, slots=True)
class OffsetsDeleted:
    """The group has no position in these partitions from here on."""

    group: str
    partitions: tuple[tuple[str, Partition], ...]
    """Topic and partition of each."""


@stored("group_deleted", group="group")
@dataclass(frozen=True, slots=True)
class GroupDeleted:
    """The group has committed nothing from here on."""

    group: str


OffsetsEvent: TypeAlias = (
    OffsetsPended
    | PendingApplied
    | PendingReleased
    | OffsetsCommitted
    | OffsetsDeleted
    | GroupDeleted
)

# Commands.


@dataclass(frozen=True, slots=True)
class PendOffsets:
    """Put offsets aside for a transaction. Raises CommitFailed, UnstableOffsetCommit, and
    UsageError if there are more than an entry holds."""

    group: str
    tx_id: TxId
    pending: Pending


@dataclass(frozen=True, slots=True)
class ApplyPending:
    """Make them the group's, if this transaction's pend is there."""

    group: str
    tx_id: TxId
    now_ms: int


@dataclass(frozen=True, slots=True)
class ReleasePending:
    """Forget them, if this transaction's pend is there."""

    group: str
    tx_id: TxId


@dataclass(frozen=True, slots=True)
class CommitOffsets:
    """Commit without a transaction; starts that are not UNCHECKED are compared. Raises as
    PendOffsets does."""

    group: str
    offsets: tuple[PendingOffset, ...]
    now_ms: int


@dataclass(frozen=True, slots=True)
class DeleteOffsets:
    """Forget positions. Raises UnstableOffsetCommit while a transaction is pending on one."""

    group: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """Forget a group. Raises UnknownGroup, UnstableOffsetCommit."""

    group: str


OffsetsCommand: TypeAlias = (
    PendOffsets | ApplyPending | ReleasePending | CommitOffsets | DeleteOffsets | DeleteGroup
)


def decide(state: OffsetsState, command: OffsetsCommand) -> Decided:
    """The events of `command`. Raises the rejection."""
    group = state.group(command.group)
    match command:
        case PendOffsets():
            return _decide_pend(group, command)
        case ApplyPending():
            if command.tx_id not in group.pending:
                return Decided((), False)
            return Decided((PendingApplied(command.group, command.tx_id, command.now_ms),), True)
        case ReleasePending():
            if command.tx_id not in group.pending:
                return Decided((), False)
            return Decided((PendingReleased(command.group, command.tx_id),), True)
        case CommitOffsets():
            _check_not_pending(command.group, group, _wheres(command.offsets), None)
            _check_starts(command.group, group, command.offsets)
            if not command.offsets:
                return Decided()
            _check_size(command.group, command.offsets)
            return Decided((OffsetsCommitted(command.group, command.offsets, command.now_ms),))
        case DeleteOffsets():
            doomed = set(command.partitions)
            _check_not_pending(command.group, group, doomed, None)
            gone = tuple((w.topic, w.partition) for w in command.partitions if w in group.committed)
            return Decided((OffsetsDeleted(command.group, gone),) if gone else ())
        case DeleteGroup():
            if command.group not in state.groups:
                raise UnknownGroup(
                    f"there is no consumer group {command.group!r}; 'txlog group list' shows them."
                )
            _check_not_pending(command.group, group, None, None)
            return Decided((GroupDeleted(command.group),))


def _decide_pend(group: GroupState, command: PendOffsets) -> Decided:
    offsets = command.pending.offsets
    if group.pending.get(command.tx_id) == command.pending:
        return Decided()
    _check_not_pending(command.group, group, _wheres(offsets), command.tx_id)
    _check_starts(command.group, group, offsets)
    known = group.pending.get(command.tx_id)
    pending = command.pending if known is None else _merged(known, command.pending)
    _check_size(command.group, pending.offsets)
    return Decided((OffsetsPended(command.group, command.tx_id, pending),))


def _merged(known: Pending, more: Pending) -> Pending:
    """A second pend of one transaction: a later end wins, the first start stays."""
    starts = {offset.where: offset.start for offset in known.offsets}
    merged = {offset.where: offset for offset in known.offsets}
    for offset in more.offsets:
        start = starts.get(offset.where, offset.start)
        merged[offset.where] = replace(offset, start=start)
    return replace(more, offsets=tuple(merged.values()), pended_ms=known.pended_ms)


def _check_size(name: str, offsets: tuple[PendingOffset, ...]) -> None:
    """An event is stored completely or not at all, so it must fit in one entry."""
    size_bytes = event_bytes(offsets)
    if size_bytes > OFFSETS_BYTES_MAX:
        raise UsageError(
            f"positions of group {name!r} in {len(offsets)} partitions take {size_bytes} bytes; "
            f"{OFFSETS_BYTES_MAX} can be committed at once, all or none. Leave out notes, or "
            "commit fewer partitions at once.",
            group=name,
            partitions=len(offsets),
            size_bytes=size_bytes,
            limit_bytes=OFFSETS_BYTES_MAX,
        )


def _wheres(offsets: Iterable[PendingOffset]) -> set[TopicPartition]:
    return {offset.where for offset in offsets}


def _check_not_pending(
    name: str,
    group: GroupState,
    partitions: set[TopicPartition] | None,
    tx_id: TxId | None,
) -> None:
    """Refused if another transaction is pending on any of them (None: on anything)."""
    for other, pending in group.pending.items():
        taken = {offset.where for offset in pending.offsets}
        wanted = taken if partitions is None else taken & partitions
        if other != tx_id and wanted:
            raise UnstableOffsetCommit(
                f"transaction {other} of {pending.transactional_id!r} is pending on "
                f"{min(wanted)} of group {name!r}; it is finished, or times out. Try again.",
                group=name,
                tx_id=other,
                transactional_id=pending.transactional_id,
                coordinator=pending.coordinator,
            )


def _check_starts(name: str, group: GroupState, offsets: tuple[PendingOffset, ...]) -> None:
    """Compare-and-set (I6). A group without a committed offset accepts a start once."""
    for offset in offsets:
        committed = group.committed.get(offset.where)
        if offset.start == UNCHECKED or committed is None:
            continue
        if committed.topic_id not in (offset.topic_id, offset.replaced):
            raise CommitFailed(
                f"group {name!r} stands in another topic of the name {offset.topic!r} (its id is "
                f"{committed.topic_id}) than this commit (id {offset.topic_id}): it was deleted "
                "and created again, and another instance of the group was faster. Start again "
                "from the committed offsets.",
                group=name,
                committed_topic_id=committed.topic_id,
                topic_id=offset.topic_id,
            )
        if committed.topic_id == offset.topic_id and committed.offset != offset.start:
            raise CommitFailed(
                f"group {name!r} has committed {committed.offset} in {offset.where}, but this "
                f"commit goes from {offset.start} to {offset.end}: another instance of the group "
                "was faster. Start again from the committed offsets.",
                group=name,
                committed=committed.offset,
                start=offset.start,
                end=offset.end,
            )


def apply(state: OffsetsState, event: OffsetsEvent, slot: int) -> OffsetsState:
    """The state after `event`."""
    group = state.group(event.group)
    match event:
        case OffsetsPended():
            group = replace(group, pending={**group.pending, event.tx_id: event.pending})
        case PendingApplied():
            offsets = group.pending[event.tx_id].offsets
            group = _committed(_released(group, event.tx_id), offsets, event.at_ms)
            group = replace(group, last_commit=event.tx_id)
        case PendingReleased():
            group = _released(group, event.tx_id)
        case OffsetsCommitted():
            group = _committed(group, event.offsets, event.at_ms)
        case OffsetsDeleted():
            gone = set(event.partitions)
            left = {where: at for where, at in group.committed.items() if where not in gone}
            group = replace(group, committed=left)
        case GroupDeleted():
            kept = {name: other for name, other in state.groups.items() if name != event.group}
            return OffsetsState(kept)
    return OffsetsState({**state.groups, event.group: group})


def _released(group: GroupState, tx_id: TxId) -> GroupState:
    return replace(
        group, pending={known: p for known, p in group.pending.items() if known != tx_id}
    )


def _committed(group: GroupState, offsets: tuple[PendingOffset, ...], at_ms: int) -> GroupState:
    news = {
        offset.where: CommittedOffset(offset.topic_id, offset.end, offset.metadata, at_ms)
        for offset in offsets
    }
    return replace(group, committed={**group.committed, **news})
