"""The events that a command on a topic leads to. Pure; a rejection is the error that is raised.

Markers are idempotent by the order of their transactions (R6, R7). Records that arrive after their
transaction's marker are refused (R10), as are segments below the staging horizon (R17) and records
of producers that the topic has forgotten (R11). Keeps I7 (sequences), I8 (fencing by epoch) and I9
(a transaction's end touches only its own records).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import takewhile

from txlog.errors import (
    IllegalTransition,
    InternalError,
    InvalidConfig,
    InvalidProducerEpoch,
    InvalidRecord,
    InvariantViolated,
    OffsetOutOfRange,
    PublishContention,
    SegmentExpired,
    TransactionAborted,
    UnknownPartition,
    UnknownProducerId,
    UnknownTopic,
)
from txlog.journal.machine import Decided
from txlog.layout import is_entry, segment_id_of
from txlog.model import PARTITIONS_MAX, Decision, TxId
from txlog.settings import TopicConfig
from txlog.topic.events import (
    NO_PRODUCER,
    AddPartitions,
    AdvanceCleaner,
    AdvanceHorizon,
    AdvanceLogStart,
    AlterConfig,
    AppendBatches,
    AppendResult,
    BatchesAppended,
    ChunksReplaced,
    CleanerAdvanced,
    CleanerCheckpoint,
    CloseTopic,
    ConfigAltered,
    EvolveSchema,
    HorizonAdvanced,
    IndexSealed,
    LogStartAdvanced,
    MarkerWritten,
    PartitionsAdded,
    ProducersRetired,
    RecordsMoved,
    ReplaceChunks,
    RetireProducers,
    SchemaEvolved,
    SealIndex,
    TopicClosed,
    TopicCommand,
    TopicEvent,
    TopicOpened,
    WriteMarker,
)
from txlog.topic.producer_state import NEW_PRODUCER, ProducerStateEntry, holds, repeated_offset
from txlog.topic.records.batch import InlineSegment, Segment
from txlog.topic.state import TopicState, rows_to_move


def decide(state: TopicState, command: TopicCommand) -> Decided:
    """The events of `command`. Raises the rejection."""
    # A closed topic takes markers, too: if it refused one, a transaction that wrote to it could
    # never end.
    match command:
        case TopicOpened():
            return Decided() if state.topic_id else Decided((command,))
        case CloseTopic():
            return Decided() if state.closed else Decided((TopicClosed(),))
        case WriteMarker():
            return _decide_marker(state, command)
    _require_open(state)
    match command:
        case AppendBatches():
            return _decide_append(state, command)
        case AddPartitions():
            return _decide_partitions(state, command)
        case EvolveSchema():
            return _decide_schema(state, command)
        case AlterConfig():
            return _decide_config(state, command)
        case AdvanceHorizon():
            if command.segment_id <= state.horizon:
                return Decided()
            return Decided((HorizonAdvanced(command.segment_id),))
        case AdvanceLogStart():
            return _decide_log_start(state, command)
        case SealIndex():
            return Decided((IndexSealed(),) if state.unsealed else ())
        case ReplaceChunks():
            return _decide_chunks(state, command)
        case RecordsMoved():
            return _decide_moved(state, command)
        case AdvanceCleaner():
            return _decide_cleaner(state, command)
        case RetireProducers():
            return _decide_retired(state, command)


def _require_open(state: TopicState) -> None:
    if not state.topic_id:
        raise InternalError("the topic's journal was never opened. Please report this.")
    if state.closed:
        raise UnknownTopic(
            f"topic {state.name!r} was deleted while it was in use; create it again, or stop "
            "writing to it.",
            topic=state.name,
            topic_id=state.topic_id,
        )


def _decide_append(state: TopicState, command: AppendBatches) -> Decided:
    _check_segments(state, command.segments)
    row_counts = _row_counts(command.segments)
    if command.pid == NO_PRODUCER:
        base_offsets = {p: state.partitions[p].next_offset for p in row_counts}
        event = BatchesAppended(_timed(state, command.segments, command.at_ms), base_offsets)
        # Without sequences a topic cannot recognise a repeat: a retry would store the records twice
        # (I7).
        return Decided((event,), AppendResult(base_offsets), once=True)
    producer = state.producers.get(command.pid, NEW_PRODUCER)
    _check_producer(state, producer, command)
    return _decide_sequenced(state, producer, command, row_counts)


def _require_above_horizon(state: TopicState, segment_id: str) -> None:
    """Raises SegmentExpired: below the horizon an unreferenced segment may be deleted (R17)."""
    if segment_id < state.horizon:
        raise SegmentExpired(
            f"segment {segment_id} is older than the staging horizon of topic {state.name!r} and "
            "may have been collected; write the records again under a new name.",
            segment_id=segment_id,
        )


def _check_segments(state: TopicState, segments: Iterable[Segment]) -> None:
    for segment in segments:
        if not isinstance(segment, InlineSegment):
            _require_above_horizon(state, segment_id_of(segment.path))
        check_segment(state, segment)


def check_segment(state: TopicState, segment: Segment) -> None:
    """Check that the topic has the segment's schema and partitions, and that an entry may name
    it."""
    # Another journal's entry may be pruned: what it holds goes into this one's (R65).
    if is_entry(segment.path):
        raise InternalError(f"{segment.path} is named, and is no segment. Please report this.")
    if not 0 <= segment.schema_id < len(state.schemas):
        raise InternalError(
            f"{segment.path} names schema {segment.schema_id}, which topic {state.name!r} "
            "does not have. Please report this."
        )
    for batch in segment.batches:
        if not 0 <= batch.partition < len(state.partitions):
            raise InvalidRecord(
                f"topic {state.name!r} has partitions 0 to {len(state.partitions) - 1}, not "
                f"{batch.partition}; choose one of them or add partitions.",
                partition=batch.partition,
            )


def _row_counts(segments: Iterable[Segment]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for segment in segments:
        for batch in segment.batches:
            counts[batch.partition] = counts.get(batch.partition, 0) + batch.row_count
    return counts


def _check_producer(
    state: TopicState, producer: ProducerStateEntry, command: AppendBatches
) -> None:
    """Fencing by epoch (I8), and the order of a producer's transactions (R10)."""
    # First of all, because a retired producer has no entry: it would be taken for a new one (R11).
    if holds(state.retired, command.pid):
        raise UnknownProducerId(
            f"topic {state.name!r} has forgotten producer {command.pid}, which was silent for too "
            "long: its stored sequences are no longer known, and sends that were not acknowledged "
            "may or may not be stored. Close this producer and open a new one.",
            pid=command.pid,
        )
    if command.epoch < producer.epoch:
        raise InvalidProducerEpoch(
            f"topic {state.name!r} has seen epoch {producer.epoch} of producer {command.pid}; this "
            f"one has {command.epoch}: a newer instance has taken over. Close this producer.",
            pid=command.pid,
            epoch=command.epoch,
        )
    tx_id, opened = command.tx_id, producer.open
    if tx_id is None:
        if opened is not None:
            raise IllegalTransition(
                f"producer {command.pid} has an open transaction in topic {state.name!r} and may "
                "not append outside of it; finish the transaction first."
            )
        return
    # These records would stay open for ever: their marker is written already (R10).
    if producer.is_finished(tx_id):
        raise TransactionAborted(
            f"transaction {tx_id} is finished in topic {state.name!r} (its marker is written); it "
            "was aborted, perhaps by its timeout. Abort it here, then begin again.",
            tx_id=str(tx_id),
        )
    if opened is not None and not producer.has_open(tx_id):
        raise InternalError(
            f"producer {command.pid} has transaction {opened.number} open in topic "
            f"{state.name!r} and sends records of {tx_id.number} (rule R10). Please report this."
        )


