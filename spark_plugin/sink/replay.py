"""Is this micro-batch in the log already, may it be committed, or must it be refused? Pure.

It guards I10 (a replayed micro-batch changes nothing, one that never ran is never skipped) by the
two replay tests. It must not know where the answers come from: the caller reads
the group's offsets and the coordinator's newest mark, and asks here before it fences any run (R27).

The first test asks the consumer group, on every partition that the batch advances, and on every
one that joins with it: one that the batch before did not have, which starts and ends at one place.

    SILENT     the batch advances nothing (it is watermark-only, from a source that is not txlog, or
               the first one of a topic without new records), and what joins is committed there
    AT_START   every partition is committed up to where the batch starts (or was never committed)
    AT_END     every partition is committed up to where the batch ends, or further
    ELSEWHERE  anything else

The second asks the coordinator for the newest batch that it keeps of this query (rule R2):

    UNSEEN       none: the query is new to the log
    SAME         this batch id, with these very offsets
    OTHER        this batch id, with other offsets
    OLDER        the newest is a later batch
    NEXT         the newest is the batch before this one
    AFTER_OTHER  the same, but in the checkpoint that one has other offsets now
    LATER        batches between the newest and this one never came

    | group / mark | UNSEEN | SAME   | OTHER  | OLDER  | NEXT   | AFTER_OTHER | LATER  |
    |--------------|--------|--------|--------|--------|--------|-------------|--------|
    | SILENT       | commit | in     | refuse | refuse | commit | refuse      | refuse |
    | AT_START     | commit | refuse | refuse | refuse | commit | refuse      | refuse |
    | AT_END       | refuse | in     | refuse | refuse | refuse | refuse      | refuse |
    | ELSEWHERE    | refuse | refuse | refuse | refuse | refuse | refuse      | refuse |

Some answers need their reason:

- OLDER is refused even if the group says "in". Spark replays only the newest batch, so an older one
  comes from a run that was overtaken, which stops either way, or from a checkpoint that was put
  back. After that a batch of the same number may hold other rows than the one that ran under it,
  or emit what a stateful query never emitted; the newest mark alone cannot tell.
- AT_END and UNSEEN: the rows were consumed, but not by this query, so what it would have written is
  nowhere. A new query begins at the committed offsets instead.
- AFTER_OTHER: a batch begins where the checkpoint's batch before it ends. If the log has another
  one, rows between the two ends are left out or come twice, and for a source that is not txlog no
  group shows it. It comes of a checkpoint that is put back while a run is on it: what the next run
  plans again is refused, but then the first one records its own batch of that number as done.
- LATER: Spark calls the sink for every batch, so a gap is a batch that another sink got, or none.
  Only the writes of one `foreachBatch` may leave batches out (rule R30, `may_skip`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

from spark_plugin.checkpoints.offset_log import GroupTopicPartition
from spark_plugin.source.offsets import NEW_CHECKPOINT, PartitionRange
from txlog.coordinator.events import OffsetRange, ReplayMark
from txlog.errors import CheckpointConflict

Ranges: TypeAlias = Mapping[GroupTopicPartition, PartitionRange]
Committed: TypeAlias = Mapping[GroupTopicPartition, int | None]

A_GROUP_EACH = (
    "If both are to see every record, load a DataFrame for each query, with a group.id each: two "
    "queries on one DataFrame share its group."
)
"""The remedy for two queries that are started on one DataFrame."""

NAMED_MAX = 20
"""Partitions that a message names; of the others it gives the number."""


@dataclass(frozen=True, slots=True)
class AlreadyIn:
    """The batch is in the log, with its offsets: there is nothing to do."""

    batch_id: int


@dataclass(frozen=True, slots=True)
class Commit:
    """The batch may be committed, if the group is still at `expected` then (compare-and-set)."""

    mark: ReplayMark
    expected: Committed
    """What is committed now in each partition that advances or joins; None if nothing is."""


class GroupAnswer(Enum):
    """What the group's committed offsets say."""

    SILENT = auto()
    AT_START = auto()
    AT_END = auto()
    ELSEWHERE = auto()


class MarkAnswer(Enum):
    """What the coordinator's mark says."""

    UNSEEN = auto()
    SAME = auto()
    OTHER = auto()
    OLDER = auto()
    NEXT = auto()
    AFTER_OTHER = auto()
    LATER = auto()


