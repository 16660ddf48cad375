"""The consistent cut of an earlier moment: of a time, or after a transaction.

A moment is a slot in each topic's journal. For a time it is found by the times at which the entries
were written, by the clocks of their writers; an entry that was pruned has none any more, and then
the moment is refused. The cut at these slots is made of the batch index, and contains whole
transactions only (I11), over all topics that are read: at a time it is what a reader at that moment
would have ended at; after a transaction it is the least cut that contains the transaction.

What retention, deletion and compaction have removed since is not brought back. If a partition has
nothing left of a moment, that is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from txlog.engine.journal_history import JournalHistory
from txlog.engine.times import milliseconds
from txlog.errors import InvalidName, OffsetOutOfRange, UnknownTransaction, UsageError
from txlog.fan_out import FanOut, OnError
from txlog.journal.entry import Entry
from txlog.model import TopicPartition, TxId
from txlog.topic.batch_index import IndexedBatch
from txlog.topic.events import BatchesAppended, MarkerWritten
from txlog.topic.machine import TopicMachine
from txlog.topic.read.cut import Ends, TopicView, closed_cut, stable_ends
from txlog.topic.topic_log import TopicLog

Moment: TypeAlias = int | TxId
"""Milliseconds since 1970, UTC; or just after a transaction."""

_TRANSACTION = re.compile(r"[0-9]+-[0-9]+-[0-9]+")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_EXAMPLES = "2013-01-31T12:00:00Z, 1359633600000 or, for a transaction, 7-0-12"


def parse_moment(text: str) -> Moment:
    """Read a time in ISO 8601 or in milliseconds, or a transaction as `txlog txn` prints it.

    Raises UsageError.
    """
    plain = text.strip()
    if _DATE.fullmatch(plain):
        raise UsageError(
            f"{plain!r} may be a day or a transaction; write {plain}T00:00Z for the day, or "
            f"0{plain} for the transaction."
        )
    try:
        moment = TxId.parse(plain) if _TRANSACTION.fullmatch(plain) else milliseconds(plain)
    except (UsageError, InvalidName) as error:
        raise UsageError(f"{text!r:.60} is no moment; write it as {_EXAMPLES}.") from error
    if not isinstance(moment, TxId) and moment < 0:
        raise UsageError(f"{text!r:.60} is before 1970; write a moment as {_EXAMPLES}.")
    return moment


def as_of_ends(
    topics: Mapping[str, TopicLog],
    views: Sequence[TopicView],
    moment: Moment,
    now_ms: int,
    fan_out: FanOut,
    *,
    may_miss: bool = False,
) -> Ends:
    """The consistent cut of that moment over these topics, whose states `views` have.

    Raises OffsetOutOfRange if an entry that tells the time is pruned, or, unless `may_miss`, if
    nothing is left of a partition's records of that moment; UnknownTransaction; UsageError for a
    time after `now_ms`.
    """
    highs = stable_ends(views, {where: 0 for view in views for where in view.wheres()})
    slots: dict[str, int] = {}
    if isinstance(moment, TxId):
        slots = slots_after(views, moment, highs)
    elif moment > now_ms:
        raise UsageError(f"the moment {moment} is in the future: it is {now_ms} now, in ms.")
    if others := [name for name in topics if name not in slots]:
        time_ms = (
            max(_written_ms(topics[name], slot - 1) for name, slot in slots.items())
            if isinstance(moment, TxId)
            else moment
        )
        asked = [partial(journal_history(topics[name]).slot_at, time_ms) for name in others]
        slots |= dict(zip(others, fan_out.run_all(asked), strict=True))
    found = {view.state.name: _ends_at(view, slots[view.state.name], moment) for view in views}
    ends = dict(highs)
    for view in views:
        known = found[view.state.name]
        for partition, end in known.ends.items():
            ends[view.where(partition)] = min(end, ends[view.where(partition)])
        for partition, end in _exact_ends(topics[view.state.name], known, fan_out):
            ends[view.where(partition)] = min(end, ends[view.where(partition)])
    if not may_miss:
        _require_left(views, slots, ends)
    starts = dict.fromkeys(ends, 0)
    return closed_cut(views, starts, highs, ends, upward=isinstance(moment, TxId))


# Slots.


def journal_history(topic: TopicLog, on_error: OnError | None = None) -> JournalHistory:
    """The entries of the topic's journal. `on_error` is told of those that cannot be read."""
    return JournalHistory(
        "topic",
        topic.name,
        topic.store,
        topic.layout,
        TopicMachine(),
        topic.next_slot,
        topic.fan_out,
        on_error,
    )


