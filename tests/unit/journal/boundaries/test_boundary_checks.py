"""When an answer about a slot is believed: R15 as a table, and as a property for any clocks."""

import copy
import pickle
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlog.clock import SystemClock, clock_that_counts_sleep
from txlog.errors import InternalError
from txlog.journal.boundaries.boundary import (
    Boundary,
    BoundaryCheck,
    ClockReading,
    Verdict,
    judge,
)

TRUST_MS = 1_000
ME, PARENT = 1, 2
SENT = ClockReading(50_000, 7_000.0)
BELIEVED, MOVED, UNCHECKED = Verdict.BELIEVED, Verdict.MOVED, Verdict.UNCHECKED


def boundary(lowest: int) -> Boundary:
    return Boundary(0, lowest, lowest, "token")


def arrived(wall_ms: float, boot_ms: float) -> ClockReading:
    """A reading of the clocks that much later than the one when the check was sent."""
    return ClockReading(int(SENT.wall_ms + wall_ms), SENT.boot_ms + boot_ms)


CHECK = BoundaryCheck(boundary(10), SENT, ME)


@pytest.mark.parametrize(
    ("wall_ms", "boot_ms", "verdict"),
    [
        (0, 0, BELIEVED),
        (999, 999.9, BELIEVED),
        (1_000, 500, UNCHECKED),
        (500, 1_000, UNCHECKED),
        (86_400_000, 5, UNCHECKED),
        (5, 86_400_000, UNCHECKED),
        (-1, 5, UNCHECKED),
        (5, -0.1, UNCHECKED),
    ],
    ids=[
        "at once",
        "just within",
        "too late by the wall clock",
        "too late by the boot clock",
        "the wall clock jumped ahead, or the boot clock stood still",
        "the wall clock was put back by as much",
        "the wall clock has gone back",
        "the boot clock has gone back",
    ],
)
def test_R15_check_is_trusted_only_while_both_clocks_are_within_the_trust(
    wall_ms: int, boot_ms: float, verdict: Verdict
) -> None:
    at = arrived(wall_ms, boot_ms)
    assert judge(10, at, CHECK, TRUST_MS, ME) is verdict
    assert judge(10, at, CHECK, TRUST_MS, ME, sent_after=True) is BELIEVED


@pytest.mark.parametrize(("slot", "verdict"), [(9, MOVED), (10, BELIEVED), (11, BELIEVED)])
@pytest.mark.parametrize("sent_after", [False, True])
def test_R15_slot_below_the_checked_boundary_is_never_believed(
    slot: int, verdict: Verdict, sent_after: bool
) -> None:
    assert judge(slot, SENT, CHECK, TRUST_MS, ME, sent_after=sent_after) is verdict


def test_R15_with_zero_trust_only_a_check_sent_after_the_answer_counts() -> None:
    assert judge(10, SENT, CHECK, 0, ME) is UNCHECKED
    assert judge(10, SENT, CHECK, 0, ME, sent_after=True) is BELIEVED


@pytest.mark.parametrize("sent_after", [False, True])
def test_R31_missing_check_or_check_of_another_process_proves_nothing(sent_after: bool) -> None:
    for check in (None, replace(CHECK, process=PARENT)):
        assert judge(10, SENT, check, TRUST_MS, ME, sent_after=sent_after) is UNCHECKED


@pytest.mark.parametrize("hand_over", [pickle.dumps, copy.copy, copy.deepcopy])
def test_R31_boundary_check_cannot_be_pickled_or_copied(hand_over: object) -> None:
    assert callable(hand_over)
    with pytest.raises(InternalError, match="R31"):
        hand_over(CHECK)


TIMES = st.integers(-(10**9), 10**9)


@given(
    slot=st.integers(0, 20),
    lowest=st.integers(0, 20),
    wall_ms=TIMES,
    boot_ms=TIMES,
    trust_ms=st.integers(0, 10**6),
    process=st.sampled_from((ME, PARENT)),
    sent_after=st.booleans(),
)
def test_R15_answer_is_believed_iff_slot_is_live_and_check_is_timely(
    slot: int,
    lowest: int,
    wall_ms: int,
    boot_ms: int,
    trust_ms: int,
    process: int,
    sent_after: bool,
) -> None:
    check = BoundaryCheck(boundary(lowest), SENT, ME)
    verdict = judge(
        slot, arrived(wall_ms, boot_ms), check, trust_ms, process, sent_after=sent_after
    )
    is_own, is_above = process == ME, lowest > slot
    is_timely = sent_after or all(0 <= passed < trust_ms for passed in (wall_ms, boot_ms))
    assert (verdict is MOVED) == (is_own and is_above)
    assert (verdict is BELIEVED) == (is_own and not is_above and is_timely)


@given(
    checked_ms=st.integers(0, 200),
    made_ms=st.integers(0, 200),
    deleted_after_ms=st.integers(0, 200),
    answered_ms=st.integers(0, 400),
    lost_ms=st.integers(0, 40),
    apart_ms=st.integers(-20, 20),
    trust_ms=st.integers(1, 80),
)
def test_R15_deleted_slot_is_not_believed_within_the_allowed_clock_drift(
    checked_ms: int,
    made_ms: int,
    deleted_after_ms: int,
    answered_ms: int,
    lost_ms: int,
    apart_ms: int,
    trust_ms: int,
) -> None:
    """The calculation behind trust and grace: a check, a boundary above the slot that the check
    does not show, and a deletion as early as the store's dates allow. The clocks drift as far as
    they may.
    """
    grace_ms = trust_ms + 40 + 20
    deleted_ms = made_ms + grace_ms + apart_ms + 1 + deleted_after_ms
    is_shown = made_ms < checked_ms
    check = BoundaryCheck(boundary(11 if is_shown else 0), SENT, ME)
    passed_ms = max(answered_ms - checked_ms - lost_ms, 0)
    at = arrived(passed_ms, passed_ms)
    if answered_ms >= max(checked_ms, deleted_ms):
        assert judge(10, at, check, trust_ms, ME) is not BELIEVED


@pytest.mark.parametrize(
    ("system", "counts_sleep"),
    [
        ({"CLOCK_MONOTONIC": 1, "CLOCK_BOOTTIME": 7}, 7),
        ({"CLOCK_MONOTONIC": 6}, 6),
        ({}, None),
    ],
    ids=["linux", "macos", "windows"],
)
def test_R15_boot_clock_is_the_systems_clock_that_counts_sleep(
    system: dict[str, int], counts_sleep: int | None
) -> None:
    """Linux's monotonic clock stands still meanwhile, so that a check would be trusted too long."""
    assert clock_that_counts_sleep(SimpleNamespace(**system)) == counts_sleep


def test_R15_system_clock_reads_the_boot_clock_that_it_is_given() -> None:
    """A clock that is far ahead of the monotonic one, as the boot clock is after a sleep."""
    ahead = SystemClock(time.CLOCK_REALTIME)
    assert ahead.boot_ms() > ahead.monotonic_ms() + TRUST_MS
    assert ahead.monotonic_ms() <= SystemClock(None).boot_ms() <= ahead.monotonic_ms()


def test_system_boot_clock_never_goes_back_or_behind_the_monotonic_clock() -> None:
    clock = SystemClock()
    first = clock.boot_ms()
    assert first <= clock.boot_ms()
    assert first >= clock.monotonic_ms() - 1_000