_COMMIT = frozenset(
    (group, mark)
    for group in (GroupAnswer.SILENT, GroupAnswer.AT_START)
    for mark in (MarkAnswer.UNSEEN, MarkAnswer.NEXT)
)
_IN = frozenset((group, MarkAnswer.SAME) for group in (GroupAnswer.SILENT, GroupAnswer.AT_END))


def decide_batch(
    query_id: str,
    batch_id: int,
    ranges: Ranges,
    committed: Committed,
    mark: ReplayMark | None,
    *,
    joining: Ranges | None = None,
    fingerprint: str = "",
    previous_fingerprint: str = "",
    may_skip: bool = False,
) -> AlreadyIn | Commit:
    """Apply the table above to one micro-batch.

    `ranges` is what the batch advances, `joining` the empty ranges of the partitions that join with
    it, `committed` the groups' offsets in (at least) those partitions, `mark` the newest batch of
    `query_id` that the coordinator keeps. Both must be read
    after every prepared transaction of the groups was finished: between its PREPARE and the
    application of its offsets the two tests disagree. `fingerprint` is of the batch's own file in
    the checkpoint, `previous_fingerprint` of that of the batch before; each is empty if it is not
    known, and then not compared. Raises CheckpointConflict, with the numbers, if the batch must be
    refused.
    """
    batch = ReplayMark(query_id, batch_id, offset_ranges(ranges), fingerprint)
    asked = {**ranges, **(joining or {})}
    group_says = _ask_group(asked, committed)
    mark_says = _ask_mark(batch, mark, previous_fingerprint)
    if mark_says is MarkAnswer.LATER and may_skip:
        mark_says = MarkAnswer.NEXT
    if (group_says, mark_says) in _IN:
        return AlreadyIn(batch_id)
    if (group_says, mark_says) in _COMMIT:
        return Commit(batch, {key: committed.get(key) for key in asked})
    raise _refusal(batch, asked, committed, mark, group_says, mark_says)


def offset_ranges(ranges: Ranges) -> tuple[OffsetRange, ...]:
    """These ranges as a mark keeps them."""
    return tuple(OffsetRange(*key, *moved) for key, moved in sorted(ranges.items()))


def _ask_group(ranges: Ranges, committed: Committed) -> GroupAnswer:
    found = {key: committed.get(key) for key in ranges}
    is_at_start = all(at is None or at == ranges[key].start for key, at in found.items())
    is_at_end = all(at is not None and at >= ranges[key].end for key, at in found.items())
    if is_at_start:
        return GroupAnswer.SILENT if is_at_end else GroupAnswer.AT_START
    return GroupAnswer.AT_END if is_at_end else GroupAnswer.ELSEWHERE


def _ask_mark(batch: ReplayMark, mark: ReplayMark | None, previous_fingerprint: str) -> MarkAnswer:
    if mark is None:
        return MarkAnswer.UNSEEN
    if batch.batch_id < mark.batch_id:
        return MarkAnswer.OLDER
    if batch.batch_id == mark.batch_id:
        return MarkAnswer.SAME if _is_same(batch, mark) else MarkAnswer.OTHER
    if batch.batch_id > mark.batch_id + 1:
        return MarkAnswer.LATER
    is_other = _are_known_to_differ(previous_fingerprint, mark.fingerprint)
    return MarkAnswer.AFTER_OTHER if is_other else MarkAnswer.NEXT


def _is_same(batch: ReplayMark, mark: ReplayMark) -> bool:
    if _are_known_to_differ(batch.fingerprint, mark.fingerprint):
        return False
    return set(batch.ranges) == set(mark.ranges)


def _are_known_to_differ(one: str, other: str) -> bool:
    return bool(one and other) and one != other


# Messages: the facts, the numbers of each partition, the remedy.


def _refusal(
    batch: ReplayMark,
    asked: Ranges,
    committed: Committed,
    mark: ReplayMark | None,
    group_says: GroupAnswer,
    mark_says: MarkAnswer,
) -> CheckpointConflict:
    newest = None if mark is None else mark.batch_id
    reason = f"{_mark_sentence(batch, mark, mark_says)}; {_GROUP_SENTENCES[group_says]}."
    facts = f"batch {batch.batch_id} of query {batch.query_id} was not committed: {reason}"
    numbers = _numbers(asked, committed, mark if mark_says is MarkAnswer.OTHER else None)
    remedy = _remedy(asked, group_says, mark_says)
    return CheckpointConflict(
        " ".join([facts, *numbers, remedy]),
        query_id=batch.query_id,
        batch_id=batch.batch_id,
        newest_batch_id=newest,
        reason=reason,
        remedy=remedy,
        group_says=group_says.name,
        mark_says=mark_says.name,
    )


