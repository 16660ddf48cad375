"""EndTxn is answered once the commit is decided; its markers follow, whatever the gateway meets."""

from collections.abc import Iterator
from itertools import count

import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import ScriptedStore, unavailable
from tests.unit.held_fan_out import HeldFanOut
from tests.unit.kafka.test_small_transactions import Client
from txlog.clock import Runtime
from txlog.engine.connection import Connection, open_connection
from txlog.errors import StoreUnavailable
from txlog.kafka.producers import Producers
from txlog.testing.clock import SeededEntropy

MARKER = "marker_written"
_seeds = count(500)


class HeldGateway:
    """A gateway whose background work runs when the test says so, and its client."""

    def __init__(self, log: MemoryLog) -> None:
        self.log, self.store = log, ScriptedStore(log.memory)
        self.fan_out = HeldFanOut(holds_started=True)
        runtime = Runtime(log.clock, SeededEntropy(next(_seeds)), self.fan_out)
        self.connection: Connection = open_connection(self.store, runtime)
        self.woken: list[int] = []
        self.producers = Producers(self.connection, lambda: self.woken.append(1))
        self.producers.must_finish = False  # It has looked since it was started.
        self.client = Client(self.producers, "id")

    def commit(self, value: bytes) -> None:
        self.client.send(self.connection.cluster.known_topic("t"), value)
        self.client.end(commits=True)

    def fail_markers(self) -> None:
        self.store.on("create", "topics/", unavailable, holding=MARKER, times=1_000)


@pytest.fixture
def gateway(log: MemoryLog) -> Iterator[HeldGateway]:
    yield HeldGateway(log)
    log.check()


def test_commit_is_answered_with_the_decision_and_readers_are_woken_by_the_markers(
    gateway: HeldGateway,
) -> None:
    gateway.commit(b"1")
    gateway.client.end(commits=True)  # A repeat.
    assert gateway.log.values("t") == []
    assert not gateway.woken
    gateway.fan_out.let_go()
    assert gateway.log.values("t") == [b"1"]
    assert gateway.woken
    gateway.commit(b"2")
    gateway.commit(b"3")  # Which waits for the markers of the one before.
    assert gateway.log.values("t") == [b"1", b"2"]


def test_gateway_that_is_stopped_leaves_no_commit_without_its_markers(
    gateway: HeldGateway,
) -> None:
    gateway.commit(b"1")
    gateway.producers.close()
    assert gateway.log.values("t") == [b"1"]
    assert gateway.log.changed_since(gateway.log.objects()) == []


def test_gateway_that_is_stopped_without_a_store_says_what_is_not_visible(
    gateway: HeldGateway, caplog: pytest.LogCaptureFixture
) -> None:
    gateway.commit(b"1")
    gateway.fail_markers()
    gateway.producers.close()
    assert "is committed, but not complete" in caplog.text
    other = Producers(gateway.log.process())
    assert other.must_finish
    other.finish_decided()
    assert gateway.log.values("t") == [b"1"]
    assert not other.must_finish


def test_markers_that_the_store_refuses_are_written_without_the_client(
    gateway: HeldGateway,
) -> None:
    gateway.commit(b"1")
    gateway.fail_markers()
    gateway.fan_out.let_go()
    assert gateway.producers.must_finish
    with pytest.raises(StoreUnavailable):
        gateway.producers.finish_decided()
    assert gateway.producers.must_finish
    gateway.store.heal()
    gateway.producers.finish_decided()
    assert gateway.log.values("t") == [b"1"]
    assert gateway.woken
    gateway.commit(b"2")
    gateway.producers.close()
    assert gateway.log.values("t") == [b"1", b"2"]


def test_client_s_next_transaction_writes_the_markers_that_failed(gateway: HeldGateway) -> None:
    gateway.commit(b"1")
    gateway.fail_markers()
    gateway.fan_out.let_go()
    gateway.store.heal()
    gateway.commit(b"2")
    assert gateway.log.values("t") == [b"1"]
    gateway.producers.close()
    assert gateway.log.values("t") == [b"1", b"2"]


@pytest.mark.parametrize("repeats", [False, True])
def test_commit_of_a_killed_gateway_is_finished_by_the_client_s_next_request(
    gateway: HeldGateway, repeats: bool
) -> None:
    """A repeat of EndTxn, or the next registration."""
    gateway.commit(b"1")
    known, other = gateway.client.known, Producers(gateway.log.process())
    if repeats:
        other.end_elsewhere("id", known.pid, known.epoch, commits=True)
    else:
        other.register("id", 60_000, known.pid, known.epoch)
    assert gateway.log.values("t") == [b"1"]


def test_commit_is_finished_although_its_client_is_forgotten(
    gateway: HeldGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txlog.kafka.producers.SESSIONS_MAX", 1)
    gateway.commit(b"1")
    gateway.fail_markers()
    Client(gateway.producers, "another")
    gateway.fan_out.let_go()
    gateway.store.heal()
    assert gateway.producers.must_finish
    gateway.producers.finish_decided()
    assert gateway.log.values("t") == [b"1"]
