"""Kafka's own clients on a log, by a gateway in a process of its own: librdkafka, kafka-python and
aiokafka."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import confluent_kafka as librdkafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from kafka import KafkaConsumer, KafkaProducer
from kafka.protocol import admin, metadata
from kafka.protocol.producer import InitProducerIdRequest

import txlog
from tests.processes.kafka_gateway import WAIT_S, Gateway
from tests.unit.kafka.raw_requests import asked
from txlog.kafka.group_leases import LEADER


def values(root: str, topic: str, count: int = 0) -> list[bytes]:
    """All records, once there are `count`: a commit is answered before they can be read."""
    found: list[bytes] = []
    with txlog.Consumer(topic, root=root, auto_offset_reset="earliest") as consumer:
        while len(found) < count:
            polled = consumer.poll(WAIT_S * 1_000) or pytest.fail("no more records")
            found += [record.value for records in polled.values() for record in records]
        return found + [record.value for record in consumer.read_to_end()]


def consumed(gateway: Gateway, topic: str, group: str, count: int) -> list[librdkafka.Message]:
    consumer = librdkafka.Consumer(gateway.config(group_id=group, auto_offset_reset="earliest"))
    consumer.subscribe([topic])
    found: list[librdkafka.Message] = []
    while len(found) < count:
        found += consumer.consume(count - len(found), WAIT_S) or pytest.fail("no more records")
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def committed(
    producer: librdkafka.Producer, records: tuple[bytes, ...]
) -> librdkafka.KafkaError | None:
    try:
        for value in records:
            producer.produce("moved", value)
        producer.commit_transaction(WAIT_S)
    except librdkafka.KafkaException as error:
        found: librdkafka.KafkaError = error.args[0]
        return found
    return None


def test_librdkafka_produces_what_txlog_and_it_read(gateway: Gateway) -> None:
    producer = librdkafka.Producer(gateway.config(enable_idempotence=True))
    for number in range(1_000):
        producer.produce("plain", b"v%d" % number, b"k", headers=[("h", b"x")], timestamp=number)
    assert producer.flush(WAIT_S) == 0
    found = consumed(gateway, "plain", "readers", 1_000)
    assert [message.value() for message in found] == [b"v%d" % n for n in range(1_000)]
    last = found[-1]
    assert (last.key(), last.headers(), last.offset()) == (b"k", [("h", b"x")], 999)
    assert last.timestamp() == (librdkafka.TIMESTAMP_CREATE_TIME, 999)
    assert values(gateway.root, "plain")[-1] == b"v999"
    group = txlog.Admin(gateway.root).describe_group("readers")
    assert [partition.current_offset for partition in group.partitions] == [1_000]


def test_null_key_value_and_empty_ones_stay_apart(gateway: Gateway) -> None:
    producer = librdkafka.Producer(gateway.config())
    producer.produce("nulls", None, None)
    producer.produce("nulls", b"", b"")
    assert producer.flush(WAIT_S) == 0
    found = consumed(gateway, "nulls", "nulls", 2)
    assert [(one.key(), one.value()) for one in found] == [(None, None), (b"", b"")]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_records_arrive(gateway: Gateway, codec: str) -> None:
    producer = librdkafka.Producer(gateway.config(compression_type=codec, linger_ms=50))
    for number in range(100):
        producer.produce(f"codec-{codec}", b"%d" % number * 100)
    assert producer.flush(WAIT_S) == 0
    assert values(gateway.root, f"codec-{codec}") == [b"%d" % n * 100 for n in range(100)]


def test_transaction_of_librdkafka_commits_records_and_offsets_together(gateway: Gateway) -> None:
    source = librdkafka.Producer(gateway.config())
    source.produce("source", b"in")
    assert source.flush(WAIT_S) == 0
    reader = librdkafka.Consumer(
        gateway.config(group_id="copy", auto_offset_reset="earliest", enable_auto_commit=False)
    )
    reader.subscribe(["source"])
    message = reader.poll(WAIT_S)
    assert message is not None
    producer = librdkafka.Producer(gateway.config(transactional_id="copier"))
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce("copy", b"aborted")
    producer.flush(WAIT_S)
    listed = txlog.Admin(gateway.root).list_transactions()
    assert [one.transactional_id for one in listed] == ["copier"]
    producer.abort_transaction(WAIT_S)
    producer.begin_transaction()
    producer.produce("copy", message.value())
    done = [librdkafka.TopicPartition("source", 0, message.offset() + 1)]
    producer.send_offsets_to_transaction(done, reader.consumer_group_metadata())
    producer.commit_transaction(WAIT_S)
    assert values(gateway.root, "copy", 1) == [b"in"]
    [committed] = reader.committed([librdkafka.TopicPartition("source", 0)], WAIT_S)
    assert committed.offset == 1
    reader.close()


def test_older_instance_of_a_transactional_id_is_fenced(gateway: Gateway) -> None:
    old = librdkafka.Producer(gateway.config(transactional_id="fenced"))
    old.init_transactions(WAIT_S)
    librdkafka.Producer(gateway.config(transactional_id="fenced")).init_transactions(WAIT_S)
    old.begin_transaction()
    old.produce("fence", b"zombie")
    with pytest.raises(librdkafka.KafkaException) as caught:
        old.commit_transaction(WAIT_S)
    assert caught.value.args[0].code() == librdkafka.KafkaError._FENCED
    # Without a topic, or without a record in it.
    topics = txlog.Admin(gateway.root).list_topics()
    assert "fence" not in topics or values(gateway.root, "fence") == []


def test_transaction_at_another_gateway_is_begun_again_and_never_half(tmp_path: Path) -> None:
    """The first gateway dies with staged records: the client aborts, and the copy is whole."""
    first, second = Gateway(str(tmp_path / "log")), Gateway(str(tmp_path / "log"))
    both = f"{first.address},{second.address}"
    producer = librdkafka.Producer({"bootstrap.servers": both, "transactional.id": "moved"})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce("moved", b"1")
    assert producer.flush(WAIT_S) == 0
    found = producer.list_topics("moved", timeout=WAIT_S)
    port = found.brokers[found.topics["moved"].partitions[0].leader].port
    serving = first if first.address.endswith(f":{port}") else second
    serving.kill()
    aborted = 0
    while (error := committed(producer, (b"1", b"2") if aborted else (b"2",))) is not None:
        assert error.txn_requires_abort()
        aborted += 1
        producer.abort_transaction(WAIT_S)
        producer.begin_transaction()
    assert 0 < aborted < 4
    assert values(first.root, "moved", 2) == [b"1", b"2"]
    (second if serving is first else first).stop()


def test_gateways_name_each_other_and_the_same_one_for_a_client(tmp_path: Path) -> None:
    """A client drops a broker that another one does not name, and what it has asked there."""
    root = str(tmp_path / "log")
    with Gateway(root) as first, Gateway(root) as second:
        txlog.Admin(root).create_topics([txlog.NewTopic("named")])
        seen = []
        for gateway in (second, first, second):  # The first answer is older than the other gateway.
            client = librdkafka.admin.AdminClient(gateway.config())
            found = client.list_topics(timeout=WAIT_S)
            addresses = {f"{one.host}:{one.port}" for one in found.brokers.values()}
            seen.append((addresses, found.topics["named"].partitions[0].leader))
            del client
        assert seen[1] == seen[2]
        assert seen[2][0] == {first.address, second.address}


def test_what_clients_ask_all_gateways_for_is_listed_once(tmp_path: Path) -> None:
    root, names = str(tmp_path / "log"), [f"id-{number}" for number in range(8)]
    with Gateway(root) as first, Gateway(root) as second:
        txlog.Admin(root).create_topics([txlog.NewTopic(name) for name in names])
        member = member_of(names[0], [first.address, second.address])
        assert any(member.poll(0.1) is None and member.assignment() for _ in range(200))
        member.commit(offsets=[librdkafka.TopicPartition(names[0], 0, 0)], asynchronous=False)
        with first.connected() as one, second.connected() as two:
            for connection in (one, two, one):  # The first answer is older than the other gateway.
                brokers = asked(connection, metadata.MetadataRequest(topics=[]), 1).brokers
            assert len(brokers) == 2
            for name in names:
                init = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
                codes = [asked(connection, init, 1).error_code for connection in (one, two)]
                assert 0 in codes
            request = admin.ListTransactionsRequest(
                state_filters=[], producer_id_filters=[], duration_filter=-1
            )
            transactions, groups, topics = [], [], []
            for connection in (one, two):
                found = asked(connection, request, 1).transaction_states
                transactions += [each.transactional_id for each in found]
                listed = asked(connection, admin.ListGroupsRequest(), 4).groups
                groups += [(each.group_id, each.group_state) for each in listed]
                [folder] = asked(connection, admin.DescribeLogDirsRequest(topics=None), 1).results
                topics += [each.name for each in folder.topics]
        assert sorted(transactions) == names
        assert sorted(topics) == names
        assert groups == [(names[0], "Stable")]
        member.close()


@pytest.mark.slow  # A leader that is killed is replaced after ten seconds of silence.
def test_group_goes_on_at_another_gateway_when_its_leader_is_killed(tmp_path: Path) -> None:
    root = str(tmp_path / "log")
    with Gateway(root) as first, Gateway(root) as second:
        gateways = {first.address: first, second.address: second}
        log = txlog.Admin(root)
        log.create_topics([txlog.NewTopic("led", 4)])
        members = [member_of("led", order) for order in ([*gateways], [*gateways][::-1])]
        read: list[bytes] = []

        def shares() -> list[int]:
            for member in members:
                message = member.poll(0.1)
                if message is not None and message.error() is None:
                    read.append(message.value())
            return [len(member.assignment()) for member in members]

        def until(is_true: Callable[[], bool]) -> None:
            assert any(is_true() for _ in range(400)), (shares(), offsets(), leader())

        def leader() -> str:
            return log.connection.offsets.group("led").committed[LEADER].metadata

        def offsets() -> list[int | None]:
            return [one.current_offset for one in log.describe_group("led").partitions]

        until(lambda: shares() == [2, 2])
        dead = leader()
        gateways[dead].kill()
        with txlog.Producer(root) as producer:
            for number in range(40):
                producer.send("led", b"%d" % number, partition=number % 4)
        until(lambda: shares() == [2, 2] and offsets() == [10] * 4)
        assert leader() != dead
        assert set(read) == {b"%d" % number for number in range(40)}
        for member in members:
            member.close()


def member_of(group: str, bootstrap: list[str]) -> librdkafka.Consumer:
    member = librdkafka.Consumer(
        {
            "bootstrap.servers": ",".join(bootstrap),
            "group.id": group,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6_000,
            "auto.commit.interval.ms": 500,
        }
    )
    member.subscribe([group])
    return member


def test_kafka_python_produces_consumes_and_commits(gateway: Gateway) -> None:
    producer = KafkaProducer(bootstrap_servers=gateway.address, transactional_id="kafka-python")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("kafka-python", b"a")
    producer.commit_transaction()
    producer.close()
    consumer = KafkaConsumer(
        "kafka-python",
        bootstrap_servers=gateway.address,
        group_id="kafka-python",
        auto_offset_reset="earliest",
        consumer_timeout_ms=WAIT_S * 1_000,
    )
    assert next(consumer).value == b"a"
    consumer.commit()
    consumer.close()
    assert txlog.Admin(gateway.root).describe_group("kafka-python").partitions[0].lag == 0


def test_aiokafka_produces_consumes_and_commits(gateway: Gateway) -> None:
    async def copied() -> bytes:
        producer = AIOKafkaProducer(bootstrap_servers=gateway.address, transactional_id="aiokafka")
        await producer.start()
        async with producer.transaction():
            await producer.send_and_wait("aiokafka", b"a")
        await producer.stop()
        consumer = AIOKafkaConsumer(
            "aiokafka",
            bootstrap_servers=gateway.address,
            group_id="aiokafka",
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        await consumer.start()
        record = await asyncio.wait_for(consumer.getone(), WAIT_S)
        await consumer.commit()
        await consumer.stop()
        return bytes(record.value)

    assert asyncio.run(copied()) == b"a"
    assert txlog.Admin(gateway.root).describe_group("aiokafka").partitions[0].lag == 0


def test_members_of_a_group_share_its_partitions(gateway: Gateway) -> None:
    txlog.Admin(gateway.root).create_topics([txlog.NewTopic("shared", 4)])
    members = [
        librdkafka.Consumer(gateway.config(group_id="shared", session_timeout_ms=6_000))
        for _ in range(2)
    ]
    for member in members:
        member.subscribe(["shared"])

    def assigned() -> list[list[int]]:
        for member in members:
            member.poll(0.1)
        return [sorted(one.partition for one in member.assignment()) for member in members]

    seen = [assigned() for _ in range(100)]
    assert sorted(p for one in seen[-1] for p in one) == [0, 1, 2, 3]
    assert [len(one) for one in seen[-1]] == [2, 2]
    members.pop().close()
    alone = [assigned() for _ in range(50)]
    assert alone[-1] == [[0, 1, 2, 3]]
    members.pop().close()


def test_record_for_a_log_that_was_removed_is_refused_and_makes_none(tmp_path: Path) -> None:
    own = Gateway(str(tmp_path / "log"))
    errors: list[librdkafka.KafkaError | None] = []
    producer = librdkafka.Producer(own.config(message_timeout_ms=3_000))
    for _ in range(2):
        producer.produce("removed", b"1", on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(WAIT_S) == 0
        shutil.rmtree(own.root, ignore_errors=True)
    own.stop()
    assert errors[0] is None
    assert errors[1] is not None
    assert not Path(own.root).exists()
