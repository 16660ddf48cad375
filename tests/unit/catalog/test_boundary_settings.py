"""Settings of a log: how long boundary checks are trusted and how long freed entries stay (R32)."""

import json

import pytest

from tests.protocol.world import SCHEMA
from tests.stores.faulty_stores import HookedStore
from txlog.catalog.cluster import open_cluster
from txlog.catalog.cluster_file import create_cluster
from txlog.engine.connection import open_connection
from txlog.errors import InvalidConfig
from txlog.journal.entry import checked_body
from txlog.layout import CLUSTER_FILE
from txlog.settings import LogSettings, TopicConfig
from txlog.storage import LocalStore, MemoryStore
from txlog.storage.policy.store_wrapper import ReadOnlyStore
from txlog.storage.store import is_near
from txlog.testing.clock import ManualClock, manual_runtime
from txlog.testing.counting_store import CountingStore
from txlog.topic.events import AdvanceHorizon
from txlog.topic.records.schema import encode_schema

HALF_A_DAY_MS, WEEK_MS = 43_200_000, 604_800_000


def far_store(clock: ManualClock | None = None) -> HookedStore:
    """A store that does not declare itself near, as buckets do not."""
    return HookedStore(MemoryStore(manual_runtime(clock=clock)))


def test_R32_trust_and_grace_are_written_to_the_cluster_file() -> None:
    store = far_store()
    create_cluster(store, manual_runtime())
    written = store.get(CLUSTER_FILE)
    assert written is not None
    settings = json.loads(checked_body(written, CLUSTER_FILE)[0])["settings"]
    assert settings["boundary.trust.ms"] == HALF_A_DAY_MS
    assert settings["boundary.grace.ms"] == WEEK_MS


@pytest.mark.parametrize(
    ("trust_ms", "grace_ms"),
    [(1, 1), (HALF_A_DAY_MS, 2 * HALF_A_DAY_MS - 1), (-1, 0), (1, 1 << 64)],
)
def test_R32_a_grace_of_less_than_twice_the_trust_is_refused(trust_ms: int, grace_ms: int) -> None:
    with pytest.raises(InvalidConfig, match="boundary"):
        LogSettings(boundary_trust_ms=trust_ms, boundary_grace_ms=grace_ms)
    store = far_store()
    asked = {"boundary.trust.ms": trust_ms, "boundary.grace.ms": grace_ms}
    with pytest.raises(InvalidConfig):
        open_cluster(store, manual_runtime(), create=True, log_config=asked)
    assert store.get(CLUSTER_FILE) is None


def test_R32_boundary_settings_of_a_log_cannot_be_changed() -> None:
    store, runtime = far_store(), manual_runtime()
    open_cluster(store, runtime, create=True, log_config={"boundary.trust.ms": 0})
    written = store.get(CLUSTER_FILE)
    for create in (True, False):
        same = {"boundary.trust.ms": "0"}
        assert open_cluster(store, runtime, create=create, log_config=same).options.trust_ms == 0
        with pytest.raises(InvalidConfig, match=r"created with boundary\.trust\.ms=0"):
            open_cluster(store, runtime, create=create, log_config={"boundary.trust.ms": 1000})
    assert store.get(CLUSTER_FILE) == written


def test_log_on_a_far_store_has_more_coordinators() -> None:
    """In one coordinator, two transactional ids would wait a round trip for each other."""
    near, far = create_cluster(MemoryStore(manual_runtime()), manual_runtime()), far_store()
    counts = [near.settings, create_cluster(far, manual_runtime()).settings]
    assert [found.transaction_state_log_num_partitions for found in counts] == [8, 32]


def test_R32_log_on_a_near_store_has_zero_trust_and_grace() -> None:
    store = MemoryStore(manual_runtime())
    options = open_cluster(store, manual_runtime(), create=True).options
    assert (options.trust_ms, options.grace_ms) == (0, 0)


def test_R32_pruning_obeys_the_cluster_files_grace_on_a_near_store() -> None:
    """A bucket's log is copied to a disk. This process trusts no clock there, but processes that
    open the copy by another URL may.
    """
    clock = ManualClock()
    store = far_store(clock)
    create_cluster(store, manual_runtime())
    near = open_connection(store.inner, manual_runtime(2, clock)).cluster
    assert near.options.trust_ms == 0
    topic = near.create_topic("t", 1, encode_schema(SCHEMA), TopicConfig())
    for count in range(5):
        topic.execute(AdvanceHorizon(f"{count:020d}"))
    assert topic.journal.prune(0) == 0
    assert topic.journal.kept_entries == topic.next_slot > 5
    clock.advance(WEEK_MS + 1)
    assert topic.journal.prune(0) == topic.next_slot


def test_wrapped_store_is_near_if_its_inner_store_is(tmp_path: object) -> None:
    local = LocalStore(str(tmp_path), manual_runtime())
    memory = MemoryStore(manual_runtime())
    for store in (local, memory):
        assert is_near(store)
        assert is_near(CountingStore(store))
        assert is_near(ReadOnlyStore(store))
    assert not is_near(CountingStore(far_store()))
    assert not is_near(ReadOnlyStore(far_store()))
