"""Consistent cuts: end offsets below which every transaction is complete or absent.

`catch_up_all` reads the topics; what follows it is pure. The topics are read at different times:
between two of these reads a producer may finish one transaction and begin another, which one state
then contains and the other does not. So each state must still have the decisions of all
transactions that were decided since the round began.

Keeps I11, across partitions and topics, and R13: the smallest unit is a connected group of
transactions, and only one such group may exceed a limit. It reads the batch index and no record;
how much of the index depends on the distance to the end, not on the length of the log.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from txlog.errors import PublishContention
from txlog.fan_out import FanOut
from txlog.model import Decision, TopicPartition, TxId
from txlog.topic.batch_index import IndexedBatch
from txlog.topic.producer_state import NEW_PRODUCER, SHARED, AppliedTransaction, holds
from txlog.topic.state import TopicState, TxDecision
from txlog.topic.topic_log import TopicLog

Ends: TypeAlias = dict[TopicPartition, int]

ROUNDS_MAX = 20
"""Rounds of reads until one contains fewer entries than a topic seals at once
(`journal.snapshot.entries`, 64). The first round reads what was written since the last call, each
next one what was written during the round before; if twenty do not suffice, writers outrun this
process, and the caller must hear of it."""


def catch_up_all(
    topics: Sequence[TopicLog], fan_out: FanOut, *, linearizable: bool = False
) -> None:
    """Catch up with all topics, so that `partly_applied` compares their states.

    A topic's state has the decisions of transactions as far back as its tail. If the tail does not
    reach back to the beginning of this round, another round follows, which finds few new entries.
    A single topic may lag as `TopicLog.catch_up` may, unless `linearizable`. Raises
    PublishContention if the topics grow faster than they can be read.
    """
    for _ in range(ROUNDS_MAX):
        known = [topic.next_slot for topic in topics]
        is_single = len(topics) < 2
        # A topic that lags behind its pruned journal would lack transactions that the others have
        # had time to forget, so that no comparison finds them (R15).
        fan_out.run_all(
            [
                partial(topic.catch_up, linearizable=linearizable or not is_single)
                for topic in topics
            ]
        )
        # A topic that has sealed slots of this round may have forgotten decisions of this round.
        if is_single or all(t.state.sealed_slot < n for t, n in zip(topics, known, strict=True)):
            return
    raise PublishContention(
        f"topics {', '.join(topic.name for topic in topics)} grow faster than they can be read "
        "together; try again."
    )


@dataclass(frozen=True, slots=True)
class TopicView:
    """A state of a topic, with its index, in the partitions that are read."""

    state: TopicState
    partitions: Sequence[int]
    batches_from_slot: Callable[[int], Iterator[IndexedBatch]]
    """Batches from that slot on, in slot order."""
    batches_since: Callable[[Mapping[int, int]], Iterator[IndexedBatch]]
    """Batches at or after those offsets, in slot order."""

    def where(self, partition: int) -> TopicPartition:
        """The topic's partition of that number."""
        return TopicPartition(self.state.name, partition)

    def wheres(self) -> list[TopicPartition]:
        """The partitions that are read."""
        return [self.where(partition) for partition in self.partitions]


def view_of(topic: TopicLog, partitions: Iterable[int] | None = None) -> TopicView:
    """A view of the topic's newest state that this process has read; of these partitions only, if
    they are given. What is in the others does not hold back the cut: a marker makes a transaction
    visible in all partitions of a topic at once."""
    state = topic.state
    if partitions is None:
        return TopicView(
            state,
            range(len(state.partitions)),
            lambda slot: topic.batches_from_slot(state, slot),
            lambda starts: topic.batches_since(state, starts),
        )
    read = frozenset(partitions).intersection(range(len(state.partitions)))
    return TopicView(
        state,
        sorted(read),
        lambda slot: (b for b in topic.batches_from_slot(state, slot) if b.partition in read),
        # Already of these partitions, for which alone it is asked.
        lambda starts: topic.batches_since(state, starts),
    )


