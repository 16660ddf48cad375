"""Each request in each version that the gateway names is served, and its answer is of that version:
old clients send old ones. And what they answer while the disk is full."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any

import confluent_kafka as librdkafka
import pytest
from kafka import errors as kafka
from kafka.protocol import admin, consumer, metadata, producer, sasl
from kafka.protocol.api_header import ResponseClassRegistry
from kafka.protocol.api_message import ApiMessage

import txlog
from tests.processes.kafka_gateway import WAIT_S, Gateway
from tests.unit.kafka.raw_requests import asked, asked_alone, framed, read_frame
from tests.unit.kafka.test_bad_input import memory_mb
from tests.unit.kafka.test_clients import values
from tests.unit.kafka.test_refusals import batch
from txlog.kafka.apis import REQUESTS
from txlog.storage.store import TEMPORARY_PREFIX

TOPIC, GROUP, ID = "versions", "versions", "versions"
WAITS = {"timeout_ms": 1_000}
FETCHED = consumer.FetchRequest.FetchTopic
CREATED = admin.CreateTopicsRequest.CreatableTopic
COMMITTED = consumer.OffsetCommitRequest.OffsetCommitRequestTopic
PREPARING = (admin.CreateTopicsRequest, producer.ProduceRequest, consumer.SyncGroupRequest)
_numbers = count()


@pytest.fixture(scope="module")
def connection(gateway: Gateway) -> Iterator[socket.socket]:
    log = txlog.Admin(gateway.root)
    log.create_topic(TOPIC)
    with txlog.Producer(gateway.root) as sender:
        sender.send(TOPIC, b"v")
    with gateway.connected() as found:
        yield found


class Client:
    """A member of a group of one, with a transactional id of the same name."""

    def __init__(self, connection: socket.socket) -> None:
        self.name = f"{GROUP}-{next(_numbers)}"
        join = consumer.JoinGroupRequest(
            group_id=self.name, session_timeout_ms=6_000, rebalance_timeout_ms=6_000, member_id="",
            group_instance_id="one", protocol_type="consumer", protocols=[("range", b"")],
        )  # fmt: skip
        joined = asked(connection, join, 5)
        self.member = {
            "group_id": self.name,
            "generation_id": joined.generation_id,
            "member_id": joined.member_id,
        }
        init = producer.InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout_ms=60_000
        )
        known = asked(connection, init, 0)
        self.who = {
            "transactional_id": self.name,
            "producer_id": known.producer_id,
            "producer_epoch": known.producer_epoch,
        }


def requests(client: Client) -> list[ApiMessage]:
    """One of each kind, in the order of a client's life."""
    name, member, who = client.name, client.member, client.who
    v3_and_below = {f"v3_and_below_{key}": value for key, value in who.items()}
    fetched = FETCHED.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    done = COMMITTED.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    part = producer.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    pended = part.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    configs = admin.IncrementalAlterConfigsRequest.AlterConfigsResource
    left = consumer.LeaveGroupRequest.MemberIdentity(
        member_id=member["member_id"], group_instance_id="one"
    )
    return [
        metadata.ApiVersionsRequest(
            client_software_name="tests", client_software_version="1"
        ),
        metadata.MetadataRequest(topics=[(TOPIC,)], allow_auto_topic_creation=False),
        admin.DescribeClusterRequest(endpoint_type=1),
        admin.DescribeLogDirsRequest(topics=[(TOPIC, [0])]),
        admin.ListPartitionReassignmentsRequest(topics=None, **WAITS),
        admin.CreateTopicsRequest(
            topics=[CREATED(name=name, num_partitions=1, replication_factor=1)], **WAITS
        ),
        admin.CreatePartitionsRequest(topics=[(name, 2, None)], validate_only=False, **WAITS),
        admin.DescribeConfigsRequest(resources=[(2, name, None)]),
        admin.AlterConfigsRequest(resources=[(2, name, [])], validate_only=False),
        admin.IncrementalAlterConfigsRequest(
            resources=[
                configs(
                    resource_type=2, resource_name=name, configs=[("retention.ms", 0, "1000")]
                )
            ],
            validate_only=False,
        ),
        producer.ProduceRequest(
            transactional_id=None, acks=-1, topic_data=[(name, [(0, batch(b"v"))])], **WAITS
        ),
        consumer.FetchRequest(
            max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, isolation_level=1, rack_id="",
            topics=[FETCHED(topic=name, partitions=[fetched])], forgotten_topics_data=[],
        ),
        consumer.ListOffsetsRequest(replica_id=-1, topics=[(name, [(0, -1, -1)])]),
        admin.DeleteRecordsRequest(topics=[(name, [(0, 1)])], **WAITS),
        metadata.FindCoordinatorRequest(key=name, key_type=0),
        consumer.JoinGroupRequest(
            group_id=f"{name}-new", session_timeout_ms=6_000, rebalance_timeout_ms=6_000,
            member_id="", group_instance_id="one", protocol_type="consumer",
            protocols=[("range", b"")],
        ),
        consumer.SyncGroupRequest(
            **member, protocol_type="consumer", protocol_name="range",
            assignments=[(member["member_id"], b"share")],
        ),
        consumer.HeartbeatRequest(**member),
        consumer.OffsetCommitRequest(
            group_id=name, generation_id_or_member_epoch=member["generation_id"],
            member_id=member["member_id"], topics=[COMMITTED(name=name, partitions=[done])],
        ),
        consumer.OffsetFetchRequest(group_id=name, topics=[(name, [0])]),
        admin.ListGroupsRequest(states_filter=[], types_filter=[]),
        admin.DescribeGroupsRequest(groups=[name]),
        producer.AddPartitionsToTxnRequest(v3_and_below_topics=[(name, [0])], **v3_and_below),
        producer.AddOffsetsToTxnRequest(group_id=name, **who),
        producer.TxnOffsetCommitRequest(
            **who, **member, topics=[part(name=name, partitions=[pended])]
        ),
        admin.DescribeProducersRequest(topics=[(name, [0])]),
        admin.ListTransactionsRequest(
            state_filters=[], producer_id_filters=[], duration_filter=-1
        ),
        admin.DescribeTransactionsRequest(transactional_ids=[name]),
        producer.EndTxnRequest(committed=False, **who),
        producer.InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=1_000, producer_id=-1, producer_epoch=-1
        ),
        consumer.LeaveGroupRequest(
            group_id=name, member_id=member["member_id"], members=[left]
        ),
        consumer.OffsetDeleteRequest(group_id=name, topics=[(name, [(1,)])]),
        admin.DeleteGroupsRequest(groups_names=[name]),
        admin.DeleteTopicsRequest(topic_names=[name], **WAITS),
    ]  # fmt: skip


