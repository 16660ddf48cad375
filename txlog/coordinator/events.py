"""Events and commands of a coordinator's journal: the transaction log.

A command is the event that its caller proposes, or has a class of its own where it says more than
that. Values only. What a command leads to is decided in `rules.py`; what an event means is in
`state.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias
from zlib import crc32

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


@stored(
    "participant",
    topic_id="topic_id",
    topic="topic",
    partitions="partitions",
    segments="segments",
)
@dataclass(frozen=True, slots=True)
class Participant:
    """A topic that takes part in a transaction; `segments` are its staged records."""

    topic_id: str
    topic: str
    partitions: tuple[Partition, ...] = ()
    """Partitions that it writes in the log; segments name those of staged records."""
    segments: tuple[Segment, ...] = ()

    def __post_init__(self) -> None:
        """Check name and id, which become part of paths, and that the segments are the topic's.
        Raises InvalidName, CorruptData."""
        validate_topic_name(self.topic, internal=True)
        validate_topic_id(self.topic_id)
        require_own_segments(self.topic, self.topic_id, self.segments)


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
    """Offsets [start, end) of a partition that a batch consumed."""

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
    """Which micro-batch a transaction is: the second replay test (rule R2)."""

    query_id: str
    batch_id: OffsetOrNone
    ranges: tuple[OffsetRange, ...] = ()
    fingerprint: str = ""
    """The fingerprint of the batch's plan, which Spark wrote before it ran."""
    label: str = ""
    """Distinguishes several writes of one `foreachBatch` (rule R30)."""

    @property
    def key(self) -> str:
        """The coordinator keeps the newest mark for each key."""
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
    """The producer group to ask about an undecided half transaction, and when (RocketMQ)."""

    group: str
    """Producer group: any of its live producers may be asked."""
    first_check_ms: Offset
    """Age of the transaction before the first check (`transactionTimeOut`)."""
    interval_ms: Offset
    """Time between two checks (`transactionCheckInterval`)."""
    checks_max: Offset
    """After this many checks it goes to the dead-letter topic (`transactionCheckMax`)."""


NO_CONTENT = 0
"""Of a decision that names nothing itself: any process may repeat it, as of a half transaction."""

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
    """A transactional id has a new epoch; its ongoing transactions are aborted by it (rule R5)."""

    transactional_id: str
    pid: ProducerId
    epoch: Epoch
    instance: str
    timeout_ms: Offset
    at_ms: WallMs
    concurrent: bool = False
    """It may have several transactions open (half messages, rule R7)."""
    is_run: bool = False
    """Its instance names a Spark run: once superseded, never let in again (rule R27)."""
    groups: tuple[str, ...] = ()
    """Consumer groups that it owns from here on (rule R12)."""
    may_skip: bool = False
    """It writes in a `foreachBatch`, which may leave batches out (rule R30)."""


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
    """BEGIN."""

    transactional_id: str
    tx_id: TxId
    at_ms: WallMs
    timeout_ms: Offset
    participants: tuple[Participant, ...] = ()
    tag: str = ""
    check_back: CheckBack | None = None
    """Of a half transaction: no timeout ends it."""


@stored(
    "participants_added",
    transactional_id="transactional_id",
    tx_id="tx_id",
    participants="participants",
    groups="groups",
)
@dataclass(frozen=True, slots=True)
class ParticipantsAdded:
    """More partitions take part, declared before their first record; or groups, before a pend."""

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
    """PREPARE_COMMIT: the decision. Staged records and groups may be named here for the first time:
    a staged transaction begins with it."""

    transactional_id: str
    tx_id: TxId
    at_ms: WallMs
    participants: tuple[Participant, ...] = ()
    groups: tuple[str, ...] = ()
    mark: ReplayMark | None = None
    tag: str = ""
    dead_letter: bool = False
    """These participants replace the earlier ones: what becomes visible is that a half transaction
    was given up."""

    @property
    def content(self) -> int:
        """A checksum of what it names, which its repeats share: the path of a segment is unique.
        Two processes that use one registration, after a copy of a running process or of its
        machine, give out the same transaction ids for different records (R35)."""
        named = [f"group {group}" for group in self.groups]
        for participant in self.participants:
            named.append(f"topic {participant.topic_id} {participant.partitions}")
            named += [segment.path for segment in participant.segments]
        return crc32("\n".join(named).encode()) if named else NO_CONTENT


