"""The two replay tests: a micro-batch is in the log already, is committed, or is refused. Pure.

Keeps I10 (a replayed micro-batch changes nothing, one that never ran is never skipped). It must not
know where its facts come from: the caller reads the group's offsets and the coordinator's newest
mark, and applies the tests before it fences any run (R27).

The first test compares the consumer group's offsets with every partition that the batch advances,
and with every one that joins with it, which the batch before did not have and whose range is empty:

    SILENT     the batch advances nothing (it is watermark-only, from a source that is not txlog, or
               the first one of a topic without new records), and joining partitions are committed
    AT_START   every partition is committed up to the start of the batch (or was never committed)
    AT_END     every partition is committed up to the end of the batch, or further
    ELSEWHERE  anything else

The second compares the newest batch of this query that the coordinator keeps (rule R2):

    UNSEEN       there is none: the query is new to the log
    SAME         it has this batch id and the same offsets
    OTHER        it has this batch id and other offsets
    OLDER        it is a later batch
    NEXT         it is the batch before this one
    AFTER_OTHER  it is the batch before this one, with other offsets than the checkpoint has now
    LATER        it is an earlier batch, and batches between the two never came

    | group / mark | UNSEEN | SAME   | OTHER  | OLDER  | NEXT   | AFTER_OTHER | LATER  |
    |--------------|--------|--------|--------|--------|--------|-------------|--------|
    | SILENT       | commit | in     | refuse | refuse | commit | refuse      | refuse |
    | AT_START     | commit | refuse | refuse | refuse | commit | refuse      | refuse |
    | AT_END       | refuse | in     | refuse | refuse | refuse | refuse      | refuse |
    | ELSEWHERE    | refuse | refuse | refuse | refuse | refuse | refuse      | refuse |

Reasons:

- OLDER is refused even if the group is at the end. Spark replays only the newest batch, so an older
  one comes from a run that was overtaken, which stops either way, or from a checkpoint that was
  restored. After a restore a batch may contain other rows than the earlier batch of its number, or
  output that a stateful query never emitted; the newest mark cannot show that.
- AT_END and UNSEEN: another query consumed the rows, so the output of this query is missing. A new
  query should begin at the committed offsets instead.
- AFTER_OTHER: a batch begins where the checkpoint's batch before it ends. If the log has another
  batch before it, rows between the two ends are lost or doubled, and with a source that is not
  txlog no group shows it. This happens if a checkpoint is restored while a run uses it: the next
  run's new plan is refused, but then the first run records its own batch of that number as done.
- LATER: Spark calls the sink for every batch, so a missing batch went to another sink, or to none.
  Only the writes of one `foreachBatch` may leave batches out (rule R30, `may_skip`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import TypeAlias

from spark_plugin.checkpoints.offset_log import GroupTopicPartition
from spark_plugin.source.offsets import NEW_CHECKPOINT, PartitionRange
from txlog.coordinator.events import OffsetRange, ReplayMark
from txlog.errors import CheckpointConflict

Ranges: TypeAlias = Mapping[GroupTopicPartition, PartitionRange]
Committed: TypeAlias = Mapping[GroupTopicPartition, int | None]

A_GROUP_EACH = (
    "If both queries should read every record, load a DataFrame for each, with a group.id of its "
    "own, and give this one a new checkpointLocation: two queries on one DataFrame share its group."
)
"""The remedy for two queries on one DataFrame."""

NAMED_MAX = 20
"""Partitions that a message names; it gives the number of the others. Spark logs the message at
every restart of the query, and a topic may have 10,000 partitions."""


class BatchDecision(Enum):
    """What the two tests say of a batch that is not refused."""

    COMMIT = auto()
    """It may be committed. Its pend compares the group's positions with the start of the batch
    again, and PREPARE_COMMIT the mark."""
    ALREADY_IN = auto()
    """It is in the log, with its offsets."""


class GroupAnswer(Enum):
    """Result of the first replay test."""

    SILENT = auto()
    AT_START = auto()
    AT_END = auto()
    ELSEWHERE = auto()


class MarkAnswer(Enum):
    """Result of the second replay test."""

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
) -> BatchDecision:
    """Apply the table above to one micro-batch.

    `ranges` are the ranges that the batch advances, `joining` the empty ranges of the partitions
    that join with it, `committed` the groups' offsets in (at least) those partitions, `mark` the
    newest batch of `query_id` that the coordinator keeps. The caller must first finish every
    prepared transaction of the groups: between its PREPARE and the application of its offsets the
    two tests disagree. The fingerprints are of the checkpoint's files of this batch and the batch
    before; an unknown one is empty and not compared. Raises CheckpointConflict, with the numbers,
    if the batch must be refused.
    """
    batch = ReplayMark(query_id, batch_id, offset_ranges(ranges), fingerprint)
    tested = {**ranges, **(joining or {})}
    group_answer = _group_test(tested, committed)
    mark_answer = _mark_test(batch, mark, previous_fingerprint)
    # The batches in between were left out, and are not missing (R30).
    if mark_answer is MarkAnswer.LATER and may_skip:
        mark_answer = MarkAnswer.NEXT
    if (group_answer, mark_answer) in _IN:
        return BatchDecision.ALREADY_IN
    if (group_answer, mark_answer) in _COMMIT:
        return BatchDecision.COMMIT
    raise _refusal(batch, tested, committed, mark, group_answer, mark_answer)


def offset_ranges(ranges: Ranges) -> tuple[OffsetRange, ...]:
    """These ranges in the form of a mark."""
    return tuple(OffsetRange(*key, *moved) for key, moved in sorted(ranges.items()))


def _group_test(ranges: Ranges, committed: Committed) -> GroupAnswer:
    found = {key: committed.get(key) for key in ranges}
    is_at_start = all(at is None or at == ranges[key].start for key, at in found.items())
    is_at_end = all(at is not None and at >= ranges[key].end for key, at in found.items())
    # Both hold if nothing is compared, or only empty ranges at which the group stands.
    if is_at_start:
        return GroupAnswer.SILENT if is_at_end else GroupAnswer.AT_START
    return GroupAnswer.AT_END if is_at_end else GroupAnswer.ELSEWHERE


def _mark_test(batch: ReplayMark, mark: ReplayMark | None, previous_fingerprint: str) -> MarkAnswer:
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
    tested: Ranges,
    committed: Committed,
    mark: ReplayMark | None,
    group_answer: GroupAnswer,
    mark_answer: MarkAnswer,
) -> CheckpointConflict:
    newest = None if mark is None else mark.batch_id
    reason = f"{_mark_sentence(batch, mark, mark_answer)}; {_GROUP_SENTENCES[group_answer]}."
    facts = f"batch {batch.batch_id} of query {batch.query_id} was not committed: {reason}"
    numbers = _numbers(tested, committed, mark if mark_answer is MarkAnswer.OTHER else None)
    remedy = _remedy(tested, group_answer, mark_answer)
    return CheckpointConflict(
        " ".join([facts, *numbers, remedy]),
        query_id=batch.query_id,
        batch_id=batch.batch_id,
        newest_batch_id=newest,
        reason=reason,
        remedy=remedy,
        group_says=group_answer.name,
        mark_says=mark_answer.name,
    )


_GROUP_SENTENCES = {
    GroupAnswer.SILENT: "the batch advances no offset of a group",
    GroupAnswer.AT_START: "the group is where the batch starts",
    GroupAnswer.AT_END: "the group is already where the batch ends, or further",
    GroupAnswer.ELSEWHERE: "the group is neither where the batch starts nor where it ends",
}


def _mark_sentence(batch: ReplayMark, mark: ReplayMark | None, answer: MarkAnswer) -> str:
    newest = -1 if mark is None else mark.batch_id
    match answer:
        case MarkAnswer.UNSEEN:
            return "the log has no batch of this query"
        case MarkAnswer.SAME:
            return "the log has this batch"
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


def _numbers(tested: Ranges, committed: Committed, mark: ReplayMark | None) -> list[str]:
    """One sentence with a clause for each partition; no sentence without partitions."""
    marked = None if mark is None else _ranges_of(mark)
    keys = sorted({*tested, *(marked or ())})
    if not keys:
        return []
    clauses = [_clause(key, tested.get(key), committed.get(key), marked) for key in keys]
    more = len(clauses) - NAMED_MAX
    shown = clauses[:NAMED_MAX] + ([f"and {more} partitions more"] if more > 0 else [])
    return [f"{'; '.join(shown)}."]


def _ranges_of(mark: ReplayMark) -> dict[GroupTopicPartition, PartitionRange]:
    return {
        GroupTopicPartition(r.group, r.topic, r.partition): PartitionRange(r.start, r.end)
        for r in mark.ranges
    }


def _clause(
    key: GroupTopicPartition, planned: PartitionRange | None, at: int | None, marked: Ranges | None
) -> str:
    text = f"{key}: checkpoint {planned or 'nothing'}, group {'nothing' if at is None else at}"
    if planned is not None and at is not None and at not in (planned.start, planned.end):
        text += f" ({_distance(planned, at)})"
    if marked is not None:
        text += f", log {marked.get(key, 'nothing')}"
    return text


def _distance(planned: PartitionRange, at: int) -> str:
    if at < planned.start:
        return f"{planned.start - at} behind the start"
    if at > planned.end:
        return f"{at - planned.end} ahead of the end"
    return f"{at - planned.start} into the batch"


def _remedy(ranges: Ranges, group_answer: GroupAnswer, mark_answer: MarkAnswer) -> str:
    groups = sorted({key.group for key in ranges})
    shown = f" ('txlog group describe {groups[0]}' shows its offsets)" if groups else ""
    # Without a group only the checkpoint has the positions of the sources.
    or_lost = f", or {NEW_CHECKPOINT}{shown}" if groups else ""
    if mark_answer in (MarkAnswer.OLDER, MarkAnswer.OTHER, MarkAnswer.AFTER_OTHER):
        return (
            "If another run of this query uses the checkpoint, stop this one. If an older state of "
            f"the checkpoint was restored, restore its newest{or_lost}."
        )
    if mark_answer is MarkAnswer.LATER:
        return (
            "If the checkpoint was used with another sink in between, or copied from elsewhere, "
            f"give this query its own{or_lost}."
        )
    if mark_answer is MarkAnswer.UNSEEN:
        what = (
            "Another query has consumed these records."
            if group_answer is GroupAnswer.AT_END
            else "Another query, or a consumer, has moved the group."
        )
        return (
            f"{what} {A_GROUP_EACH} If that query will not run again, and this one "
            f"should continue after it, {NEW_CHECKPOINT}{shown}."
        )
    return (
        "Another query, a consumer or a reset has moved the group. To continue from the group's "
        f"offsets, {NEW_CHECKPOINT}{shown}."
    )