def _decide_sequenced(
    state: TopicState,
    producer: ProducerStateEntry,
    command: AppendBatches,
    row_counts: dict[int, int],
) -> Decided:
    answer: dict[int, int] = {}
    repeated: set[int] = set()
    # By partition, as an earlier flush may have stored the records of one and not of another.
    for partition, row_count in row_counts.items():
        known = repeated_offset(
            f"topic {state.name!r} partition {partition}, producer {command.pid}",
            command.base_sequences[partition],
            row_count,
            producer.last_sequence(partition, command.epoch),
            producer.recent.get(partition, ()),
        )
        if known is None:
            answer[partition] = state.partitions[partition].next_offset
        else:
            answer[partition] = known
            repeated.add(partition)
    fresh = {p: offset for p, offset in answer.items() if p not in repeated}
    result = AppendResult(answer, frozenset(repeated))
    if not fresh:
        return Decided((), result)
    is_inline = any(isinstance(segment, InlineSegment) for segment in command.segments)
    event = BatchesAppended(
        segments=_timed(state, _without(command.segments, repeated), command.at_ms),
        base_offsets=fresh,
        pid=command.pid,
        epoch=command.epoch,
        tx_id=command.tx_id,
        base_sequences={p: command.base_sequences[p] for p in fresh},
        at_ms=command.at_ms if is_inline else -1,
    )
    return Decided((event,), result)


