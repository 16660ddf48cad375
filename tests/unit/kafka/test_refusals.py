"""Requests that make no sense get Kafka's code, and nothing is written."""

import asyncio
import gzip
import re
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.util import calc_crc32c
from kafka import errors as kafka
from kafka.protocol import consumer, producer

import txlog
from tests.logs.memory_log import MemoryLog
from tests.processes.kafka_gateway import Gateway
from tests.source_tree import ROOT
from tests.unit.kafka.raw_requests import answered, asked, framed
from txlog.groups.offsets import GroupOffsets
from txlog.kafka import groups
from txlog.kafka.gateways import Gateways
from txlog.kafka.group_leases import GroupLeases

TOPIC = "refused"
CRC_AT, AFTER_CRC, HEAD_BYTES = 17, 21, 61
GIGABYTE = 1 << 30


@pytest.fixture(scope="module")
def log(gateway: Gateway) -> txlog.Admin:
    admin = txlog.Admin(gateway.root)
    admin.create_topic(TOPIC, 2)
    return admin


@pytest.fixture
def connection(gateway: Gateway, log: txlog.Admin) -> Iterator[socket.socket]:
    with gateway.connected() as found:
        yield found


def batch(
    *values: bytes,
    pid: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    is_transactional: bool = False,
) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, int(is_transactional), pid, epoch, sequence, 1 << 20)
    for number, value in enumerate(values):
        builder.append(number, 0, None, value, [])
    return bytes(builder.build())


def message(magic: int) -> bytes:
    """Of a client older than record batches."""
    builder = LegacyRecordBatchBuilder(magic, 0, 1 << 20)
    builder.append(0, 1, None, b"x")
    return bytes(builder.build())


def with_crc(data: bytes) -> bytes:
    """The batch with the CRC of its bytes, and its length."""
    data = data[:8] + struct.pack(">i", len(data) - 12) + data[12:]
    return data[:CRC_AT] + struct.pack(">I", calc_crc32c(data[AFTER_CRC:])) + data[AFTER_CRC:]


def compressed(codec: int, payload: bytes) -> bytes:
    """A batch whose records are these bytes, said to be compressed."""
    head = batch(b"x")[:HEAD_BYTES]
    return with_crc(head[:AFTER_CRC] + struct.pack(">h", codec) + head[AFTER_CRC + 2 :] + payload)


def snappy_bomb() -> bytes:
    return b"\x80\x80\x80\x80\x04" + b"\x00" * 20


def request(
    records: bytes,
    *,
    acks: int = -1,
    partition: int = 0,
    topic: str = TOPIC,
    transactional_id: str | None = None,
) -> producer.ProduceRequest:
    part = producer.ProduceRequest.TopicProduceData.PartitionProduceData
    return producer.ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=1_000,
        topic_data=[
            producer.ProduceRequest.TopicProduceData(
                name=topic, partition_data=[part(index=partition, records=records)]
            )
        ],
    )


def code_of(connection: socket.socket, sent: producer.ProduceRequest) -> int:
    [topic] = asked(connection, sent, 8).responses
    [part] = topic.partition_responses
    assert bool(part.error_message) == bool(part.error_code)
    return int(part.error_code)


