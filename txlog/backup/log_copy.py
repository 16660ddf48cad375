"""Copies a log as it was at one moment into an empty place, where it is another log.

The copy has an id of its own, so that processes that have the original open are refused there. Each
of its journals begins with a boundary and the snapshot that it names, as after pruning, so that no
entry is copied; segments and chunks keep their names. The cluster file is written last: a copy that
is cut off is not a log. Nothing is changed in the original, whose writers go on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from txlog.backup.moment import JournalStep, Reading, consistent_slots
from txlog.catalog.cluster import Cluster
from txlog.catalog.cluster_file import (
    ClusterFile,
    default_log_settings,
    encode_cluster_file,
)
from txlog.catalog.state import ClusterMachine
from txlog.coordinator.events import Participant
from txlog.coordinator.state import with_participants
from txlog.engine.connection import Connection
from txlog.errors import BoundaryMoved, MissingObject, PublishContention, UsageError
from txlog.fan_out import SerialFanOut
from txlog.groups.machine import CoordinatorJournalState, CoordinatorMachine
from txlog.journal.boundaries import boundary as boundaries
from txlog.journal.boundaries.boundary import Boundary
from txlog.journal.entry import FORMAT_VERSION, decode_own_entry
from txlog.journal.machine import Machine, after_event, closed_entry, decoded_events
from txlog.journal.replication.opening import write_snapshot
from txlog.journal.replication.replica import Replica
from txlog.layout import CLUSTER_FILE, JournalLayout, is_entry
from txlog.maintenance.vacuum import staged_objects, stored_objects_of
from txlog.settings import LogSettings
from txlog.storage.policy.probe import probe
from txlog.storage.store import Exists, Store, is_near
from txlog.topic.events import TopicOpened
from txlog.topic.machine import TopicMachine
from txlog.topic.topic_log import TopicLog
from txlog.topic.upkeep.moving import moved_segment, records_moved

ATTEMPTS_MAX = 3
"""Maintenance may prune entries or delete merged segments while they are copied. A second attempt
meets that again only if the log is maintained faster than it is copied."""

OBJECTS_AT_ONCE = 8
"""Objects that are copied in parallel where a request takes a round trip, and so are in memory
together: half a gigabyte with the usual segments."""


@dataclass(frozen=True, slots=True)
class CopyReport:
    """What was copied."""

    log_id: str
    """The copy's own id."""
    topics: int
    objects: int
    """Segments, manifests and chunks, besides new segments for records that were in entries."""
    size_bytes: int


@dataclass(frozen=True, slots=True)
class _Journal:
    """A journal of the original."""

    layout: JournalLayout
    machine: Machine[Any]
    replica: Replica[Any]
    opened: TopicOpened | None = None
    """Of a topic."""

    def layout_in(self, log_id: str) -> JournalLayout:
        """Its names in another log."""
        root = self.layout.root
        if self.opened is None:  # A topic's folder has the topic's id in place of the log's.
            root = root.replace(f"/{self.layout.log_id}", f"/{log_id}", 1)
        return JournalLayout(root, log_id)


@dataclass(frozen=True, slots=True)
class _Kept:
    """A journal as the copy has it."""

    journal: _Journal
    next_slot: int
    state: Any
    crc32: int


def copy_log(
    source: Connection, target: Store, on_bytes: Callable[[int], None] = lambda _: None
) -> CopyReport:
    """Copy the log to the empty place `target`, as it was at one moment after this call began.

    `on_bytes` is called with the size of each copied object. A call that was cut off leaves
    objects, and no log. Raises UsageError if the target is not empty, CorruptData and MissingObject
    for damage of the original, StoreNotAtomic, and the stores' errors.
    """
    # Not even the remains of a copy: their journals belong to a log with another id.
    if (first := next(iter(target.list_after("")), None)) is not None:
        raise UsageError(
            f"{target.url} is not empty (there is {first.path!r:.120}), and a copy needs a place "
            "of its own: give an empty folder or prefix, or remove what an interrupted copy left."
        )
    probed = probe(target, source.runtime)
    file = replace(
        source.cluster.file,
        format_version=FORMAT_VERSION,
        log_id=source.runtime.entropy.token(),
        created_ms=source.runtime.clock.wall_ms(),
        settings=_settings_at(source.cluster, target),
        probe=json.dumps(probed.as_json()),
    )
    for _ in range(ATTEMPTS_MAX - 1):
        try:
            return _copied(source.cluster, target, file, on_bytes)
        except (BoundaryMoved, MissingObject, PublishContention):
            continue
    return _copied(source.cluster, target, file, on_bytes)