def _without(segments: tuple[Segment, ...], partitions: set[int]) -> tuple[Segment, ...]:
    """The segments without the batches of those partitions."""
    if not partitions:
        return segments
    kept = []
    for segment in segments:
        batches = tuple(b for b in segment.batches if b.partition not in partitions)
        if batches:
            kept.append(replace(segment, batches=batches))
    return tuple(kept)


def _decide_marker(state: TopicState, command: WriteMarker) -> Decided:
    """Decide a marker. It is idempotent by the order of transactions (R6, R7).

    A deleted topic needs no marker, as it has no readers. A retired producer's transactions were
    complete before it retired. Neither ever changes, and no other refusal of a decision exists
    (R46).
    """
    if state.closed or holds(state.retired, command.tx_id.pid):
        return Decided(settled=True)
    producer = state.producers.get(command.tx_id.pid, NEW_PRODUCER)
    if producer.is_finished(command.tx_id):
        # A finished transaction stays finished, so no read of the tip is needed.
        return Decided((), _staged_offsets(state, command.tx_id), settled=True)
    # The staged segments of an abort stay unreferenced, for the vacuum. Those of a commit are not
    # compared with the horizon: PREPARE_COMMIT protects them, and a refusal here would commit only
    # a part of the transaction (R46).
    segments = command.segments if command.decision is Decision.COMMIT else ()
    for segment in segments:  # An old state may lack the schema: the caller catches up and retries.
        check_segment(state, segment)
    base_offsets = {p: state.partitions[p].next_offset for p in _row_counts(segments)}
    event = MarkerWritten(
        tx_id=command.tx_id,
        decision=command.decision,
        floor=command.floor,
        coordinator=command.coordinator,
        fence_epoch=command.fence_epoch,
        topic_ids=command.topic_ids,
        segments=_timed(state, segments, command.at_ms),
        base_offsets=base_offsets,
    )
    return Decided((event,), base_offsets)


def _timed(state: TopicState, segments: tuple[Segment, ...], at_ms: int) -> tuple[Segment, ...]:
    """The segments as the event names them: with LogAppendTime the index has the time of the
    append, which readers give each record of a batch with one time (`topic/read/reader.py`)."""
    if at_ms < 0 or not state.config.is_append_time:
        return segments
    times = {"timestamp_min_ms": at_ms, "timestamp_max_ms": at_ms}
    return tuple(
        replace(segment, batches=tuple(replace(batch, **times) for batch in segment.batches))
        for segment in segments
    )


def _staged_offsets(state: TopicState, tx_id: TxId) -> dict[int, int] | None:
    """partition -> offset of the first record that the transaction's marker appended, whichever
    process wrote it. None if that is no longer known."""
    decision = state.decision_of(tx_id)
    if decision is None:
        return None
    found: dict[int, int] = {}
    # Only the tail, as a machine reads no chunks.
    for row in takewhile(lambda row: row.slot == decision.slot, state.tail_since(decision.slot)):
        if row.tx_id == tx_id:
            found.setdefault(row.partition, row.base_offset)
    return found or None


def _decide_log_start(state: TopicState, command: AdvanceLogStart) -> Decided:
    """Refuse to delete anything at or above the last stable offset (I12)."""
    risen: dict[int, int] = {}
    for partition, offset in command.log_starts.items():
        if not 0 <= partition < len(state.partitions):
            raise UnknownPartition(
                f"topic {state.name!r} has partitions 0 to {len(state.partitions) - 1}, not "
                f"{partition}.",
                topic=state.name,
                partition=partition,
            )
        stable = state.last_stable_offset(partition)
        if offset > stable:
            raise OffsetOutOfRange(
                f"records of topic {state.name!r} partition {partition} can be deleted up to "
                f"offset {stable}, where the first open transaction begins or the log ends, not "
                f"up to {offset}.",
                topic=state.name,
                partition=partition,
                offset=offset,
                last_stable_offset=stable,
            )
        if offset > state.partitions[partition].log_start:
            risen[partition] = offset
    known = {p: state.partitions[p].log_start for p in command.log_starts}
    return Decided((LogStartAdvanced(risen),) if risen else (), {**known, **risen})


def _decide_chunks(state: TopicState, command: ReplaceChunks) -> Decided:
    """Rewritten chunks may replace only the chunks from which they were made."""
    if command.key_column is not None:
        _require_key_column(state, command.key_column)
    # No entry refers to the new objects yet: if the rewriting took too long, vacuum may have
    # deleted them (R17).
    for name in (*command.segment_ids, *(ref.name for ref in command.added)):
        _require_above_horizon(state, name)
    if state.sealed.find(command.removed) is None:
        raise PublishContention(
            f"the index of topic {state.name!r} was changed by another process meanwhile; read it "
            "again."
        )
    return Decided((ChunksReplaced(command.removed, command.added),))


