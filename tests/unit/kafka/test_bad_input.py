"""Clients that send garbage, too much, or nothing; and a log that cannot be written. The gateway
closes the connection or answers with Kafka's error, says so in one line, and goes on."""

import ctypes
import os
import re
import resource
import shutil
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import confluent_kafka as librdkafka
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafka.protocol import admin, consumer, metadata, producer
from kafka.protocol.api_message import ApiMessage

import txlog
from tests.processes.kafka_gateway import WAIT_S, Gateway
from tests.unit.kafka.raw_requests import answered, asked, asked_alone, framed
from txlog.kafka.apis import REQUESTS
from txlog.kafka.server import CONNECTIONS_MAX

VERSIONS = metadata.ApiVersionsRequest
CONNECTIONS = 1_000
MEMORY_MAX_MB = 150
IDLE_MB = 10
"""Of a thousand connections."""


def memory_mb(gateway: Gateway, kind: str = "VmRSS") -> int:
    status = Path(f"/proc/{gateway.process.pid}/status").read_text()
    found = re.search(rf"{kind}:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) >> 10


def stored(root: str) -> dict[str, int]:
    return {str(p): p.stat().st_size for p in Path(root).rglob("*") if p.is_file()}


def serves(gateway: Gateway) -> bool:
    return asked_alone(gateway, VERSIONS(), 2).error_code == 0


def what_comes_back(gateway: Gateway, data: bytes) -> bytes:
    """All answers until the connection is closed."""
    found = b""
    with gateway.connected() as client:
        try:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            while part := client.recv(1 << 16):
                found += part
        except ConnectionError:  # It was closed before it had read everything.
            pass
    return found


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "no Kafka client"),
        (struct.pack(">i", 2_000_000_000), "a frame of 2000000000 bytes"),
        (struct.pack(">i", -1), "a frame of -1 bytes"),
        (struct.pack(">i", 7), "a frame of 7 bytes"),
        (struct.pack(">ihhi", 90 << 20, 3, 9, 1), "a frame of 94371840 bytes without records"),
        (struct.pack(">ihhi", 8, 9_999, 0, 1), "request 9999 is not known"),
        (struct.pack(">ihhi", 8, -1, 0, 1), "request -1 is not known"),
        (struct.pack(">ihhi", 8, 68, 0, 1), "request 68 is not known"),
        (struct.pack(">ihhi", 8, 0, 99, 1), "version 99 is not known"),
        (struct.pack(">ihhi", 40, 0, 7, 1) + b"\xff" * 32, "lacks a value"),
        (struct.pack(">ihhi", 40, 0, 7, 1) + b"\x01" * 32, "cannot be decoded"),
        (b"\x00\x00", "ended within a request"),
        (struct.pack(">ihhi", 100, 0, 7, 1), "ended within a request"),
        (b"\x16\x03\x01\x02\x00\x01\x00", "speaks TLS"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_garbage_closes_the_connection_with_one_line(
    gateway: Gateway, sent: bytes, said: str
) -> None:
    before, seen = stored(gateway.root), len(gateway.messages)
    assert what_comes_back(gateway, sent) == b""
    [line] = gateway.lines_since(seen)
    assert said in line
    assert stored(gateway.root) == before
    assert serves(gateway)


# Fuzzing.


SAMPLES: list[tuple[ApiMessage, int]] = [
    (producer.ProduceRequest(
        transactional_id=None, acks=-1, timeout_ms=1, topic_data=[("fuzz", [(0, b"x" * 80)])]
    ), 8),
    (consumer.FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=9, isolation_level=1, session_id=0,
        topics=[consumer.FetchRequest.FetchTopic(topic="fuzz", partitions=[
            consumer.FetchRequest.FetchTopic.FetchPartition(
                partition=0, fetch_offset=0, partition_max_bytes=9)])],
        forgotten_topics_data=[], rack_id="",
    ), 11),
    (metadata.MetadataRequest(
        topics=[("fuzz",)], allow_auto_topic_creation=False), 4),
    (consumer.OffsetFetchRequest(group_id="fuzz", topics=[("fuzz", [0])]), 7),
    (consumer.JoinGroupRequest(
        group_id="fuzz", session_timeout_ms=6_000, rebalance_timeout_ms=6_000, member_id="",
        group_instance_id=None, protocol_type="consumer", protocols=[("range", b"")],
    ), 7),
    (admin.DescribeConfigsRequest(
        resources=[(2, "fuzz", None)], include_synonyms=True), 4),
    (admin.ListTransactionsRequest(
        state_filters=["Ongoing"], producer_id_filters=[1], duration_filter=1), 1),
    (admin.DeleteRecordsRequest(topics=[("fuzz", [(0, 0)])], timeout_ms=1), 2),
]  # fmt: skip
"""None of them writes."""

