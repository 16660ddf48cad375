"""What an open log passes to its journals from its file, its store and its process."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pytest

from tests.stores.faulty_stores import HookedStore
from tests.unit.held_fan_out import HeldFanOut
from txlog.catalog.cluster import Cluster, open_cluster
from txlog.catalog.cluster_file import ClusterFile, create_cluster
from txlog.clock import Runtime
from txlog.errors import InvalidConfig, NotATxlog
from txlog.fan_out import SerialFanOut
from txlog.journal.entry import decode_entry, seal
from txlog.layout import CLUSTER_FILE, CLUSTER_JOURNAL
from txlog.settings import LogSettings, ProcessSettings, TopicConfig
from txlog.storage import MemoryStore, Store
from txlog.testing.clock import ManualClock, SeededEntropy, manual_runtime
from txlog.testing.counting_store import CountingStore
from txlog.testing.round_trips import RoundTrips
from txlog.topic.topic_log import TopicLog

T = TypeVar("T")

SETTINGS = LogSettings(journal_snapshot_entries=5, boundary_trust_ms=1_000, boundary_grace_ms=7_000)
PROCESS = ProcessSettings(log_presence_interval_ms=300, publish_attempts_max=21)


def near_store(clock: ManualClock | None = None) -> MemoryStore:
    return MemoryStore(manual_runtime(clock=clock))


def far_store(clock: ManualClock | None = None) -> HookedStore:
    """A store that does not declare itself near, as buckets do not."""
    return HookedStore(near_store(clock))


def created(store: Store, settings: LogSettings = SETTINGS, seed: int = 0) -> ClusterFile:
    return create_cluster(store, manual_runtime(seed), settings)


def opened(store: Store, runtime: Runtime | None = None) -> Cluster:
    return open_cluster(store, runtime or manual_runtime(1), PROCESS, writer="host/7")


def require_no_presence_check(cluster: Cluster) -> None:
    """Check that a journal's request does not trigger a read of the cluster file."""
    asked: list[str] = []
    store = cluster.store
    assert isinstance(store, HookedStore)
    store.before("get", CLUSTER_FILE, lambda: asked.append(CLUSTER_FILE))
    cluster.options.presence.check_during(lambda: None)
    assert not asked
    assert not store.is_met


# Near and far.


@pytest.mark.parametrize("store", [near_store(), far_store()], ids=["near", "far"])
def test_journal_options_combine_cluster_file_and_process_settings(store: Store) -> None:
    file = created(store)
    options = opened(store).options
    assert options.snapshot_entries == 5
    assert options.process == PROCESS
    assert options.writer == "host/7"
    assert options.log_id == file.log_id
    assert options.grace_ms == 7_000


def test_R15_boundary_check_is_not_trusted_on_a_near_store() -> None:
    near, far = near_store(), far_store()
    for store in (near, far):
        created(store)
    assert opened(near).options.trust_ms == 0
    assert opened(far).options.trust_ms == 1_000


def test_entries_are_read_serially_without_threads_only_on_a_near_store() -> None:
    near, far = near_store(), far_store()
    runtime = Runtime(ManualClock(), SeededEntropy(1), HeldFanOut())
    for store in (near, far):
        created(store)
    close, away = opened(near, runtime), opened(far, runtime)
    assert (close.options.is_far, away.options.is_far) == (False, True)
    assert (close.is_far, away.is_far) == (False, True)
    assert type(close.request_fan_out) is SerialFanOut
    assert away.request_fan_out is runtime.fan_out


def test_calls_run_lazily_on_a_near_store_and_all_at_once_on_a_far_one() -> None:
    near, far = near_store(), far_store()
    for store in (near, far):
        created(store)
    for cluster, made_by_the_first in ((opened(near), [0]), (opened(far), [0, 1, 2])):
        made: list[int] = []

        def call(number: int, made: list[int] = made) -> int:
            made.append(number)
            return number

        answers = cluster.answers([lambda n=n: call(n) for n in range(3)])  # type: ignore[misc]
        assert next(answers) == 0
        assert made == made_by_the_first
        assert list(answers) == [1, 2]


