"""Records of an open transaction wait in the gateway if they are few, and ride in the entry of its
decision."""

import pytest

from tests.logs.memory_log import MemoryLog
from tests.unit.kafka.test_refusals import batch
from txlog.coordinator.events import Registration
from txlog.errors import ProducerFenced, TransactionAborted
from txlog.kafka import producers
from txlog.kafka.producers import Producers
from txlog.kafka.record_batches import decoded
from txlog.model import TopicPartition
from txlog.topic.topic_log import TopicLog

T = [TopicPartition("t", 0)]


class Client:
    """A producer of one transactional id, at a gateway."""

    def __init__(self, gateway: Producers, name: str) -> None:
        self._gateway, self._name = gateway, name
        self.known: Registration = gateway.register(name, 60_000, -1, -1)
        self._sequence = 0

    def send(self, topic: TopicLog, *values: bytes) -> None:
        session = self._gateway.session(self._name, self.known.pid, self.known.epoch)
        session.add({TopicPartition(topic.name, 0)})
        data = batch(
            *values,
            pid=self.known.pid,
            epoch=self.known.epoch,
            sequence=self._sequence,
            is_transactional=True,
        )
        session.stage(topic, {0: decoded(data, 1 << 20)})
        self._sequence += len(values)

    def end(self, *, commits: bool) -> None:
        session = self._gateway.session(self._name, self.known.pid, self.known.epoch)
        session.end(commits=commits)


def segments(log: MemoryLog) -> int:
    return sum("/segments/" in path for path in log.objects())


@pytest.fixture
def gateway(log: MemoryLog) -> Producers:
    return Producers(log.connection)


@pytest.fixture
def topic(log: MemoryLog) -> TopicLog:
    return log.connection.cluster.known_topic("t")


def test_few_records_are_stored_with_the_decision_and_many_before(
    log: MemoryLog, gateway: Producers, topic: TopicLog
) -> None:
    client = Client(gateway, "id")
    client.send(topic, b"1", b"2")
    client.send(topic, b"3")
    assert segments(log) == 0
    client.send(topic, bytes(topic.inline_bytes_max))
    assert segments(log) == 1
    client.send(topic, b"5")
    assert segments(log) == 1
    client.end(commits=True)
    assert log.values("t") == [b"1", b"2", b"3", bytes(topic.inline_bytes_max), b"5"]
    assert segments(log) == 1
    log.check()


def test_records_of_an_aborted_transaction_are_nowhere(
    log: MemoryLog, gateway: Producers, topic: TopicLog
) -> None:
    client = Client(gateway, "id")
    client.send(topic, b"aborted")
    client.end(commits=False)
    client.send(topic, b"committed")
    client.end(commits=True)
    assert log.values("t", isolation="read_uncommitted") == [b"committed"]
    log.check()


def test_records_beyond_the_gateway_s_memory_are_stored_at_once(
    log: MemoryLog, topic: TopicLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers, "KEPT_BYTES_MAX", 20_000)
    monkeypatch.setattr(producers, "SESSIONS_MAX", 2)
    gateway = Producers(log.connection)
    value = bytes(9_000)

    def stores(client: Client) -> bool:
        before = segments(log)
        client.send(topic, value)
        return segments(log) > before

    first, second = Client(gateway, "first"), Client(gateway, "second")
    assert [stores(first), stores(second), stores(first)] == [False, False, True]
    second.end(commits=True)  # Its room is free, and that of an id that is forgotten.
    third = Client(gateway, "third")
    assert [stores(third), stores(second), stores(third)] == [False, False, True]
    second.end(commits=True)
    third.end(commits=False)
    assert log.values("t") == [value, value]
    log.check()


def test_client_that_was_fenced_or_is_late_keeps_no_room(
    log: MemoryLog, topic: TopicLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers, "KEPT_BYTES_MAX", 20_000)
    gateway, value = Producers(log.connection), bytes(15_000)

    def takes_room(client: Client) -> bool:
        before = segments(log)
        client.send(topic, value)
        return segments(log) == before

    fenced, gone, third = (Client(gateway, name) for name in ("fenced", "gone", "third"))
    assert takes_room(fenced)
    Client(Producers(log.process()), "fenced")  # At another gateway.
    assert not takes_room(third)
    for _ in range(2):
        with pytest.raises(ProducerFenced):
            fenced.end(commits=True)
    assert takes_room(gone)
    assert not takes_room(third)
    log.clock.advance(60_001)
    waiting = Client(gateway, "waiting")
    assert takes_room(waiting)
    for _ in range(2):
        with pytest.raises(TransactionAborted, match="its records are gone"):
            gone.end(commits=True)
    with pytest.raises(TransactionAborted):
        gone.send(topic, b"more")
    gone.end(commits=False)
    gone.send(topic, b"again")
    waiting.end(commits=True)
    gone.end(commits=True)
    gateway.close()
    assert log.values("t") == [value, b"again"]
    log.check()
