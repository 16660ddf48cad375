"""ISO 8601 durations, as Kafka's tools take them: P1D, PT12H, P1DT6H30M. Pure."""

from __future__ import annotations

import re

from txlog.errors import UsageError

_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+)S)?)?",
    re.ASCII,
)
_UNIT_MS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}
_DIGITS_MAX = 18


def duration_ms(text: str) -> int:
    """A duration of days or less, in milliseconds. Raises UsageError."""
    match = _DURATION.fullmatch(text)
    parts = {unit: found for unit, found in match.groupdict().items() if found} if match else {}
    if not parts or any(len(found) > _DIGITS_MAX for found in parts.values()):
        raise UsageError(
            f"{text!r:.60} is not a duration; write it as P1D, PT12H or P1DT6H30M (ISO 8601)."
        )
    return sum(int(found) * _UNIT_MS[unit] for unit, found in parts.items())
