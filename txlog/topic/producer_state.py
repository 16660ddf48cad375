"""What a topic remembers of a producer, and the sequence rules of the idempotent producer. Pure.

Keeps I7 (KIP-98): per producer id, epoch and partition, sequences start at 0 and rise by one with
each record; a repeat is acknowledged and not stored, and a gap is refused. Unlike Kafka's, the
memory of sequences has no window: a repeat is recognised at any age, and only its offset is
forgotten after a few batches. Keeps I8 (fencing by epoch) and the order of a producer's
transactions (R6, R7). What is remembered for good is kept as ranges of numbers, so that it does not
make later events more expensive.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import TypeAlias

from txlog.errors import OutOfOrderSequence
from txlog.layout import segment_time_ms
from txlog.model import (
    CoordinatorNumberOrNone,
    Decision,
    Epoch,
    EpochOrNone,
    Offset,
    OffsetOrNone,
    Partition,
    ProducerId,
    SegmentMs,
    Slot,
    TxId,
)
from txlog.sorted_map import IndexedMap, IndexEntry
from txlog.stored import stored, stored_list
from txlog.topic.events import BatchesAppended, MarkerWritten

RECENT_BATCHES = 5
"""Batches of a producer and partition that answer a repeat with its offset; Kafka keeps as many. A
producer has one append under way, so one would do; each takes some twenty bytes in every
snapshot."""

NumberRanges: TypeAlias = tuple[tuple[int, int], ...]
"""(first, last) of each run of numbers, in order; two runs never touch."""

_FIRST, _LAST = itemgetter(0), itemgetter(1)


@stored_list(
    "recent_batch",
    base_sequence="base_sequence",
    last_sequence="last_sequence",
    base_offset="base_offset",
)
@dataclass(frozen=True, slots=True)
class RecentBatch:
    """A stored flush of a producer to a partition. It answers a repeat of that flush."""

    base_sequence: Offset
    last_sequence: Offset
    base_offset: Offset


@stored(
    "open_transaction",
    number="number",
    epoch="producer_epoch",
    first_slot="first_slot",
    first_offsets="first_offsets",
)
@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction with records in the log and no marker yet."""

    number: Offset
    epoch: Epoch
    first_slot: Slot
    first_offsets: Mapping[Partition, Offset]
    """partition -> offset of its first record there."""


@stored(
    "applied_transaction",
    number="number",
    epoch="producer_epoch",
    slot="slot",
    decision="decision",
    topic_ids="topic_ids",
    coordinator="coordinator",
    first_offsets="first_offsets",
)
@dataclass(frozen=True, slots=True)
class AppliedTransaction:
    """A transaction that is finished here and may not be finished in its other topics yet: a
    producer's last one (rule R5), or one above its floor (rule R7)."""

    number: Offset
    epoch: Epoch
    slot: Slot
    decision: Decision
    topic_ids: tuple[str, ...] = ()
    coordinator: CoordinatorNumberOrNone = -1
    first_offsets: Mapping[Partition, Offset] = field(default_factory=dict)
    """partition -> offset of its first record here; empty unless it wrote to several topics."""


