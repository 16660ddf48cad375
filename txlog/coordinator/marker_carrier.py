"""Carrying: a process that won a contended topic writes decided markers of other processes, too.

`markers_to_bring` and `active_coordinators` decide what a carrier brings and which coordinators it
reads; `MarkerCarriers` does the I/O, in the background. Each round reads the next entries of those
coordinators and, at the same time, writes the markers that the previous round found. A carrier ends
after some rounds without markers, when it loses a slot, or when the store fails; if its process
dies, only its entries remain.

Keeps R44: a marker is written exactly as its coordinator's journal shows it, in the order of the
decisions, and one that the topic would refuse is left to its own process. A carrier decides no
transaction and completes none, as that needs the markers of every topic (R43).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from txlog.clock import Runtime
from txlog.coordinator.coordinator import Coordinator
from txlog.coordinator.state import CoordinatorState
from txlog.coordinator.transaction import OPEN, PREPARED
from txlog.errors import TxlogError
from txlog.fan_out import in_background
from txlog.topic.events import WriteMarker
from txlog.topic.producer_state import APPLIED_SLOT, NEW_PRODUCER, holds
from txlog.topic.records.batch import InlineSegment
from txlog.topic.state import TopicState
from txlog.topic.topic_log import TopicLog

log = logging.getLogger(__name__)

IDLE_ROUNDS_MAX = 3
"""A carrier ends after this many rounds without a marker. One such round may lie between two
decisions of a busy topic; each of them costs a request for each active coordinator."""

OPENINGS_MAX = 4
"""Journals opened at once: most carriers end soon, and need not open all of them, at up to 40
requests each."""

ROUND_MS_MIN = 10.0
"""Least duration of a round without markers, for a store that answers at once, which would
otherwise be asked without a pause."""

BROUGHT_MAX = 64
"""Markers that a carrier writes in one entry. Four times as many as the processes for which
carriers were measured; a marker takes some hundred bytes and the names of its segments."""

BROUGHT_BATCHES_MAX = 1_000
"""Stored batches named by the markers of one entry, which holds ENTRY_BATCHES_MAX (4,000): a
quarter leaves room for the carrier's own appends. The process of a larger transaction writes its
marker itself."""

LOOKED_AHEAD = 1
"""Entries of a coordinator's journal requested in a round: it grows slowly. Two of them, with four
coordinators more, gave 74 transactions a second instead of 70, for half as many requests again
(docs/design/0028-marker-carriers.md)."""

ACTIVE_SLOTS = 64
"""A carrier reads the coordinators with a marker in this many of a topic's newest slots: if the
slots of the sixteen busiest ids alternate, each has had four. A coordinator that is missed costs
its process a lost slot, and each one that is idle a request a round."""


class MarkerCarriers:
    """The carriers of one process, at most one for each topic. Safe to use from threads."""

    def __init__(self, runtime: Runtime, coordinators: Callable[[], Sequence[Coordinator]]) -> None:
        self._runtime = runtime
        self._coordinators = coordinators
        self._running: set[str] = set()
        self._lock = runtime.new_lock()
        self._opening: set[int] = set()

    def begin(self, topic: TopicLog) -> None:
        """Start a carrier of that topic in the background, unless one is running."""
        with self._lock:
            if topic.topic_id in self._running:
                return
            self._running.add(topic.topic_id)
        try:
            self._runtime.background.begin(partial(self._carry, topic))
        # No thread is left. The entry of the caller is stored, so its command has succeeded.
        except RuntimeError as error:
            log.info("topic %s gets no carrier: %s", topic.name, error)
            self._end(topic)

    def _carry(self, topic: TopicLog) -> None:
        try:
            self._carry_on(topic)
        except TxlogError as error:
            log.info("the carrier of topic %s ends: %s", topic.name, error)
        finally:
            self._end(topic)

    def _end(self, topic: TopicLog) -> None:
        with self._lock:
            self._running.discard(topic.topic_id)
            # After the discard: a slot that is won now begins another carrier. Before it none
            # would begin, and this process's entries would make others wait in vain.
            topic.journal.is_carrying = False

    def _carry_on(self, topic: TopicLog) -> None:
        markers: tuple[WriteMarker, ...] = ()
        idle = 0
        while topic.journal.is_carrying and idle < IDLE_ROUNDS_MAX:
            begun_ms = self._runtime.clock.monotonic_ms()
            active = self._active(topic)
            calls: list[Callable[[], object]] = [
                partial(one.journal.look_ahead, LOOKED_AHEAD) for one in active
            ]
            if markers:
                # At the same time as the reads: a round takes one round trip, not two.
                calls.insert(0, partial(topic.journal.publish_carried, markers))
            self._runtime.fan_out.run_all(calls)
            states = [(coordinator.number, coordinator.state) for coordinator in active]
            markers = markers_to_bring(topic.state, states, self._runtime.clock.wall_ms())
            markers = with_records(topic, markers)
            idle = 0 if markers else idle + 1
            if not markers:
                took_ms = self._runtime.clock.monotonic_ms() - begun_ms
                self._runtime.clock.sleep_ms(ROUND_MS_MIN - took_ms)

    def _active(self, topic: TopicLog) -> Sequence[Coordinator]:
        """The active coordinators whose journals are open. The other active ones are opened in
        the background, for a later round."""
        numbers = active_coordinators(topic.state)
        active = [one for one in self._coordinators() if one.number in numbers]
        for coordinator in active:
            if not coordinator.journal.is_open:
                self._begin_opening(coordinator)
        return [coordinator for coordinator in active if coordinator.journal.is_open]

    def _begin_opening(self, coordinator: Coordinator) -> None:
        with self._lock:
            if coordinator.number in self._opening or len(self._opening) >= OPENINGS_MAX:
                return
            self._opening.add(coordinator.number)
        # In the background: opening takes several round trips, and no round waits for it.
        in_background(self._runtime.fan_out, partial(self._open, coordinator))

    def _open(self, coordinator: Coordinator) -> None:
        try:
            coordinator.catch_up()
        except TxlogError as error:  # A later round tries again.
            log.info("coordinator %d could not be opened: %s", coordinator.number, error)
        finally:
            with self._lock:
                self._opening.discard(coordinator.number)


def markers_to_bring(
    topic: TopicState, coordinators: Iterable[tuple[int, CoordinatorState]], now_ms: int
) -> tuple[WriteMarker, ...]:
    """Markers that those coordinators show as decided and that the topic does not have yet.

    Markers of one transactional id are in the order of the decisions: the numbers rise, except
    among transactions that were open at the same time, which are independent.
    """
    found: list[WriteMarker] = []
    batches = 0
    for number, state in coordinators:
        for marker in decided_markers(topic.topic_id, number, state, now_ms):
            batches += sum(len(segment.batches) for segment in marker.segments)
            if len(found) == BROUGHT_MAX or batches > BROUGHT_BATCHES_MAX:
                return tuple(found)
            if _fits(topic, marker):
                found.append(marker)
    return tuple(found)


def with_records(topic: TopicLog, markers: Sequence[WriteMarker]) -> tuple[WriteMarker, ...]:
    """The markers with the records that are in the entries of their decisions, as far as this
    process has these in memory; about as many as an entry can hold beside the carrier's own."""
    found: list[WriteMarker] = []
    left = topic.inline_bytes_max * 3 // 4
    for marker in markers:
        segments = topic.for_marker(marker.segments, is_recent=True)
        if segments is None:
            continue
        left -= sum(len(one.data) for one in segments if isinstance(one, InlineSegment))
        if left < 0:
            break
        found.append(replace(marker, segments=segments))
    return tuple(found)