def test_cluster_journal_entry_names_the_process_as_writer() -> None:
    store = near_store()
    created(store)
    cluster = opened(store)
    cluster.producer_id()
    path = cluster.layout.cluster().entry(1)
    data = store.get(path)
    assert data is not None
    assert decode_entry(data, path, 1)[0].writer == "host/7"


# Whether the log is still there.


def test_log_presence_is_checked_again_only_after_the_interval() -> None:
    clock = ManualClock()
    store = far_store(clock)
    created(store)
    cluster = opened(store, manual_runtime(1, clock))
    clock.advance(PROCESS.log_presence_interval_ms - 1)
    require_no_presence_check(cluster)
    clock.advance(1)
    cluster.options.presence.check_during(lambda: None)
    assert store.is_met


def test_log_presence_is_checked_at_once_if_cluster_file_was_passed_in() -> None:
    store = far_store()
    file = created(store)
    cluster = open_cluster(store, manual_runtime(1), PROCESS, writer="host/7", cluster_file=file)
    assert cluster.options.process == PROCESS
    assert cluster.options.writer == "host/7"
    asked: list[str] = []
    store.before("get", CLUSTER_FILE, lambda: asked.append(CLUSTER_FILE))
    cluster.options.presence.check_during(lambda: None)
    assert asked


def test_task_of_a_deleted_log_fails_at_its_first_request() -> None:
    store = far_store()
    file = created(store)
    store.delete(CLUSTER_FILE)
    cluster = open_cluster(store, manual_runtime(1), PROCESS, cluster_file=file)
    with pytest.raises(NotATxlog, match="there is no log now"):
        cluster.state()


def test_cluster_file_is_never_read_again_on_a_near_store() -> None:
    clock = ManualClock()
    store = CountingStore(near_store(clock))
    created(store)
    cluster = opened(store, manual_runtime(1, clock))
    clock.advance(1_000 * PROCESS.log_presence_interval_ms)
    store.reset()
    cluster.options.presence.check_during(lambda: None)
    assert store.reset().gets == 0


def test_log_replaced_while_being_opened_is_refused() -> None:
    store = near_store()
    old = created(near_store(), seed=9)
    created(store)
    with pytest.raises(NotATxlog, match="is there now") as caught:
        Cluster(store, old, manual_runtime(1), PROCESS, "host/7")
    assert caught.value.facts["place"] == store.url
    assert caught.value.facts["log_id"] == old.log_id


def test_log_replaced_by_one_of_another_format_is_detected() -> None:
    store = far_store()
    created(store)
    cluster = opened(store)
    store.replace(CLUSTER_FILE, seal(b'{"format_version":99}'))
    with pytest.raises(NotATxlog, match="log of another kind .* is there now"):
        cluster.require_present(fresh=True)


def test_far_log_presence_is_checked_only_for_a_fresh_answer() -> None:
    store = far_store()
    created(store)
    cluster = opened(store)
    store.delete(CLUSTER_FILE)
    cluster.require_present()
    with pytest.raises(NotATxlog, match="there is no log now"):
        cluster.require_present(fresh=True)
    with pytest.raises(NotATxlog, match="there is no log now"):
        cluster.require_present()


def test_deletion_of_a_near_log_is_detected_at_once() -> None:
    store = near_store()
    created(store)
    cluster = opened(store)
    cluster.require_present()
    store.delete(CLUSTER_FILE)
    with pytest.raises(NotATxlog, match="not there any more"):
        cluster.require_present()


# How a log is created.


def test_existing_log_on_a_near_store_is_found_without_threads() -> None:
    class Threads(SerialFanOut):
        def start(self, call: Callable[[], T]) -> Callable[[], T]:
            begun.append(call)
            return super().start(call)

    begun: list[object] = []
    store = near_store()
    file = created(store)
    runtime = Runtime(ManualClock(), SeededEntropy(1), Threads())
    assert create_cluster(store, runtime) == file
    assert not begun


