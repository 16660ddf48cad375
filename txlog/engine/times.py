"""Times as users write them. Pure. They are instants: without a zone they are UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from txlog.errors import UsageError
from txlog.settings import LONG_MAX

_FRACTION = re.compile(r"(?:(?<=:\d\d:\d\d)|(?<=\D\d{6}))[.,](\d+)", re.ASCII)
"""After the seconds: Python reads 12.5, half past twelve in ISO 8601, as 12:00:00.5."""

DIGITS_MAX = 19
"""No offset and no time has more, and Python refuses to read numbers of thousands."""


def milliseconds(text: str) -> int:
    """A time as milliseconds since 1970: ISO 8601, or that number. Raises UsageError."""
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) <= DIGITS_MAX:
        count = int(text)
        if abs(count) > LONG_MAX:
            raise UsageError(f"the time {text} is beyond the range of times, 64 bits.")
        return count
    try:
        time, _ = time_with_fraction(text)
    except ValueError as error:
        raise UsageError(
            f"{text!r:.60} is not a time; write it as 2013-01-31T12:00:00Z (ISO 8601; UTC if no "
            "zone is named), or in milliseconds since 1970."
        ) from error
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


def time_with_fraction(text: str) -> tuple[datetime, str]:
    """A time in ISO 8601, and the digits of its fraction of a second, of which Python drops those
    after the sixth. Raises ValueError."""
    # Between date and time Python takes any character, a digit, too.
    if len(text) > len("2013-01-31") and not re.search("[Tt ]", text):
        raise ValueError("between date and time stands T")
    found = _FRACTION.search(text)
    fraction = found[1] if found else ""
    time = datetime.fromisoformat(text)
    zone = time.utcoffset() or timedelta()
    if time.microsecond != int(fraction[:6].ljust(6, "0")) or zone.microseconds:
        raise ValueError("only seconds may have a fraction")
    return time, fraction


_AGE = re.compile(r"([0-9]{1,9})(ms|s|m|h|d|w)", re.ASCII)
_UNIT_MS = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}


def short_duration_ms(text: str) -> int | None:
    """A duration such as 90s, 15m, 1h or 2d in milliseconds; None for another text."""
    found = _AGE.fullmatch(text)
    return None if found is None else int(found[1]) * _UNIT_MS[found[2]]


def past_moment_ms(text: str, now_ms: int) -> int:
    """A time, or how long before `now_ms` it was: 1h, 2013-01-31T12:00:00Z or milliseconds since
    1970. Raises UsageError, also for a time after `now_ms`."""
    age_ms = short_duration_ms(text)
    try:
        moment_ms = milliseconds(text) if age_ms is None else max(now_ms - age_ms, 0)
    except UsageError as error:
        raise UsageError(
            f"{text!r:.60} is not a time in the past; write an age such as 90s, 15m, 1h or 2d, or "
            "a time as 2013-01-31T12:00:00Z (ISO 8601; UTC if no zone is named)."
        ) from error
    if not 0 <= moment_ms <= now_ms:
        raise UsageError(f"{text!r:.60} is not between 1970 and now; write an age such as 1h.")
    return moment_ms