@stored(
    "producer_state",
    epoch="producer_epoch",
    recent="recent_batches",
    open="open_transaction",
    finished_epoch="finished_epoch",
    finished_floor="finished_floor",
    finished_above="finished_above",
    last="last_transaction",
    stored_ms="stored_ms",
    earlier="earlier_transactions",
)
@dataclass(frozen=True, slots=True)
class ProducerStateEntry:
    """What the topic remembers of a producer id (Kafka's ProducerStateEntry)."""

    epoch: EpochOrNone
    recent: Mapping[Partition, tuple[RecentBatch, ...]] = field(default_factory=dict)
    """partition -> its last batches of this epoch, oldest first."""
    open: OpenTransaction | None = None
    finished_epoch: EpochOrNone = -1
    finished_floor: OffsetOrNone = -1
    """Every number of that epoch up to here is finished."""
    finished_above: tuple[tuple[Offset, Offset], ...] = ()
    """Number ranges above the floor that are finished too (rule R7). While one transaction stays
    open there may be very many such numbers."""
    last: AppliedTransaction | None = None
    """The transaction that was finished here last."""
    stored_ms: SegmentMs = 0
    """When its newest appended segment was named. For information: clocks may be wrong."""
    earlier: tuple[AppliedTransaction, ...] = ()
    """Transactions before `last`, above the floor, that wrote to several topics. If the producer
    has several open, these may not be finished in the other topics yet (rule R7)."""

    @property
    def is_transactional(self) -> bool:
        """Whether it has or had a transaction here. Such an id never appends outside of one."""
        return self.open is not None or self.finished_epoch >= 0

    def last_sequence(self, partition: int, epoch: int) -> int:
        """Sequence of the last stored record of that epoch; -1 before the first."""
        recent = self.recent.get(partition, ()) if epoch == self.epoch else ()
        return recent[-1].last_sequence if recent else -1

    def is_finished(self, tx_id: TxId) -> bool:
        """Whether that transaction's marker was applied, by the order of numbers (R6, R7)."""
        if tx_id.epoch != self.finished_epoch:
            # A coordinator begins no transaction of an epoch before those of older epochs are
            # complete.
            return tx_id.epoch < self.finished_epoch
        number = tx_id.number
        return number <= self.finished_floor or holds(self.finished_above, number)

    def has_open(self, tx_id: TxId) -> bool:
        """Whether that transaction has records here and no marker yet."""
        return self.open is not None and (
            (self.open.epoch, self.open.number) == (tx_id.epoch, tx_id.number)
        )

    def after_append(
        self, event: BatchesAppended, row_counts: Mapping[int, int], slot: int
    ) -> ProducerStateEntry:
        """The entry after an append of so many rows (by partition) in `slot`."""
        # Sequences begin at 0 in each epoch.
        recent = dict(self.recent) if event.epoch == self.epoch else {}
        for partition, base in event.base_sequences.items():
            if partition in row_counts:
                last = base + row_counts[partition] - 1
                batch = RecentBatch(base, last, event.base_offsets[partition])
                recent[partition] = (*recent.get(partition, ()), batch)[-RECENT_BATCHES:]
        opened = self.open
        if event.tx_id is not None:
            known = opened.first_offsets if opened is not None else {}
            # Earlier offsets and slots win: the LSO and the sealed index stay below the first
            # record.
            opened = OpenTransaction(
                number=event.tx_id.number,
                epoch=event.tx_id.epoch,
                first_slot=opened.first_slot if opened is not None else slot,
                first_offsets={**event.base_offsets, **known},
            )
        times_ms = (segment_time_ms(segment.path) for segment in event.segments)
        stored_ms = max(event.at_ms, *times_ms, self.stored_ms)
        return replace(
            self,
            epoch=event.epoch,
            recent=recent,
            open=opened,
            stored_ms=stored_ms,
        )

    def after_marker(self, event: MarkerWritten, slot: int) -> ProducerStateEntry:
        """The entry after a marker in `slot`: the order of finished transactions, and the fence
        (rules R6, R7, R10)."""
        tx_id = event.tx_id
        same_epoch = tx_id.epoch == self.finished_epoch
        # A process whose copy of the coordinator is old writes a marker with an old floor.
        floor = max(event.floor, self.finished_floor) if same_epoch else event.floor
        finished = with_number(self.finished_above if same_epoch else (), tx_id.number)
        epoch = max(self.epoch, tx_id.epoch, event.fence_epoch)
        opened = self.open if self.has_open(tx_id) else None
        # Records in the log precede those that this marker appends.
        first_offsets = {**event.base_offsets, **(opened.first_offsets if opened else {})}
        return ProducerStateEntry(
            epoch=epoch,
            recent=self.recent if epoch == self.epoch else {},
            open=None if opened else self.open,
            finished_epoch=tx_id.epoch,
            finished_floor=floor,
            finished_above=above(finished, floor),
            last=AppliedTransaction(
                tx_id.number,
                tx_id.epoch,
                slot,
                event.decision,
                event.topic_ids,
                event.coordinator,
                # Only a cut over several topics needs them (I11).
                first_offsets if event.topic_ids else {},
            ),
            stored_ms=self.stored_ms,
            earlier=self._earlier(tx_id.epoch, floor),
        )

    def _earlier(self, epoch: int, floor: int) -> tuple[AppliedTransaction, ...]:
        """Transactions before the newest that may be unfinished in other topics.

        They are filtered only when the floor rises: while one transaction is open, the cost of a
        marker must not grow with the number of those before it.
        """
        kept = self.earlier
        if (epoch, floor) != (self.finished_epoch, self.finished_floor):
            kept = tuple(one for one in kept if one.epoch == epoch and one.number > floor)
        last = self.last
        if last is None or not last.topic_ids or last.epoch != epoch or last.number <= floor:
            return kept
        return (*kept, last)