def test_new_near_log_has_near_defaults_for_settings_not_requested() -> None:
    asked = {"journal.snapshot.entries": 7}
    cluster = open_cluster(near_store(), manual_runtime(), create=True, log_config=asked)
    assert cluster.file.settings == LogSettings(journal_snapshot_entries=7)


def test_log_is_not_created_in_a_refused_place_but_existing_one_is_opened() -> None:
    def refuse() -> None:
        raise InvalidConfig("not here.")

    store = near_store()
    with pytest.raises(InvalidConfig, match="not here"):
        open_cluster(store, manual_runtime(), create=True, require_place=refuse)
    assert list(store.list_after("")) == []
    created(store)
    open_cluster(store, manual_runtime(1), create=True, require_place=refuse)


def test_creating_a_far_log_that_exists_needs_one_round_trip() -> None:
    memory = near_store()
    created(memory)
    rounds = RoundTrips(memory)
    assert rounds.waits(lambda: create_cluster(rounds.store, rounds.runtime)) == 1


def test_log_created_concurrently_before_the_listing_is_used() -> None:
    """The creator reads the file first; another process begins the log before the listing."""
    store = far_store()
    runtime = Runtime(ManualClock(), SeededEntropy(1), HeldFanOut(holds_started=True))

    def begin() -> None:
        created(store.inner, seed=9)
        open_cluster(store.inner, manual_runtime(10)).producer_id()

    store.after("get", CLUSTER_FILE, begin)
    file = create_cluster(store, runtime)
    assert store.is_met
    assert file.settings == SETTINGS


def test_log_creation_lists_the_cluster_journal() -> None:
    store = HookedStore(far_store())
    store.before("list", f"{CLUSTER_JOURNAL}/", lambda: None)
    create_cluster(store, manual_runtime())
    assert store.is_met


def test_new_log_without_requested_settings_has_defaults_of_its_store() -> None:
    far = create_cluster(far_store(), manual_runtime()).settings
    assert far == replace(
        LogSettings(),
        transaction_state_log_num_partitions=32,
        boundary_trust_ms=43_200_000,
        boundary_grace_ms=604_800_000,
    )
    assert create_cluster(near_store(), manual_runtime()).settings == LogSettings()


# Topics learned from other processes.


def test_learned_topic_is_not_looked_up() -> None:
    store = CountingStore(near_store())
    created(store)
    topic = opened(store).create_topic("a", 2, "schema", TopicConfig())
    cluster = opened(store)
    cluster.learn_topic(topic.opened)
    store.reset()
    assert cluster.topic("a").opened == topic.opened
    assert store.reset().gets == 0


def test_R11_learned_topic_does_not_replace_a_known_one() -> None:
    store = near_store()
    created(store)
    cluster = opened(store)
    old = cluster.create_topic("a", 1, "schema", TopicConfig()).opened
    cluster.delete_topics(["a"])
    new = cluster.create_topic("a", 1, "schema", TopicConfig())
    cluster.learn_topic(old)
    assert cluster.topic("a") is new


def test_topic_found_by_another_thread_during_creation_is_one_object() -> None:
    class Found(HookedStore):
        """Looks the name up while the creator checks whether the topic's journal is empty."""

        def get(self, path: str) -> bytes | None:
            if not found and path.startswith("topics/"):
                found.append(cluster.topic("a"))
            return super().get(path)

    found: list[TopicLog] = []
    store = Found(near_store())
    created(store)
    fan_out = HeldFanOut(holds_started=True)
    cluster = opened(store, Runtime(ManualClock(), SeededEntropy(1), fan_out))
    topic = cluster.create_topic("a", 1, "schema", TopicConfig())
    assert found == [topic]
    assert cluster.topic("a") is topic
    assert topic.catch_up().topic_id == topic.topic_id
