"""The faults of a simulated world, each kind with its own probability.

The seed draws a profile. A probability is that of one request, unless said otherwise. `network.py`
carries the faults out.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, fields, replace


@dataclass(frozen=True, slots=True)
class Faults:
    """Probabilities from 0 to 1."""

    crash_before: float = 0.0
    """The process dies before its request is sent."""
    crash_midway: float = 0.0
    """Of a write: the process dies while the request is on its way, and it is carried out later."""
    crash_after: float = 0.0
    """The process dies after its request was carried out, and before the answer arrives."""
    lost_response: float = 0.0
    """The request is carried out, but the connection breaks before the answer."""
    lost_request: float = 0.0
    """The request is not carried out, and the client gets no answer until its timeout."""
    late_landing: float = 0.0
    """The client times out, and the request is carried out later, perhaps after the process
    died."""
    duplicate: float = 0.0
    """The request is carried out, and once more later."""
    replayed: float = 0.0
    """The request is carried out twice at once, and the client gets the second answer: 412."""
    conflict_409: float = 0.0
    """The request is refused with 409 and not carried out."""
    error_503: float = 0.0
    """The request is refused with 503 and not carried out."""
    error_500_after: float = 0.0
    """The request is carried out and answered with 500."""
    slow: float = 0.0
    """The request is a hundred times slower than usual, often slower than its timeout."""
    pause: float = 0.0
    """The whole process pauses for longer than every timeout, before or after the request."""
    partition: float = 0.0
    """For a while this process gets no answers; its requests may arrive or not."""
    disk_full: float = 0.0
    """Of a write: for a while every write fails with 507."""
    clock_jump: float = 0.0
    """The process's wall clock jumps, by seconds to a year, forward or back."""
    stale_list: float = 0.0
    """A listing lacks objects, or shows some that are gone."""
    partial_list: float = 0.0
    """Of a page that is not the first: it fails for a while."""
    denied: float = 0.0
    """For a while this process's credentials are refused with 403. Only in worlds of their own: a
    403 says for certain that the request was not carried out, so it would hide other mistakes."""
    clock_stop: float = 0.0
    """The process pauses, and all of its clocks with it, as on a frozen machine. Only in worlds
    whose logs allow for that, see LOST_MS_MAX."""


_OF_WORLDS_OF_THEIR_OWN = ("denied", "clock_stop")

LOST_MS_MAX = 5_000
"""Time that the clocks of one process lose at most, in total."""

NONE = Faults()

MILD = Faults(
    crash_before=0.002,
    crash_midway=0.004,
    crash_after=0.004,
    lost_response=0.01,
    lost_request=0.005,
    late_landing=0.005,
    duplicate=0.01,
    replayed=0.01,
    conflict_409=0.005,
    error_503=0.01,
    error_500_after=0.005,
    slow=0.01,
    pause=0.002,
    partition=0.002,
    disk_full=0.005,
    clock_jump=0.002,
    stale_list=0.1,
    partial_list=0.2,
)


def scaled(faults: Faults, factor: float) -> Faults:
    """The same faults with their probabilities times `factor`."""
    changes = {
        field.name: min(0.5, getattr(faults, field.name) * factor) for field in fields(faults)
    }
    return Faults(**changes)


def drawn(choices: random.Random) -> Faults:
    """A profile: none, a few of each kind, or many of some kinds only.

    A history with too many faults does no work, and one in which all kinds are likely hides what
    one kind alone would show.
    """
    kind = choices.random()
    if kind < 0.1:
        return NONE
    faults = scaled(MILD, 10 ** choices.uniform(-0.5, 0.7))
    if kind < 0.5:
        return faults
    names = [field.name for field in fields(Faults) if field.name not in _OF_WORLDS_OF_THEIR_OWN]
    kept = choices.sample(names, 4)
    some = {name: min(0.2, getattr(faults, name) * 6) for name in kept}
    return replace(NONE, **some)


def length_drawn(choices: random.Random) -> int:
    """How many times as long as usual a history is. A checkpoint that is restored from a backup,
    for example, proves nothing in a log that is almost empty."""
    chance = choices.random()
    return 10 if chance < 0.03 else 5 if chance < 0.1 else 1


def calmed(faults: Faults, length: int, choices: random.Random) -> Faults:
    """The same faults; fewer of them in some worlds and in most of the long ones, so that more work
    is done."""
    is_calm = choices.random() < (0.15 if length == 1 else 0.7)
    return scaled(faults, 0.25) if is_calm else faults