FLIPPED = bytearray(batch(b"flipped"))
FLIPPED[-1] ^= 1
CONTROL = with_crc(batch(b"c")[:AFTER_CRC] + b"\x00\x20" + batch(b"c")[AFTER_CRC + 2 :])


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (request(batch(b"x"), acks=2), kafka.InvalidRequiredAcksError),
        (request(batch(b"x"), partition=9), kafka.UnknownTopicOrPartitionError),
        (request(batch(b"x"), topic="absent"), kafka.UnknownTopicOrPartitionError),
        (request(b""), kafka.InvalidRecordError),
        (request(batch(b"x")[:-1]), kafka.InvalidRecordError),
        (request(batch(b"x") * 2), kafka.InvalidRecordError),
        (request(bytes(FLIPPED)), kafka.CorruptRecordError),
        (request(CONTROL), kafka.InvalidRecordError),
        (request(message(0)), kafka.InvalidRecordError),
        (request(message(1)), kafka.InvalidRecordError),
        (request(batch(b"x")[:16] + b"\x03" + batch(b"x")[17:]), kafka.InvalidRecordError),
        (request(batch()), kafka.InvalidRecordError),
        (request(batch(b"x", pid=-2)), kafka.InvalidRecordError),
        (request(batch(b"x", pid=1 << 62, epoch=0, sequence=0)), kafka.InvalidRecordError),
        (request(batch(b"x", pid=1, epoch=0)), kafka.InvalidRecordError),
        (request(batch(b"x", pid=1, epoch=0, sequence=-(1 << 31))), kafka.InvalidRecordError),
        (request(compressed(7, b"x")), kafka.UnsupportedCompressionTypeError),
        (request(compressed(0, b"\xff" * 40)), kafka.InvalidRecordError),
        (request(compressed(1, b"\xff" * 40)), kafka.InvalidRecordError),
        (request(batch(b"x" * 2_000_000)), kafka.MessageSizeTooLargeError),
        (request(batch(b"x", is_transactional=True)), kafka.InvalidTxnStateError),
    ],
)
def test_produce_that_makes_no_sense_is_refused(
    connection: socket.socket,
    log: txlog.Admin,
    sent: producer.ProduceRequest,
    error: type[kafka.BrokerResponseError],
) -> None:
    before = log.describe_topic(TOPIC)
    assert code_of(connection, sent) == error.errno
    assert log.describe_topic(TOPIC) == before


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_decompression_bomb_is_refused_before_it_takes_memory(
    gateway: Gateway, connection: socket.socket, codec: str
) -> None:
    number = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}[codec]
    if codec == "gzip":
        bomb = gzip.compress(bytes(GIGABYTE >> 2))
    elif codec == "snappy":
        bomb = snappy_bomb()
    else:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, codec) as stream:
            for _ in range(256):
                stream.write(bytes(1 << 20))
        bomb = sink.getvalue().to_pybytes()
    assert len(bomb) < 4 << 20
    before = peak_kb(gateway)
    assert code_of(connection, request(compressed(number, bomb))) == 10
    assert peak_kb(gateway) - before < 128 << 10


def peak_kb(gateway: Gateway) -> int:
    status = Path(f"/proc/{gateway.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1])


# Sequences and transactions.


def registered(connection: socket.socket, transactional_id: str | None) -> tuple[int, int]:
    sent = producer.InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=60_000, producer_id=-1,
        producer_epoch=-1,
    )  # fmt: skip
    answer = asked(connection, sent, 3)
    assert answer.error_code == 0
    return answer.producer_id, answer.producer_epoch


def test_sequence_of_an_idempotent_producer_has_no_gap_and_repeats_are_recognised(
    connection: socket.socket, log: txlog.Admin
) -> None:
    pid, epoch = registered(connection, None)

    def sent(sequence: int) -> int:
        return code_of(connection, request(batch(b"x", pid=pid, epoch=epoch, sequence=sequence)))

    assert [sent(0), sent(0), sent(2)] == [0, 0, kafka.OutOfOrderSequenceNumberError.errno]


def test_request_with_two_epochs_of_an_idempotent_producer_is_served(
    connection: socket.socket, log: txlog.Admin
) -> None:
    """Java's producer raises its epoch for one partition, and repeats a batch for another one with
    the older epoch."""
    log.create_topic("epochs", 3)
    pid, _ = registered(connection, None)

    def of(epoch: int, sequence: int = 0) -> bytes:
        return batch(b"x", pid=pid, epoch=epoch, sequence=sequence)

    def sent(*batches: bytes) -> list[tuple[int, int]]:
        """Code and offset of each partition."""
        data = request(b"", topic="epochs")
        [topic] = data.topic_data
        kind = type(topic.partition_data[0])
        topic.partition_data = [kind(index=i, records=one) for i, one in enumerate(batches)]
        [answer] = asked(connection, data, 8).responses
        parts = sorted(answer.partition_responses, key=lambda part: part.index)
        return [(part.error_code, part.base_offset) for part in parts]

    assert sent(of(0), of(0), batch(b"x")) == [(0, 0)] * 3
    refused = (kafka.InvalidRecordError.errno, -1)
    assert sent(of(1), of(0, 1), b"") == [(0, 1), (0, 1), refused]
    # A topic has one epoch for all partitions, unlike a broker's.
    refused = (kafka.InvalidProducerEpochError.errno, -1)
    assert sent(of(1), of(0, 2), batch(b"x")) == [(0, 1), refused, (0, 1)]
    assert sent(of(1, 1), of(1), batch(b"x")) == [(0, 2), (0, 2), (0, 2)]


