"""Deleting unreferenced stored objects: segments, manifests, index chunks, and the rest of deleted
topics.

Keeps I12 and I14: an object is deleted only if it lies below a staging horizon that is in every
journal, so that no commit can refer to it any more (R17), and if two passes, apart in time, found
it unreferenced. References are read from the coordinators before the topics (R18): a staged segment
moves from its coordinator to its topic and never back, so in the other order a transaction that is
applied between the two reads would appear in neither. Clocks and listings only propose candidates.
If a process dies, fewer objects are deleted.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from txlog.catalog.cluster import Cluster
from txlog.coordinator.coordinator import Coordinator
from txlog.coordinator.events import Participant, StagingHorizonAdvanced
from txlog.coordinator.state import CoordinatorState
from txlog.engine.connection import Connection
from txlog.errors import CorruptData, MissingObject, UnknownTopic
from txlog.layout import (
    TOPICS,
    chunk_name_of,
    is_manifest,
    journal_root,
    segment_id_at,
    segment_id_of,
)
from txlog.model import TxId
from txlog.storage.store import StoredObject
from txlog.topic.batch_index import ChunkRef, IndexedBatch
from txlog.topic.events import AdvanceHorizon
from txlog.topic.producer_state import NEW_PRODUCER
from txlog.topic.records.batch import Segment
from txlog.topic.state import TopicState
from txlog.topic.topic_log import TopicLog

_COLLECTED = ("segments", "manifests", "chunks")
_LEFT_BY_DELETED = (*_COLLECTED, "hint.json")
_ENTRIES = ("entries",)


@dataclass(frozen=True, slots=True)
class Candidates:
    """Unreferenced objects that one pass found, and when (monotonic clock)."""

    objects: tuple[StoredObject, ...] = ()
    topics: tuple[str, ...] = ()
    """Deleted topics whose journals still exist."""
    found_ms: float = 0

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to delete."""
        return not (self.objects or self.topics)

    @property
    def size_bytes(self) -> int:
        """Their total size."""
        return sum(stored.size_bytes for stored in self.objects)


NONE_FOUND = Candidates()


@dataclass(slots=True)
class VacuumReport:
    """The result of one sweep."""

    found: Candidates = NONE_FOUND
    """What nothing referred to before."""
    objects: int = 0
    bytes: int = 0
    topics_ended: list[str] = field(default_factory=list)
    """Deleted topics whose journals this pass has ended."""


