"""Events and commands of a coordinator's journal, the transaction log. Values only.

A command is the event that its caller proposes; it has a class of its own only where its fields
differ from the event's. `rules.py` decides commands; `state.py` applies events.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from txlog.checksum import crc32_of
from txlog.layout import TRANSACTIONS, is_entry
from txlog.model import (
    Epoch,
    Offset,
    OffsetOrNone,
    Partition,
    ProducerId,
    TxId,
    WallMs,
    validate_segment_id,
    validate_topic_id,
    validate_topic_name,
)
from txlog.stored import stored, stored_list
from txlog.topic.machine import require_own_segments
from txlog.topic.records.batch import Segment


def _is_of_coordinator(path: str) -> bool:
    """Whether it is an entry of a coordinator; an inline segment has no path yet."""
    return not path or (path.startswith(f"{TRANSACTIONS}/") and is_entry(path))


@stored(
    "participant",
    topic_id="topic_id",
    topic="topic",
    partitions="partitions",
    segments="segments",
)
@dataclass(frozen=True, slots=True)
class Participant:
    """A topic that takes part in a transaction; `segments` are its staged records, of a large
    transaction a manifest of them."""

    topic_id: str
    topic: str
    partitions: tuple[Partition, ...] = ()
    """Partitions written in the log; staged records' partitions are in their segments."""
    segments: tuple[Segment, ...] = ()

    def __post_init__(self) -> None:
        """Raises InvalidName for a bad name or id, which become part of paths, and CorruptData for
        a segment of another topic."""
        validate_topic_name(self.topic, internal=True)
        validate_topic_id(self.topic_id)
        # An entry of a coordinator holds small records until they are in their topics.
        require_own_segments(
            self.topic, self.topic_id, self.segments, _is_of_coordinator, may_be_folded=True
        )


@stored_list(
    "offset_range",
    group="group",
    topic="topic",
    partition="partition",
    start="start",
    end="end",
)
@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets [start, end) of a partition that a micro-batch consumed."""

    group: str
    topic: str
    partition: Partition
    start: OffsetOrNone
    end: Offset


@stored(
    "replay_mark",
    query_id="query_id",
    batch_id="batch_id",
    ranges="ranges",
    fingerprint="fingerprint",
    label="label",
)
@dataclass(frozen=True, slots=True)
class ReplayMark:
    """The micro-batch that a transaction writes, for the second replay test (rule R2)."""

    query_id: str
    batch_id: OffsetOrNone
    ranges: tuple[OffsetRange, ...] = ()
    fingerprint: str = ""
    """The fingerprint of the batch's plan, which Spark wrote before the batch ran."""
    label: str = ""
    """Distinguishes the writes of one `foreachBatch` (rule R30)."""

    @property
    def key(self) -> str:
        """Query and label, for which the coordinator keeps the newest mark."""
        return f"{self.query_id}/{self.label}"


@stored(
    "check_back",
    group="producer_group",
    first_check_ms="first_check_ms",
    interval_ms="interval_ms",
    checks_max="checks_max",
)
@dataclass(frozen=True, slots=True)
class CheckBack:
    """Which producers check an undecided half transaction, and when (RocketMQ's check-back)."""

    group: str
    """The producer group, of which any live producer may check the transaction."""
    first_check_ms: Offset
    """Age of the transaction before the first check (`transactionTimeOut`)."""
    interval_ms: Offset
    """Time between two checks (`transactionCheckInterval`)."""
    checks_max: Offset
    """After this many checks it goes to the dead-letter topic (`transactionCheckMax`)."""


NO_CONTENT = 0
"""The content of a decision that names nothing itself, such as a half transaction's: any process
may repeat it."""

# Events.


@stored(
    "producer_initialised",
    transactional_id="transactional_id",
    pid="producer_id",
    epoch="producer_epoch",
    instance="instance",
    timeout_ms="timeout_ms",
    at_ms="at_ms",
    concurrent="concurrent",
    is_run="is_run",
    groups="groups",
    may_skip="may_skip",
)
@dataclass(frozen=True, slots=True)
class ProducerInitialised:
    """A transactional id has a new epoch, which aborts its ongoing transactions (rule R5)."""

    transactional_id: str
    pid: ProducerId
    epoch: Epoch
    instance: str
    timeout_ms: Offset
    at_ms: WallMs
    concurrent: bool = False
    """Whether it may have several transactions open (half messages, rule R7)."""
    is_run: bool = False
    """Whether the instance is a Spark run, which may not return once superseded (rule R27)."""
    groups: tuple[str, ...] = ()
    """Consumer groups that the id owns from here on (rule R12)."""
    may_skip: bool = False
    """Whether it writes in a `foreachBatch`, which may leave batches out (rule R30)."""