def test_records_outside_of_their_transaction_are_refused(connection: socket.socket) -> None:
    pid, epoch = registered(connection, "outside")

    def sent(sequence: int, *values: bytes, at: int = epoch, who: str = "outside") -> int:
        data = batch(*values, pid=pid, epoch=at, sequence=sequence, is_transactional=True)
        return code_of(connection, request(data, transactional_id=who))

    assert sent(0, b"x", who="absent") == kafka.InvalidTxnStateError.errno
    end = producer.EndTxnRequest(
        transactional_id="absent", producer_id=pid, producer_epoch=epoch, committed=True
    )
    assert asked(connection, end, 3).error_code == kafka.UnknownProducerIdError.errno
    assert sent(0, b"x", at=epoch + 1) == kafka.InvalidTxnStateError.errno
    assert sent(0, b"x") == kafka.InvalidTxnStateError.errno
    add = producer.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="outside",
        v3_and_below_producer_id=pid,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[(TOPIC, [0])],
    )
    [topic] = asked(connection, add, 3).results_by_topic_v3_and_below
    assert [one.partition_error_code for one in topic.results_by_partition] == [0]
    assert [sent(0, b"x"), sent(0, b"x"), sent(1, b"y")] == [0, 0, 0]
    assert sent(3, b"z") == kafka.OutOfOrderSequenceNumberError.errno
    assert sent(1, b"y", b"z") == kafka.DuplicateSequenceNumberError.errno
    registered(connection, "outside")
    assert sent(2, b"z") == kafka.InvalidProducerEpochError.errno
    again = producer.InitProducerIdRequest(
        transactional_id="outside", transaction_timeout_ms=60_000, producer_id=pid,
        producer_epoch=epoch,
    )  # fmt: skip
    assert asked(connection, again, 4).error_code == kafka.ProducerFencedError.errno
    assert asked(connection, again, 3).error_code == kafka.InvalidProducerEpochError.errno


def test_instance_that_was_replaced_leaves_the_transaction_of_the_newer_one_open(
    connection: socket.socket,
) -> None:
    pid, epoch = registered(connection, "replaced")
    newer = registered(connection, "replaced")
    add = producer.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="replaced",
        v3_and_below_producer_id=newer[0],
        v3_and_below_producer_epoch=newer[1],
        v3_and_below_topics=[(TOPIC, [0])],
    )
    asked(connection, add, 3)
    again = producer.InitProducerIdRequest(
        transactional_id="replaced", transaction_timeout_ms=60_000, producer_id=pid,
        producer_epoch=epoch,
    )  # fmt: skip
    assert asked(connection, again, 4).error_code == kafka.ProducerFencedError.errno
    data = batch(b"x", pid=newer[0], epoch=newer[1], sequence=0, is_transactional=True)
    assert code_of(connection, request(data, transactional_id="replaced")) == 0
    end = producer.EndTxnRequest(
        transactional_id="replaced", producer_id=newer[0], producer_epoch=newer[1], committed=True
    )
    assert asked(connection, end, 3).error_code == 0


def test_end_of_a_transaction_that_was_not_begun_is_refused(connection: socket.socket) -> None:
    pid, epoch = registered(connection, "unbegun")
    end = producer.EndTxnRequest(
        transactional_id="unbegun", producer_id=pid, producer_epoch=epoch, committed=True
    )
    assert asked(connection, end, 3).error_code == kafka.InvalidTxnStateError.errno


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001, 2_147_483_647])
def test_transaction_that_would_block_readers_for_ever_is_refused(
    connection: socket.socket, timeout_ms: int
) -> None:
    sent = producer.InitProducerIdRequest(
        transactional_id="slow", transaction_timeout_ms=timeout_ms, producer_id=-1,
        producer_epoch=-1,
    )  # fmt: skip
    answer = asked(connection, sent, 3)
    assert answer.error_code == kafka.InvalidTransactionTimeoutError.errno


@pytest.mark.parametrize("name", ["", "a\nb", "\x1b[31mred", "x" * 30_000])
def test_transactional_id_that_could_not_be_shown_is_refused(
    connection: socket.socket, log: txlog.Admin, name: str
) -> None:
    sent = producer.InitProducerIdRequest(
        transactional_id=name, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )
    assert asked(connection, sent, 3).error_code == kafka.InvalidRequestError.errno
    assert name not in {one.transactional_id for one in log.list_transactions()}


