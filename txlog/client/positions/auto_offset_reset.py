"""`auto.offset.reset`: where to begin without a position, or if it was deleted. Values only.

KIP-1106 added `by_duration:PT1H`: the first record that is at most that old.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from txlog.client.positions.listed_offsets import offset_for_time
from txlog.errors import InvalidConfig, UsageError
from txlog.model import IsolationLevel
from txlog.topic.read.reader import visible_end
from txlog.topic.topic_log import TopicLog

BY_DURATION = "by_duration"
_WORDS = ("earliest", "latest", "none")

_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+)S)?)?",
    re.ASCII,  # Otherwise \d matches the digits of every script.
)
_UNIT_MS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}
_DIGITS_MAX = 18


@dataclass(frozen=True, slots=True)
class AutoOffsetReset:
    """Kafka's AutoOffsetResetStrategy."""

    kind: str
    """earliest, latest, none or by_duration."""
    duration_ms: int = 0
    """Only for by_duration."""

    @classmethod
    def parse(cls, text: str) -> AutoOffsetReset:
        """Read the value of `auto.offset.reset`. Raises InvalidConfig."""
        if text in _WORDS:
            return cls(text)
        kind, colon, duration = text.partition(":")
        if kind == BY_DURATION and colon:
            try:
                return cls(kind, duration_ms(duration))
            except UsageError as error:
                raise InvalidConfig(
                    f"auto.offset.reset is {text!r:.80}: {error.message}"
                ) from error
        raise InvalidConfig(
            f"auto.offset.reset is {text!r:.80}; it must be one of {', '.join(_WORDS)} and "
            f"{BY_DURATION}:PnDTnHnMnS."
        )

    def offset(
        self, topic: TopicLog, partition: int, isolation: IsolationLevel, now_ms: int
    ) -> int:
        """Where to begin in a topic that is caught up; the end if no record is young enough."""
        state = topic.state
        if self.kind == "earliest":
            return state.partitions[partition].log_start
        if self.kind == BY_DURATION:
            found = offset_for_time(topic, partition, now_ms - self.duration_ms, isolation)
            if found is not None:
                return found.offset
        return visible_end(state, partition, isolation)


EARLIEST = AutoOffsetReset("earliest")


def duration_ms(text: str) -> int:
    """An ISO 8601 duration of days or less, as Kafka's tools take it. Raises UsageError."""
    match = _DURATION.fullmatch(text)
    parts = {unit: found for unit, found in match.groupdict().items() if found} if match else {}
    if not parts or any(len(found) > _DIGITS_MAX for found in parts.values()):
        raise UsageError(
            f"{text!r:.60} is not a duration; write it as P1D, PT12H or P1DT6H30M (ISO 8601)."
        )
    return sum(int(found) * _UNIT_MS[unit] for unit, found in parts.items())
