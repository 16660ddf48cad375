"""An open log: its topics, its producer ids, and what Spark's tasks are given of it.

It opens journals and caches them; it decides nothing (see `state.py`). A log which is gone, or
which another one has replaced, is noticed before anything is written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from txlog.catalog.cluster_file import (
    ClusterFile,
    create_cluster,
    default_log_settings,
    read_cluster_file,
)
from txlog.catalog.state import (
    PRODUCER_ID_BLOCK,
    AllocateProducerIds,
    ClusterMachine,
    ClusterState,
    TopicCreated,
    TopicDeleted,
    half_deleted_topic,
    topic_exists,
    unknown_topic,
)
from txlog.clock import Runtime
from txlog.errors import (
    InvalidConfig,
    NotATxlog,
    PublishContention,
    TopicExists,
    UnknownTopic,
)
from txlog.fan_out import FanOut, OnError, SerialFanOut, unless_unread
from txlog.journal.beginning import first_entry
from txlog.journal.log_presence import LogPresence
from txlog.journal.replication.recent_records import RecentRecords
from txlog.journal.replication.replica import Replica
from txlog.journal.replication.replica_options import ReplicaOptions
from txlog.layout import CLUSTER_FILE, LogLayout
from txlog.model import numbered_topic_id, validate_topic_name
from txlog.settings import (
    LogSettings,
    ProcessSettings,
    TopicConfig,
)
from txlog.storage.store import Store, hold, is_near
from txlog.topic.events import CloseTopic, TopicOpened, check_partition_count
from txlog.topic.machine import TopicMachine
from txlog.topic.state import PartitionState, TopicState
from txlog.topic.topic_log import TopicLog
from txlog.topic.upkeep.moving import move_records

T = TypeVar("T")


class Deletions(Protocol):
    """Deletions of topics in the coordinators' journals (rule R54)."""

    def begin(self, topics: Sequence[TopicLog]) -> None:
        """From here on no decision names these topics, and they have the markers of all earlier
        ones. May be repeated."""

    def begun(self) -> Sequence[str]:
        """Ids of topics whose deletion has begun; any process can finish it."""


DELETED_TOGETHER_MAX = 500
"""Topics whose deletion is one entry in each coordinator. Coordinators keep twice as many ids in
full, so that any process can finish a deletion that is interrupted."""

TOPICS_KEPT_MIN = 32
"""With fewer topics a process does not look for deleted ones among them."""


