"""The value of `--from` and `--until`: where reading begins. Pure.

Times are instants: without a zone they are UTC. It must not know a log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from txlog.client.consumer.cut_reader import AtOffset
from txlog.engine.times import DIGITS_MAX, milliseconds
from txlog.errors import UsageError
from txlog.topic.read.time_lookup import AtTime


@dataclass(frozen=True, slots=True)
class Edge:
    """The beginning of a partition, or its end."""

    is_end: bool


StartingPoint: TypeAlias = Edge | AtOffset | AtTime


def parse_starting_point(text: str, option: str = "--from") -> StartingPoint:
    """Read `earliest`, `latest`, an offset, or `@` and a time. Raises UsageError."""
    if text in ("earliest", "latest"):
        return Edge(text == "latest")
    # isdigit alone accepts digits such as ², which int() refuses.
    if text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX:
        return AtOffset(int(text))
    if text.startswith("@"):
        return AtTime(milliseconds(text[1:]))
    raise UsageError(
        f"{option} is {text!r:.60}; give earliest, latest, an offset, or @ and a time: "
        "@2013-01-31T12:00:00Z, or @1359633600000 in milliseconds since 1970."
    )
