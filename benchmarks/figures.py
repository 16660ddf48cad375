"""Figures, and their measurement: all sides in turn in one run, ratios as medians over rounds.

A figure of one side alone depends on the machine as much as on txlog. So every round measures every
side, one after the other, and a ratio is the median of the ratios within the rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median, quantiles
from typing import TypeAlias

Side: TypeAlias = Callable[[], float]
"""Does the work once, checks its result, and returns the measured seconds."""


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a figure: at least, or at most."""

    relation: str
    value: float

    def is_met(self, value: float) -> bool:
        """Whether that value meets the target."""
        return value >= self.value if self.relation == ">=" else value <= self.value

    def __str__(self) -> str:
        return f"{self.relation} {_short(self.value)}"


def at_least(value: float) -> Target:
    """More is better."""
    return Target(">=", value)


def at_most(value: float) -> Target:
    """Less is better."""
    return Target("<=", value)


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number."""

    name: str
    value: float
    unit: str
    target: Target | None = None
    spread: tuple[float, float] | None = None
    """First and third quartile."""

    @property
    def verdict(self) -> str:
        """met, NOT MET, or empty without a target."""
        if self.target is None:
            return ""
        return "met" if self.target.is_met(self.value) else "NOT MET"

    def to_json(self) -> dict[str, object]:
        """The figure as JSON, with its verdict."""
        return {**asdict(self), "verdict": self.verdict}

    def __str__(self) -> str:
        spread = ""
        if self.spread is not None:
            spread = f"[{_short(self.spread[0])} .. {_short(self.spread[1])}]"
        target = "" if self.target is None else str(self.target)
        number = f"{_short(self.value)} {self.unit}".strip()
        return f"  {self.name:58} {number:>18}  {spread:22} {target:>12}  {self.verdict}".rstrip()


def in_turn(sides: Mapping[str, Side], rounds: int, warm_up: int = 1) -> dict[str, list[float]]:
    """Seconds of every side, round by round; the first `warm_up` rounds do not count."""
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(warm_up + rounds):
        for name, side in sides.items():
            seconds = side()
            if number >= warm_up:
                taken[name].append(seconds)
    return taken


def rate(name: str, seconds: Sequence[float], count: int, target: Target | None = None) -> Figure:
    """Records a second, if each measurement is of `count` records."""
    values = [count / taken for taken in seconds]
    return Figure(name, median(values), "records/s", target, quartiles(values))


def latency(name: str, seconds: Iterable[float], target: Target | None = None) -> Figure:
    """Milliseconds, the median."""
    values = [1000 * taken for taken in seconds]
    return Figure(name, median(values), "ms", target, quartiles(values))


def p99(name: str, seconds: Iterable[float]) -> Figure:
    """The 99th percentile, in milliseconds."""
    return Figure(name, 1000 * quantiles(seconds, n=100, method="inclusive")[-1], "ms")


def ratio(
    name: str, above: Sequence[float], below: Sequence[float], target: Target | None = None
) -> Figure:
    """The median of the ratios of measurements of the same round."""
    values = [top / bottom for top, bottom in zip(above, below, strict=True)]
    return Figure(name, median(values), "x", target, quartiles(values))


def quartiles(values: Sequence[float]) -> tuple[float, float] | None:
    """The first and third quartile; None for a single value."""
    if len(values) < 2:
        return None
    first, _, third = quantiles(values, n=4, method="inclusive")
    return first, third


def timed(work: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def table(title: str, figures: Iterable[Figure]) -> Iterator[str]:
    """Lines of text."""
    yield title
    yield from map(str, figures)


def _short(value: float) -> str:
    if abs(value) >= 10_000:
        return f"{value:,.0f}"
    return f"{value:.4g}" if abs(value) < 100 else f"{value:.1f}"