class Cluster:
    """An open log. Safe to use from threads; a process needs one for each log."""

    def __init__(
        self,
        store: Store,
        file: ClusterFile,
        runtime: Runtime,
        process: ProcessSettings,
        writer: str,
        *,
        was_read: bool = True,
    ) -> None:
        """`was_read`: this process has just read `file`. If another process read it, the check that
        the log still exists runs in parallel with this process's first request to a journal.

        Raises NotATxlog if the log is known to be gone.
        """
        self.store = store
        self.file = file
        self.runtime = runtime
        self.process = process
        self.is_far = not is_near(store)
        """Whether each request takes a network round trip; otherwise the log is on this machine."""
        hold(store, CLUSTER_FILE)
        # A held file is checked at each write by the store, for free.
        interval_ms = process.log_presence_interval_ms if self.is_far else 0
        self._presence = LogPresence(
            store.url,
            file.log_id,
            partial(_stored_log_id, store),
            runtime,
            interval_ms,
            was_checked=was_read,
        )
        if not self.is_far:  # The held file may be newer than the one that was read.
            self._presence.check()
        settings = file.settings
        self.options = ReplicaOptions(
            settings.journal_snapshot_entries,
            process,
            writer,
            self._presence,
            file.log_id,
            is_begun=True,
            is_far=self.is_far,
            # On a near store a check after each answer costs nothing, so no clock is relied on
            # (R15).
            trust_ms=settings.boundary_trust_ms if self.is_far else 0,
            # Also on a near store: other processes may open the same log by a URL that is far
            # (R32).
            grace_ms=settings.pruning_grace_ms,
            recent=RecentRecords(runtime.new_lock()),
            records_bytes_max=settings.entry_records_max_bytes,
        )
        self.layout = LogLayout(file.log_id)
        self.journal: Replica[ClusterState] = Replica(
            store, self.layout.cluster(), ClusterMachine(), runtime, self.options
        )
        self.carry: Callable[[TopicLog], None] | None = None
        """`Replica.carry` of the topics that are opened from now on, each with its topic."""
        self.deletions: Deletions | None = None
        """None in a log without coordinators."""
        self._topics: dict[str, TopicLog] = {}
        self._topics_max = 2 * TOPICS_KEPT_MIN
        """Above this number the deleted ones are dropped."""
        self._pids: list[int] = []
        self._pids_taken_by = 0
        self._lock = runtime.new_lock()
        self.request_fan_out: FanOut = runtime.fan_out if self.is_far else SerialFanOut()
        """For many small requests. Serial on a disk, which answers faster than a thread starts."""

    def answers(self, calls: Sequence[Callable[[], T]]) -> Iterator[T]:
        """The results of the calls, in order. On a disk each call is made when its result is
        requested; elsewhere the first request makes all calls in parallel. Raises what they
        raise."""
        if self.is_far:
            yield from self.request_fan_out.run_all(calls)
        else:
            yield from (call() for call in calls)

    @property
    def log_id(self) -> str:
        """Identifies this log for ever, even if it is moved."""
        return self.file.log_id

    def require_present(self, *, fresh: bool = False) -> None:
        """Raises NotATxlog if the log is known to be gone or replaced by another one. In a bucket
        this makes a request only if `fresh` is set; on a disk the check costs nothing."""
        self._presence.require()
        if not self.is_far:
            hold(self.store, CLUSTER_FILE)
        elif fresh:
            self._presence.check()

    # Topics.

    def state(self, *, linearizable: bool = False) -> ClusterState:
        """The current topics. Unless `linearizable`, they may lag as `TopicLog.catch_up` may."""
        return self.journal.catch_up(linearizable=linearizable)

    def topics(self, *, is_known: bool = False) -> list[TopicLog]:
        """All current topics, sorted by name; none is caught up. They include a topic whose
        deletion was interrupted: its own journal says that it is closed. `is_known`: as this
        process last read their list, without a request."""
        with self._lock:
            journal = self.journal
            known = (journal.state if is_known else journal.catch_up(linearizable=True)).topics
            return [self._topic_log(known[name].opened) for name in sorted(known)]

    def topic(self, name: str) -> TopicLog:
        """The topic of that name. Raises InvalidName or UnknownTopic.

        A topic that this process has open is not looked up again: if it was deleted since, its own
        journal refuses the next append.
        """
        with self._lock:
            # A name that is known is valid.
            known = self._topics.get(name) if type(name) is str else None
            if known is not None and not known.state.closed:
                return known
            validate_topic_name(name, internal=True)
            created = self._created(name, "" if known is None else known.topic_id)
            if created is None:
                raise unknown_topic(name, self.journal.state, self.store.url)
            return self._topic_log(created.opened)

    def present_topic(self, name: str, *, linearizable: bool = False) -> TopicLog:
        """The topic of that name, after `TopicLog.catch_up`; raises as `topic` does.

        A closed topic is refused even while its name is not free yet: a transaction would commit
        records to it that no consumer can ever read.
        """
        topic = self._topic_of(name, linearizable)
        if topic.state.closed:
            raise half_deleted_topic(name, self.store.url)
        return topic

    def known_topic(self, name: str) -> TopicLog:
        """The topic as this process last saw it, without a request if it has. Raises UnknownTopic.

        For records and positions that a coordinator refuses if the topic is deleted (R40).
        """
        topic = self.topic(name)
        return topic if topic.state.topic_id else self.present_topic(name)

    def opened_topic(self, name: str) -> TopicLog | None:
        """The same if this process has it open, else None; waits for no lock and no request."""
        known = self._topics.get(name)
        is_open = known is not None and known.state.topic_id and not known.state.closed
        return known if is_open else None

    def learn_topic(self, opened: TopicOpened) -> None:
        """Take over what another process has read in the cluster's journal: the name's topic. It is
        ignored if this process has a topic of that name. The topic may be closed by now, which its
        own journal says."""
        with self._lock:
            if opened.name not in self._topics:
                self._topic_log(opened)

    def successor(self, name: str) -> TopicLog:
        """The topic that has the name now, for a process that has learned of the deletion of the
        one that it knows; finishes the deletion if it was interrupted. Raises UnknownTopic."""
        self.finish_deletion(name)
        return self.present_topic(name, linearizable=True)

    def find_topic(self, name: str) -> TopicLog | None:
        """The current topic of that name, or None. For callers that go through all names."""
        try:
            return self.present_topic(name, linearizable=True)
        except UnknownTopic:
            return None

    def _topic_of(self, name: str, linearizable: bool) -> TopicLog:
        topic = self.topic(name)
        # The name may belong to a later incarnation, which this process has not seen (R11).
        if topic.catch_up(linearizable=linearizable).closed:
            topic = self.topic(name)
            topic.catch_up(linearizable=linearizable)
        return topic

    def topic_of_id(self, name: str, topic_id: str) -> TopicLog:
        """The topic with that incarnation id, even if it was deleted (rule R11)."""
        with self._lock:
            known = self._topics.get(name)
            if known is not None and known.topic_id == topic_id:
                return known
            created = self._created(name)
            if created is not None and created.opened.topic_id == topic_id:
                return self._topic_log(created.opened)
            # Only the name and the id count, as the topic's journal has the rest. Not cached: the
            # name may belong to another incarnation.
            gone = TopicOpened(topic_id, name, 1, "", TopicConfig())
            return TopicLog(self.store, gone, self.runtime, self.options)

    def _created(self, name: str, closed_id: str = "") -> TopicCreated | None:
        """The newest incarnation of the name. A linearizable read confirms None and an incarnation
        that is known to be closed: the entry of its successor may be pruned (rule R15)."""
        created = self.journal.catch_up().topics.get(name)
        if created is None or created.opened.topic_id == closed_id:
            created = self.journal.catch_up(linearizable=True).topics.get(name)
        return created

    def _topic_log(self, opened: TopicOpened) -> TopicLog:
        known = self._topics.get(opened.name)
        if known is None or known.topic_id != opened.topic_id:
            known = self._new_topic_log(opened)
            self._keep(known)
        return known

    def _keep(self, topic: TopicLog) -> None:
        """Keep the current topic of that name. Topics that other processes have deleted are dropped
        each time the number of topics has doubled."""
        if len(self._topics) >= self._topics_max:
            self._topics = {n: known for n, known in self._topics.items() if not known.state.closed}
            self._topics_max = 2 * max(len(self._topics), TOPICS_KEPT_MIN)
        self._topics[topic.name] = topic

    def _new_topic_log(self, opened: TopicOpened) -> TopicLog:
        topic = TopicLog(self.store, opened, self.runtime, self.options)
        topic.move = partial(move_records, topic)
        if self.carry is not None:
            topic.journal.carry = partial(self.carry, topic)
        return topic

    def create_topic(
        self, name: str, partition_count: int, schema: str, config: TopicConfig
    ) -> TopicLog:
        """Create a topic; `schema` is encoded. Raises InvalidName, InvalidConfig, TopicExists."""
        validate_topic_name(name)
        partition_count = check_partition_count(name, partition_count)
        for _ in range(self.process.publish_attempts_max):
            topic = self._begun_topic(name, partition_count, schema, config)
            # The topic's journal is read in parallel with the entry that names the topic.
            caught_up = self.request_fan_out.start(topic.journal.catch_up)
            try:
                self.journal.execute(TopicCreated(topic.opened, self.runtime.clock.wall_ms()))
            except (TopicExists, PublishContention) as error:
                self.store.delete(topic.layout.entry(0))  # Nothing will ever name it.
                if isinstance(error, TopicExists):
                    raise
                continue
            caught_up()
            with self._lock:
                return self._known_or_kept(topic)
        raise PublishContention(
            f"topic {name!r} was not created: other processes created topics all the time; try "
            "again.",
            topic=name,
        )

    def _begun_topic(
        self, name: str, partition_count: int, schema: str, config: TopicConfig
    ) -> TopicLog:
        """A new topic whose first entry is stored, before the entry that names it (R63). A process
        that dies between the two leaves one small object that nothing names. Raises TopicExists."""
        journal = self.journal
        if not journal.is_open:
            journal.catch_up()
        if name in journal.state.topics and name in journal.catch_up(linearizable=True).topics:
            raise topic_exists(name)
        # The next number, unless another process creates a topic at the same time.
        topic_id = numbered_topic_id(journal.state.next_topic, self.runtime.entropy.token())
        opened = TopicOpened(topic_id, name, partition_count, schema, config)
        topic = self._new_topic_log(opened)
        event = TopicMachine(self.options.snapshot_entries).encode_event(opened)
        data = first_entry(topic.layout, self.runtime, self.options.writer, [event])
        self.store.create(topic.layout.entry(0), data)
        return topic

    def _known_or_kept(self, new: TopicLog) -> TopicLog:
        """The object of a topic that was just created: another thread may have looked it up. It is
        not kept if another process has deleted the topic since, as its name may have the next one
        (R11)."""
        known = self._topics.get(new.name)
        if known is not None and known.topic_id == new.topic_id:
            return known
        created = self.journal.state.topics.get(new.name)
        if created is not None and created.opened.topic_id == new.topic_id:
            self._keep(new)
        return new

    def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics. Raises UnknownTopic before any is deleted.

        The coordinators come first (R54). Then each topic's journal is closed before its name is
        freed: in the other order, writers that have it open would still write records, which no
        reader could find. A process that dies in between leaves a topic that takes no transactions,
        or no records at all; any process can call `finish_deletion`.
        """
        self._delete([self._topic_of(name, linearizable=True) for name in names])

    def _delete(self, topics: Sequence[TopicLog]) -> None:
        for at in range(0, len(topics), DELETED_TOGETHER_MAX):
            together = topics[at : at + DELETED_TOGETHER_MAX]
            if self.deletions is not None:
                self.deletions.begin(together)
            for topic in together:
                topic.execute(CloseTopic())
                self._free_name(topic)

    def deletions_begun(self, on_error: OnError | None = None) -> Sequence[str]:
        """Ids of topics whose deletion has begun, newest last; of most it is finished. None if the
        coordinator that tells cannot be read, and `on_error` is given."""
        if self.deletions is None:
            return ()
        return unless_unread(on_error, "coordinator", "0", self.deletions.begun)() or ()

    def finish_deletion(self, name: str) -> bool:
        """Finish the deletion of a topic that was interrupted before the name was free.

        Returns whether the name had such a topic. Idempotent; any process may call it.
        """
        created = self.journal.catch_up(linearizable=True).topics.get(name)
        if created is None:
            return False
        topic = self.topic_of_id(name, created.opened.topic_id)
        is_closed = topic.catch_up(linearizable=True).closed
        if not is_closed and topic.topic_id not in self.deletions_begun():
            return False
        if is_closed:
            topic.journal.require_rebuilt()  # It may be a forged state that says so (R64).
        self._delete([topic])
        return True

    def _free_name(self, topic: TopicLog) -> None:
        with suppress(UnknownTopic):  # Another process has freed it.
            self.journal.execute(TopicDeleted(topic.name, topic.topic_id))
        with self._lock:
            known = self._topics.get(topic.name)
            # Another thread may have opened the next topic of the name (R11).
            if known is not None and known.topic_id == topic.topic_id:
                del self._topics[topic.name]

    # Producer ids.

    def producer_id(self) -> int:
        """A unique producer id, from a block of this process: a fork does not use its parent's."""
        with self._lock:
            if not self._pids or self._pids_taken_by != os.getpid():
                first: int = self.journal.execute(AllocateProducerIds(PRODUCER_ID_BLOCK))
                self._pids = list(range(first + PRODUCER_ID_BLOCK - 1, first - 1, -1))
                self._pids_taken_by = os.getpid()
            return self._pids.pop()