def partly_applied(
    topics: Sequence[TopicView],
) -> Iterator[tuple[TopicView, TxId, Mapping[int, int]]]:
    """Committed transactions that some of these topics have applied and others have not.

    Yields each topic that has applied one, with its first offset in every partition. At any one
    time only a producer's last transaction can be applied in part (rule R5), or those above its
    floor if it has several open (rule R7). But the views were read at different times (see
    `catch_up_all`): a transaction that was decided after the first read may be in one view and
    absent from the others.
    """
    by_id = {view.state.topic_id: view.state for view in topics}
    if len(by_id) < 2:
        return

    def is_everywhere(tx_id: TxId, topic_ids: Iterable[str]) -> bool:
        # A topic that is not read does not hold back the cut.
        found = (by_id[topic_id] for topic_id in topic_ids if topic_id in by_id)
        return all(_is_finished(state, tx_id) for state in found)

    for view in topics:
        # A producer's last transaction is known even after its batches are sealed, however long
        # another topic lacks its marker.
        for tx_id, applied in _last_applied(view.state):
            if not is_everywhere(tx_id, applied.topic_ids):
                yield view, tx_id, applied.first_offsets
        # A transaction decided between two reads may no longer be its producer's last.
        for key, decision in view.state.decisions.items():
            tx_id = TxId(*key)
            if not (decision.aborted or is_everywhere(tx_id, decision.topic_ids)):
                yield view, tx_id, _first_offsets(view, tx_id, decision)


def _last_applied(state: TopicState) -> Iterator[tuple[TxId, AppliedTransaction]]:
    # Others cannot be applied in part. Most producers never write to several topics.
    for _, pid in state.producers.indexed(SHARED):
        producer = state.producers[pid]
        for applied in (producer.last, *producer.earlier):
            if applied is not None and applied.decision is not Decision.ABORT:
                yield TxId(pid, applied.epoch, applied.number), applied


def _first_offsets(view: TopicView, tx_id: TxId, decision: TxDecision) -> Mapping[int, int]:
    firsts: dict[int, int] = {}
    for batch in view.batches_from_slot(decision.first_slot):
        if batch.tx_id == tx_id:
            firsts.setdefault(batch.partition, batch.base_offset)
    return firsts


def _is_finished(state: TopicState, tx_id: TxId) -> bool:
    if state.closed or holds(state.retired, tx_id.pid):
        return True  # A producer is retired only after all of its transactions are complete.
    return state.producers.get(tx_id.pid, NEW_PRODUCER).is_finished(tx_id)


def stable_ends(topics: Sequence[TopicView], starts: Mapping[TopicPartition, int]) -> Ends:
    """The highest consistent cut of these views at read_committed.

    `starts` is the reader's position, a consistent cut below the result.
    """
    ends = {
        view.where(partition): view.state.last_stable_offset(partition)
        for view in topics
        for partition in view.partitions
    }
    for view, _, first_offsets in partly_applied(topics):
        _lower(ends, view, first_offsets)
    # Excluding one transaction may divide another. The cut only falls, so this ends.
    while _close_downward(topics, starts, ends):
        pass
    # The beginning of a transaction below the log start of a reader may have been deleted.
    return {where: max(end, starts[where]) for where, end in ends.items()}


def _lower(ends: Ends, view: TopicView, offsets: Mapping[int, int]) -> bool:
    lowered = False
    for partition, offset in offsets.items():
        if partition in view.partitions and offset < ends[view.where(partition)]:
            ends[view.where(partition)] = offset
            lowered = True
    return lowered


def _close_downward(
    topics: Sequence[TopicView], starts: Mapping[TopicPartition, int], ends: Ends
) -> bool:
    """Lower the cut below all records of the transactions that have records above it.

    Returns whether the cut was lowered.
    """
    above: dict[TxId, tuple[str, ...]] = {}
    first_slots: dict[tuple[str, TxId], int] = {}
    for view in topics:
        own = view.state.topic_id
        for batch in view.batches_since(_of_topic(view, ends)):
            if _is_committed(batch) and (tx_id := batch.tx_id) is not None:
                above[tx_id] = batch.topic_ids or (own,)
                first_slots[own, tx_id] = batch.first_slot
    lowered = False
    for view in topics:
        torn = {tx_id for tx_id, topic_ids in above.items() if view.state.topic_id in topic_ids}
        if torn:
            for batch in _batches_of(view, torn, first_slots, starts):
                if batch.tx_id in torn:
                    lowered |= _lower(ends, view, {batch.partition: batch.base_offset})
    return lowered