def codes(fields: Mapping[str, Any], data: Any, version: int) -> Iterator[int]:
    """All error codes of an answer."""
    for name, field in fields.items():
        value = getattr(data, name, None)
        if name.endswith("error_code"):
            yield value
        elif field.is_struct_array():
            for item in value or ():
                yield from codes(field.fields, item, version)


def test_every_request_is_served_in_every_version(connection: socket.socket) -> None:
    """And no byte of an answer is left over, or missing."""
    served: set[tuple[int, int]] = set()
    for version in range(max(high for _, (_, high), _ in REQUESTS.values()) + 1):
        client = Client(connection)
        for request in requests(client):
            key = int(request.API_KEY)
            kind, (low, high), _ = REQUESTS[key]
            used = min(max(version, low), high)
            connection.sendall(framed(request, used))
            frame = read_frame(connection)
            response = ResponseClassRegistry.get_response_class(request.header)
            answer = response.decode(frame, version=used, header=True)
            assert bytes(answer.encode(header=True)) == frame, (kind, used)
            # Before static members, one is first given an id (KIP-394).
            expected = 79 if kind is consumer.JoinGroupRequest and used == 4 else 0
            assert set(codes(answer.fields, answer, used)) <= {expected}, (kind, used, answer)
            served.add((key, used))
    logins = {sasl.SaslHandshakeRequest.API_KEY, sasl.SaslAuthenticateRequest.API_KEY}
    named = {(k, v) for k, (_, (low, high), _) in REQUESTS.items() for v in range(low, high + 1)}
    assert {one for one in named if one[0] not in logins} == served