def _stored_log_id(store: Store) -> str | None:
    """The id of the log that is there now, or None."""
    try:
        file = read_cluster_file(store)
    except NotATxlog as error:
        # A text that equals no id of a log: the opened log counts as replaced.
        return f"of another kind ({error.message})"
    return None if file is None else file.log_id


def open_cluster(
    store: Store,
    runtime: Runtime,
    process: ProcessSettings | None = None,
    *,
    create: bool = False,
    writer: str = "txlog",
    log_config: Mapping[str, object] | None = None,
    require_place: Callable[[], object] = lambda: None,
    cluster_file: ClusterFile | None = None,
) -> Cluster:
    """Open the log in `store`; with `create`, create it if there is none. Raises NotATxlog.

    `log_config` has settings by their dotted names for a log that is created; InvalidConfig if the
    log exists and has other settings. `require_place` raises if a log may not be created there.
    With a `cluster_file` that another process has read, this one does not read it.
    """
    if cluster_file is not None:
        return Cluster(
            store, cluster_file, runtime, process or ProcessSettings(), writer, was_read=False
        )
    settings = default_log_settings(store).altered(log_config) if log_config else None
    if create:
        file: ClusterFile | None = create_cluster(store, runtime, settings, require_place)
    else:
        file = read_cluster_file(store)
    if file is None:
        raise NotATxlog(
            f"there is no log at {store.url} (no {CLUSTER_FILE} there). Check the path, or create "
            "one with 'txlog topic create' or Admin(root, create=True).",
            url=store.url,
        )
    _require_settings(file.settings, log_config or {}, store.url)
    return Cluster(store, file, runtime, process or ProcessSettings(), writer)


