"""AddPartitionsToTxn is answered by the event loop, which must not wait, if there is nothing to
look up, to wait for or to refuse; everything else is left to a thread."""

from types import SimpleNamespace

import pytest

from tests.logs.memory_log import MemoryLog
from tests.unit.kafka.test_decided_commits import HeldGateway
from txlog.storage.store import CreateResult


def adds(gateway: HeldGateway, partition: int = 0, *, later_epoch: int = 0) -> bool:
    known = gateway.client.known
    topics = [SimpleNamespace(name="t", partitions=[partition])]
    return gateway.producers.add_at_once("id", known.pid, known.epoch + later_epoch, topics)


@pytest.fixture
def gateway(log: MemoryLog) -> HeldGateway:
    """Its client has written to the topic before."""
    found = HeldGateway(log)
    assert not adds(found)  # The topic is looked up first.
    found.commit(b"1")
    return found


def test_partition_that_was_written_to_is_added_and_begins_the_transaction(
    log: MemoryLog, gateway: HeldGateway
) -> None:
    requests = len(gateway.store.writes)
    assert adds(gateway)
    assert adds(gateway)
    assert len(gateway.store.writes) == requests
    gateway.client.send(gateway.connection.cluster.known_topic("t"), b"2")
    gateway.client.end(commits=True)
    gateway.producers.close()
    assert log.values("t") == [b"1", b"2"]
    log.check()


def test_what_is_not_known_is_left_to_a_thread(log: MemoryLog, gateway: HeldGateway) -> None:
    last = len(gateway.connection.cluster.known_topic("t").state.partitions) - 1
    assert adds(gateway, last)
    gateway.client.end(commits=False)
    assert not adds(gateway, last + 1)
    assert not adds(gateway, -1)
    assert not adds(gateway, later_epoch=1)
    assert not gateway.producers.add_at_once("another", 1, 0, [])
    log.admin.delete_topics(["t"])
    gateway.connection.cluster.known_topic("t").catch_up()
    assert not adds(gateway)


def test_event_loop_does_not_wait_for_a_request_of_the_same_client(gateway: HeldGateway) -> None:
    gateway.client.send(gateway.connection.cluster.known_topic("t"), b"2")
    found = []

    def add_meanwhile(create: object) -> CreateResult:
        found.append(adds(gateway))
        return create()  # type: ignore[operator, no-any-return]

    gateway.store.on("create", "transactions/", add_meanwhile)
    gateway.client.end(commits=True)
    assert found == [False]


def test_transaction_that_is_refused_takes_no_partition(
    log: MemoryLog, gateway: HeldGateway
) -> None:
    gateway.client.send(gateway.connection.cluster.known_topic("t"), b"2")
    log.producer("id").close()  # A newer instance.
    with pytest.raises(Exception, match="has taken over"):
        gateway.client.end(commits=True)
    assert not adds(gateway)