def _settings_at(cluster: Cluster, target: Store) -> LogSettings:
    """The log's settings; how boundaries are checked depends on the kind of store."""
    settings = cluster.file.settings
    if is_near(cluster.store) == is_near(target):
        return settings
    usual = default_log_settings(target)
    return replace(
        settings,
        boundary_trust_ms=usual.boundary_trust_ms,
        boundary_grace_ms=usual.boundary_grace_ms,
    )


def _copied(
    cluster: Cluster, target: Store, file: ClusterFile, on_bytes: Callable[[int], None]
) -> CopyReport:
    kept = _at_one_moment(cluster)
    named = dict.fromkeys(path for one in kept for path in _objects(cluster, one))
    paths = [path for path in named if not is_entry(path)]
    # A sealed chunk may not be stored before the next snapshot, which `_write` makes.
    unsaved = {
        one.journal.layout.chunk(chunk.first_slot, chunk.last_slot)
        for one in kept
        for chunk in one.journal.machine.unsaved_chunks(one.state)
    }
    # Either of the two places may be a round trip away.
    is_far = cluster.is_far or not is_near(target)
    fan_out = cluster.runtime.fan_out if is_far else SerialFanOut()
    size_bytes = 0
    wanted = [path for path in paths if path not in unsaved]
    for first in range(0, len(wanted), OBJECTS_AT_ONCE):
        part = wanted[first : first + OBJECTS_AT_ONCE]
        for size in fan_out.run_all([partial(_copy_object, cluster, target, p) for p in part]):
            size_bytes += size
            on_bytes(size)
    token = cluster.runtime.entropy.token
    kept = [_without_entries(cluster, target, one) for one in kept]
    fan_out.run_all([partial(_write, target, one, file.log_id, token()) for one in kept])
    answer = target.create(CLUSTER_FILE, encode_cluster_file(file))
    if isinstance(answer, Exists):
        raise UsageError(
            f"another process has created a log at {target.url} meanwhile; give an empty folder or "
            "prefix."
        )
    topics = sum(one.journal.opened is not None and not one.state.closed for one in kept)
    return CopyReport(file.log_id, topics, len(wanted), size_bytes)


# The moment.


def _at_one_moment(cluster: Cluster) -> list[_Kept]:
    """All journals below consistent slots. Raises CorruptData, BoundaryMoved."""
    count = cluster.file.settings.transaction_state_log_num_partitions
    journals = [
        _journal(cluster, cluster.layout.cluster(), ClusterMachine()),
        *(
            _journal(cluster, cluster.layout.transactions(number), CoordinatorMachine(count))
            for number in range(count)
        ),
    ]
    found = {journal.layout.root: journal for journal in journals}
    first = _positions(cluster, journals)
    first |= _positions(cluster, _topics(cluster, journals[0], found))
    _positions(cluster, journals[:1])
    # Topics that were created meanwhile were read up to no slot.
    first |= {topic.layout.root: _at(topic) for topic in _topics(cluster, journals[0], found)}
    second = _positions(cluster, found.values())
    _positions(cluster, found.values())
    calls = [partial(_reading, cluster, found[root], first[root]) for root in found]
    readings = {
        root: replace(reading, end_slot=second[root].next_slot)
        for root, reading in zip(found, cluster.answers(calls), strict=True)
    }
    slots = consistent_slots(readings)
    kept = [(found[root], slots[root], *readings[root].at(slots[root])) for root in found]
    return [_Kept(*one) for one in kept if one[1]]


def _journal(
    cluster: Cluster,
    layout: JournalLayout,
    machine: Machine[Any],
    opened: TopicOpened | None = None,
) -> _Journal:
    # A replica of its own: other threads use the connection's.
    replica = Replica(cluster.store, layout, machine, cluster.runtime, cluster.options)
    return _Journal(layout, machine, replica, opened)


def _topics(cluster: Cluster, catalog: _Journal, found: dict[str, _Journal]) -> list[_Journal]:
    """The topics of the catalog as it was last read that are not among the found; adds them."""
    new = []
    for created in catalog.replica.state.topics.values():
        layout = cluster.layout.topic(created.opened.name, created.opened.topic_id)
        if layout.root not in found:
            machine = TopicMachine(cluster.options.snapshot_entries)
            new.append(_journal(cluster, layout, machine, created.opened))
            found[layout.root] = new[-1]
    return new