def _of_topic(view: TopicView, offsets: Mapping[TopicPartition, int]) -> dict[int, int]:
    return {p: offsets[view.where(p)] for p in view.partitions}


def _batches_of(
    view: TopicView,
    tx_ids: set[TxId],
    first_slots: Mapping[tuple[str, TxId], int],
    starts: Mapping[TopicPartition, int],
) -> Iterator[IndexedBatch]:
    """Rows of this topic, from as late a slot as possible, that include all of these transactions'
    rows."""
    slots = []
    for tx_id in tx_ids:
        decision = view.state.decision_of(tx_id)
        slot = decision.first_slot if decision else first_slots.get((view.state.topic_id, tx_id))
        if slot is None:
            # All of it is below the cut here, and sealed, but not below the reader's position.
            return view.batches_since(_of_topic(view, starts))
        slots.append(slot)
    return view.batches_from_slot(min(slots))


def _is_committed(batch: IndexedBatch) -> bool:
    return batch.number >= 0 and batch.decided_slot >= 0 and not batch.aborted


@dataclass(slots=True)
class _Window:
    """The batches of one topic from the reader's position on, read only as far as necessary."""

    view: TopicView
    starts: Mapping[int, int]
    highs: Mapping[int, int]
    by_bytes: bool
    """Whether the limit of the cut is in stored bytes; else it is in offsets."""
    batches: list[IndexedBatch] = field(default_factory=list)
    parts: dict[TxId, dict[int, tuple[int, int]]] = field(default_factory=dict)
    """Committed transaction -> partition -> its first offset and the offset after its last."""
    decided: dict[TxId, int] = field(default_factory=dict)
    """Committed transaction -> the slot that decided it."""
    slot: int = -1
    exhausted: bool = False
    _walk: Iterator[IndexedBatch] | None = None

    @property
    def backlog(self) -> int:
        """Number of offsets from the window's start to the highest cut."""
        return sum(high - self.starts[partition] for partition, high in self.highs.items())

    def pull(self) -> IndexedBatch | None:
        """Read the next batch below the highest cut."""
        if self._walk is None:
            self._walk = self.view.batches_since(self.starts)
        for batch in self._walk:
            self.slot = batch.slot
            if batch.base_offset < self.highs[batch.partition]:
                self._note(batch)
                return batch
        self.exhausted = True
        return None

    def _note(self, batch: IndexedBatch) -> None:
        self.batches.append(batch)
        if _is_committed(batch) and batch.tx_id is not None:
            self.decided.setdefault(batch.tx_id, batch.decided_slot)
            known = self.parts.setdefault(batch.tx_id, {})
            begin = self.begin_of(batch)
            first, end = known.get(batch.partition, (begin, batch.next_offset))
            known[batch.partition] = (min(first, begin), max(end, batch.next_offset))

    def size(self, batch: IndexedBatch, count: int) -> int:
        """What that many offsets of the batch count towards the limit. One that is read in part
        counts with all of its bytes, as a task fetches all of them."""
        return batch.length if self.by_bytes else count

    def size_below(self, ends: Ends) -> int:
        """What the batches between the window's start and the cut count, if all were read."""
        total = 0
        for batch in self.batches:
            begin, end = self.begin_of(batch), ends[self.view.where(batch.partition)]
            if begin < end:
                total += self.size(batch, min(end, batch.next_offset) - begin)
        return total

    def begin_of(self, batch: IndexedBatch) -> int:
        """The first offset that the reader needs: a log start may be in the middle of a batch."""
        return max(batch.base_offset, self.starts[batch.partition])

    def oldest(self) -> IndexedBatch | None:
        """The first batch; None if all records below the highest cut were deleted."""
        return self.batches[0] if self.batches else self.pull()

    def is_late(self, ends: Ends) -> bool:
        """Whether the oldest batch lies wholly above the cut."""
        first = self.oldest()
        return first is not None and not _is_below(self, first, ends)

    def until_slot(self, slot: int) -> None:
        """Read past that slot."""
        # An entry may hold several batches: only a batch of a later slot shows that all were read.
        while not self.exhausted and self.slot <= slot:
            self.pull()

    def until_transaction(self, tx_id: TxId) -> None:
        """Read until all of that transaction was found, or to the end."""
        while not self.exhausted and tx_id not in self.parts:
            self.pull()
        if tx_id in self.decided:
            self.until_slot(self.decided[tx_id])