_GROUP_SENTENCES = {
    GroupAnswer.SILENT: "the batch advances no offset of a group",
    GroupAnswer.AT_START: "the group is where the batch starts",
    GroupAnswer.AT_END: "the group is already where the batch ends, or further",
    GroupAnswer.ELSEWHERE: "the group is neither where the batch starts nor where it ends",
}


def _mark_sentence(batch: ReplayMark, mark: ReplayMark | None, says: MarkAnswer) -> str:
    newest = -1 if mark is None else mark.batch_id
    match says:
        case MarkAnswer.UNSEEN:
            return "the log has no batch of this query"
        case MarkAnswer.SAME:
            return "the log has this very batch"
        case MarkAnswer.OTHER:
            return "the log has another batch under this number"
        case MarkAnswer.OLDER:
            return f"the log has batches of this query up to {newest}"
        case MarkAnswer.NEXT:
            return f"the log has the batch before it, {newest}"
        case MarkAnswer.AFTER_OTHER:
            return f"the log has another batch {newest}, the one before it, than the checkpoint"
        case MarkAnswer.LATER:
            missing = f"{newest + 1} to {batch.batch_id - 1}"
            return f"the log has batches of this query up to {newest}, so {missing} never came"


def _numbers(asked: Ranges, committed: Committed, mark: ReplayMark | None) -> list[str]:
    """One sentence with a clause for each partition; none if there is no partition to name."""
    kept = None if mark is None else _ranges_of(mark)
    keys = sorted({*asked, *(kept or ())})
    if not keys:
        return []
    clauses = [_clause(key, asked.get(key), committed.get(key), kept) for key in keys]
    more = len(clauses) - NAMED_MAX
    shown = clauses[:NAMED_MAX] + ([f"and {more} partitions more"] if more > 0 else [])
    return [f"{'; '.join(shown)}."]


def _ranges_of(mark: ReplayMark) -> dict[GroupTopicPartition, PartitionRange]:
    return {
        GroupTopicPartition(r.group, r.topic, r.partition): PartitionRange(r.start, r.end)
        for r in mark.ranges
    }


def _clause(
    key: GroupTopicPartition, planned: PartitionRange | None, at: int | None, kept: Ranges | None
) -> str:
    text = f"{key}: checkpoint {planned or 'nothing'}, group {'nowhere' if at is None else at}"
    if planned is not None and at is not None and at not in (planned.start, planned.end):
        text += f" ({_distance(planned, at)})"
    if kept is not None:
        text += f", log {kept.get(key, 'nothing')}"
    return text


def _distance(planned: PartitionRange, at: int) -> str:
    if at < planned.start:
        return f"{planned.start - at} behind the start"
    if at > planned.end:
        return f"{at - planned.end} ahead of the end"
    return f"{at - planned.start} into the batch"


def _remedy(ranges: Ranges, group_says: GroupAnswer, mark_says: MarkAnswer) -> str:
    command = _shown_by(ranges)
    if mark_says in (MarkAnswer.OLDER, MarkAnswer.OTHER, MarkAnswer.AFTER_OTHER):
        return (
            "If another run of this query is on the checkpoint, stop this one. If the checkpoint "
            f"was put back to an older state, put its newest back, or {NEW_CHECKPOINT}{command}."
        )
    if mark_says is MarkAnswer.LATER:
        return (
            "Was the checkpoint used with another sink in between, or put here from elsewhere? "
            f"If so, {NEW_CHECKPOINT}{command}."
        )
    if mark_says is MarkAnswer.UNSEEN:
        what = (
            "Another query has consumed these records."
            if group_says is GroupAnswer.AT_END
            else "Another query, or a consumer, has moved the group."
        )
        return (
            f"{what} {A_GROUP_EACH} If that query is gone for good, and this one "
            f"is to go on after it, {NEW_CHECKPOINT}{command}."
        )
    return (
        "The group was moved since: by another query, by a consumer or by a reset. To go on from "
        f"the group's offsets, {NEW_CHECKPOINT}{command}."
    )


def _shown_by(ranges: Iterable[GroupTopicPartition]) -> str:
    groups = sorted({key.group for key in ranges})
    return f" ('txlog group describe {groups[0]}' shows them)" if groups else ""
