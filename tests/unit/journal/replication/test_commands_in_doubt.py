"""A command that may be durable is never reported as refused, whatever fails afterwards (R33)."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.stores.faulty_stores import HookedStore
from tests.unit.journal.shelf_journal import LAYOUT, OPTIONS, fill, new_store, process, written
from tests.unit.journal.shelf_machine import Put, Take
from txlog.errors import CorruptData, NotATxlog, OutcomeUnknown, StoreDenied, StoreUnavailable
from txlog.fan_out import SerialFanOut
from txlog.journal.log_presence import LogPresence
from txlog.storage import Store
from txlog.storage.store import ENTRY_BYTES_MAX
from txlog.testing.clock import manual_runtime


def refuse(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


def prune_past_slot_3(store: Store) -> None:
    other = process(store)
    fill(other, 20, "other")
    other.prune(keep_entries=2)


@pytest.mark.parametrize("error", [StoreDenied("no."), StoreUnavailable("no."), NotATxlog("no.")])
def test_R33_store_that_refuses_the_attempt_after_a_freed_slot_leaves_doubt(
    error: Exception,
) -> None:
    """The first entry may have counted before its slot was freed."""
    store = HookedStore(new_store())
    writer = process(store)
    fill(writer, 3)
    store.before("create", LAYOUT.entry(3), lambda: prune_past_slot_3(store.inner))
    store.before("create", LAYOUT.entry(23), refuse(error))
    with pytest.raises(OutcomeUnknown, match="may be durable"):
        writer.execute(Put("mine"))
    assert store.is_met


def test_I13_R33_refusal_in_a_repeat_that_needs_two_entries_leaves_doubt() -> None:
    """The first entry may have counted, and with it the command that is refused now."""
    store = HookedStore(new_store())
    writer = process(store)
    one, two = "x" * (ENTRY_BYTES_MAX // 2), "y" * (ENTRY_BYTES_MAX // 2)
    writer.execute_each([Put(one), Put("small")])

    def take_both_and_prune() -> None:
        process(store.inner).execute_each([Take(one), Take("small")])
        prune_past_slot_3(store.inner)

    store.before("create", LAYOUT.entry(1), take_both_and_prune)
    with pytest.raises(OutcomeUnknown, match="may be durable"):
        writer.execute_each([Put(two), Put(one), Take("small")])
    assert store.is_met
    assert process(store.inner).catch_up()[-2:] == (two, one)


def test_R33_journal_that_cannot_be_opened_after_a_lost_slot_leaves_doubt() -> None:
    """The winner's entry may fill a number that was freed after the own entry had counted."""
    store = HookedStore(new_store())
    writer = process(store)
    fill(writer, 3)
    own = store.delay_write(LAYOUT.entry(3))
    with pytest.raises(OutcomeUnknown):
        process(store).execute(Put("stalled"))

    def damage() -> None:
        prune_past_slot_3(store.inner)
        own.land()
        store.inner.delete(LAYOUT.hint)
        store.inner.replace(LAYOUT.snapshot(22), b"damaged")

    store.before("create", LAYOUT.entry(3), damage)
    with pytest.raises(OutcomeUnknown):
        writer.execute(Take("t0"))


@pytest.mark.parametrize("error", [StoreDenied("no."), CorruptData("no.")])
def test_I13_entry_created_beside_a_failed_check_of_the_log_leaves_doubt(error: Exception) -> None:
    """The check that the log still exists runs in parallel with the create."""
    store, runtime = HookedStore(new_store()), manual_runtime()
    presence = LogPresence("there", LAYOUT.log_id, refuse(error), runtime, 1_000)
    options = replace(OPTIONS, presence=presence, trust_ms=10**6, is_far=True)
    writer = process(store, options, replace(runtime, fan_out=SerialFanOut()))
    fill(writer, 3)
    store.before("create", LAYOUT.entry(3), lambda: None)
    runtime.clock.sleep_ms(2_000)
    with pytest.raises(OutcomeUnknown):
        writer.execute(Put("mine"))
    assert written(store, 3) == ["mine"]
