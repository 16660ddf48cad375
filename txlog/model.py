"""The values that every layer shares: partitions, transactions, isolation, offsets.

Frozen values only: no I/O, no clock, no state. The docs' glossary explains their names.
"""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, NamedTuple, TypeAlias

from txlog.errors import InvalidName
from txlog.stored import stored_list

EPOCH_MAX = 32_766
"""The last usable producer epoch (Kafka's Short.MAX - 1); then the id gets a new pid."""


@dataclass(frozen=True, slots=True)
class Within:
    """Bounds of a whole number that is stored, both included."""

    low: int
    high: int


WALL_MS_MAX = 253_402_300_799_999
"""The last millisecond of the year 9999: no clock of a process that writes is later."""

WallMs: TypeAlias = Annotated[int, Within(-1, WALL_MS_MAX)]
"""A time from a process's clock, in milliseconds since 1970; -1: none. Records have other times."""

SegmentMs: TypeAlias = Annotated[int, Within(-1, (1 << 48) - 1)]
"""The time in a segment's name, which has 12 hexadecimal digits."""

OFFSET_MAX = (1 << 62) - 1
"""Half of the range of 64 bits, so that sums of stored values fit as well."""

Offset: TypeAlias = Annotated[int, Within(0, OFFSET_MAX)]
OffsetOrNone: TypeAlias = Annotated[int, Within(-1, OFFSET_MAX)]
Slot: TypeAlias = Annotated[int, Within(0, OFFSET_MAX)]
SlotOrNone: TypeAlias = Annotated[int, Within(-1, OFFSET_MAX)]
"""A journal's slot; -1: none."""

PARTITIONS_MAX = 10_000
"""Partitions of a topic. An event with more is refused: it could exhaust the memory (I16), as every
state of the topic, and every snapshot, has an item for each."""

Partition: TypeAlias = Annotated[int, Within(0, PARTITIONS_MAX - 1)]

TopicNumber: TypeAlias = Annotated[int, Within(0, (1 << 32) - 1)]
"""The first half of a topic's id, which has 8 hexadecimal digits."""

ProducerId: TypeAlias = Annotated[int, Within(0, OFFSET_MAX)]
ProducerIdOrNone: TypeAlias = Annotated[int, Within(-1, OFFSET_MAX)]
Epoch: TypeAlias = Annotated[int, Within(0, EPOCH_MAX + 1)]
EpochOrNone: TypeAlias = Annotated[int, Within(-1, EPOCH_MAX + 1)]
"""One above the last: markers fence the last epoch with it."""

Crc32: TypeAlias = Annotated[int, Within(0, (1 << 32) - 1)]
ByteCount: TypeAlias = Annotated[int, Within(0, OFFSET_MAX)]

COORDINATORS_MAX = 1_024
"""Coordinators of a log: each of them is a journal, and an audit reads all of them."""

CoordinatorNumber: TypeAlias = Annotated[int, Within(0, COORDINATORS_MAX - 1)]
CoordinatorNumberOrNone: TypeAlias = Annotated[int, Within(-1, COORDINATORS_MAX - 1)]
"""A coordinator, by its partition of the transaction log."""

NAME_LENGTH_MAX = 249
"""Kafka's limit on topic names; used for topics and groups of producers."""

ID_LENGTH_MAX = 512
"""Characters of a group id, a transactional id or a tag: every entry about it contains it."""

