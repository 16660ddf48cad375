"""The event loop, which must not wait, adds partitions to a transaction and stages its records, if
there is nothing to look up, to wait for or to refuse; everything else is left to a thread."""

import asyncio
import gzip
import socket
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from kafka import errors as kafka
from kafka.protocol import producer

from tests.logs.memory_log import MemoryLog
from tests.processes.kafka_gateway import WAIT_S
from tests.stores.scripted_store import unavailable
from tests.unit.kafka.raw_requests import asked
from tests.unit.kafka.test_decided_commits import HeldGateway
from tests.unit.kafka.test_one_log import serving
from tests.unit.kafka.test_refusals import batch, code_of, compressed, request
from txlog.kafka.record_batches import decoded, size_at_most
from txlog.model import TopicPartition
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


# Records.


def sent(gateway: HeldGateway, sequence: int, *values: bytes) -> dict[int, object]:
    known = gateway.client.known
    who = {"pid": known.pid, "epoch": known.epoch, "sequence": sequence}
    return {0: decoded(batch(*values, **who, is_transactional=True), 1 << 20)}


def is_ready(gateway: HeldGateway, *partitions: int, topic: str = "t") -> bool:
    named = {TopicPartition(topic, partition) for partition in partitions}
    return gateway.producers.ready_for("id", named) is not None


def test_few_records_are_staged_without_a_request_and_their_answer_waits_for_begin(
    log: MemoryLog, gateway: HeldGateway
) -> None:
    gateway.fan_out.let_go()
    requests = len(gateway.store.writes)
    assert adds(gateway)
    session = gateway.producers.ready_for("id", {TopicPartition("t", 0)})
    assert session is not None
    session.stage(session.topics["t"], sent(gateway, 1, b"2"), may_wait=False)
    assert len(gateway.store.writes) == requests

    async def begun_after_the_store_has_it() -> bool:
        answer = asyncio.ensure_future(session.has_begun())
        await asyncio.sleep(0)
        assert not answer.done()
        gateway.fan_out.let_go()
        return await answer

    assert asyncio.run(begun_after_the_store_has_it())
    gateway.client.end(commits=True)
    gateway.producers.close()
    assert log.values("t") == [b"1", b"2"]
    log.check()


def test_records_of_what_is_not_known_are_left_to_a_thread(
    log: MemoryLog, gateway: HeldGateway
) -> None:
    assert not is_ready(gateway, 0)  # No transaction is open.
    assert adds(gateway)
    assert is_ready(gateway, 0)
    assert not is_ready(gateway)
    assert not is_ready(gateway, 0, 1)
    assert not is_ready(gateway, 0, topic="another")
    assert gateway.producers.ready_for("another", {TopicPartition("t", 0)}) is None
    log.admin.delete_topics(["t"])
    gateway.connection.cluster.known_topic("t").catch_up()
    assert not is_ready(gateway, 0)


def test_records_that_must_be_stored_are_left_to_a_thread_and_kept_once(
    log: MemoryLog, gateway: HeldGateway
) -> None:
    assert adds(gateway)
    session = gateway.producers.ready_for("id", {TopicPartition("t", 0)})
    assert session is not None
    topic = session.topics["t"]
    large = sent(gateway, 1, bytes(topic.inline_bytes_max))
    requests = len(gateway.store.writes)
    with pytest.raises(BlockingIOError):
        session.stage(topic, large, may_wait=False)
    assert len(gateway.store.writes) == requests
    session.stage(topic, large)
    session.stage(topic, large, may_wait=False)  # A repeat.
    gateway.client.end(commits=True)
    gateway.producers.close()
    assert log.values("t") == [b"1", bytes(topic.inline_bytes_max)]
    log.check()


def test_event_loop_stages_nothing_while_the_transaction_is_committed(
    gateway: HeldGateway,
) -> None:
    topic = gateway.connection.cluster.known_topic("t")
    gateway.client.send(topic, b"2")
    session = gateway.producers.ready_for("id", {TopicPartition("t", 0)})
    assert session is not None
    found = []

    def stage_meanwhile(create: object) -> CreateResult:
        with pytest.raises(BlockingIOError):
            session.stage(topic, sent(gateway, 2, b"3"), may_wait=False)
        found.append(True)
        return create()  # type: ignore[operator, no-any-return]

    gateway.store.on("create", "transactions/", stage_meanwhile)
    gateway.client.end(commits=True)
    assert found


def test_compressed_records_may_take_long() -> None:
    plain = batch(b"x")
    assert size_at_most(plain) == len(plain)
    assert size_at_most(plain[:9]) == 9
    for codec in range(1, 5):
        assert size_at_most(compressed(codec, gzip.compress(bytes(1 << 20)))) > 1 << 20


# A client's requests.


class RawClient:
    """A transactional producer that sends single requests."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.connection = socket.create_connection((host, int(port)), WAIT_S)
        self.connection.settimeout(WAIT_S)
        first = producer.InitProducerIdRequest(
            transactional_id="id", transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
        answer = asked(self.connection, first, 4)
        self.who = {"pid": answer.producer_id, "epoch": answer.producer_epoch}
        self.sequence = 0

    def begin(self) -> int:
        kind = producer.AddPartitionsToTxnRequest
        added = asked(
            self.connection,
            kind(
                v3_and_below_transactional_id="id",
                v3_and_below_producer_id=self.who["pid"],
                v3_and_below_producer_epoch=self.who["epoch"],
                v3_and_below_topics=[kind.AddPartitionsToTxnTopic(name="t", partitions=[0])],
            ),
            3,
        )
        [topic] = added.results_by_topic_v3_and_below
        return int(topic.results_by_partition[0].partition_error_code)

    def send(self, value: bytes) -> int:
        data = batch(value, **self.who, sequence=self.sequence, is_transactional=True)
        code = code_of(self.connection, request(data, topic="t", transactional_id="id"))
        self.sequence += code == 0
        return code

    def commit(self) -> int:
        end = producer.EndTxnRequest(
            transactional_id="id",
            producer_id=self.who["pid"],
            producer_epoch=self.who["epoch"],
            committed=True,
        )
        return int(asked(self.connection, end, 3).error_code)


@pytest.fixture
def client(log: MemoryLog) -> Iterator[RawClient]:
    """It has committed a record."""
    with serving(log.admin) as address:
        found = RawClient(address)
        with found.connection:
            assert [found.begin(), found.send(b"1"), found.commit()] == [0, 0, 0]
            yield found
    log.check()


def test_records_whose_begin_cannot_be_stored_are_refused_and_a_repeat_is_stored_once(
    log: MemoryLog, client: RawClient
) -> None:
    log.store.on("create", "transactions/", unavailable, holding="transaction_begun", times=1_000)
    assert client.begin() == 0
    assert client.send(b"2") == kafka.NotEnoughReplicasError.errno
    log.store.heal()
    while client.send(b"2"):  # As a client does at that code.
        pass
    assert client.commit() == 0
    assert client.begin() == 0  # The markers come before it.
    assert log.values("t") == [b"1", b"2"]


def test_request_without_a_partition_is_answered(log: MemoryLog) -> None:
    empty = request(b"", topic="t", transactional_id="id")
    empty.topic_data = []
    with serving(log.admin) as address:
        client = RawClient(address)
        with client.connection:
            assert asked(client.connection, empty, 8).responses == []
            assert [client.begin(), client.send(b"1"), client.commit()] == [0, 0, 0]
            assert asked(client.connection, empty, 8).responses == []