@stored(
    "transaction_begun",
    transactional_id="transactional_id",
    tx_id="tx_id",
    at_ms="at_ms",
    timeout_ms="timeout_ms",
    participants="participants",
    tag="tag",
    check_back="check_back",
)
@dataclass(frozen=True, slots=True)
class TransactionBegun:
    """BEGIN: a transaction is open."""

    transactional_id: str
    tx_id: TxId
    at_ms: WallMs
    timeout_ms: Offset
    participants: tuple[Participant, ...] = ()
    tag: str = ""
    check_back: CheckBack | None = None
    """Only of a half transaction, which is checked instead of timing out."""


@stored(
    "participants_added",
    transactional_id="transactional_id",
    tx_id="tx_id",
    participants="participants",
    groups="groups",
)
@dataclass(frozen=True, slots=True)
class ParticipantsAdded:
    """More partitions take part, before their first record; or groups, before their pend."""

    transactional_id: str
    tx_id: TxId
    participants: tuple[Participant, ...] = ()
    groups: tuple[str, ...] = ()


@stored(
    "commit_prepared",
    transactional_id="transactional_id",
    tx_id="tx_id",
    at_ms="at_ms",
    participants="participants",
    groups="groups",
    mark="mark",
    tag="tag",
    dead_letter="dead_letter",
)
@dataclass(frozen=True, slots=True)
class CommitPrepared:
    """PREPARE_COMMIT: the decision. A staged transaction begins with it, and names its records and
    groups here."""

    transactional_id: str
    tx_id: TxId
    at_ms: WallMs
    participants: tuple[Participant, ...] = ()
    groups: tuple[str, ...] = ()
    mark: ReplayMark | None = None
    tag: str = ""
    dead_letter: bool = False
    """Whether a half transaction is given up: its participants are replaced by these, which hold
    its dead letters."""

    @property
    def content(self) -> int:
        """A checksum of the groups and segments, equal in repeats of one commit. It detects two
        processes with one registration, after a copy of a running process or its machine: they use
        one transaction id for different records (R35)."""
        named = [f"group {group}" for group in self.groups]
        for participant in self.participants:
            named.append(f"topic {participant.topic_id} {participant.partitions}")
            named += [segment.content for segment in participant.segments]
        return crc32_of("\n".join(named).encode()) if named else NO_CONTENT


@stored(
    "check_claimed",
    transactional_id="transactional_id",
    tx_id="tx_id",
    check="check",
    at_ms="at_ms",
)
@dataclass(frozen=True, slots=True)
class CheckClaimed:
    """A producer checks a half transaction, for the `check`th time."""

    transactional_id: str
    tx_id: TxId
    check: Offset
    at_ms: WallMs


@stored(
    "abort_prepared",
    transactional_id="transactional_id",
    tx_id="tx_id",
    at_ms="at_ms",
    epoch="producer_epoch",
)
@dataclass(frozen=True, slots=True)
class AbortPrepared:
    """PREPARE_ABORT: the other decision. The id has `epoch` from here on."""

    transactional_id: str
    tx_id: TxId
    at_ms: WallMs
    epoch: Epoch


@stored("transaction_barred", transactional_id="transactional_id", tx_id="tx_id", at_ms="at_ms")
@dataclass(frozen=True, slots=True)
class TransactionBarred:
    """ABORT of a transaction that the coordinator does not know: it can no longer prepare (rule
    R3)."""

    transactional_id: str
    tx_id: TxId
    at_ms: WallMs


@stored("transaction_completed", transactional_id="transactional_id", tx_id="tx_id", at_ms="at_ms")
@dataclass(frozen=True, slots=True)
class TransactionCompleted:
    """COMMITTED or ABORTED: every participant has applied the decision."""

    transactional_id: str
    tx_id: TxId
    at_ms: WallMs


@stored("staging_horizon_advanced", segment_id="segment_id")
@dataclass(frozen=True, slots=True)
class StagingHorizonAdvanced:
    """Staged segments with a smaller id can no longer be committed, and vacuum may delete them."""

    segment_id: str

    def __post_init__(self) -> None:
        """Raises InvalidName."""
        validate_segment_id(self.segment_id)


