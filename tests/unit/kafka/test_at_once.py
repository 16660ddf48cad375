"""The event loop, which must not wait, adds partitions to a transaction and stages its records, if
there is nothing to look up, to wait for or to refuse; everything else is left to a thread."""

import asyncio
import gzip
import socket
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace

import pytest
from kafka import errors as kafka
from kafka.protocol import producer

from tests.logs.memory_log import MemoryLog
from tests.processes.kafka_gateway import WAIT_S
from tests.stores.scripted_store import Call, unavailable
from tests.unit.kafka.raw_requests import asked
from tests.unit.kafka.test_decided_commits import HeldGateway
from tests.unit.kafka.test_one_log import serving
from tests.unit.kafka.test_refusals import batch, code_of, compressed, request
from txlog.kafka.record_batches import SentBatch, decoded, size_at_most
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


def sent(gateway: HeldGateway, sequence: int, *values: bytes) -> dict[int, SentBatch]:
    known = gateway.client.known
    data = batch(
        *values, pid=known.pid, epoch=known.epoch, sequence=sequence, is_transactional=True
    )
    return {0: decoded(data, 1 << 20)}


def stage_at_once(gateway: HeldGateway, sequence: int, *values: bytes) -> None:
    known = gateway.client.known
    session = gateway.producers.session("id", known.pid, known.epoch)
    topic = gateway.connection.cluster.opened_topic("t")
    assert topic is not None
    session.stage(topic, sent(gateway, sequence, *values), may_wait=False)


def test_few_records_are_staged_without_a_request_before_begin_is_stored(
    log: MemoryLog, gateway: HeldGateway
) -> None:
    gateway.fan_out.let_go()
    assert adds(gateway)
    requests = len(gateway.store.writes)
    stage_at_once(gateway, 1, b"2")
    begun = gateway.producers.begun("id")
    assert begun is not None
    assert not begun.done()
    assert len(gateway.store.writes) == requests
    gateway.fan_out.let_go()
    assert begun.result(0)
    gateway.client.end(commits=True)
    gateway.producers.close()
    assert log.values("t") == [b"1", b"2"]
    log.check()


def test_records_that_must_be_stored_are_left_to_a_thread_and_kept_once(
    log: MemoryLog, gateway: HeldGateway
) -> None:
    assert adds(gateway)
    known, topic = gateway.client.known, gateway.connection.cluster.known_topic("t")
    large = bytes(topic.inline_bytes_max)
    requests = len(gateway.store.writes)
    with pytest.raises(BlockingIOError):
        stage_at_once(gateway, 1, large)
    assert len(gateway.store.writes) == requests
    session = gateway.producers.session("id", known.pid, known.epoch)
    session.stage(topic, sent(gateway, 1, large))
    assert gateway.producers.begun("id") is None  # The next ones go to a thread at once.
    stage_at_once(gateway, 1, large)  # A repeat.
    gateway.client.end(commits=True)
    gateway.producers.close()
    assert log.values("t") == [b"1", large]
    assert adds(gateway)
    assert gateway.producers.begun("id") is not None
    log.check()


def test_event_loop_stages_nothing_while_the_transaction_is_committed(
    gateway: HeldGateway,
) -> None:
    gateway.client.send(gateway.connection.cluster.known_topic("t"), b"2")
    found = []

    def stage_meanwhile(create: object) -> CreateResult:
        with pytest.raises(BlockingIOError):
            stage_at_once(gateway, 2, b"3")
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

    def begin(self, partition: int = 0) -> int:
        kind = producer.AddPartitionsToTxnRequest
        topic = kind.AddPartitionsToTxnTopic(name="t", partitions=[partition])
        added = asked(
            self.connection,
            kind(
                v3_and_below_transactional_id="id",
                v3_and_below_producer_id=self.who["pid"],
                v3_and_below_producer_epoch=self.who["epoch"],
                v3_and_below_topics=[topic],
            ),
            3,
        )
        [found] = added.results_by_topic_v3_and_below
        return int(found.results_by_partition[0].partition_error_code)

    def send(self, value: bytes) -> int:
        code = code_of(self.connection, self.produced(value))
        self.sequence += code == 0
        return code

    def produced(self, value: bytes, partition: int = 0) -> producer.ProduceRequest:
        data = batch(value, **self.who, sequence=self.sequence, is_transactional=True)
        return request(data, topic="t", partition=partition, transactional_id="id")

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
    kind = producer.ProduceRequest.TopicProduceData
    empty = request(b"", topic="t", transactional_id="id")
    empty.topic_data = []
    with serving(log.admin) as address:
        client = RawClient(address)
        with client.connection:
            assert asked(client.connection, empty, 8).responses == []
            assert [client.begin(), client.send(b"1"), client.commit()] == [0, 0, 0]
            assert asked(client.connection, empty, 8).responses == []
            assert client.begin() == 0
            beside = client.produced(b"2")
            beside.topic_data.append(kind(name="other", partition_data=[]))
            answers = asked(client.connection, beside, 8).responses
            assert [one.name for one in answers] == ["t", "other"]
            assert client.commit() == 0
    assert log.values("t") == [b"1", b"2"]
    log.check()


@pytest.mark.parametrize(
    "odd",
    [
        request(batch(b"x"), topic="t", partition=9, transactional_id="id"),
        request(batch(b"x"), topic="unknown", transactional_id="id"),
        request(b"", topic="t", transactional_id="id"),
    ],
)
def test_event_loop_makes_no_request_to_the_store(
    log: MemoryLog, client: RawClient, odd: producer.ProduceRequest
) -> None:
    assert [client.begin(), client.send(b"2")] == [0, 0]
    by_loop = []

    def noted(call: Call) -> object:
        with suppress(RuntimeError):  # No loop runs in this thread.
            by_loop.append(asyncio.get_running_loop())
        return call()

    log.store.on(".*", "", noted, times=1_000)
    assert code_of(client.connection, odd)
    assert not by_loop
    log.store.heal()


@pytest.mark.parametrize("is_known", [False, True])
def test_topic_that_is_created_again_takes_records(
    log: MemoryLog, client: RawClient, is_known: bool
) -> None:
    other = log.process_admin()
    other.delete_topics(["t"])
    other.create_topic("t", 5)
    if is_known:
        log.connection.cluster.topics()  # Metadata of another client.
    log.connection.cluster.present_topic("t")
    for partition in (0, 4):
        assert client.begin(partition) == 0
        assert code_of(client.connection, client.produced(b"2", partition)) == 0
        assert client.commit() == 0
    assert client.begin() == 0  # The markers come before it.
    assert log.values("t") == [b"2", b"2"]