def limited_cut(
    topics: Sequence[TopicView],
    starts: Mapping[TopicPartition, int],
    highs: Ends,
    limit: int,
    *,
    by_bytes: bool = False,
) -> Ends:
    """The next consistent cut that advances by at most `limit` offsets, or bytes, from `starts`.

    `starts` and `highs` are consistent cuts. Topics share the limit by their backlog, with at least
    one offset each while it lasts; within a topic, records are taken in the order of writing. If a
    topic's share cannot hold its oldest transaction with its connected group, that group is taken
    first. A group larger than the limit is taken alone (rule R13) when it is its topic's turn, so
    that a busy topic does not delay it for ever. Deleted offsets do not count.

    With `by_bytes` the limit is one of stored bytes. Then a stored batch is taken whole, also one
    without a transaction, and is what a group is otherwise.
    """
    begins = _past_deleted(topics, starts, highs)
    windows = [w for view in topics if (w := _window(view, begins, highs, by_bytes)).backlog]
    ends = _shared(windows, begins, highs, limit)
    # Nothing of the oldest batch of these topics fits into their shares, and it may never fit.
    late = [window for window in windows if window.is_late(ends)]
    if not late:
        return ends
    in_turn = windows[_turn(begins, len(windows))]
    group = _oldest_group(windows, in_turn if in_turn in late else late[0], begins, limit)
    room = limit - sum(window.size_below(group) for window in windows)
    if room >= 0:
        rest = [_window(view, group, highs, by_bytes) for view in topics]
        return _shared(rest, group, highs, room)
    # Too large for the limit. Other topics proceed until it is the turn of this one, unless they
    # have nothing that fits.
    return group if in_turn in late or ends == begins else ends


def closed_cut(
    topics: Sequence[TopicView],
    starts: Mapping[TopicPartition, int],
    highs: Ends,
    ends: Ends,
    *,
    upward: bool,
) -> Ends:
    """The consistent cut nearest to `ends`, below it or above it, between two consistent cuts."""
    begins = _past_deleted(topics, starts, highs)
    closed = {where: min(max(end, begins[where]), highs[where]) for where, end in ends.items()}
    if not upward:
        while _close_downward(topics, starts, closed):
            pass
        return {where: max(end, begins[where]) for where, end in closed.items()}
    windows = [_window(view, begins, highs, by_bytes=False) for view in topics]
    for window in windows:
        # In slot order, so that one partition's batches may follow those of all others.
        while window.pull() is not None:
            pass
    _include_torn(windows, closed)
    return closed


def _past_deleted(
    topics: Sequence[TopicView], starts: Mapping[TopicPartition, int], highs: Ends
) -> Ends:
    begins = dict(starts)
    for view in topics:
        for partition in view.partitions:
            where = view.where(partition)
            log_start = view.state.bounds(partition).log_start
            begins[where] = max(starts[where], min(log_start, highs[where]))
    return begins


def _turn(starts: Ends, count: int) -> int:
    """A number below `count` that varies from cut to cut, from the positions alone."""
    # Hashed, as positions that rise by a multiple of `count` would always choose the same topic.
    return zlib.crc32(str(sum(starts.values())).encode()) % count