@pytest.mark.parametrize("version", range(3))
def test_login_is_answered_in_every_version(gateway: Gateway, version: int) -> None:
    """With IllegalSaslStateError, by a gateway without users."""
    low, high = REQUESTS[sasl.SaslAuthenticateRequest.API_KEY][1]
    assert low <= version <= high
    for request, used in (
        (sasl.SaslHandshakeRequest(mechanism="PLAIN"), 1),
        (sasl.SaslAuthenticateRequest(auth_bytes=b"\0a\0b"), version),
    ):
        answer = asked_alone(gateway, request, used)
        assert answer.error_code == kafka.IllegalSaslStateError.errno


def objects(root: str) -> set[Path]:
    """A client that asks again has a file under a temporary name meanwhile."""
    named = (p for p in Path(root).rglob("*") if not p.name.startswith(TEMPORARY_PREFIX))
    return {path for path in named if path.is_file()}


def test_full_disk_is_told_by_codes_at_which_clients_ask_again(gateway: Gateway) -> None:
    """And when there is room, all goes on without loss; three megabytes wait meanwhile."""

    def leave_room(size: int) -> None:
        resource.prlimit(gateway.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    log = txlog.Admin(gateway.root)
    log.create_topics([txlog.NewTopic("full"), txlog.NewTopic("full-too")])
    errors: list[object] = []
    sender = librdkafka.Producer(gateway.config(linger_ms=0, enable_idempotence=True))
    writer = librdkafka.Producer(gateway.config(transactional_id="full"))
    writer.init_transactions(WAIT_S)
    writer.begin_transaction()
    writer.produce("full-too", b"before")
    assert writer.flush(WAIT_S) == 0
    with gateway.connected() as connection:
        client = Client(connection)
        for request in requests(client):
            if isinstance(request, PREPARING):
                asked(connection, request, REQUESTS[request.API_KEY][1][1])
        before, files = memory_mb(gateway), objects(gateway.root)
        leave_room(0)
        for number in range(200):
            sender.produce(
                "full", b"%03d" % number * 5_000, on_delivery=lambda e, _: errors.append(e)
            )
        writer.produce("full-too", b"after")
        ending = Thread(target=writer.commit_transaction, args=(WAIT_S,), daemon=True)
        ending.start()
        refused = set()
        for request in requests(client):
            version = REQUESTS[request.API_KEY][1][1]
            answer = asked(connection, request, version)
            found = {one for one in codes(answer.fields, answer, version) if one}
            # The topic exists, and the group has no offsets yet.
            if not isinstance(request, (admin.CreateTopicsRequest, admin.DeleteGroupsRequest)):
                assert all(kafka.for_code(code).retriable for code in found), answer
            refused |= {request.API_KEY} if found else set()
        assert len(refused) > 10
        assert memory_mb(gateway) <= before + 30
        assert objects(gateway.root) == files
        leave_room(resource.RLIM_INFINITY)
    ending.join(WAIT_S)
    assert sender.flush(WAIT_S) == 0
    assert errors == [None] * 200
    sent = [value[:3] for value in values(gateway.root, "full")]
    assert sent == [b"%03d" % number for number in range(200)]
    assert values(gateway.root, "full-too", 2) == [b"before", b"after"]
    assert log.verify().findings == []
