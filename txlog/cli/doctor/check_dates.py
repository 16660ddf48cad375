"""How far the store's dates differ from this machine's clock.

The log relies on both a little: pruned entries are deleted by the store's dates, and a process
trusts a boundary check for a time that its own clocks measure (rules R14, R15). The check writes
one small object and removes it.
"""

from __future__ import annotations

from txlog.cli.doctor.check import Check, failed_with, passed, warned
from txlog.clock import Runtime
from txlog.errors import TxlogError
from txlog.layout import PROBES
from txlog.storage.store import Store

DATES = "store's dates"
NEAR_MS = 60_000
"""A smaller difference is harmless; stores that check signatures refuse minutes anyway."""

_NO_DATES = "pruned entries stay for ever, unless the log is created with boundary.trust.ms=0"
_OFF = "set this machine's clock; if it is right, create logs there with boundary.trust.ms=0"


def date_check(store: Store, runtime: Runtime) -> Check:
    """Write, list and remove one object."""
    path = f"{PROBES}/{runtime.entropy.token()}/date"
    try:
        before_ms = runtime.clock.wall_ms()
        store.put_new(path, b"date")
        after_ms = runtime.clock.wall_ms()
        dated_ms = next((s.modified_ms for s in store.list_after(path) if s.path == path), 0)
        store.delete(path)
    except TxlogError as error:
        return failed_with(DATES, error)
    if not dated_ms:
        return warned(DATES, "listings have no dates", _NO_DATES)
    return said(off_ms(before_ms, after_ms, dated_ms))


def off_ms(before_ms: int, after_ms: int, dated_ms: int) -> int:
    """How far a date is from the time its object was written; negative if it is behind."""
    return dated_ms - min(max(dated_ms, before_ms), after_ms)


def said(off: int) -> Check:
    """The check for dates that differ by `off` ms."""
    if abs(off) <= NEAR_MS:
        return passed(DATES, f"within {NEAR_MS // 1000} s of this machine's clock")
    where = "ahead of" if off > 0 else "behind"
    return warned(DATES, f"{abs(off) / 3_600_000:.3g} hours {where} this machine's clock", _OFF)