class Vacuum:
    """The vacuum of one log. Any number of processes may run it."""

    def __init__(self, connection: Connection, staging_retention_ms: int) -> None:
        """`staging_retention_ms`: younger segments are kept."""
        self._connection = connection
        self._staging_retention_ms = staging_retention_ms

    def find_candidates(self) -> Candidates:
        """What may be deleted. Changes nothing. Raises CorruptData, StoreUnavailable."""
        # The listing before the references: an object that gets a
        # reference meanwhile counts as referenced.
        horizon = self._wanted_horizon()
        listed = list(self._connection.cluster.store.list_after(f"{TOPICS}/"))
        roots = frozenset(topic.layout.root for topic in present_topics(self._connection))
        found = list(self._unreferenced(listed, horizon, roots))
        ending = [topic.name for topic in self._ending(listed)]
        now_ms = self._connection.runtime.clock.monotonic_ms()
        return Candidates(tuple(found), tuple(ending), now_ms)

    def sweep(self, before: Candidates) -> VacuumReport:
        """Delete the candidates of an earlier pass that are still unreferenced.

        Raises CorruptData, StoreUnavailable; after these it may be called again.
        """
        report = VacuumReport(before)
        # Before anything is written: a forged state must not lead to further entries.
        self._require_rebuilt(before.objects)
        # From here on nothing below the horizon can get a reference (R17), so what
        # the journals do not name afterwards stays unreferenced.
        roots, horizon = self._advance_horizon(before)
        known = {stored.path for stored in before.objects}
        listed = list(self._connection.cluster.store.list_after(f"{TOPICS}/"))
        report.topics_ended = self._end_deleted(listed)
        found = self._unreferenced(listed, horizon, roots)
        again = [stored for stored in found if stored.path in known]
        store = self._connection.cluster.store
        self._connection.runtime.fan_out.run_all([partial(store.delete, s.path) for s in again])
        report.objects = len(again)
        report.bytes = sum(stored.size_bytes for stored in again)
        return report

    def _require_rebuilt(self, doomed: Sequence[StoredObject]) -> None:
        """Raises CorruptData unless the journals that do not name these objects are what their
        entries lead to (R64)."""
        if not doomed:
            return
        cluster = self._connection.cluster
        roots = sorted({_parts(stored.path)[0] for stored in doomed})
        topics = [cluster.topic_of_id(*root.split("/")[1:]) for root in roots]
        journals = [topic.journal for topic in topics]
        # A segment that is staged is named by a coordinator only.
        journals += [coordinator.journal for coordinator in self._connection.coordinators()]
        for _ in cluster.answers([journal.require_rebuilt for journal in journals]):
            pass

    def _wanted_horizon(self) -> str:
        now_ms = self._connection.runtime.clock.wall_ms()
        return segment_id_at(now_ms - self._staging_retention_ms)

    def _advance_horizon(self, before: Candidates) -> tuple[frozenset[str], str]:
        """Raise the horizon above these candidates in every topic and coordinator.

        A horizon that is already high enough is not written, so that an interrupted vacuum, as on a
        full disk, does not repeat its work. Returns the topics' roots, because a topic that is
        created afterwards has no horizon and keeps all its objects; and the lowest horizon.
        """
        wanted = self._wanted_horizon()
        topics = {topic.layout.root: topic for topic in present_topics(self._connection)}
        newest = _newest_id(before.objects, topics, wanted)
        horizons: dict[str, str] = {}
        for root, topic in topics.items():
            try:
                horizons[root] = _topic_horizon(topic, newest, wanted)
            except UnknownTopic:  # It was deleted meanwhile; its deletion may be interrupted.
                self._connection.cluster.finish_deletion(topic.name)
        # Topics first, and no coordinator above the lowest of them: producers name staged segments
        # above the topic's horizon.
        lowest = min(horizons.values(), default=wanted)
        coordinators = self._connection.coordinators()
        in_coordinators = [_coordinator_horizon(one, newest, lowest) for one in coordinators]
        # Only what lies below every horizon may go: a vacuum that died has raised some of them.
        return frozenset(horizons), min(lowest, *in_coordinators)

    def _end_deleted(self, listed: Sequence[StoredObject]) -> list[str]:
        """Write the last boundary of every deleted topic that still lacks it (rule R14)."""
        ended = []
        for topic in self._ending(listed):
            topic.journal.require_rebuilt()  # It may be a forged state that says so (R64).
            topic.journal.close()
            ended.append(topic.name)
        return ended

    def _ending(self, listed: Sequence[StoredObject]) -> Iterator[TopicLog]:
        """Deleted topics whose journals are not ended yet."""
        # The listing and the names only propose topics: a topic's own journal says that it was
        # deleted (I14). One whose creation was interrupted has a first entry that says nothing.
        for topic in self._deleted(listed, _ENTRIES):
            if _is_ended(topic) and topic.journal.is_close_due():
                yield topic

    def _deleted(self, listed: Iterable[StoredObject], kinds: Container[str]) -> Iterator[TopicLog]:
        """Deleted topics that have objects of these kinds. The objects were listed before the names
        are read. An ended topic keeps its last boundary and snapshot for ever."""
        cluster = self._connection.cluster
        present = {t.opened.topic_id for t in cluster.state().topics.values()}
        parts = (_parts(stored.path) for stored in listed)
        for root in sorted({root for root, kind, _ in parts if root and kind in kinds}):
            _, name, topic_id = root.split("/")
            if topic_id not in present:
                yield cluster.topic_of_id(name, topic_id)

    def _unreferenced(
        self, listed: Iterable[StoredObject], horizon: str, roots: frozenset[str]
    ) -> Iterator[StoredObject]:
        """Unreferenced objects of topics in `roots`, which can get no new reference below the
        horizon, and of ended topics."""
        objects = list(listed)
        deleted = self._deleted(objects, _LEFT_BY_DELETED)
        ended = {topic.layout.root for topic in deleted if _is_ended(topic)}
        referenced = references(self._connection)
        for stored in objects:
            root, kind, object_id = _parts(stored.path)
            if root in ended:
                is_unreferenced = kind in _LEFT_BY_DELETED
            else:
                # A chunk that replaced none has no name. A replaced chunk is never used again.
                is_old = kind in _COLLECTED and (not object_id or object_id < horizon)
                is_unreferenced = root in roots and is_old and stored.path not in referenced
            if is_unreferenced:
                yield stored


def _parts(path: str) -> tuple[str, str, str]:
    """A topic's folder, the kind of the object, and its id, which is compared with the horizon. All
    are empty for a name that txlog does not write: the object belongs to another program."""
    root = journal_root(path)
    if root is None:
        return "", "", ""
    kind = path.split("/")[3]
    return root, kind, chunk_name_of(path) if kind == "chunks" else segment_id_of(path)