@stored(
    "check_claimed",
    transactional_id="transactional_id",
    tx_id="tx_id",
    check="check",
    at_ms="at_ms",
)
@dataclass(frozen=True, slots=True)
class CheckClaimed:
    """A producer is asked about a half transaction now, for the `check`th time."""

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
    """PREPARE_ABORT: the other decision. `epoch` is the id's epoch from here on."""

    transactional_id: str
    tx_id: TxId
    at_ms: WallMs
    epoch: Epoch


@stored("transaction_barred", transactional_id="transactional_id", tx_id="tx_id", at_ms="at_ms")
@dataclass(frozen=True, slots=True)
class TransactionBarred:
    """ABORT of a transaction that is unknown here: it can no longer prepare (rule R3)."""

    transactional_id: str
    tx_id: TxId
    at_ms: WallMs


@stored("transaction_completed", transactional_id="transactional_id", tx_id="tx_id", at_ms="at_ms")
@dataclass(frozen=True, slots=True)
class TransactionCompleted:
    """COMMITTED, or ABORTED: every participant has applied the decision."""

    transactional_id: str
    tx_id: TxId
    at_ms: WallMs


@stored("staging_horizon_advanced", segment_id="segment_id")
@dataclass(frozen=True, slots=True)
class StagingHorizonAdvanced:
    """Staged segments with a smaller id can no longer be committed: vacuum may delete them."""

    segment_id: str

    def __post_init__(self) -> None:
        """Raises InvalidName."""
        validate_segment_id(self.segment_id)


@stored("group_released", group="group")
@dataclass(frozen=True, slots=True)
class GroupReleased:
    """A consumer group has no owner any more."""

    group: str


@stored("transactional_id_expired", transactional_id="transactional_id")
@dataclass(frozen=True, slots=True)
class TransactionalIdExpired:
    """A transactional id is forgotten (Kafka's Dead state); with a new registration it gets
    another producer id, so that nothing of its old one is ever decided again (rule R4)."""

    transactional_id: str


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
)

# Commands that are more, or less, than their event.


@dataclass(frozen=True, slots=True)
class InitProducer:
    """Register an instance of a transactional id. Answer: Registration."""

    transactional_id: str
    instance: str
    timeout_ms: int
    concurrent: bool = False
    is_run: bool = False
    groups: tuple[str, ...] = ()
    take_over: bool = False
    """Take groups from another owner."""
    succeeds: str = ""
    """Only if this is still the newest instance: one that gives itself a new epoch must not fence
    another one (KIP-360)."""
    may_skip: bool = False
    fresh_pid: int = -1
    """Used if the id is new, or its epochs are used up. The coordinator gives it, and the time."""
    now_ms: int = -1


@dataclass(frozen=True, slots=True)
class Registration:
    """What an instance may use: a new epoch, of which no transaction number is used yet."""

    pid: int
    epoch: int
    to_finish: tuple[TxId, ...] = ()
    """Aborted by this registration: their markers must be written before the next BEGIN."""


@dataclass(frozen=True, slots=True)
class ClaimCheck:
    """Claim a check of a half transaction, if it is due. Answer: whether this caller asks."""

    transactional_id: str
    tx_id: TxId
    now_ms: int


@dataclass(frozen=True, slots=True)
class PrepareAbort:
    """Decide ABORT. `fence`: bump the epoch too, as the owner did not ask for it itself."""

    transactional_id: str
    tx_id: TxId
    now_ms: int
    fence: bool = False
    undecided: bool = False
    """Its owner aborts, and has sent no PREPARE_COMMIT: so it did not commit."""


@dataclass(frozen=True, slots=True)
class ExpireTransactionalId:
    """Forget an id that was not used since `before_ms`. Answer: whether it was forgotten."""

    transactional_id: str
    before_ms: int


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
)