@stored("group_released", group="group")
@dataclass(frozen=True, slots=True)
class GroupReleased:
    """A consumer group no longer has an owner."""

    group: str


@stored("transactional_id_expired", transactional_id="transactional_id")
@dataclass(frozen=True, slots=True)
class TransactionalIdExpired:
    """A transactional id is forgotten (Kafka's Dead state). A new registration gets another
    producer id, so that transactions of the old one are never decided again (rule R4)."""

    transactional_id: str


@stored("topic_deletion_begun", topic_ids="topic_ids")
@dataclass(frozen=True, slots=True)
class TopicDeletionBegun:
    """These topics are being deleted: no decision names them from here on (rule R40)."""

    topic_ids: tuple[str, ...]

    def __post_init__(self) -> None:
        """Raises InvalidName."""
        for topic_id in self.topic_ids:
            validate_topic_id(topic_id)


CoordinatorEvent: TypeAlias = (
    ProducerInitialised
    | TransactionBegun
    | ParticipantsAdded
    | CommitPrepared
    | CheckClaimed
    | AbortPrepared
    | TransactionBarred
    | TransactionCompleted
    | StagingHorizonAdvanced
    | GroupReleased
    | TransactionalIdExpired
    | TopicDeletionBegun
)

# Commands whose fields differ from their event's.


@dataclass(frozen=True, slots=True)
class InitProducer:
    """Register an instance of a transactional id. Result: Registration."""

    transactional_id: str
    instance: str
    timeout_ms: int
    concurrent: bool = False
    is_run: bool = False
    groups: tuple[str, ...] = ()
    take_over: bool = False
    """Whether to take the groups from another owner."""
    succeeds: str = ""
    """Register only if this instance is still the newest: an instance that renews its own epoch
    must not fence another one (KIP-360)."""
    may_skip: bool = False
    fresh_pid: int = -1
    """The producer id if the transactional id is new or its epochs are used up. `Coordinator` sets
    this and the time."""
    now_ms: int = -1


@dataclass(frozen=True, slots=True)
class Registration:
    """The producer id and the new epoch of an instance, with no transaction number used yet."""

    pid: int
    epoch: int
    to_finish: tuple[TxId, ...] = ()
    """Transactions that the registration aborted: their markers must be written before the next
    BEGIN."""


@dataclass(frozen=True, slots=True)
class ClaimCheck:
    """Claim a check of a half transaction, if it is due. Result: whether the caller makes it."""

    transactional_id: str
    tx_id: TxId
    now_ms: int


@dataclass(frozen=True, slots=True)
class PrepareAbort:
    """Decide ABORT. With `fence` the epoch is raised, too, because another process than the owner
    aborts."""

    transactional_id: str
    tx_id: TxId
    now_ms: int
    fence: bool = False
    undecided: bool = False
    """Whether the owner aborts before it has sent a PREPARE_COMMIT, so that it cannot have
    committed."""


@dataclass(frozen=True, slots=True)
class ExpireTransactionalId:
    """Forget an id that was not used after `before_ms`. Result: whether it was forgotten."""

    transactional_id: str
    before_ms: int


@dataclass(frozen=True, slots=True)
class NewestMark:
    """A condition of the decision in the same entry, and no event: under this key the coordinator
    keeps exactly this mark (rule R60). Raises CommitFailed."""

    key: str
    mark: ReplayMark | None


@dataclass(frozen=True, slots=True)
class TopicsPresent:
    """A condition of the pend or the decision in the same entry, and no event: none of these topics
    is deleted (rule R11). Raises CommitFailed."""

    topics: tuple[tuple[str, str], ...]
    """Name and id of each."""


@dataclass(frozen=True, slots=True)
class CommitTogether:
    """PREPARE_COMMIT with conditions and pends, all in one entry or none (rule R56). The decision
    is asked first: if it is made, this is a repeat, and the others do not count; if it is refused,
    that is the answer."""

    commit: CommitPrepared
    others: tuple[Any, ...]


CoordinatorCommand: TypeAlias = (
    InitProducer
    | TransactionBegun
    | ParticipantsAdded
    | CommitPrepared
    | ClaimCheck
    | PrepareAbort
    | TransactionCompleted
    | StagingHorizonAdvanced
    | GroupReleased
    | ExpireTransactionalId
    | TopicDeletionBegun
    | NewestMark
    | TopicsPresent
)