def _newest_id(objects: Iterable[StoredObject], topics: Container[str], horizon: str) -> str:
    """The highest id among the objects that may be deleted only below a horizon, or ""."""
    parts = (_parts(stored.path) for stored in objects)
    ids = (name for root, kind, name in parts if root in topics and kind in _COLLECTED)
    return max((name for name in ids if name < horizon), default="")


def _topic_horizon(topic: TopicLog, newest: str, wanted: str) -> str:
    """The topic's horizon, raised unless it was above `newest`. Raises UnknownTopic."""
    # Without candidates below a horizon no entry is written.
    if newest and topic.catch_up(linearizable=True).horizon <= newest:
        topic.execute(AdvanceHorizon(wanted))
    return topic.state.horizon


def _coordinator_horizon(coordinator: Coordinator, newest: str, wanted: str) -> str:
    """The coordinator's horizon, raised unless it was above `newest`."""
    if newest and coordinator.catch_up().horizon <= newest:
        coordinator.execute(StagingHorizonAdvanced(wanted))
    return coordinator.state.horizon


def _is_ended(topic: TopicLog) -> bool:
    """Whether the journal of a topic that was listed, and has no name, says that it was deleted."""
    try:
        return topic.catch_up(linearizable=True).closed
    except CorruptData as error:
        # Of two processes that create a topic, one has removed its first entry meanwhile (R63).
        if error.facts.get("path") != topic.layout.root:
            raise
        return False


# References.


def references(connection: Connection) -> frozenset[str]:
    """Paths of all segments and manifests that an open transaction, a topic or one of these
    manifests names, and of all index chunks.

    Time and memory grow with the number of segments. Raises CorruptData, StoreUnavailable.
    """
    # The coordinators first (R18).
    found: set[str] = set()
    for coordinator in connection.caught_up():
        found.update(staged_objects(connection.cluster, coordinator.state))
    topics = [partial(_stored, topic) for topic in present_topics(connection)]
    for stored in connection.cluster.answers(topics):
        found.update(stored)
    return frozenset(found)


def staged_segments(state: CoordinatorState) -> Iterator[tuple[TxId, Participant, Segment]]:
    """Segments and manifests that the open transactions of that coordinator name."""
    for _, transaction in state.open_transactions():
        for participant in transaction.participants:
            for segment in participant.segments:
                yield transaction.tx_id, participant, segment


def staged_objects(cluster: Cluster, state: CoordinatorState) -> Iterator[str]:
    """Their paths, and those of the segments that the manifests name (R66). Raises CorruptData, and
    MissingObject for a manifest that is still needed."""
    for tx_id, participant, segment in staged_segments(state):
        yield segment.path
        if not is_manifest(segment.path):
            continue
        topic = cluster.topic_of_id(participant.topic, participant.topic_id)
        manifest = topic.manifest(segment.path, segment.batches[0].crc32)
        if manifest is not None:
            yield from (row.segment for row in manifest.rows)
            continue
        current = topic.catch_up(linearizable=True)
        # With the marker the topic names what is left of it; a deleted topic needs nothing.
        if not (
            current.closed or current.producers.get(tx_id.pid, NEW_PRODUCER).is_finished(tx_id)
        ):
            raise MissingObject(
                f"{segment.path} is missing, and transaction {tx_id} is decided with it. Restore "
                "it from a backup.",
                path=segment.path,
            )


def stored_objects_of(topic: TopicLog, state: TopicState) -> Iterator[str]:
    """Every chunk, segment and manifest that this state of the topic refers to.

    Raises CorruptData, and BoundaryMoved if the state is too old to be read.
    """
    if state.closed:
        return
    yield from _objects_of(topic, state, state.tail)
    waiting: list[ChunkRef] = list(state.sealed.roots())
    while waiting:
        ref = waiting.pop()
        yield topic.layout.chunk(ref.first_slot, ref.last_slot, ref.name)
        content = topic.chunk(state, ref)
        waiting += (part for part in content if isinstance(part, ChunkRef))
        rows = (part for part in content if isinstance(part, IndexedBatch))
        yield from _objects_of(topic, state, rows)


def _objects_of(topic: TopicLog, state: TopicState, rows: Iterable[IndexedBatch]) -> Iterator[str]:
    for row in rows:
        # Without records a row only keeps the offsets dense (I2), and its segment may go.
        if row.record_count:
            yield row.segment
        if row.is_folded:
            yield from (batch.segment for batch in topic.unfolded(state, row))


def present_topics(connection: Connection) -> Iterator[TopicLog]:
    """Every current topic of the log."""
    cluster = connection.cluster
    for name, created in cluster.state().topics.items():
        yield cluster.topic_of_id(name, created.opened.topic_id)


def _stored(topic: TopicLog) -> frozenset[str]:
    return frozenset(stored_objects_of(topic, topic.catch_up(linearizable=True)))