NEW_PRODUCER = ProducerStateEntry(epoch=-1)

ProducerStates: TypeAlias = IndexedMap[ProducerId, ProducerStateEntry]

OPEN_OFFSET, OPEN_SLOT, APPLIED_SLOT, SHARED = "open offset", "open slot", "applied slot", "shared"
"""What an index entry of a producer begins with: (OPEN_OFFSET, partition, first offset, producer
id) and (OPEN_SLOT, first slot, producer id) of its open transaction; (APPLIED_SLOT, -slot, producer
id) of its last one, so that the newest comes first; (SHARED, producer id) if one that it remembers
wrote to several topics."""


def producer_states(items: Iterable[tuple[int, ProducerStateEntry]] = ()) -> ProducerStates:
    """The producers of a topic, by id."""
    return IndexedMap(_index_entries, items)


def _index_entries(pid: int, known: ProducerStateEntry) -> Iterator[IndexEntry]:
    if known.open is not None:
        yield OPEN_SLOT, known.open.first_slot, pid
        for partition, offset in known.open.first_offsets.items():
            yield OPEN_OFFSET, partition, offset, pid
    if known.last is not None:
        yield APPLIED_SLOT, -known.last.slot, pid
        if known.last.topic_ids or known.earlier:
            yield SHARED, pid


# Sequences.


def repeated_offset(
    where: str,
    base_sequence: int,
    row_count: int,
    last_sequence: int,
    recent: tuple[RecentBatch, ...],
) -> int | None:
    """None if `row_count` records whose first has `base_sequence` are the next to store. If all of
    them were stored before: their first offset, or -1 if it is no longer known.

    `last_sequence` is that of the last stored record, -1 before the first. Raises
    OutOfOrderSequence for a gap, and for records of which only a part was stored.
    """
    expected = last_sequence + 1
    if base_sequence == expected:
        return None
    end = base_sequence + row_count - 1
    if end <= last_sequence:
        return _known_offset(base_sequence, end, recent)
    what = "some before it are missing" if base_sequence > expected else "a part is stored already"
    raise OutOfOrderSequence(
        f"{where}: records with sequences {base_sequence} to {end} came, but {expected} is next; "
        f"{what}. Abort the transaction, or open a new producer, and send the records again.",
        expected_sequence=expected,
        base_sequence=base_sequence,
    )


def _known_offset(base: int, last: int, recent: tuple[RecentBatch, ...]) -> int:
    for batch in recent:
        if batch.base_sequence <= base and last <= batch.last_sequence:
            return batch.base_offset + base - batch.base_sequence
    return -1


# Sets of numbers that arrive in roughly rising order, as ranges: however many numbers there are,
# the ranges are few, and adding a number costs little.


def holds(ranges: NumberRanges, number: int) -> bool:
    """Whether that number is in one of the ranges."""
    index = bisect_right(ranges, number, key=_FIRST)
    return index > 0 and number <= ranges[index - 1][1]


def with_number(ranges: NumberRanges, number: int) -> NumberRanges:
    """The ranges with this number added."""
    if holds(ranges, number):
        return ranges
    low = bisect_left(ranges, number - 1, key=_LAST)
    high = bisect_right(ranges, number + 1, key=_FIRST)
    # The ranges between the two touch the number, and are merged with it.
    first = min(number, ranges[low][0]) if low < high else number
    last = max(number, ranges[high - 1][1]) if low < high else number
    return (*ranges[:low], (first, last), *ranges[high:])


def with_numbers(ranges: NumberRanges, numbers: Iterable[int]) -> NumberRanges:
    """The ranges with these numbers added."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted((*ranges, *((number, number) for number in numbers))):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)


def above(ranges: NumberRanges, floor: int) -> NumberRanges:
    """The part of the ranges that is above `floor`."""
    kept = ranges[bisect_right(ranges, floor, key=_LAST) :]
    if kept and kept[0][0] <= floor:
        return ((floor + 1, kept[0][1]), *kept[1:])
    return kept