def test_refused_records_without_an_answer_close_the_connection(gateway: Gateway) -> None:
    """As at a broker: the client then asks where the partition is."""
    with gateway.connected() as connection:
        connection.sendall(framed(request(batch(b"x"), acks=0, topic="absent"), 8))
        assert connection.recv(1) == b""


# Reading.


def test_fetch_with_a_session_or_beyond_the_end_is_refused(connection: socket.socket) -> None:
    kind = consumer.FetchRequest

    def fetch(offset: int, session: int = 0) -> Any:
        part = kind.FetchTopic.FetchPartition(
            partition=0, fetch_offset=offset, partition_max_bytes=1 << 20
        )
        sent = kind(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=1,
            session_id=session,
            topics=[kind.FetchTopic(topic=TOPIC, partitions=[part])],
            forgotten_topics_data=[],
            rack_id="",
        )
        return asked(connection, sent, 11)

    assert fetch(0, session=5).error_code == kafka.FetchSessionIdNotFoundError.errno
    for offset in (-1, 1 << 40):
        [topic] = fetch(offset).responses
        assert topic.partitions[0].error_code == kafka.OffsetOutOfRangeError.errno


def test_offset_for_a_time_that_no_one_has_is_refused(connection: socket.socket) -> None:
    kind = consumer.ListOffsetsRequest.ListOffsetsTopic
    part = kind.ListOffsetsPartition(partition_index=0, timestamp=-4)
    sent = consumer.ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=[kind(name=TOPIC, partitions=[part])]
    )
    [topic] = asked(connection, sent, 5).topics
    assert topic.partitions[0].error_code == kafka.UnsupportedVersionError.errno


@pytest.mark.parametrize(("version", "isolation"), [(7, 0), (7, 1), (5, 0)])
def test_offset_of_the_latest_time_is_that_of_the_first_record_with_it(
    connection: socket.socket, log: txlog.Admin, version: int, isolation: int
) -> None:
    """KIP-734; below the log start and in an empty partition there is none."""
    topic = f"times-{version}-{isolation}"
    log.create_topic(topic, 2)
    with txlog.Producer(log.connection) as sender:
        for times_ms in ((9_000, 100), (300, 700, 200), (700, 600)):
            for time_ms in times_ms:
                sender.send(topic, b"x", partition=0, timestamp_ms=time_ms)
            sender.flush()
    log.delete_records({txlog.TopicPartition(topic, 0): 1})
    kind = consumer.ListOffsetsRequest.ListOffsetsTopic
    parts = [kind.ListOffsetsPartition(partition_index=p, timestamp=-3) for p in (0, 1)]
    sent = consumer.ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation, topics=[kind(name=topic, partitions=parts)]
    )
    [found] = asked(connection, sent, version).topics
    assert [(p.offset, p.timestamp) for p in found.partitions] == [(3, 700), (-1, -1)]


# Groups.


def test_commit_answers_for_each_partition(connection: socket.socket, log: txlog.Admin) -> None:
    parts = {(TOPIC, 0): (0, "kept"), (TOPIC, 1): (99, ""), ("gone", 0): (1, "")}
    parts |= {(TOPIC, 7): (0, ""), (f"{TOPIC}-2", 0): (0, "x" * 5_000)}
    log.create_topic(f"{TOPIC}-2")
    sent = consumer.OffsetCommitRequest(
        group_id="each",
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[(topic, [(number, *given)]) for (topic, number), given in parts.items()],
    )
    found = asked(connection, sent, 2).topics
    assert [one.partitions[0].error_code for one in found] == [
        0,
        kafka.OffsetOutOfRangeError.errno,
        kafka.UnknownTopicOrPartitionError.errno,
        kafka.UnknownTopicOrPartitionError.errno,
        kafka.OffsetMetadataTooLargeError.errno,
    ]
    [part, _] = log.describe_group("each").partitions
    assert (part.current_offset, part.metadata) == (0, "kept")