def _shared(windows: Sequence[_Window], starts: Ends, highs: Ends, limit: int) -> Ends:
    """Advance every topic by its share of the limit, without incomplete transactions."""
    backlog = sum(window.backlog for window in windows)
    if backlog <= limit and not any(window.by_bytes for window in windows):
        return dict(highs)
    ends = dict(starts)
    room, rest = limit, backlog
    for window in sorted(windows, key=lambda window: -window.backlog):
        # A share of bytes may be less than one batch, so the others get what a topic leaves of its.
        whole, among = (room, rest) if window.by_bytes else (limit, backlog)
        # At least 1, and never more than is left: rounded shares may exceed the limit together.
        share = min(room, max(1, whole * window.backlog // among)) if window.backlog else 0
        unused = _fill(window, ends, share)
        room -= share - unused if window.by_bytes else share
        rest -= window.backlog
    _exclude_torn(windows, ends)
    return ends


def _window(view: TopicView, starts: Ends, highs: Ends, by_bytes: bool) -> _Window:
    return _Window(view, _of_topic(view, starts), _of_topic(view, highs), by_bytes)


def _fill(window: _Window, ends: Ends, limit: int) -> int:
    """Take batches in the order of the journal until the limit is reached; returns what is left of
    it. After the last batch all offsets are deleted, and are taken too."""
    room = limit
    while room > 0 and (batch := window.pull()) is not None:
        where = window.view.where(batch.partition)
        begin = max(batch.base_offset, ends[where])
        count = min(batch.next_offset, window.highs[batch.partition]) - begin
        size = window.size(batch, count)
        # A plain batch may be cut anywhere; a part of a transaction would be excluded again.
        if size > room and (batch.number >= 0 or window.by_bytes):
            return room
        ends[where] = begin + (count if size <= room else room)
        room -= size
    if window.exhausted:
        ends.update({window.view.where(p): high for p, high in window.highs.items()})
    return max(room, 0)


def _exclude_torn(windows: Sequence[_Window], ends: Ends) -> None:
    """Lower the cut until it divides no transaction."""
    lowered = True
    while lowered:
        lowered = False
        for window in windows:
            lowered |= _exclude_torn_once(window, windows, ends)


def _exclude_torn_once(window: _Window, windows: Sequence[_Window], ends: Ends) -> bool:
    taken = _taken(window, ends)
    if taken:
        # No record of a transaction is above the slot of its marker.
        window.until_slot(max(batch.decided_slot for batch in taken.values()))
    lowered = False
    for tx_id, batch in taken.items():
        involved = [
            other
            for other in windows
            if other is window or other.view.state.topic_id in batch.topic_ids
        ]
        if all(_is_whole(other, tx_id, ends) for other in involved):
            continue
        for other in involved:
            firsts = {p: first for p, (first, _) in other.parts.get(tx_id, {}).items()}
            lowered |= _lower(ends, other.view, firsts)
    return lowered


def _taken(window: _Window, ends: Ends) -> dict[TxId, IndexedBatch]:
    """Committed transactions with a record below the cut, each with one of its batches."""
    found: dict[TxId, IndexedBatch] = {}
    for batch in window.batches:
        if _is_committed(batch) and _is_below(window, batch, ends) and (tx_id := batch.tx_id):
            found[tx_id] = batch
    return found


def _is_below(window: _Window, batch: IndexedBatch, ends: Ends) -> bool:
    return window.begin_of(batch) < ends[window.view.where(batch.partition)]


def _is_whole(window: _Window, tx_id: TxId, ends: Ends) -> bool:
    """Whether all of the transaction's records in this topic are below the cut."""
    if tx_id not in window.parts:
        # Its records come later in this topic, or retention has deleted them.
        window.until_transaction(tx_id)
    parts = window.parts.get(tx_id, {})
    return all(end <= ends[window.view.where(p)] for p, (_, end) in parts.items())


def _oldest_group(windows: Sequence[_Window], window: _Window, starts: Ends, limit: int) -> Ends:
    """Raise the cut above the oldest batch of a topic and its connected group.

    Records without a transaction have no such group: at most `limit` of them are taken, or, with a
    limit in bytes, their stored batch.
    """
    ends = dict(starts)
    first = window.oldest()
    if first is None:
        return ends
    where = window.view.where(first.partition)
    whole = min(first.next_offset, window.highs[first.partition])
    is_unit = first.number >= 0 or window.by_bytes
    ends[where] = whole if is_unit else min(whole, starts[where] + limit)
    _include_torn(windows, ends)
    return ends


def _include_torn(windows: Sequence[_Window], ends: Ends) -> None:
    """Raise the cut until it divides no transaction."""
    raised = True
    while raised:
        raised = False
        for window in windows:
            raised |= _include_torn_once(window, windows, ends)


def _include_torn_once(window: _Window, windows: Sequence[_Window], ends: Ends) -> bool:
    taken = _taken(window, ends)
    raised = False
    for tx_id, batch in taken.items():
        window.until_slot(batch.decided_slot)
        for other in windows:
            if other is not window and other.view.state.topic_id not in batch.topic_ids:
                continue
            # Its records may be far behind those of other topics here.
            other.until_transaction(tx_id)
            for partition, (_, end) in other.parts.get(tx_id, {}).items():
                where = other.view.where(partition)
                raised |= end > ends[where]
                ends[where] = max(ends[where], end)
    return raised
