"""A whole log at one place: its cluster file, its topics and its producer ids.

It opens journals and caches them; it decides nothing (see `cluster_state.py`). It guards that a
root that is not a log, or is of a newer format, or is on a store that is not atomic, is refused
before anything else is written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from txlog.catalog.cluster_file import ClusterFile, decode_cluster_file
from txlog.catalog.state import (
    AllocateProducerIds,
    ClusterMachine,
    ClusterState,
    CreateTopic,
    DeleteTopic,
    TopicCreated,
    half_deleted_topic,
    unknown_topic,
)
from txlog.clock import FanOut, Runtime, SerialFanOut, begun
from txlog.errors import (
    CorruptData,
    InvalidConfig,
    NotATxlog,
    UnknownTopic,
)
from txlog.journal.boundaries.presence import LogPresence
from txlog.journal.codec import encode
from txlog.journal.entry import FORMAT_VERSION, seal
from txlog.journal.lost_journal import first_below, require_nothing_led_to
from txlog.journal.replication.follower import ReplicaOptions
from txlog.journal.replication.replica import Replica
from txlog.layout import CLUSTER_FILE, CLUSTER_JOURNAL, TOPICS, LogLayout
from txlog.model import validate_topic_name
from txlog.settings import (
    BOUNDARY_GRACE_MS,
    BOUNDARY_TRUST_MS,
    FAR_COORDINATORS,
    LogSettings,
    ProcessSettings,
    TopicConfig,
)
from txlog.storage.capabilities import hold, is_near
from txlog.storage.policy.probe import ProbeResult, probe
from txlog.storage.store import Exists, Store
from txlog.topic.events import CloseTopic, TopicOpened, check_partition_count
from txlog.topic.topic_log import TopicLog

T = TypeVar("T")

PRODUCER_ID_BLOCK = 100


class Cluster:
    """An open log. Safe to use from threads; one for each log and process is enough."""

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
        """For a log whose file was just read; otherwise another process has read it, and the check
        that the log still exists runs in parallel with this process's first request to a journal.
        Raises NotATxlog if it is already gone."""
        self.store = store
        self.file = file
        self.runtime = runtime
        self.process = process
        self._is_held = hold(store, CLUSTER_FILE)
        interval_ms = 0 if self._is_held else process.log_presence_interval_ms
        self._presence = LogPresence(
            store.url,
            file.log_id,
            partial(_log_id_there, store),
            runtime,
            interval_ms,
            was_asked=was_read,
        )
        if self._is_held:  # The held file may be newer than the one that was read.
            self._presence.ask()
        settings = file.settings
        self.options = ReplicaOptions(
            settings.journal_snapshot_entries,
            process,
            writer,
            self._presence,
            file.log_id,
            reads_in_turn=self._is_held,
            is_far=self.is_far,
            trust_ms=0 if is_near(store) else settings.boundary_trust_ms,
            grace_ms=settings.pruning_grace_ms,
        )
        self.layout = LogLayout(file.log_id)
        self.journal: Replica[ClusterState] = Replica(
            store, self.layout.cluster(), ClusterMachine(), runtime, self.options
        )
        self.carry: Callable[[TopicLog], None] | None = None
        """See TopicLog.carry_by: for the topics that are opened from now on."""
        self._topics: dict[str, TopicLog] = {}
        self._pids: list[int] = []
        self._pids_taken_by = 0
        self._lock = runtime.new_lock()
        self.fan_out: FanOut = SerialFanOut() if self._is_held else runtime.fan_out
        """For many small requests: a disk answers faster than a thread starts."""

    @property
    def is_near(self) -> bool:
        """Whether the log is on a disk."""
        return self._is_held

    @property
    def is_far(self) -> bool:
        """Whether a request takes a round trip."""
        return not is_near(self.store)

    def answers(self, calls: Sequence[Callable[[], T]]) -> Iterator[T]:
        """The results, in order. On a disk each call is made when its result is requested;
        elsewhere all calls run in parallel, at the first request. Raises what a call raises."""
        if self._is_held:
            yield from (call() for call in calls)
        else:
            yield from self.fan_out.run_all(calls)

    @property
    def log_id(self) -> str:
        """Identifies this log for ever, wherever it is moved."""
        return self.file.log_id

    def require_present(self, *, fresh: bool = False) -> None:
        """Raises NotATxlog if the log is known to be gone, or replaced by another one. On a bucket
        this makes a request only if the answer must be `fresh`; a disk checks for free."""
        self._presence.require()
        if self._is_held:
            hold(self.store, CLUSTER_FILE)
        elif fresh:
            self._presence.ask()

    # Topics.

    def state(self, *, linearizable: bool = False) -> ClusterState:
        """The current topics; they may lag like `TopicLog.catch_up`, unless `linearizable`."""
        return self.journal.catch_up(linearizable=linearizable)

    def topics(self) -> list[TopicLog]:
        """All current topics, sorted by name; none is caught up. A topic whose deletion was
        interrupted is among them: its own journal says that it is closed."""
        with self._lock:
            known = self.journal.catch_up(linearizable=True).topics
            return [self._topic_log(known[name].opened) for name in sorted(known)]

    def topic(self, name: str) -> TopicLog:
        """The topic of that name. Raises InvalidName or UnknownTopic.

        A topic that this process knows is not looked up again: if it was deleted since, its own
        journal says so at the next append.
        """
        validate_topic_name(name, internal=True)
        with self._lock:
            known = self._topics.get(name)
            if known is not None and not known.state.closed:
                return known
            created = self._created(name, "" if known is None else known.topic_id)
            if created is None:
                raise unknown_topic(name, self.journal.state, self.store.url)
            return self._topic_log(created.opened)

    def present_topic(self, name: str, *, linearizable: bool = False) -> TopicLog:
        """The topic of that name, caught up as `TopicLog.catch_up` says; raises as `topic` does.

        A closed topic counts as absent, though its name may not be free yet: a transaction would
        commit records to it that no consumer can ever read.
        """
        topic = self._topic_of(name, linearizable)
        if topic.state.closed:
            raise half_deleted_topic(name, self.store.url)
        return topic

    def known_topic(self, name: str) -> TopicLog:
        """The topic as this process last saw it: no request if it has. Raises UnknownTopic.

        For records and positions that are checked later, with a look that is sent meanwhile (R40).
        """
        topic = self.topic(name)
        return topic if topic.state.topic_id else self.present_topic(name)

    def learn_topic(self, opened: TopicOpened) -> None:
        """Another process has read in this log's journal that the name has this topic: this one
        need not, unless it knows another. Whether it is open still, its own journal tells."""
        with self._lock:
            if opened.name not in self._topics:
                self._topic_log(opened)

    def find_topic(self, name: str) -> TopicLog | None:
        """The topic, certainly current, or None: for callers that go through all names."""
        try:
            return self.present_topic(name, linearizable=True)
        except UnknownTopic:
            return None

    def _topic_of(self, name: str, linearizable: bool) -> TopicLog:
        topic = self.topic(name)
        if topic.catch_up(linearizable=linearizable).closed:
            topic = self.topic(name)
            topic.catch_up(linearizable=linearizable)
        return topic

    def topic_of_id(self, name: str, topic_id: str) -> TopicLog:
        """The incarnation with that id, even if it was deleted (rule R11)."""
        with self._lock:
            known = self._topics.get(name)
            if known is not None and known.topic_id == topic_id:
                return known
            created = self._created(name)
            if created is not None and created.opened.topic_id == topic_id:
                return self._topic_log(created.opened)
            gone = TopicOpened(topic_id, name, 1, "", TopicConfig())
            return TopicLog(self.store, gone, self.runtime, self.options)

    def _created(self, name: str, closed_id: str = "") -> TopicCreated | None:
        """None, or an incarnation that is known to be closed, only if that is certain: the entry of
        its successor may have been pruned (rule R15)."""
        created = self.journal.catch_up().topics.get(name)
        if created is None or created.opened.topic_id == closed_id:
            created = self.journal.catch_up(linearizable=True).topics.get(name)
        return created

    def _topic_log(self, opened: TopicOpened) -> TopicLog:
        known = self._topics.get(opened.name)
        if known is None or known.topic_id != opened.topic_id:
            known = self._new_topic_log(opened)
            self._topics[opened.name] = known
        return known

    def _new_topic_log(self, opened: TopicOpened) -> TopicLog:
        topic = TopicLog(self.store, opened, self.runtime, self.options)
        if self.carry is not None:
            topic.journal.carry = partial(self.carry, topic)
        return topic

    def create_topic(
        self, name: str, partition_count: int, schema: str, config: TopicConfig
    ) -> TopicLog:
        """Create a topic; `schema` is encoded. Raises InvalidName, InvalidConfig, TopicExists."""
        validate_topic_name(name)
        check_partition_count(name, partition_count)
        topic_id = self.runtime.entropy.token()[:16]
        opened = TopicOpened(topic_id, name, partition_count, schema, config)
        topic = self._new_topic_log(opened)
        peeked = self.fan_out.start(
            topic.journal.catch_up
        )  # In parallel with the entry that names it.
        self._execute(CreateTopic(opened, self.runtime.clock.wall_ms()))
        peeked()
        with self._lock:
            known = self._topics.get(name)
            if known is None or known.topic_id != topic_id:
                known = self._topics[name] = topic
        known.begin()
        return known

    def delete_topic(self, name: str) -> None:
        """Delete a topic. Raises UnknownTopic.

        Its journal is closed first, then its name is freed. A process that dies between the two
        leaves a topic that takes no records, and that any process can finish with
        `finish_deletion`; in the other order, writers that have it open would go on writing records
        that no reader can find.
        """
        topic = self._topic_of(name, linearizable=True)
        topic.execute(CloseTopic())
        with suppress(UnknownTopic):  # Another process has finished it.
            self.journal.execute(DeleteTopic(name, topic.topic_id))
        with self._lock:
            self._topics.pop(name, None)

    def finish_deletion(self, name: str) -> bool:
        """Free the name of a topic whose deletion was interrupted after its journal was closed.

        Returns whether there was such a name; any process may call it, any number of times.
        """
        created = self.journal.catch_up(linearizable=True).topics.get(name)
        if created is None:
            return False
        topic = self.topic_of_id(name, created.opened.topic_id)
        if not topic.catch_up(linearizable=True).closed:
            return False
        with suppress(UnknownTopic):  # Another process was faster.
            self.journal.execute(DeleteTopic(name, topic.topic_id))
        with self._lock:
            self._topics.pop(name, None)
        return True

    def _execute(self, command: CreateTopic | AllocateProducerIds) -> Any:
        """The first command of a log begins its journal: there is no topic before that."""
        if self.journal.next_slot == 0:
            self.journal.catch_up()
        if self.journal.next_slot == 0:
            require_nothing_led_to(self.store, self.layout.cluster(), f"{TOPICS}/")
        return self.journal.execute(command)

    # Producer ids.

    def producer_id(self) -> int:
        """A unique producer id; taken from this process's block, not its parent's."""
        with self._lock:
            if not self._pids or self._pids_taken_by != os.getpid():
                first: int = self._execute(AllocateProducerIds(PRODUCER_ID_BLOCK))
                self._pids = list(range(first + PRODUCER_ID_BLOCK - 1, first - 1, -1))
                self._pids_taken_by = os.getpid()
            return self._pids.pop()


def create_cluster(
    store: Store,
    runtime: Runtime,
    settings: LogSettings | None = None,
    require_place: Callable[[], object] = lambda: None,
) -> ClusterFile:
    """Create a log: probe the store, then write the cluster file. An existing log is unchanged.

    Raises StoreNotAtomic if the store fails the probe, CorruptData if a log's cluster file is gone,
    what `require_place` raises if there is no log, and what `read_cluster_file` raises.
    """
    fan_out = SerialFanOut() if is_near(store) else runtime.fan_out
    listed = begun(fan_out, partial(first_below, store, f"{CLUSTER_JOURNAL}/"))
    allowed = begun(fan_out, require_place)
    existing = read_cluster_file(store) or _created_meanwhile(store, listed())
    if existing is not None:
        return existing
    allowed()
    result: ProbeResult = probe(store, runtime)
    file = ClusterFile(
        FORMAT_VERSION,
        runtime.entropy.token(),
        runtime.clock.wall_ms(),
        settings or default_log_settings(store),
        json.dumps(result.as_json()),
    )
    data = seal(json.dumps(encode(file), separators=(",", ":")).encode())
    answer = store.create(CLUSTER_FILE, data)
    return decode_cluster_file(answer.data, store.url) if isinstance(answer, Exists) else file


def default_log_settings(store: Store) -> LogSettings:
    """The settings of a log that is created there: where a boundary check takes a round trip, it is
    trusted for a time, and there are more coordinators."""
    if is_near(store):
        return LogSettings()
    return LogSettings(
        transaction_state_log_num_partitions=FAR_COORDINATORS,
        boundary_trust_ms=BOUNDARY_TRUST_MS,
        boundary_grace_ms=BOUNDARY_GRACE_MS,
    )


def _created_meanwhile(store: Store, first: str) -> ClusterFile | None:
    """None if no other process has begun a log: no object of the cluster's journal was listed. The
    file comes first, and contains the number of coordinators: another number could lead a
    transactional id to another coordinator than before (I4)."""
    if not first:
        return None
    file = read_cluster_file(store)
    if file is None:
        path = f"{store.url}/{CLUSTER_FILE}"
        raise CorruptData(
            f"{path} is lost, and an object that only comes after it exists ({first}). Restore it "
            "from a backup.",
            path=path,
        )
    return file


def read_cluster_file(store: Store) -> ClusterFile | None:
    """The cluster file, or None if there is no log. Raises NotATxlog, CorruptData."""
    data = store.get(CLUSTER_FILE)
    return None if data is None else decode_cluster_file(data, store.url)


def _log_id_there(store: Store) -> str | None:
    try:
        file = read_cluster_file(store)
    except NotATxlog as error:
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

    `log_config` has log settings by their dotted names, for a log that is created: InvalidConfig if
    the log exists and has other settings; `require_place` raises if a log may not be created
    there. `cluster_file` was read by another process: then this one does not read it.
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
    """Raises InvalidConfig: the settings that a log was created with never change (rule R32)."""
    has, asked = settings.to_dotted(), settings.altered(wanted).to_dotted()
    for name in wanted:
        if asked[name] != has[name]:
            raise InvalidConfig(
                f"the log at {url} was created with {name}={has[name]}, which cannot be changed to "
                f"{asked[name]}. Leave it out, or create another log.",
                name=name,
            )
