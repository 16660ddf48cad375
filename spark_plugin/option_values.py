"""Parsers of the values of Spark options. Pure; independent of the options' names.

An invalid value is refused before anything is read or written: each parser raises InvalidOption,
which names the option, the value and the valid values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias, TypeVar

from txlog.engine.as_of import Moment, parse_moment
from txlog.errors import InvalidOption, UsageError
from txlog.journal.codec import parsed
from txlog.model import TopicPartition, validate_group_id, validate_topic_name
from txlog.settings import LONG_MAX
from txlog.storage.root_url import absolute_root
from txlog.topic.read.time_lookup import AtTime

Parser: TypeAlias = Callable[[str, str], object]
"""(option's name, its text) -> value."""

ChoiceT = TypeVar("ChoiceT", bound=StrEnum)

# Any number of 18 digits fits into 64 bits, as offsets must.
_WHOLE = re.compile(r"[0-9]{1,18}")
_SIZE = re.compile(r"([0-9]{1,15})\s*([kmg]?)i?b?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}

_DURATION = re.compile(r"([0-9]{1,12})\s*(ms|s|m|min|h|d)?", re.IGNORECASE)
_DURATION_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}

_OFFSETS_JSON = '{"orders": {"0": 23, "1": -2}}'
_ASSIGNED_JSON = '{"orders": [0, 1]}'

EARLIEST_OFFSET = -2
LATEST_OFFSET = -1
"""Earliest and latest in the JSON of `startingOffsets`, as in Kafka's source."""


class TimestampStrategy(StrEnum):
    """What to do for a partition without a record of the starting time or later."""

    ERROR = "error"
    LATEST = "latest"


class OffsetPoint(StrEnum):
    """A position without a number."""

    EARLIEST = "earliest"
    LATEST = "latest"
    COMMITTED = "committed"
    """The group's committed offset; earliest in a partition without one."""


Position: TypeAlias = int | OffsetPoint | AtTime


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """Where partitions begin or end: one position for all of them, or one for each."""

    point: OffsetPoint | AtTime | None = None
    explicit: Mapping[TopicPartition, Position] = field(default_factory=dict)
    option: str = field(default="startingOffsets", compare=False)
    """The option that gives it, for errors."""

    def at(self, partition: TopicPartition) -> Position:
        """The start or end of that partition. Raises InvalidOption if the JSON lacks it."""
        if self.point is not None:
            return self.point
        found = self.explicit.get(partition)
        if found is None:
            raise InvalidOption(
                f"{self.option} names no offset for {partition}; name every partition of the "
                f"topics read{self.special}.",
                partition=str(partition),
            )
        return found

    @property
    def special(self) -> str:
        """What an error says about offsets with a meaning of their own, which times do not have."""
        is_by_time = any(isinstance(at, AtTime) for at in self.explicit.values())
        return "" if is_by_time else " (-2 for earliest, -1 for latest)"


ID_PART_LENGTH_MAX = 200
"""Characters of a label or an application's name: the longest transactional id that the sink makes
of them, spark.txn.<application>.<label>, is within ID_LENGTH_MAX (512)."""


def invalid(name: str, value: str, wanted: str) -> InvalidOption:
    """The error for a value that the option cannot take."""
    return InvalidOption(f"option {name!r} is {value!r}; it must be {wanted}.", option=name)


def text(name: str, value: str) -> str:
    """Any text but an empty one."""
    if not value.strip():
        raise invalid(name, value, "a string that is not empty")
    return value


def root(name: str, value: str) -> str:
    """A folder or a URL. A relative one begins at the driver's folder: executors have others."""
    return absolute_root(text(name, value))


def id_part(name: str, value: str) -> str:
    """A short, printable text, because the log stores it as a part of longer ids."""
    if len(value) > ID_PART_LENGTH_MAX or not value.isprintable():
        raise invalid(name, value, f"a string of at most {ID_PART_LENGTH_MAX} printable characters")
    return text(name, value)


def flag(name: str, value: str) -> bool:
    """true or false."""
    lowered = value.strip().lower()
    if lowered not in ("true", "false"):
        raise invalid(name, value, "true or false")
    return lowered == "true"


def count(name: str, value: str) -> int:
    """A whole number of at least 1."""
    if not _WHOLE.fullmatch(value.strip()) or int(value) < 1:
        raise invalid(name, value, "a whole number of at least 1")
    return int(value)


def version(name: str, value: str) -> int:
    """A whole number from 0 to 2**63 - 1, as a Spark batch id."""
    # The length comes first: int() raises ValueError for strings of some thousand digits.
    if not (value.isascii() and value.isdigit() and len(value) < 20 and int(value) < 1 << 63):
        raise invalid(
            name, value, "a whole number of at least 0, such as the batch id of foreachBatch"
        )
    return int(value)


def timestamp(name: str, value: str) -> OffsetSpec:
    """A time for all partitions, in milliseconds since 1970."""
    if not _WHOLE.fullmatch(value.strip()):
        raise invalid(name, value, "a time in milliseconds since 1970, such as 1700000000000")
    return OffsetSpec(AtTime(int(value)), option=name)


def moment(name: str, value: str) -> Moment:
    """A time, or a transaction."""
    try:
        return parse_moment(value)
    except UsageError as error:
        raise InvalidOption(f"option {name!r}: {error.message}", option=name) from error


def size_bytes(name: str, value: str) -> int:
    """A number of bytes, perhaps with a binary unit: 67108864, 64m, 64MiB."""
    match = _SIZE.fullmatch(value.strip())
    amount = int(match.group(1)) * _UNITS[match.group(2).lower()] if match else 0
    if amount < 1:
        raise invalid(name, value, "a number of bytes, such as 67108864 or 64m")
    return amount


def duration_ms(name: str, value: str) -> int:
    """A time with Spark's units, such as 30s or 15m, by default milliseconds."""
    match = _DURATION.fullmatch(value.strip())
    if match is None:
        raise invalid(name, value, "a time such as 500ms, 30s, 15m or 1h")
    return int(match.group(1)) * _DURATION_MS[(match.group(2) or "ms").lower()]


def choice(kind: type[ChoiceT]) -> Callable[[str, str], ChoiceT]:
    """Parser for the members of an enumeration."""

    def parse(name: str, value: str) -> ChoiceT:
        try:
            return kind(value.strip().lower())
        except ValueError as error:
            raise invalid(name, value, one_of(list(kind))) from error

    return parse


def word(*words: str) -> Parser:
    """Parser for one of a few words."""

    def parse(name: str, value: str) -> str:
        if value.strip().lower() not in words:
            raise invalid(name, value, one_of(words))
        return value.strip().lower()

    return parse


def one_of(words: list[Any] | tuple[str, ...]) -> str:
    """'a, b or c'."""
    *first, last = map(str, words)
    return f"{', '.join(first)} or {last}" if first else last


def names(name: str, value: str) -> tuple[str, ...]:
    """Names separated by commas, each once."""
    found = tuple(part.strip() for part in value.split(","))
    if not all(found):
        raise invalid(name, value, "names separated by commas, none of them empty")
    if len(set(found)) != len(found):
        raise invalid(name, value, "names separated by commas, each of them once")
    return found


def topic(name: str, value: str) -> str:
    """A topic's name. Raises InvalidName."""
    return validate_topic_name(text(name, value).strip())


def topics(name: str, value: str) -> tuple[str, ...]:
    """Topics' names, separated by commas. Raises InvalidName."""
    return tuple(validate_topic_name(found) for found in names(name, value))


def group(name: str, value: str) -> str:
    """A group's name. Raises InvalidName."""
    return validate_group_id(text(name, value).strip())


def pattern(name: str, value: str) -> str:
    """A regular expression that a topic's whole name must match."""
    try:
        return re.compile(text(name, value)).pattern
    except (re.error, OverflowError, RecursionError) as error:
        raise invalid(name, value, f"a regular expression ({error})") from error


def offsets(name: str, value: str) -> OffsetSpec:
    """earliest, latest, committed, or JSON such as {"orders": {"0": 23, "1": -2}}."""
    plain = value.strip()
    if not plain.startswith("{"):
        points = one_of([*OffsetPoint, f"JSON such as {_OFFSETS_JSON}"])
        try:
            return OffsetSpec(OffsetPoint(plain.lower()), option=name)
        except ValueError as error:
            raise invalid(name, value, points) from error
    return _by_partition(name, value, _offset)


def offsets_by_timestamp(name: str, value: str) -> OffsetSpec:
    """Times as JSON such as {"orders": {"0": 1700000000000}}, in milliseconds since 1970."""
    return _by_partition(name, value, _time)


def assignment(name: str, value: str) -> Mapping[str, tuple[int, ...]]:
    """Partitions as JSON such as {"orders": [0, 1]}."""
    found = {}
    for where, numbers in _object(name, value, _ASSIGNED_JSON).items():
        # Not isinstance: JSON's true is an int to Python.
        if not isinstance(numbers, list) or any(type(n) is not int or n < 0 for n in numbers):
            raise invalid(name, value, f"JSON such as {_ASSIGNED_JSON}")
        if not numbers or len({*numbers}) != len(numbers):
            raise invalid(name, value, "JSON that names at least one partition a topic, each once")
        found[topic(name, where)] = tuple(sorted(numbers))
    if not found:
        raise invalid(name, value, "JSON that names at least one partition")
    return found


def _by_partition(
    name: str, value: str, position: Callable[[str, str, object], Position]
) -> OffsetSpec:
    explicit = {
        TopicPartition(topic(name, where), _partition(name, number)): position(name, value, at)
        for where, numbered in _object(name, value, _OFFSETS_JSON).items()
        for number, at in _mapping(name, value, numbered, _OFFSETS_JSON).items()
    }
    if not explicit:
        raise invalid(name, value, "JSON that names at least one partition")
    return OffsetSpec(explicit=explicit, option=name)


def _object(name: str, value: str, example: str) -> dict[str, Any]:
    try:
        return _mapping(name, value, parsed(value), example)
    except (ValueError, RecursionError) as error:
        if isinstance(error, InvalidOption):
            raise
        raise invalid(name, value, f"JSON ({error})") from error


def _mapping(name: str, value: str, found: object, example: str) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise invalid(name, value, f"JSON such as {example}")
    return found


def _partition(name: str, number: str) -> int:
    if not _WHOLE.fullmatch(number):
        raise invalid(name, number, "JSON whose partitions are whole numbers in quotes")
    return int(number)


def _time(name: str, value: str, at: object) -> AtTime:
    if type(at) is not int or not 0 <= at <= LONG_MAX:
        raise invalid(name, value, "JSON with times of at least 0, in milliseconds since 1970")
    return AtTime(at)


def _offset(name: str, value: str, at: object) -> int | OffsetPoint:
    # Not isinstance: JSON's true is an int to Python.
    if type(at) is not int or at < EARLIEST_OFFSET:
        raise invalid(
            name, value, "JSON with offsets of at least 0, or -1 for latest, -2 for earliest"
        )
    return {EARLIEST_OFFSET: OffsetPoint.EARLIEST, LATEST_OFFSET: OffsetPoint.LATEST}.get(at, at)


def storage_value(name: str, value: str) -> object:
    """true, false and JSON objects are parsed; any other value remains a string."""
    if value.strip().lower() in ("true", "false"):
        return flag(name, value)
    # Numbers stay strings: a key such as 0123 would change.
    if value.lstrip().startswith("{"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError) as error:
            # The message does not contain the value, which may be a secret.
            raise InvalidOption(
                f"option {name!r} begins like JSON but is not valid; correct it.", option=name
            ) from error
    return value
