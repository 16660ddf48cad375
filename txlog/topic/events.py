"""Events and commands of a topic's journal.

Values only. What a command leads to is decided in `topic_rules.py`; what an event means for the
state is in `topic_state.py`. Offsets, partitions and sequences are as in Kafka; markers take no
offset, so that a lag counts records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from txlog.errors import InvalidConfig
from txlog.model import (
    PARTITIONS_MAX,
    Decision,
    EpochOrNone,
    Offset,
    OffsetOrNone,
    Partition,
    ProducerId,
    ProducerIdOrNone,
    SlotOrNone,
    TxId,
    validate_segment_id,
    validate_topic_id,
    validate_topic_name,
)
from txlog.settings import TopicConfig
from txlog.stored import stored
from txlog.topic.index.index import ChunkKey, ChunkRef
from txlog.topic.records.batch import Segment

NO_PRODUCER = -1
"""The pid of an append without de-duplication."""


def check_partition_count(topic: str, count: int) -> None:
    """Refuse an impossible number. Raises InvalidConfig."""
    if type(count) is not int or not 1 <= count <= PARTITIONS_MAX:
        raise InvalidConfig(
            f"topic {topic!r} cannot have {count!r} partitions; choose 1 to {PARTITIONS_MAX}."
        )


@stored(
    "cleaner_checkpoint",
    merged_slot="merged_slot",
    cleaned_slot="cleaned_slot",
    delete_horizon_ms="delete_horizon_ms",
)
@dataclass(frozen=True, slots=True)
class CleanerCheckpoint:
    """How far merging and compaction have examined a topic, in slots of its journal."""

    merged_slot: SlotOrNone = -1
    """Nothing at or below it is worth merging."""
    cleaned_slot: SlotOrNone = -1
    """For every key with a record at or below it, older records are deleted."""
    delete_horizon_ms: int = -1
    """When the first tombstones at or below it may be dropped; -1 if there are none."""


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
    """First event of the journal."""

    topic_id: str
    name: str
    partition_count: int
    schema: str
    """The Arrow schema, as base64 text of its IPC message."""
    config: TopicConfig

    def __post_init__(self) -> None:
        """Check name and id, which become part of paths. Raises InvalidName, InvalidConfig."""
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
)
@dataclass(frozen=True, slots=True)
class BatchesAppended:
    """Records of one flush. Batches of a partition are consecutive from its base offset."""

    segments: tuple[Segment, ...]
    base_offsets: Mapping[Partition, Offset]
    """partition -> offset of its first record here."""
    pid: ProducerIdOrNone = NO_PRODUCER
    epoch: EpochOrNone = -1
    tx_id: TxId | None = None
    base_sequences: Mapping[Partition, Offset] = field(default_factory=dict)
    """partition -> sequence of its first record here; empty without a producer."""


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
    """COMMIT or ABORT of one transaction (attributes: control and transactional, as in Kafka)."""

    tx_id: TxId
    decision: Decision
    floor: OffsetOrNone
    """Every number of this pid and epoch up to here is finished (rule R7)."""
    coordinator: OffsetOrNone
    """Partition of the transaction log that decided: the coordinator to ask about it."""
    fence_epoch: EpochOrNone = -1
    """Appends of this pid below this epoch are refused from here on."""
    topic_ids: tuple[str, ...] = ()
    """Every topic that the transaction wrote to, if there are several (rule R13)."""
    segments: tuple[Segment, ...] = ()
    """Staged records that become visible with this marker."""
    base_offsets: Mapping[Partition, Offset] = field(default_factory=dict)


@stored("partitions_added", partition_count="partition_count")
@dataclass(frozen=True, slots=True)
class PartitionsAdded:
    """The topic has this many partitions from here on."""

    partition_count: int

    def __post_init__(self) -> None:
        """Raises InvalidConfig."""
        check_partition_count("", self.partition_count)


@stored("schema_evolved", schema="schema")
@dataclass(frozen=True, slots=True)
class SchemaEvolved:
    """The next schema id means this schema."""

    schema: str


@stored("config_altered", config="config")
@dataclass(frozen=True, slots=True)
class ConfigAltered:
    """The topic's configuration from here on."""

    config: TopicConfig


