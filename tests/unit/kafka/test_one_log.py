"""Groups and transactions of Kafka's clients are those of the log."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka as librdkafka
import pytest
from kafka import KafkaAdminClient
from kafka import errors as kafka
from kafka.protocol.consumer import FetchRequest

import txlog
from tests.kafka.differential.wire import records_of
from tests.processes.command_line import run
from tests.processes.kafka_gateway import WAIT_S, Gateway
from tests.unit.kafka.raw_requests import asked_alone
from tests.unit.spark_plugin.spark_query import GROUP, Query, new_log
from txlog.kafka.server import Endpoint, KafkaServer


def consumed(address: str, group: str, topic: str, count: int) -> list[bytes]:
    """The next records of the group, which commits them."""
    consumer = librdkafka.Consumer(
        {"bootstrap.servers": address, "group.id": group, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[bytes] = []
    while len(found) < count:
        messages = consumer.consume(count - len(found), WAIT_S) or pytest.fail("no more records")
        found += [message.value() or b"" for message in messages]
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def test_group_goes_on_where_the_other_product_has_committed(gateway: Gateway) -> None:
    with txlog.Producer(gateway.root) as producer:
        txlog.Admin(gateway.root).create_topic("shared")
        for number in range(6):
            producer.send("shared", b"%d" % number)

    def polled() -> bytes:
        config = {"group_id": "both", "auto_offset_reset": "earliest", "max_poll_records": 1}
        with txlog.Consumer("shared", root=gateway.root, **config) as consumer:
            [records] = consumer.poll().values()
            consumer.commit()
            return records[0].value

    assert polled() == b"0"
    assert consumed(gateway.address, "both", "shared", 2) == [b"1", b"2"]
    assert polled() == b"3"
    assert consumed(gateway.address, "both", "shared", 2) == [b"4", b"5"]


def test_transaction_of_a_kafka_producer_is_shown_and_aborted_by_the_command(
    gateway: Gateway,
) -> None:
    producer = librdkafka.Producer(gateway.config(transactional_id="shown"))
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce("shown", b"aborted")
    assert producer.flush(WAIT_S) == 0
    [row] = run("txn", "list", "--open", "-o", "json", root=gateway.root).json
    assert (row["transactional_id"], row["transaction_state"]) == ("shown", "Ongoing")
    [described] = txlog.Admin(gateway.root).list_transactions()
    assert described.open is not None
    aborted = run("txn", "abort", str(described.open.tx_id), "--execute", root=gateway.root)
    assert aborted.code == 0
    with pytest.raises(librdkafka.KafkaException):
        producer.commit_transaction(WAIT_S)
    with txlog.Consumer("shown", root=gateway.root, auto_offset_reset="earliest") as consumer:
        assert list(consumer.read_to_end()) == []


def fetched(gateway: Gateway, topic: str, isolation: int) -> tuple[int, list[bytes]]:
    """Last stable offset and values, of one answer from offset 0 on."""
    kind = FetchRequest.FetchTopic
    part = kind.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        isolation_level=isolation,
        topics=[kind(topic=topic, partitions=[part])],
    )
    [answer] = asked_alone(gateway, request, 5).responses
    [found] = answer.partitions
    return found.last_stable_offset, [one.value for one in records_of(found.records, [], 0)[0]]


@pytest.mark.parametrize("commits", [True, False])
def test_kafka_s_readers_see_a_transaction_in_the_log_by_their_isolation(
    gateway: Gateway, commits: bool
) -> None:
    topic = f"isolated-{commits}"
    txlog.Admin(gateway.root).create_topic(topic)
    config = {"transactional_id": topic, "transaction.records": "in.log"}
    with txlog.Producer(gateway.root, **config) as writer:
        writer.init_transactions()
        writer.begin_transaction()
        writer.send(topic, b"in a transaction")
        writer.flush()
        with txlog.Producer(gateway.root) as other:
            other.send(topic, b"behind it")
        both = [b"in a transaction", b"behind it"]
        assert [fetched(gateway, topic, one) for one in (0, 1)] == [(0, both), (0, [])]
        (writer.commit_transaction if commits else writer.abort_transaction)()
    seen = both if commits else both[1:]
    assert [fetched(gateway, topic, one) for one in (0, 1)] == [(2, both), (2, seen)]


@contextmanager
def serving(admin: txlog.Admin) -> Iterator[str]:
    """A gateway in a thread of this process; its address."""
    ready, ends = threading.Event(), asyncio.Event()
    started: list[object] = []

    async def serve() -> None:
        server = KafkaServer(admin, Endpoint("127.0.0.1:0"))

        def on_ready(address: str) -> None:
            started.extend((asyncio.get_running_loop(), address))
            ready.set()

        task = asyncio.ensure_future(server.run(on_ready))
        await ends.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert ready.wait(WAIT_S)
    loop, address = started
    try:
        yield str(address)
    finally:
        loop.call_soon_threadsafe(ends.set)
        thread.join(WAIT_S)


def test_group_of_a_spark_query_is_shown_and_stays_the_query_s(tmp_path: Path) -> None:
    log = new_log()
    query = Query(log, tmp_path / "checkpoint")
    query.run(log.connection, "run", 0, 0, 4)
    with serving(log.process_admin()) as address:
        admin = KafkaAdminClient(bootstrap_servers=address)
        assert [one["group_id"] for one in admin.list_groups()] == [GROUP]
        offsets = admin.list_group_offsets(GROUP)[GROUP]
        assert [one.offset for one in offsets.values()] == [4]
        assert admin.delete_groups([GROUP]) == {GROUP: kafka.NonEmptyGroupError.__name__}
        admin.close()
        query.run(log.connection, "run", 1, 4, 7)
        assert consumed(address, GROUP, "numbers", 3) == [b"7", b"8", b"9"]
    with pytest.raises(txlog.errors.TxlogError):  # The query is told, and commits nothing twice.
        query.run(log.connection, "run", 2, 7, 9)
