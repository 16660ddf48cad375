"""Events and commands of a topic's journal, as values.

`rules.py` decides which events a command leads to; `state.py` applies them. Offsets, partitions and
sequences are as in Kafka, except that a marker takes no offset, so that a lag counts records.
`TopicOpened` is also the command that opens the journal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from txlog.errors import InvalidConfig
from txlog.model import (
    PARTITIONS_MAX,
    CoordinatorNumberOrNone,
    Decision,
    EpochOrNone,
    Offset,
    OffsetOrNone,
    Partition,
    ProducerId,
    ProducerIdOrNone,
    Slot,
    SlotOrNone,
    TxId,
    WallMs,
    as_whole_number,
    validate_segment_id,
    validate_topic_id,
    validate_topic_name,
)
from txlog.settings import TopicConfig
from txlog.stored import stored
from txlog.topic.batch_index import ChunkKey, ChunkRef
from txlog.topic.records.batch import Segment

NO_PRODUCER = -1
"""The pid of an append without de-duplication."""


def check_partition_count(topic: str, count: object) -> int:
    """The number of partitions as an int. Raises InvalidConfig for one that no topic can have."""
    number = as_whole_number(count)
    if number is None or not 1 <= number <= PARTITIONS_MAX:
        raise InvalidConfig(
            f"topic {topic!r} cannot have {count!r:.40} partitions; choose 1 to {PARTITIONS_MAX}."
        )
    return number


@stored(
    "cleaner_checkpoint",
    merged_slot="merged_slot",
    cleaned_slot="cleaned_slot",
    delete_horizon_ms="delete_horizon_ms",
)
@dataclass(frozen=True, slots=True)
class CleanerCheckpoint:
    """How far merging and compaction have processed a topic, in slots of its journal."""

    merged_slot: SlotOrNone = -1
    """No segment at or below it is worth merging."""
    cleaned_slot: SlotOrNone = -1
    """Of every key with a record at or below this slot, older records are deleted."""
    delete_horizon_ms: int = -1
    """When the first tombstones at or below `cleaned_slot` may be dropped; -1 without any."""


# Events.


@stored(
    "topic_opened",
    topic_id="topic_id",
    name="name",
    partition_count="partition_count",
    schema="schema",
    config="config",
)
@dataclass(frozen=True, slots=True)
class TopicOpened:
    """First event of the journal. As a command it opens the journal of a topic that the cluster has
    created, which any process may do."""

    topic_id: str
    name: str
    partition_count: int
    schema: str
    """The Arrow schema, as base64 text of its IPC message."""
    config: TopicConfig

    def __post_init__(self) -> None:
        """Check the name and the id, which become parts of paths. Raises InvalidName,
        InvalidConfig."""
        validate_topic_name(self.name, internal=True)
        validate_topic_id(self.topic_id)
        check_partition_count(self.name, self.partition_count)


@stored(
    "batches_appended",
    segments="segments",
    base_offsets="base_offsets",
    pid="producer_id",
    epoch="producer_epoch",
    tx_id="tx_id",
    base_sequences="base_sequences",
    at_ms="at_ms",
)
@dataclass(frozen=True, slots=True)
class BatchesAppended:
    """Records of one flush. Those of a partition are consecutive from its base offset."""

    segments: tuple[Segment, ...]
    base_offsets: Mapping[Partition, Offset]
    """partition -> offset of its first record in this event."""
    pid: ProducerIdOrNone = NO_PRODUCER
    epoch: EpochOrNone = -1
    tx_id: TxId | None = None
    base_sequences: Mapping[Partition, Offset] = field(default_factory=dict)
    """partition -> sequence of its first record in this event; empty without a producer."""
    at_ms: WallMs = -1
    """The time of the append, if records are in the entry; segments have a time in their names."""


@stored(
    "marker_written",
    tx_id="tx_id",
    decision="decision",
    floor="finished_floor",
    coordinator="coordinator",
    fence_epoch="fence_epoch",
    topic_ids="topic_ids",
    segments="segments",
    base_offsets="base_offsets",
)
@dataclass(frozen=True, slots=True)
class MarkerWritten:
    """The COMMIT or ABORT marker of one transaction."""

    tx_id: TxId
    decision: Decision
    floor: OffsetOrNone
    """Every transaction of this pid and epoch up to this number is finished (rule R7)."""
    coordinator: CoordinatorNumberOrNone
    """The coordinator that decided, by its partition of the transaction log."""
    fence_epoch: EpochOrNone = -1
    """Appends of this pid below this epoch are refused from this marker on."""
    topic_ids: tuple[str, ...] = ()
    """All topics that the transaction wrote to, if there are several (rule R13)."""
    segments: tuple[Segment, ...] = ()
    """Staged records that become visible with this marker."""
    base_offsets: Mapping[Partition, Offset] = field(default_factory=dict)
    """partition -> offset of its first staged record."""


@stored("partitions_added", partition_count="partition_count")
@dataclass(frozen=True, slots=True)
class PartitionsAdded:
    """The topic has this many partitions from now on."""

    partition_count: int

    def __post_init__(self) -> None:
        """Raises InvalidConfig."""
        check_partition_count("", self.partition_count)


@stored("schema_evolved", schema="schema")
@dataclass(frozen=True, slots=True)
class SchemaEvolved:
    """This schema gets the next schema id."""

    schema: str


@stored("config_altered", config="config")
@dataclass(frozen=True, slots=True)
class ConfigAltered:
    """The topic has this configuration from now on."""

    config: TopicConfig


@stored("horizon_advanced", segment_id="segment_id")
@dataclass(frozen=True, slots=True)
class HorizonAdvanced:
    """Segments with a smaller id are refused from now on (rule R17)."""

    segment_id: str

    def __post_init__(self) -> None:
        """Raises InvalidName."""
        validate_segment_id(self.segment_id)


@stored("log_start_advanced", log_starts="log_start_offsets")
@dataclass(frozen=True, slots=True)
class LogStartAdvanced:
    """Records below these offsets (by partition) are deleted."""

    log_starts: Mapping[Partition, Offset]


@stored("index_sealed")
@dataclass(frozen=True, slots=True)
class IndexSealed:
    """All decided batches move into the sealed index, where they can be rewritten."""


@stored("chunks_replaced", removed="removed", added="added")
@dataclass(frozen=True, slots=True)
class ChunksReplaced:
    """The same offsets are in other chunks and segments after merging or compaction."""

    removed: tuple[ChunkKey, ...]
    added: tuple[ChunkRef, ...]


@stored("records_moved", last_slot="last_slot", segments="segments")
@dataclass(frozen=True, slots=True)
class RecordsMoved:
    """All batches that were in entries up to a slot are in these segments (rule R65): each schema
    has one, whose batches are in the order of partitions and offsets."""

    last_slot: Slot
    segments: tuple[Segment, ...]


@stored("cleaner_advanced", checkpoint="checkpoint")
@dataclass(frozen=True, slots=True)
class CleanerAdvanced:
    """Progress of merging and compaction (Kafka's cleaner checkpoint)."""

    checkpoint: CleanerCheckpoint


@stored("producers_retired", pids="producer_ids")
@dataclass(frozen=True, slots=True)
class ProducersRetired:
    """The topic forgets these producer ids: their sequences and the order of their transactions."""

    pids: tuple[ProducerId, ...]


@stored("topic_closed")
@dataclass(frozen=True, slots=True)
class TopicClosed:
    """The topic was deleted. No event follows."""


TopicEvent: TypeAlias = (
    TopicOpened
    | BatchesAppended
    | MarkerWritten
    | PartitionsAdded
    | SchemaEvolved
    | ConfigAltered
    | HorizonAdvanced
    | LogStartAdvanced
    | IndexSealed
    | ChunksReplaced
    | RecordsMoved
    | CleanerAdvanced
    | ProducersRetired
    | TopicClosed
)

# Commands.


@dataclass(frozen=True, slots=True)
class AppendBatches:
    """Append records, in a transaction or without one. Answer: AppendResult."""

    segments: tuple[Segment, ...]
    pid: int = NO_PRODUCER
    epoch: int = -1
    tx_id: TxId | None = None
    base_sequences: Mapping[int, int] = field(default_factory=dict)
    at_ms: int = -1
    """The time of the append, which a topic with LogAppendTime gives its records."""


@dataclass(frozen=True, slots=True)
class AppendResult:
    """Where appended records are."""

    base_offsets: Mapping[int, int]
    """partition -> offset of its first record; -1 for a repeat whose offset is no longer known."""
    duplicates: frozenset[int] = frozenset()
    """Partitions whose records were stored before."""


@dataclass(frozen=True, slots=True)
class WriteMarker(MarkerWritten):
    """Finish a transaction in this topic; `base_offsets` is empty. Answer: partition -> offset of
    its first staged record, or None if it was finished before and its offsets were forgotten."""

    at_ms: int = -1
    """The marker's time, which a topic with LogAppendTime gives the staged records."""


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """Grow the topic to this many partitions."""

    partition_count: int


@dataclass(frozen=True, slots=True)
class EvolveSchema:
    """Make `schema` the newest. It was made from schema `expected_id`. Answer: its id."""

    schema: str
    expected_id: int


@dataclass(frozen=True, slots=True)
class AlterConfig:
    """Replace the configuration if it is still `expected`, from which the new one was made."""

    config: TopicConfig
    expected: TopicConfig


@dataclass(frozen=True, slots=True)
class AdvanceHorizon:
    """Refuse segments below this id from now on."""

    segment_id: str


@dataclass(frozen=True, slots=True)
class AdvanceLogStart:
    """Delete records below these offsets (by partition). Answer: the log starts afterwards."""

    log_starts: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class SealIndex:
    """Seal the decided batches, so that they can be rewritten."""


@dataclass(frozen=True, slots=True)
class ReplaceChunks:
    """Replace chunks by rewritten ones. `segment_ids` are the ids of the new segments."""

    removed: tuple[ChunkKey, ...]
    added: tuple[ChunkRef, ...]
    segment_ids: tuple[str, ...]
    key_column: str | None = None
    """The `key.column` of the compaction; None after merging."""


@dataclass(frozen=True, slots=True)
class AdvanceCleaner:
    """Record the progress of merging, or of a compaction by this `key.column` that began at the
    checkpoint `since`. Both are None after merging, which has only a `merged_slot`."""

    checkpoint: CleanerCheckpoint
    key_column: str | None = None
    since: CleanerCheckpoint | None = None


@dataclass(frozen=True, slots=True)
class RetireProducers:
    """Forget these producer ids for good. Answer: those that were retired."""

    pids: tuple[int, ...]
    silent_before_ms: int
    """Idempotent producers with an append after this time are kept."""


@dataclass(frozen=True, slots=True)
class CloseTopic:
    """End the journal: the topic was deleted."""


TopicCommand: TypeAlias = (
    TopicOpened
    | AppendBatches
    | WriteMarker
    | AddPartitions
    | EvolveSchema
    | AlterConfig
    | AdvanceHorizon
    | AdvanceLogStart
    | SealIndex
    | ReplaceChunks
    | RecordsMoved
    | AdvanceCleaner
    | RetireProducers
    | CloseTopic
)