def _decide_moved(state: TopicState, command: RecordsMoved) -> Decided:
    """Move batches from entries to segments, if all of them are still there."""
    for segment in command.segments:
        _require_above_horizon(state, segment_id_of(segment.path))
    try:
        rows = rows_to_move(state, command)
    except InvariantViolated:  # Another process was first, or retention was.
        raise PublishContention(
            f"the records of topic {state.name!r} were moved or deleted by another process "
            "meanwhile; read it again."
        ) from None
    return Decided((command,) if rows else ())


def _decide_cleaner(state: TopicState, command: AdvanceCleaner) -> Decided:
    """Add this progress to that of other processes, which never goes back."""
    if command.key_column is not None:
        _require_key_column(state, command.key_column)
    known, reached = state.cleaner, command.checkpoint
    advanced = CleanerCheckpoint(
        merged_slot=max(known.merged_slot, reached.merged_slot),
        cleaned_slot=max(known.cleaned_slot, reached.cleaned_slot),
        delete_horizon_ms=_delete_horizon_ms(known, command),
    )
    return Decided((CleanerAdvanced(advanced),) if advanced != known else ())


def _delete_horizon_ms(known: CleanerCheckpoint, command: AdvanceCleaner) -> int:
    """When the first tombstones may be dropped. Only a compaction that has met all of them may say
    later, or never: not one during which another compaction has found some."""
    found_ms, since = command.checkpoint.delete_horizon_ms, command.since
    if command.key_column is None:
        return known.delete_horizon_ms
    if since is not None and replace(since, merged_slot=known.merged_slot) == known:
        return found_ms
    # Too early a time costs a pass, which corrects it; too late a time keeps tombstones.
    return min((ms for ms in (known.delete_horizon_ms, found_ms) if ms >= 0), default=-1)


def _require_key_column(state: TopicState, key_column: str) -> None:
    """Raises PublishContention unless compaction has used the topic's current key."""
    if key_column != state.config.key_column:
        raise PublishContention(
            f"the key.column of topic {state.name!r} was changed from {key_column!r} to "
            f"{state.config.key_column!r} meanwhile; compact it again."
        )


def _decide_config(state: TopicState, command: AlterConfig) -> Decided:
    """Refuse to overwrite another admin's concurrent change."""
    # A topic that has the new configuration already has stored this command, or an equal one.
    if state.config not in (command.expected, command.config):
        raise PublishContention(
            f"the configuration of topic {state.name!r} was changed by another admin meanwhile; "
            "read it again."
        )
    return Decided(tuple(_configured(state, command.config)))


def _configured(state: TopicState, config: TopicConfig) -> Iterator[TopicEvent]:
    """The change, and with a new key the cleaner's start from the beginning: nothing has been
    compacted by that key yet."""
    if config != state.config:
        yield ConfigAltered(config)
    cleaner = CleanerCheckpoint(merged_slot=state.cleaner.merged_slot)
    if config.key_column != state.config.key_column and cleaner != state.cleaner:
        yield CleanerAdvanced(cleaner)


def _decide_retired(state: TopicState, command: RetireProducers) -> Decided:
    """Keep producers that have an open transaction, or were active meanwhile (rule R11)."""
    idle = []
    for pid in sorted(set(command.pids)):
        known = state.producers.get(pid)
        if known is None or known.open is not None:
            continue
        # The caller has asked all coordinators about a transactional id, and so its age does not
        # matter. An idempotent producer may have stored records since the caller read the topic.
        if known.is_transactional or known.stored_ms < command.silent_before_ms:
            idle.append(pid)
    pids = tuple(idle)
    return Decided((ProducersRetired(pids),) if pids else (), pids)


def _decide_partitions(state: TopicState, command: AddPartitions) -> Decided:
    count = len(state.partitions)
    if command.partition_count == count:
        return Decided()
    if not count < command.partition_count <= PARTITIONS_MAX:
        raise InvalidConfig(
            f"topic {state.name!r} has {count} partitions and cannot have "
            f"{command.partition_count}: the number only grows, to at most {PARTITIONS_MAX}."
        )
    return Decided((PartitionsAdded(command.partition_count),))


def _decide_schema(state: TopicState, command: EvolveSchema) -> Decided:
    if command.schema == state.schemas[state.newest_schema_id]:
        return Decided((), state.newest_schema_id)
    if command.expected_id != state.newest_schema_id:
        raise PublishContention(
            f"the schema of topic {state.name!r} was changed by another process meanwhile; try "
            "again."
        )
    return Decided((SchemaEvolved(command.schema),), len(state.schemas))
