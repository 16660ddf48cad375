"""A small log in memory, processes that share nothing but its store, and a reader of everything."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from tests.stores.faulty_stores import DyingStore
from txlog.catalog.cluster_file import ClusterFile, encode_cluster_file, first_entries
from txlog.clock import Runtime
from txlog.engine.connection import Connection, open_connection
from txlog.errors import UnstableOffsetCommit
from txlog.fan_out import SerialFanOut
from txlog.journal.entry import FORMAT_VERSION
from txlog.layout import CLUSTER_FILE, LogLayout
from txlog.model import IsolationLevel, TopicPartition
from txlog.settings import LogSettings, ProcessSettings, TopicConfig
from txlog.storage import MemoryStore, Store
from txlog.storage.store import ByteRange
from txlog.testing.clock import ManualClock, SeededEntropy, StillBackground
from txlog.topic.records.batch import Segment
from txlog.topic.records.schema import encode_schema, physical_schema
from txlog.topic.records.segment_reader import decode_batch
from txlog.topic.topic_log import TopicLog

SCHEMA = pa.schema([pa.field("v", pa.int64())])
SETTINGS = LogSettings(
    transaction_state_log_num_partitions=1,
    journal_snapshot_entries=4,
)
NAMES = LogLayout("10" * 16)
"""The names of the journals of a log with this id."""

PROCESS = ProcessSettings(boundary_probe_polls=1000, finish_attempts_max=4, publish_attempts_max=20)
"""A replica that polls a pruned journal may lag for long: no decision may depend on it (R15)."""


@dataclass
class Process:
    """One process: its connection, and a store that can fail its calls or kill it."""

    connection: Connection
    store: DyingStore

    def topic(self, name: str) -> TopicLog:
        """The topic of that name."""
        return self.connection.cluster.topic(name)

    def stage(self, name: str, values: Sequence[int], partition: int = 0) -> Segment:
        """Stage a segment with these records, which no reader sees yet."""
        topic = self.topic(name)
        topic.catch_up()
        return topic.stage({partition: [batch_of(values)]}, topic.state.newest_schema_id)


@dataclass
class World:
    """One store, one clock, any number of processes."""

    clock: ManualClock = field(default_factory=ManualClock)
    _seed: int = 0

    def __post_init__(self) -> None:
        self.store: Store = MemoryStore(runtime := self.runtime())
        file = ClusterFile(FORMAT_VERSION, NAMES.log_id, 0, SETTINGS, "{}")
        for path, data in first_entries(file, runtime).items():
            self.store.create(path, data)
        self.store.create(CLUSTER_FILE, encode_cluster_file(file))

    def runtime(self) -> Runtime:
        """The runtime of a process: all share the clock, each has its own tokens."""
        self._seed += 1
        return Runtime(self.clock, SeededEntropy(self._seed), SerialFanOut(), StillBackground())

    def process(self) -> Process:
        """A new process, which has read nothing yet."""
        store = DyingStore(self.store)
        return Process(open_connection(store, self.runtime(), process=PROCESS), store)

    def create_topics(self, *names: str, partitions: int = 1) -> None:
        """Create topics with one integer per record."""
        cluster = self.process().connection.cluster
        for name in names:
            cluster.create_topic(name, partitions, encode_schema(SCHEMA), TopicConfig())


def batch_of(values: Sequence[int]) -> pa.RecordBatch:
    """These records in stored form."""
    schema = physical_schema(SCHEMA)
    columns = [pa.array(values, pa.int64()), pa.array([0] * len(values), schema.field(1).type)]
    return pa.record_batch(columns, schema=schema)


def visible(
    process: Process,
    name: str,
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    partition: int = 0,
) -> dict[int, int]:
    """Offset -> record, for all records that a reader sees now."""
    topic = process.topic(name)
    state = topic.catch_up()
    is_committed = isolation is IsolationLevel.READ_COMMITTED
    end = state.last_stable_offset(partition) if is_committed else state.end_offset(partition)
    found: dict[int, int] = {}
    for row in topic.batches(state, partition, 0, end):
        if not (is_committed and row.aborted):
            data = topic.store.get_ranges(row.segment, [ByteRange(row.position, row.length)])
            assert data is not None
            batch = decode_batch(data[0], row, physical_schema(SCHEMA), object_name=row.segment)
            values = batch.column("v").to_pylist()
            found.update(zip(range(row.base_offset, row.next_offset), values, strict=True))
    return found


def committed(process: Process, group: str, name: str, partition: int = 0) -> int | None:
    """The group's position; None if it has none, or if a transaction is pending on it."""
    where = TopicPartition(name, partition)
    try:
        found = process.connection.offsets.resolve_and_fetch(group, [where])[where]
    except UnstableOffsetCommit:
        return None
    return None if found is None else found.offset