def join(**changes: Any) -> consumer.JoinGroupRequest:
    fields = {
        "group_id": "refused",
        "session_timeout_ms": 6_000,
        "rebalance_timeout_ms": 6_000,
        "member_id": "",
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [("range", b"")],
    }
    return consumer.JoinGroupRequest(**{**fields, **changes})


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"group_id": ""}, kafka.InvalidGroupIdError),
        ({"group_id": "a\nb"}, kafka.InvalidGroupIdError),
        ({"group_id": "led elsewhere"}, kafka.NotCoordinatorError),
        ({"session_timeout_ms": 1}, kafka.InvalidSessionTimeoutError),
        ({"member_id": "stranger"}, kafka.UnknownMemberIdError),
        ({"protocols": []}, kafka.InconsistentGroupProtocolError),
        ({}, kafka.MemberIdRequiredError),
    ],
)
def test_member_that_may_not_join_is_refused(
    gateway: Gateway,
    connection: socket.socket,
    changes: dict[str, Any],
    error: type[kafka.BrokerResponseError],
) -> None:
    if error is kafka.NotCoordinatorError:
        elsewhere = txlog.Admin(gateway.root).connection
        GroupLeases(elsewhere, Gateways(elsewhere, lambda: "elsewhere:1")).take("led elsewhere")
    assert asked(connection, join(**changes), 7).error_code == error.errno


def test_member_of_another_generation_or_instance_is_refused(
    gateway: Gateway, connection: socket.socket
) -> None:
    static = {"group_id": "static", "group_instance_id": "one"}
    joined = asked(connection, join(**static), 7)
    assert joined.error_code == 0
    member, generation = joined.member_id, joined.generation_id
    assert asked(connection, join(**static, member_id="x"), 7).error_code == (
        kafka.FencedInstanceIdError.errno
    )

    def beat(number: int) -> int:
        sent = consumer.HeartbeatRequest(
            group_id="static", generation_id=number, member_id=member, group_instance_id="one"
        )
        return int(asked(connection, sent, 4).error_code)

    assert beat(generation) == 0
    assert beat(generation + 1) == kafka.IllegalGenerationError.errno
    with gateway.connected() as other:
        # A second member asks the first to join again.
        second = join(group_id="static", group_instance_id="two")
        other.sendall(framed(second, 7))
        while (code := beat(generation)) == 0:
            pass
        assert code == kafka.RebalanceInProgressError.errno
        again = asked(connection, join(**static, member_id=member), 7)
        assert (again.error_code, answered(other, second).error_code) == (0, 0)


def test_member_of_a_gateway_that_was_killed_and_started_again_joins_at_once(
    tmp_path: Path,
) -> None:
    """Told to look for the group's gateway, it would come back here until its session ends."""
    root = str(tmp_path / "log")
    with Gateway(root) as first, first.connected() as connection:
        joined = asked(connection, join(group_id="again", group_instance_id="one"), 7)
        assert joined.error_code == 0
        first.kill()
    who = {"group_id": "again", "generation_id": joined.generation_id, "group_instance_id": "one"}
    beat = consumer.HeartbeatRequest(member_id=joined.member_id, **who)
    sync = consumer.SyncGroupRequest(member_id=joined.member_id, assignments=[], **who)
    with Gateway(root, listen=first.address) as second, second.connected() as connection:
        for sent in (beat, sync):
            assert asked(connection, sent, 3).error_code == kafka.UnknownMemberIdError.errno
        assert asked(connection, join(group_id="again", group_instance_id="one"), 7).error_code == 0


def test_group_without_room_takes_no_member(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "MEMBERS_MAX", 0)
    request = consumer.JoinGroupRequest.decode(framed(join(), 7)[4:], version=7, header=True)
    answer = asyncio.run(groups.Groups(lambda: "token").join(request))
    assert answer.error_code == kafka.GroupMaxSizeReachedError.errno


def test_gateway_that_loses_every_attempt_to_lead_lets_the_client_ask_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def taken(*_: object) -> None:
        raise txlog.errors.CommitFailed("another gateway was first. Read the group again.")

    monkeypatch.setattr(GroupOffsets, "commit", taken)
    connection = MemoryLog().connection
    with pytest.raises(kafka.CoordinatorNotAvailableError):
        GroupLeases(connection, Gateways(connection, lambda: "here:1")).take("group")


def test_every_code_that_the_gateway_answers_is_met_by_a_test() -> None:
    """In the text of the tests here, by the name of kafka-python or librdkafka."""
    texts = [path.read_text() for path in (ROOT / "tests/unit/kafka").glob("*.py")]
    used = {
        name
        for path in (ROOT / "txlog/kafka").glob("*.py")
        for name in re.findall(r"\b\w+Error\b", path.read_text())
        if path.name != "error_codes.py"
    }
    names = {n for n in used if getattr(getattr(kafka, n, None), "errno", None) is not None}
    assert len(names) > 20
    met = {
        name
        for name in names
        if any(
            name in text or f"KafkaError.{getattr(kafka, name).message}" in text for text in texts
        )
    }
    assert names - met == set()