_TOPIC_ID = re.compile(r"[0-9a-f]{16}")
_SEGMENT_ID = re.compile(r"[0-9a-f]{1,32}")
_UNSEEN = re.compile(
    # Controls, separators of lines, half surrogate pairs, notes between lines.
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufff9-\ufffb"
    # Unicode's Default_Ignorable_Code_Point; the characters that change the direction are in it.
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Given as ranges, and not by Python's knowledge of Unicode, which differs between releases: what
one process stores as a column's name another one must read."""
_TOPIC = re.compile(r"[A-Za-z0-9._-]+")
_TX_ID = re.compile(r"[0-9]{1,19}-[0-9]{1,19}-[0-9]{1,19}")
"""Numbers of 64 bits have at most 19 digits; Python reads none of more than 4,300."""

_INTERNAL_PREFIX = "__"


class IsolationLevel(StrEnum):
    """What a reader sees of transactions (Kafka's `isolation.level`)."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


class Decision(StrEnum):
    """How a transaction ends; the value is also its marker's."""

    COMMIT = "COMMIT"
    ABORT = "ABORT"


class TransactionOutcome(StrEnum):
    """The result of `outcome()`."""

    COMMITTED = "COMMITTED"
    ABORTED = "ABORTED"
    OPEN = "OPEN"
    """It may still commit; it may be that nothing of it is written yet."""
    DEAD_LETTERED = "DEAD_LETTERED"
    """A half transaction that was never decided: its messages are in the dead-letter topic."""
    UNKNOWN_ID = "UNKNOWN_ID"
    """No coordinator has a record of it, or of how it ended. This never means aborted."""


@stored_list("tx_id", pid="producer_id", epoch="producer_epoch", number="number")
@dataclass(frozen=True, slots=True, order=True)
class TxId:
    """One transaction attempt, named once and never reused (as since KIP-890).

    Order is (pid, epoch, number): of one pid, a later transaction is greater.
    """

    pid: ProducerId
    epoch: Epoch
    number: Offset

    def __str__(self) -> str:
        return f"{self.pid}-{self.epoch}-{self.number}"

    @classmethod
    def parse(cls, text: str) -> TxId:
        """Read what `str()` printed. Raises InvalidName."""
        if not _TX_ID.fullmatch(text):
            raise InvalidName(
                f"{text!r:.80} is not a transaction id; it looks like 'pid-epoch-number', as in "
                "'7-0-12'. 'txlog txn list' prints them."
            )
        return cls(*map(int, text.split("-")))


class TopicPartition(NamedTuple):
    """A partition of a topic, by the topic's name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetAndMetadata(NamedTuple):
    """A committed position: the offset of the next record to read, and the user's note."""

    offset: int
    metadata: str = ""


class OffsetAndTimestamp(NamedTuple):
    """Result of `offsets_for_times`: the earliest record at or after the given time."""

    offset: int
    timestamp: int
    """Milliseconds since 1970, UTC."""


def as_whole_number(value: object) -> int | None:
    """The value as an int if it is a whole number, also of numpy; None for other types, and for
    truth values, which Python counts among its ints."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def has_unseen_characters(text: str) -> bool:
    """Whether the text has control characters, line separators or characters that change the
    direction of text, which a terminal would interpret, or characters that are not shown, such as
    U+200B, or is not valid Unicode."""
    return _UNSEEN.search(text) is not None


def validate_topic_name(name: object, *, internal: bool = False) -> str:
    """Refuse any topic name that is not a plain, safe file name. Raises InvalidName."""
    text = _plain_name("topic", name)
    if is_internal_topic(text) and not internal:
        raise InvalidName(
            f"topic name {text!r} starts with '__', which is reserved for internal topics; choose "
            "another name.",
            name=text,
        )
    return text


def is_internal_topic(name: str) -> bool:
    """Whether the name is reserved for the log's own topics."""
    return name.startswith(_INTERNAL_PREFIX)


def validate_topic_id(topic_id: object) -> str:
    """Refuse an invalid id of a topic, which becomes part of paths. Raises InvalidName."""
    if isinstance(topic_id, str) and _TOPIC_ID.fullmatch(topic_id):
        return topic_id
    raise InvalidName(f"{topic_id!r:.80} is not a topic's id; ids have 16 hexadecimal digits.")


def numbered_topic_id(number: int, token: str) -> str:
    """The id of the log's topic of that number, the first is 0. The last 8 digits are the token's:
    topics of two logs have different ids."""
    return f"{number:08x}{token[-8:]}"


def topic_number(topic_id: str) -> int:
    """The topic's number in its log: topics are numbered as they are created (rule R55). -1 for an
    id that no topic can have."""
    return int(topic_id[:8], 16) if _TOPIC_ID.fullmatch(topic_id) else -1


def validate_segment_id(segment_id: object) -> str:
    """Refuse a staging horizon that no clock can have chosen: names above it must be possible.

    Raises InvalidName.
    """
    is_id = isinstance(segment_id, str) and _SEGMENT_ID.fullmatch(segment_id)
    if is_id and int(is_id.group()[:12], 16) <= WALL_MS_MAX:
        return is_id.group()
    raise InvalidName(f"{segment_id!r:.80} is not a staging horizon that a clock can have chosen.")


def validate_group_id(name: object) -> str:
    """Refuse an empty, over-long or unprintable id of a consumer group. Raises InvalidName.

    It is never part of a path, so it may contain what Kafka's may: spaces, slashes, any script.
    """
    return _printable_name("group.id", name)


def validate_producer_group(name: object) -> str:
    """Refuse any group of producers that is not a plain name: the ids of its transactions begin
    with it (RocketMQ's rule). Raises InvalidName."""
    return _plain_name("producer group", name)


def validate_transactional_id(name: object) -> str:
    """Refuse an empty, over-long or unprintable transactional id. Raises InvalidName."""
    return _printable_name("transactional.id", name)


def validate_tag(name: object) -> str:
    """Refuse an empty, over-long or unprintable tag of a transaction. Raises InvalidName."""
    return _printable_name("a transaction's tag", name)


def _printable_name(kind: str, name: object) -> str:
    if not isinstance(name, str) or not name.strip():
        raise InvalidName(
            f"{kind} must be a string of 1 to {ID_LENGTH_MAX} characters; it is empty or not a "
            "string."
        )
    if len(name) > ID_LENGTH_MAX or not name.isprintable():
        raise InvalidName(
            f"{kind} {name[:40]!r} (length {len(name)}) must be at most "
            f"{ID_LENGTH_MAX} printable characters; choose a shorter, plain one."
        )
    return name


def _plain_name(kind: str, name: object) -> str:
    if not isinstance(name, str) or not name:
        raise InvalidName(
            f"a {kind} name must be a string; it is empty or not a string ({name!r})."
        )
    if len(name) > NAME_LENGTH_MAX:
        raise InvalidName(
            f"{kind} name {name[:40]!r}... has {len(name)} characters; the limit is "
            f"{NAME_LENGTH_MAX}.",
            name=name,
        )
    if name in (".", "..") or not _TOPIC.fullmatch(name):
        raise InvalidName(
            f"{kind} name {name!r} is not allowed: use letters, digits, '.', '_' and '-' only, "
            "and neither '.' nor '..' alone.",
            name=name,
        )
    return name