def decided_markers(
    topic_id: str, number: int, state: CoordinatorState, now_ms: int
) -> Iterator[WriteMarker]:
    """The markers for that topic of the transactions that the coordinator shows as decided and not
    complete, those of one transactional id in the order of the decisions."""
    for _, name in state.ids.indexed(OPEN):
        known = state.ids[name]
        for tx_id, transaction in known.open.items():
            if transaction.state not in PREPARED:
                continue
            for participant in transaction.participants:
                if participant.topic_id == topic_id:
                    yield transaction.marker(participant, known.floor(tx_id), number, now_ms)


def _fits(topic: TopicState, marker: WriteMarker) -> bool:
    """Whether the topic, as this process knows it, accepts the marker and does not have it yet."""
    pid = marker.tx_id.pid
    # Settled without an entry: the topic would never show it as written, and every round would
    # bring it again.
    if topic.closed or holds(topic.retired, pid):
        return False
    if topic.producers.get(pid, NEW_PRODUCER).is_finished(marker.tx_id):
        return False
    return all(
        segment.schema_id < len(topic.schemas) and batch.partition < len(topic.partitions)
        for segment in marker.segments
        for batch in segment.batches
    )


def active_coordinators(topic: TopicState) -> frozenset[int]:
    """The coordinators of recently finished transactions of the topic, which a carrier reads. A
    producer of any other coordinator writes its first marker itself."""
    found: set[int] = set()
    newest: int | None = None
    for _, _, pid in topic.producers.indexed(APPLIED_SLOT):
        last = topic.producers[pid].last
        newest = last.slot if newest is None and last is not None else newest
        if last is None or newest is None or last.slot <= newest - ACTIVE_SLOTS:
            break
        found.add(last.coordinator)
    return frozenset(found - {-1})