def _require_settings(settings: LogSettings, wanted: Mapping[str, object], url: str) -> None:
    """Raises InvalidConfig for another setting: those of a log never change (rule R32)."""
    has, asked = settings.to_dotted(), settings.altered(wanted).to_dotted()
    for name in wanted:
        if asked[name] != has[name]:
            raise InvalidConfig(
                f"the log at {url} was created with {name}={has[name]}, which cannot be changed to "
                f"{asked[name]}. Leave it out, or create another log.",
                name=name,
            )


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """What a process needs to stage records for a topic. Spark's driver reads it, and passes it to
    its tasks, which leave the decision to another process.

    Keeps R31: it contains no boundary check, no registration, and no state that a decision rests
    on. It may be old when it is used: the coordinator refuses segments below its horizon, and
    decisions that name a deleted topic (R40).
    """

    opened: TopicOpened
    """The topic's name and incarnation."""
    state: TopicState
    """Its configuration, schemas, number of partitions and staging horizon, and nothing else."""

    @staticmethod
    def of(topic: TopicLog) -> TopicMetadata:
        """The topic as this process last read it."""
        known = topic.state
        state = TopicState(
            topic_id=topic.topic_id,
            name=topic.name,
            config=known.config,
            earlier_message_bytes_max=known.earlier_message_bytes_max,
            schemas=known.schemas,
            partitions=(PartitionState(),) * len(known.partitions),
            horizon=known.horizon,
        )
        return TopicMetadata(topic.opened, state)

    def within(self, cluster: Cluster) -> TopicLog:
        """The topic in another process. Staging records makes no request to its journal."""
        topic = TopicLog(cluster.store, self.opened, cluster.runtime, cluster.options)
        topic.journal.show(self.state)
        return topic


@dataclass(frozen=True, slots=True)
class LogMetadata:
    """A log, and the topics to write to, for a process that needs neither the cluster file nor a
    journal. Pickled."""

    file: ClusterFile
    topics: tuple[TopicMetadata, ...] = ()

    @staticmethod
    def of(cluster: Cluster, topics: Iterable[TopicLog] = ()) -> LogMetadata:
        """The log as this process has it open."""
        return LogMetadata(cluster.file, tuple(map(TopicMetadata.of, topics)))