def _positions(cluster: Cluster, journals: Iterable[_Journal]) -> dict[str, Reading]:
    """Read these journals to their ends."""
    together = list(journals)
    for _ in cluster.answers([partial(j.replica.catch_up, linearizable=True) for j in together]):
        pass
    return {journal.layout.root: _at(journal) for journal in together}


def _at(journal: _Journal) -> Reading:
    at = journal.replica.position
    return Reading(at.next_slot, at.crc32, at.state)


def _reading(cluster: Cluster, journal: _Journal, first: Reading) -> Reading:
    """The entries that a journal got after its first reading, up to its last one.

    The chain of checksums from the one to the other proves that they are those entries. Raises
    BoundaryMoved if one of them is pruned already.
    """
    layout, state, crc32 = journal.layout, first.state, first.crc32
    last = journal.replica.position
    steps: list[JournalStep] = []
    for slot in range(first.next_slot, last.next_slot):
        data, path = cluster.store.get(layout.entry(slot)), layout.entry(slot)
        entry, own_crc32 = (None, 0) if data is None else decode_own_entry(data, layout, slot)
        if entry is None or entry.prior_crc32 != crc32:
            raise BoundaryMoved(f"{path} was removed while the log was copied; call again.")
        before, crc32 = state, own_crc32
        events = tuple(decoded_events(journal.machine, entry, path))
        for event in events:
            state = after_event(journal.machine, state, event, slot, path)
        state = closed_entry(journal.machine, state, slot, path)
        steps.append(JournalStep(slot + 1, crc32, events, before, state))
    if crc32 != last.crc32:
        raise BoundaryMoved(f"entries of {layout.root} were removed meanwhile; call again.")
    return replace(first, steps=tuple(steps))


# Objects.


def _objects(cluster: Cluster, kept: _Kept) -> Iterator[str]:
    """Segments, manifests and chunks that the journal's state names. Raises CorruptData,
    BoundaryMoved."""
    opened = kept.journal.opened
    if opened is not None:
        topic = TopicLog(cluster.store, opened, cluster.runtime, cluster.options)
        yield from stored_objects_of(topic, kept.state)
    elif isinstance(kept.state, CoordinatorJournalState):
        yield from staged_objects(cluster, kept.state.transactions)


def _without_entries(cluster: Cluster, target: Store, kept: _Kept) -> _Kept:
    """The journal's state with its records in segments of the copy, which has no entries."""
    opened, state = kept.journal.opened, kept.state
    if opened is not None:
        topic = TopicLog(cluster.store, opened, cluster.runtime, cluster.options)
        moved = records_moved(topic, state, kept.next_slot - 1, target)
        if moved is not None:
            state = kept.journal.machine.apply(state, moved, kept.next_slot - 1)
    elif isinstance(state, CoordinatorJournalState):
        state = CoordinatorJournalState(
            with_participants(state.transactions, partial(_in_segments, cluster, target)),
            state.offsets,
        )
    return replace(kept, state=state)


def _in_segments(cluster: Cluster, target: Store, participant: Participant) -> Participant:
    """The participant with records of an entry in segments of the copy."""
    topic = cluster.topic_of_id(participant.topic, participant.topic_id)
    moved = (moved_segment(topic, segment, target) for segment in participant.segments)
    return replace(participant, segments=tuple(moved))


def _copy_object(cluster: Cluster, target: Store, path: str) -> int:
    """Copy one object; returns its size in bytes. Raises MissingObject."""
    data = cluster.store.get(path)
    if data is None:
        raise MissingObject(
            f"{cluster.store.url}/{path} is missing. 'txlog verify' shows whether it is damage.",
            path=path,
        )
    target.put_new(path, data)
    return len(data)


def _write(target: Store, kept: _Kept, log_id: str, token: str) -> None:
    """Begin the journal in the copy: its state, and the boundary below which it has no entries."""
    layout, slot = kept.journal.layout_in(log_id), kept.next_slot - 1
    head = (slot, kept.crc32, 0)
    write_snapshot(target, layout, kept.journal.machine, kept.state, head, check=False)
    boundaries.create(target, layout, Boundary(0, kept.next_slot, slot, token))