NUMBERS = st.sampled_from(
    [b"\xff" * 4, b"\x7f" + b"\xff" * 3, b"\x80\0\0\0", b"\0" * 4, b"\xff" * 9]
)


@st.composite
def changed_frames(draw: st.DrawFn) -> bytes:
    request, version = draw(st.sampled_from(SAMPLES))
    body = bytearray(framed(request, version)[4:])
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(body) - 1, 0)))
        change = draw(NUMBERS | st.binary(max_size=6))
        how = draw(st.sampled_from(["overwrite", "insert", "cut"]))
        if how == "overwrite":
            body[at : at + len(change)] = change
        elif how == "insert":
            body[at:at] = change
        else:
            del body[at:]
    return struct.pack(">i", len(body)) + bytes(body)


@st.composite
def any_requests(draw: st.DrawFn) -> bytes:
    key = draw(st.sampled_from(sorted(REQUESTS)))
    low, high = REQUESTS[key][1]
    head = struct.pack(">hhih", key, draw(st.integers(low, high)), 1, -1)
    body = head + draw(st.binary(max_size=60))
    return struct.pack(">i", len(body)) + body


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    root = str(tmp_path_factory.mktemp("fuzzed") / "log")
    txlog.Admin(root, create=True).create_topic("fuzz")
    started = Gateway(root, "--no-auto-create-topics")
    yield started
    started.stop()


@given(frames=st.lists(changed_frames() | any_requests() | st.binary(max_size=40), max_size=4))
@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_no_bytes_stop_the_gateway(fuzzed: Gateway, frames: list[bytes]) -> None:
    seen = len(fuzzed.messages)
    answers = what_comes_back(fuzzed, b"".join(frames))
    while answers:  # Whole frames, never a part of one.
        (size,) = struct.unpack_from(">i", answers)
        assert 4 <= size <= len(answers) - 4
        answers = answers[4 + size :]
    assert fuzzed.process.poll() is None
    assert not any("Traceback" in line for line in fuzzed.messages[seen:])


def test_log_is_whole_after_the_fuzzing_and_the_gateway_small(fuzzed: Gateway) -> None:
    assert serves(fuzzed)
    log = txlog.Admin(fuzzed.root)
    assert log.verify().findings == []
    [partition] = log.describe_topic("fuzz").partitions
    assert partition.end_offset == 0
    assert memory_mb(fuzzed, "VmHWM") <= MEMORY_MAX_MB


@pytest.mark.parametrize("request_and_version", SAMPLES, ids=lambda pair: type(pair[0]).__name__)
def test_frame_that_claims_many_items_is_small_and_quick(
    fuzzed: Gateway, request_and_version: tuple[ApiMessage, int]
) -> None:
    """Two megabytes of zeros, at each place a number of items may stand."""
    request, version = request_and_version
    body = framed(request, version)[4:]
    began = time.monotonic()
    for at in range(15, min(len(body), 40)):
        for claim in (b"\x00\x0f\xff\xff", b"\x7f\xff\xff\xff", b"\xff\xff\x7f"):
            data = body[:at] + claim + bytes(1 << 16)
            what_comes_back(fuzzed, struct.pack(">i", len(data)) + data)
    assert serves(fuzzed)
    assert time.monotonic() - began < WAIT_S
    assert memory_mb(fuzzed, "VmHWM") <= MEMORY_MAX_MB + 50


# Many connections.