@stored("horizon_advanced", segment_id="segment_id")
@dataclass(frozen=True, slots=True)
class HorizonAdvanced:
    """Segments with a smaller id can no longer be appended (rule R17)."""

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
    """The decided batches so far move into the sealed index, where they can be rewritten."""


@stored("chunks_replaced", removed="removed", added="added")
@dataclass(frozen=True, slots=True)
class ChunksReplaced:
    """The same offsets are now in other chunks and segments: merged or compacted."""

    removed: tuple[ChunkKey, ...]
    added: tuple[ChunkRef, ...]


@stored("cleaner_advanced", checkpoint="checkpoint")
@dataclass(frozen=True, slots=True)
class CleanerAdvanced:
    """How far merging and compaction have come (Kafka's cleaner checkpoint)."""

    checkpoint: CleanerCheckpoint


@stored("producers_retired", pids="producer_ids")
@dataclass(frozen=True, slots=True)
class ProducersRetired:
    """These producer ids are never used again: their sequences and order are forgotten."""

    pids: tuple[ProducerId, ...]


@stored("topic_closed")
@dataclass(frozen=True, slots=True)
class TopicClosed:
    """The topic was deleted; nothing follows."""


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
    | CleanerAdvanced
    | ProducersRetired
    | TopicClosed
)

# Commands.


@dataclass(frozen=True, slots=True)
class AppendBatches:
    """Append records, inside a transaction or outside of any. Answer: AppendResult."""

    segments: tuple[Segment, ...]
    pid: int = NO_PRODUCER
    epoch: int = -1
    tx_id: TxId | None = None
    base_sequences: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AppendResult:
    """partition -> offset of the first record that was sent to it; -1 for a repeat whose offset
    is no longer known. `duplicates` are the partitions whose records were already stored."""

    base_offsets: Mapping[int, int]
    duplicates: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class WriteMarker:
    """Finish a transaction here. Answer: partition -> offset of its first staged record there, or
    None if it was finished before, and that is not known any more."""

    tx_id: TxId
    decision: Decision
    floor: int
    coordinator: int
    fence_epoch: int = -1
    topic_ids: tuple[str, ...] = ()
    segments: tuple[Segment, ...] = ()


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """Grow the topic to this many partitions."""

    partition_count: int


@dataclass(frozen=True, slots=True)
class EvolveSchema:
    """Make `schema` the newest. `expected_id` is the id it was derived from. Answer: its id."""

    schema: str
    expected_id: int


@dataclass(frozen=True, slots=True)
class AlterConfig:
    """Replace the configuration, if it still is `expected`, from which the new one was made."""

    config: TopicConfig
    expected: TopicConfig


@dataclass(frozen=True, slots=True)
class AdvanceHorizon:
    """Refuse segments below this id from here on."""

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
    """Replace chunks by rewritten ones. `segment_ids` are those of the new segments."""

    removed: tuple[ChunkKey, ...]
    added: tuple[ChunkRef, ...]
    segment_ids: tuple[str, ...]
    key_column: str | None = None
    """The key by which records were removed; None if none were."""


@dataclass(frozen=True, slots=True)
class AdvanceCleaner:
    """Record how far the topic was examined, with this `key.column`."""

    checkpoint: CleanerCheckpoint
    key_column: str


@dataclass(frozen=True, slots=True)
class RetireProducers:
    """Forget these producer ids for good. Answer: those that were retired."""

    pids: tuple[int, ...]
    silent_before_ms: int
    """Idempotent producers that have stored something since are kept."""


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
    | AdvanceCleaner
    | RetireProducers
    | CloseTopic
)
