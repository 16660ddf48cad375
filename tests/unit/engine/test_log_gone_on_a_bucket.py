"""A removed log on a store that does not report the removal: clients check now and then.

Until a check finds out, a producer still writes to names that no other log uses.
"""

import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import preceded_by, unavailable
from txlog.catalog.cluster_file import create_cluster
from txlog.client.consumer.consumer import Consumer
from txlog.client.producer.producer import Producer
from txlog.clock import Runtime
from txlog.engine.connection import open_connection
from txlog.errors import NotATxlog, OutcomeUnknown
from txlog.fan_out import SerialFanOut
from txlog.layout import CLUSTER_FILE
from txlog.settings import LogSettings, ProcessSettings
from txlog.storage import MemoryStore
from txlog.testing.clock import manual_runtime
from txlog.verify.invariants import check_log

GONE = (NotATxlog, OutcomeUnknown)
"""The first error: nothing was written, or the write went to the removed log."""

INTERVAL_MS = ProcessSettings().log_presence_interval_ms


@pytest.fixture(params=[0, 12 * 3_600_000], ids=["boundaries not trusted", "boundaries trusted"])
def log(request: pytest.FixtureRequest) -> MemoryLog:
    """A log with a topic, once without trusted boundaries and once with them."""
    found = MemoryLog(LogSettings(boundary_trust_ms=request.param, boundary_grace_ms=1 << 40))
    found.admin.create_topic("t", 1)
    return found


def delete(log: MemoryLog) -> None:
    """Delete all objects, as `aws s3 rm --recursive` does."""
    for path in log.objects():
        log.memory.delete(path)


def create_another(log: MemoryLog) -> None:
    """Create another log with a topic of the same name."""
    runtime = manual_runtime("another log")
    other = MemoryStore(runtime)
    create_cluster(other, runtime)
    opened = log.connection.cluster.topic("t").opened
    open_connection(other, runtime).cluster.create_topic("t", 1, opened.schema, opened.config)
    for stored in other.list_after(""):
        log.memory.put_new(stored.path, other.get(stored.path) or b"")


def write(producer: Producer) -> None:
    producer.send("t", b"x")
    producer.flush()


def poll(consumer: Consumer, times: int) -> None:
    for _ in range(times):
        consumer.poll()


def commit(producer: Producer) -> None:
    producer.begin_transaction()
    producer.send("t", b"x")
    producer.commit_transaction()


@pytest.mark.parametrize("with_another", [False, True])
def test_producer_of_deleted_log_fails_for_good_after_presence_interval(
    log: MemoryLog, with_another: bool
) -> None:
    producer = log.producer()
    write(producer)
    delete(log)
    if with_another:
        create_another(log)
    log.clock.advance(INTERVAL_MS)
    with pytest.raises(GONE, match="the log that was opened at .* is gone"):
        write(producer)
    before = log.objects()
    for _ in range(3):
        with pytest.raises(NotATxlog, match="is gone"):
            write(producer)
    assert log.changed_since(before) == []


def test_commit_to_deleted_log_raises(log: MemoryLog) -> None:
    producer = log.producer("p")
    producer.begin_transaction()
    producer.send("t", b"x")
    producer.flush()
    delete(log)
    log.clock.advance(INTERVAL_MS)
    for error in (GONE, NotATxlog):
        with pytest.raises(error, match="is gone"):
            producer.commit_transaction()


def test_consumer_of_deleted_log_raises(log: MemoryLog) -> None:
    consumer = Consumer("t", root=log.connection, auto_offset_reset="earliest")
    assert consumer.poll() == {}
    delete(log)
    log.clock.advance(INTERVAL_MS)
    with pytest.raises(NotATxlog, match="is gone"):
        poll(consumer, 2 * ProcessSettings().boundary_probe_polls)


def test_writes_before_detection_do_not_reach_the_replacement_log(log: MemoryLog) -> None:
    producers = [log.producer(), log.producer("p")]
    delete(log)
    create_another(log)
    before = log.objects()
    write(producers[0])
    commit(producers[1])
    written = log.changed_since(before)
    assert written, "within the interval it is not told"
    assert all(log.memory.get(path) == data for path, data in before.items())
    another = open_connection(log.memory, Runtime(log.clock, fan_out=SerialFanOut()))
    roots = [another.cluster.layout.cluster().root, another.cluster.topic("t").layout.root]
    roots += [another.cluster.layout.transactions(n).root for n in range(8)]
    assert [path for path in written if path.startswith(tuple(roots))] == []
    assert check_log(another) == []
    new = Producer(another, transactional_id="p")
    new.init_transactions()
    commit(new)
    assert check_log(another) == []


def test_cluster_file_is_read_once_per_presence_interval(log: MemoryLog) -> None:
    asked: list[int] = []
    log.store.on("get", CLUSTER_FILE, preceded_by(lambda: asked.append(1)), times=1000)
    producer = log.producer()
    for _ in range(10):
        write(producer)
    assert asked == [], "it was read when the log was opened"
    log.clock.advance(INTERVAL_MS)
    for _ in range(10):
        write(producer)
    assert len(asked) == 1


def test_unanswered_presence_check_is_repeated_without_failing_writes(log: MemoryLog) -> None:
    producer = log.producer()
    log.clock.advance(INTERVAL_MS)
    rule = log.store.on("get", CLUSTER_FILE, unavailable, times=100)
    write(producer)
    assert rule.met
    log.store.heal()
    delete(log)
    with pytest.raises(GONE, match="is gone"):
        write(producer)