@contextmanager
def files(count: int) -> Iterator[None]:
    """Room for so many open files in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def produce_request(topic: str, value: bytes) -> ApiMessage:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    for number in range(100):
        builder.append(number, 1, None, value, [])
    kind = producer.ProduceRequest.TopicProduceData
    part = kind.PartitionProduceData(index=0, records=bytes(builder.build()))
    return producer.ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=1_000,
        topic_data=[kind(name=topic, partition_data=[part])],
    )


def test_hundred_writers_and_a_thousand_idle_connections_take_little_memory(
    tmp_path: Path,
) -> None:
    own = Gateway(str(tmp_path / "log"))
    names = [f"t{number}" for number in range(5)]
    txlog.Admin(own.root).create_topics([txlog.NewTopic(name) for name in names])
    with files(CONNECTIONS + 200), ExitStack() as stack:
        writers = [stack.enter_context(own.connected()) for _ in range(100)]
        for _ in range(3):
            sent = [produce_request(names[number % 5], bytes(100)) for number in range(100)]
            for writer, request in zip(writers, sent, strict=True):
                writer.sendall(framed(request, 8))
            for writer, request in zip(writers, sent, strict=True):
                [topic] = answered(writer, request).responses
                assert topic.partition_responses[0].error_code == 0
        assert memory_mb(own, "VmHWM") <= MEMORY_MAX_MB
        for _ in range(CONNECTIONS - 100):
            assert asked(stack.enter_context(own.connected()), VERSIONS(), 2).error_code == 0
        assert refusal(own) is None
        assert memory_mb(own, "VmHWM") <= MEMORY_MAX_MB + IDLE_MB
    own.stop()


def test_connection_beyond_the_limit_is_closed_and_said_once(tmp_path: Path) -> None:
    few = 128 + 40
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    own = Gateway(
        str(tmp_path / "log"),
        before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (few, few)),
    )
    assert (soft, hard) == resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as stack:
        kept = [stack.enter_context(own.connected()) for _ in range(40)]
        assert all(asked(client, VERSIONS(), 2).error_code == 0 for client in kept)
        for _ in range(200):
            assert what_comes_back(own, b"") == b""
        assert asked(kept[0], VERSIONS(), 2).error_code == 0
    [line] = own.lines_since(0)
    assert "40 are open" in line
    deadline = time.monotonic() + WAIT_S
    while what_comes_back(own, framed(VERSIONS(), 2)) == b"":
        assert time.monotonic() < deadline
    own.stop()


@pytest.mark.extra
@pytest.mark.slow
def test_of_ten_thousand_connections_those_beyond_the_limit_are_closed(tmp_path: Path) -> None:
    own = Gateway(str(tmp_path / "log"))
    with files(11_000), ExitStack() as stack:
        kept = [stack.enter_context(own.connected()) for _ in range(CONNECTIONS_MAX)]
        assert all(asked(client, VERSIONS(), 2).error_code == 0 for client in kept)
        others = [stack.enter_context(own.connected()) for _ in range(10_000 - CONNECTIONS_MAX)]
        assert all(other.recv(1) == b"" for other in others)
        assert all(asked(client, VERSIONS(), 2).error_code == 0 for client in kept)
        assert memory_mb(own, "VmHWM") <= MEMORY_MAX_MB
        [line] = own.lines_since(0)
        assert f"{CONNECTIONS_MAX} are open" in line
        kept.pop().close()
        deadline = time.monotonic() + WAIT_S
        while what_comes_back(own, framed(VERSIONS(), 2)) == b"":
            assert time.monotonic() < deadline
    own.stop()


def test_client_that_does_not_read_stops_no_other(gateway: Gateway) -> None:
    sender = librdkafka.Producer(gateway.config(linger_ms=20))
    for _ in range(200):
        sender.produce("wide", bytes(100_000))
        sender.poll(0)
    assert sender.flush(WAIT_S) == 0
    part = consumer.FetchRequest.FetchTopic.FetchPartition(
        partition=0, fetch_offset=0, partition_max_bytes=1 << 30
    )
    fetch = consumer.FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 30,
        isolation_level=0,
        session_id=0,
        topics=[consumer.FetchRequest.FetchTopic(topic="wide", partitions=[part])],
        forgotten_topics_data=[],
        rack_id="",
    )
    with ExitStack() as stack:
        for _ in range(5):
            deaf = stack.enter_context(gateway.connected())
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            deaf.sendall(framed(fetch, 11) * 3)
        for number in range(20):
            sender.produce("beside", b"%d" % number)
            assert sender.flush(WAIT_S) == 0
        assert serves(gateway)


# A log that cannot be written.


def refusal(gateway: Gateway, value: bytes = b"v") -> librdkafka.KafkaError | None:
    """What a producer is told that repeats for a moment."""
    errors: list[librdkafka.KafkaError | None] = []
    sender = librdkafka.Producer(gateway.config(message_timeout_ms=3_000))
    sender.produce("t", value, on_delivery=lambda error, _: errors.append(error))
    assert sender.flush(WAIT_S) == 0
    [error] = errors
    return error


def test_other_log_in_its_place_is_not_written(tmp_path: Path) -> None:
    root = tmp_path / "log"
    own = Gateway(str(root))
    assert refusal(own) is None
    shutil.rmtree(root)
    other = txlog.Admin(str(root), create=True)
    other.create_topic("t")
    before = stored(str(root))
    assert refusal(own) is not None
    assert stored(str(root)) == before
    assert any("log" in line for line in own.messages)
    own.stop()


def test_full_disk_is_an_error_that_is_repeated_and_nothing_is_written_in_part(
    tmp_path: Path,
) -> None:
    root = str(tmp_path / "log")
    txlog.Admin(root, create=True).create_topic("t")
    limit = 200_000
    own = Gateway(root, before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    assert refusal(own) is None
    error = refusal(own, os.urandom(2 * limit))
    assert error is not None
    assert error.code() == librdkafka.KafkaError._MSG_TIMED_OUT
    assert refusal(own) is None
    assert txlog.Admin(root).describe_topic("t").partitions[0].end_offset == 2
    assert txlog.Admin(root).verify().findings == []
    own.stop()


PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2


def obey_permissions() -> None:
    """The superuser may write everywhere; without these capabilities it may not. For another user
    the calls do nothing."""
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


def test_log_that_may_not_be_written_is_read_and_a_producer_told(tmp_path: Path) -> None:
    root = tmp_path / "log"
    txlog.Admin(str(root), create=True).create_topic("t")
    with txlog.Producer(str(root)) as sender:
        sender.send("t", b"kept")
    stack = ExitStack()
    for path in (root, *root.rglob("*")):
        stack.callback(path.chmod, path.stat().st_mode)
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = stored(str(root))
    with stack:
        own = Gateway(str(root), before=obey_permissions)
        error = refusal(own)
        assert error is not None
        assert error.code() == librdkafka.KafkaError.CLUSTER_AUTHORIZATION_FAILED
        reader = librdkafka.Consumer(own.config(group_id="r", auto_offset_reset="earliest"))
        reader.assign([librdkafka.TopicPartition("t", 0, 0)])
        message = reader.poll(WAIT_S) or pytest.fail("no record")
        assert message.value() == b"kept"
        with pytest.raises(librdkafka.KafkaException) as denied:
            reader.commit(message, asynchronous=False)
        assert denied.value.args[0].code() == librdkafka.KafkaError.GROUP_AUTHORIZATION_FAILED
        reader.subscribe(["t"])
        message = reader.poll(WAIT_S) or pytest.fail("no error")
        error = message.error() or pytest.fail("a record, to a group that cannot be kept")
        assert error.code() == librdkafka.KafkaError.GROUP_AUTHORIZATION_FAILED
        reader.close()
        writer = librdkafka.Producer(own.config(transactional_id="w"))
        with pytest.raises(librdkafka.KafkaException) as denied:
            writer.init_transactions(WAIT_S)
        assert denied.value.args[0].code() == librdkafka.KafkaError.CLUSTER_AUTHORIZATION_FAILED
        assert stored(str(root)) == before
        [line] = own.lines_since(0)
        assert "Permission denied" in line
        own.stop()