def _written_ms(topic: TopicLog, slot: int) -> int:
    entry = journal_history(topic).entry(slot)
    if entry is None:
        raise OffsetOutOfRange(
            f"the journal of topic {topic.name!r} does not reach back to its entry {slot}, which "
            "was pruned, so that its time is not known. Name a later moment, or end at offsets.",
            topic=topic.name,
            slot=slot,
        )
    return entry.written_at_ms


def slots_after(views: Sequence[TopicView], tx_id: TxId, highs: Ends) -> dict[str, int]:
    """Topic -> the slot after the transaction's marker. Pure. Raises UnknownTransaction."""
    slots = {}
    is_whole = True
    for view in views:
        for batch in view.batches_from_slot(0):
            if batch.tx_id == tx_id and batch.is_decided and not batch.aborted:
                slots[view.state.name] = batch.decided_slot + 1
                is_whole &= batch.next_offset <= highs[view.where(batch.partition)]
    if not slots or not is_whole:
        why = (
            "is not complete yet, or one before it is open"
            if slots
            else "has no committed records in the topics that are read"
        )
        raise UnknownTransaction(
            f"transaction {tx_id} {why}; 'txlog txn describe {tx_id}' shows how it ended.",
            tx_id=str(tx_id),
        )
    return slots


# Ends of partitions.


@dataclass(slots=True)
class _EndsAt:
    """Where the partitions of a topic ended at a slot."""

    slot: int
    ends: dict[int, int] = field(default_factory=dict)
    merged: dict[int, IndexedBatch] = field(default_factory=dict)
    """Partition -> its last batch below the slot, if it may have records of later slots: merging
    stores plain records of many slots as one batch."""
    later_slots: dict[int, int] = field(default_factory=dict)
    """Partition -> the slot of its first batch that is not below the slot."""


def _ends_at(view: TopicView, slot: int, moment: Moment) -> _EndsAt:
    """Pure. At a time, records of a transaction that was open then are above the end."""
    found = _EndsAt(slot)
    at_time = not isinstance(moment, TxId)
    for batch in view.batches_since(dict.fromkeys(view.partitions, 0)):
        partition = batch.partition
        if batch.slot >= slot:
            found.later_slots.setdefault(partition, batch.slot)
        is_open = at_time and batch.number >= 0 and not 0 <= batch.decided_slot < slot
        if batch.slot >= slot or is_open:
            found.ends.setdefault(partition, batch.base_offset)
        else:
            found.merged.pop(partition, None)
            # Neither an original one, nor one without records, of which any end is as good.
            is_sealed = batch.slot <= view.state.sealed_slot
            if is_sealed and batch.number < 0 and batch.base_sequence < 0 and batch.record_count:
                found.merged[partition] = batch
    return found


def _exact_ends(topic: TopicLog, known: _EndsAt, fan_out: FanOut) -> Iterator[tuple[int, int]]:
    """Partition -> its end, where a merged batch may reach beyond the slot: the first entry from
    there on that appends to the partition has its offset."""
    wanted = {p: known.later_slots.get(p, topic.next_slot) for p in known.merged}
    last = max(wanted.values(), default=0)
    history = journal_history(topic)
    for slot, entry in enumerate(history.entries(known.slot, last), known.slot):
        for event in appends(history, entry) or ():
            for partition in wanted.keys() & event.base_offsets.keys():
                yield partition, event.base_offsets[partition]
                del wanted[partition]
        wanted = {p: later for p, later in wanted.items() if later > slot + 1}
        if not wanted:
            return


def appends(
    history: JournalHistory, entry: Entry | None
) -> Sequence[BatchesAppended | MarkerWritten] | None:
    """The events of a topic's entry that may give offsets to records; None if it is pruned, or
    cannot be read."""
    events = None if entry is None else history.events(entry)
    if events is None:
        return None
    return [event for event in events if isinstance(event, BatchesAppended | MarkerWritten)]


def _require_left(views: Sequence[TopicView], slots: Mapping[str, int], ends: Ends) -> None:
    """Raises OffsetOutOfRange for a partition of which nothing is left, and which has later
    records. If it was empty at that moment, nothing tells."""
    for view in views:
        for partition in view.partitions:
            where, bounds = view.where(partition), view.state.bounds(partition)
            is_gone = 0 < bounds.log_start < bounds.next_offset and ends[where] <= bounds.log_start
            if is_gone and slots[view.state.name]:
                raise _nothing_left(where, bounds.log_start)


def _nothing_left(where: TopicPartition, log_start: int) -> OffsetOutOfRange:
    return OffsetOutOfRange(
        f"of the records that {where} had at that moment none is left: those below offset "
        f"{log_start} were deleted. Name a later moment.",
        topic=where.topic,
        partition=where.partition,
        log_start=log_start,
    )
