"""`txlog doctor` reports how far a store's dates are from the machine's clock (R14, R15)."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.stores.faulty_stores import HookedStore
from txlog.cli.doctor.check import Status
from txlog.cli.doctor.check_store import date_check, off_ms
from txlog.errors import StoreDenied
from txlog.storage import MemoryStore
from txlog.storage.store import StoredObject
from txlog.testing.clock import ManualClock, manual_runtime

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("ahead_ms", "status", "found"),
    [
        (0, Status.OK, "within 60 s"),
        (-60_000, Status.OK, "within 60 s"),
        (60_001, Status.WARN, "0.0167 hours ahead of"),
        (-DAY_MS, Status.WARN, "24 hours behind"),
    ],
)
def test_store_dates_more_than_60_s_off_give_a_warning(
    ahead_ms: int, status: Status, found: str
) -> None:
    dated_by = ManualClock(10.0 * DAY_MS + ahead_ms)
    store = MemoryStore(manual_runtime(clock=dated_by))
    check = date_check(store, manual_runtime(clock=ManualClock(10.0 * DAY_MS)))
    assert check.status is status
    assert found in check.found
    assert not list(store.list_after("")), "the probe object is deleted"


class UndatedStore(HookedStore):
    """A store whose listings have no dates."""

    def list_after(self, prefix: str, after: str = "") -> Iterator[StoredObject]:
        return (replace(stored, modified_ms=0) for stored in self.inner.list_after(prefix, after))


def test_R32_store_without_dates_warns_that_pruned_entries_remain() -> None:
    check = date_check(UndatedStore(MemoryStore(manual_runtime())), manual_runtime())
    assert check.status is Status.WARN
    assert "pruned entries stay for ever" in check.fix


def test_store_that_denies_listing_fails_with_the_fix() -> None:
    def refuse() -> None:
        raise StoreDenied("it may not be listed. Allow it.")

    store = HookedStore(MemoryStore(manual_runtime()))
    runtime = manual_runtime()
    path = f"probes/{manual_runtime().entropy.token()}/date"
    store.before("list", path, refuse)
    check = date_check(store, runtime)
    assert (check.status, check.fix) == (Status.FAIL, "Allow it.")


@pytest.mark.parametrize(
    ("dated_ms", "off"), [(99, -1), (100, 0), (150, 0), (200, 0), (201, 1)], ids=str
)
def test_date_within_the_duration_of_the_write_counts_as_exact(dated_ms: int, off: int) -> None:
    assert off_ms(100, 200, dated_ms) == off
