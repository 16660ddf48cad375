"""Requests of administrators for groups, producers and transactions.

Offsets are the log's; members are those that this gateway serves.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from kafka import errors as kafka
from kafka.protocol import admin, consumer
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from txlog.client.admin import TransactionListing
from txlog.clock import elapsed_ms
from txlog.coordinator.transaction import TransactionState
from txlog.errors import GroupOwned, TxlogError
from txlog.groups.state import GroupState
from txlog.kafka.error_codes import code_of, tried
from txlog.kafka.gateways import GATEWAYS
from txlog.kafka.group_leases import LEADER
from txlog.kafka.groups import Group, GroupPhase
from txlog.kafka.producers import SEQUENCES
from txlog.kafka.requests import code_of_leader
from txlog.model import TopicPartition

if TYPE_CHECKING:
    from txlog.kafka.server import KafkaServer

_CLASSIC = "classic"
"""The one type of group (KIP-848)."""
_ASKS_FOR_MISSING = 6
"""From this version of DescribeGroups on, an unknown group is an error."""


# Groups.


def _with_offsets(server: KafkaServer) -> list[str]:
    """Groups that have offsets, but those that another gateway leads: it lists them."""
    groups = server.connection.offsets.groups(linearizable=True, on_error=_logged)
    others = set(server.gateways.peers()) - {server.url}
    leaders = {name: one.committed.get(LEADER) for name, one in groups.items()}
    return [
        name
        for name, at in leaders.items()
        if _has_offsets(name, groups[name]) and (at is None or at.metadata not in others)
    ]


def _has_offsets(name: str, group: GroupState) -> bool:
    """Whether it is a group. Those by which gateways lead groups, and are listed, are none."""
    return name != GATEWAYS and bool(group.pending or set(group.committed) - {LEADER})


def _exists(server: KafkaServer, name: str) -> bool:
    return _has_offsets(name, server.connection.offsets.group(name))


def _logged(kind: str, name: str, error: TxlogError) -> None:
    """One coordinator cannot be read: the answer has what others know."""
    code_of(error)


async def list_groups(server: KafkaServer, request: Any) -> Any:
    """ListGroups: those with offsets or members."""
    response = admin.ListGroupsResponse
    code, _, names = await server.call(tried, partial(_with_offsets, server))
    found = dict.fromkeys(names or (), ("", GroupPhase.EMPTY.value))
    found |= {one.group_id: (one.protocol_type, one.phase.value) for one in server.groups.groups()}
    states = {state.lower() for state in request.states_filter or ()}
    types = {kind.lower() for kind in request.types_filter or ()}
    return response(
        error_code=code,
        groups=[
            response.ListedGroup(
                group_id=name, protocol_type=protocol, group_state=state, group_type=_CLASSIC
            )
            for name, (protocol, state) in sorted(found.items())
            if (not states or state.lower() in states) and (not types or _CLASSIC in types)
        ],
    )


async def describe_groups(server: KafkaServer, request: Any) -> Any:
    """DescribeGroups: members, and what each was assigned."""
    kind = admin.DescribeGroupsResponse.DescribedGroup

    async def described(name: str) -> Any:
        group = server.groups.find(name)
        if group is not None:
            return _described(group)
        code, message, is_known = await server.call(tried, partial(_exists, server, name))
        code = code or await code_of_leader(server, name)
        is_missing = not code and not is_known
        if is_missing and request.API_VERSION >= _ASKS_FOR_MISSING:
            code = int(kafka.GroupIdNotFoundError.errno)
        return kind(
            error_code=code,
            error_message=message,
            group_id=name,
            group_state="Dead" if is_missing else GroupPhase.EMPTY.value,
            protocol_type="",
            protocol_data="",
            members=[],
        )

    return admin.DescribeGroupsResponse(groups=[await described(name) for name in request.groups])


def _described(group: Group) -> Any:
    kind = admin.DescribeGroupsResponse.DescribedGroup
    is_stable = group.phase is GroupPhase.STABLE
    return kind(
        error_code=0,
        error_message=None,
        group_id=group.group_id,
        group_state=group.phase.value,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol if is_stable else "",
        members=[
            kind.DescribedGroupMember(
                member_id=one.member_id,
                group_instance_id=one.instance_id,
                client_id=one.client_id,
                client_host=one.client_host,
                member_metadata=one.protocols[group.protocol] if is_stable else b"",
                member_assignment=one.assignment if is_stable else b"",
            )
            for one in group.members.values()
        ],
    )


async def delete_groups(server: KafkaServer, request: Any) -> Any:
    """DeleteGroups: those without members."""
    kind = admin.DeleteGroupsResponse.DeletableGroupResult
    results = []

    def delete(name: str) -> None:
        if not _exists(server, name):
            raise kafka.GroupIdNotFoundError(f"no group {name!r} has offsets")
        try:
            server.admin.delete_group(name, on_error=_logged)
        except GroupOwned as error:  # Its members are the tasks of a query.
            raise kafka.NonEmptyGroupError(error.message) from error

    for name in request.groups_names:
        code = await code_of_leader(server, name)
        if server.groups.find(name) is not None:
            code = int(kafka.NonEmptyGroupError.errno)
        if not code:
            code, _, _ = await server.call(tried, partial(delete, name))
        results.append(kind(group_id=name, error_code=code))
    return admin.DeleteGroupsResponse(results=results)


async def delete_offsets(server: KafkaServer, request: Any) -> Any:
    """OffsetDelete: those of topics that no member reads."""
    response = consumer.OffsetDeleteResponse
    kind = response.OffsetDeleteResponseTopic
    group = server.groups.find(request.group_id)
    code = await code_of_leader(server, request.group_id)
    read = _subscribed(group) if group is not None else set()
    wanted = [
        TopicPartition(topic.name, one.partition_index)
        for topic in request.topics
        for one in topic.partitions
        if topic.name not in read
    ]
    delete = partial(server.admin.delete_group_offsets, request.group_id, wanted)
    if not code:
        code, _, _ = await server.call(tried, delete)
    refused = int(kafka.GroupSubscribedToTopicError.errno)
    return response(
        error_code=code,
        topics=[
            kind(
                name=topic.name,
                partitions=[
                    kind.OffsetDeleteResponsePartition(
                        partition_index=one.partition_index,
                        error_code=refused if topic.name in read else 0,
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
            if not code
        ],
    )


def _subscribed(group: Group) -> set[str]:
    """Topics that a member has subscribed to. What is in it comes from clients."""
    topics: set[str] = set()
    for member in group.members.values():
        for metadata in member.protocols.values():
            try:
                topics.update(ConsumerProtocolSubscription.decode(metadata).topics)
            except Exception:  # noqa: BLE001 - of another program's protocol
                continue
    return topics


# Producers and transactions.


def describe_producers(server: KafkaServer, request: Any) -> Any:
    """DescribeProducers: those of which a partition has state."""
    kind = admin.DescribeProducersResponse.TopicResponse
    part = kind.PartitionResponse

    def described(topic: str, partition: int) -> Any:
        where = TopicPartition(topic, partition)
        code, message, found = tried(partial(server.admin.describe_producers, where))
        return part(
            partition_index=partition,
            error_code=code,
            error_message=message,
            active_producers=[
                part.ProducerState(
                    producer_id=one.producer_id,
                    producer_epoch=one.producer_epoch,
                    last_sequence=one.last_sequence % SEQUENCES if one.last_sequence >= 0 else -1,
                    last_timestamp=_or_none(one.last_timestamp_ms),
                    coordinator_epoch=0,
                    current_txn_start_offset=_or_none(one.current_transaction_start_offset),
                )
                for one in found or ()
            ],
        )

    return admin.DescribeProducersResponse(
        topics=[
            kind(
                name=topic.name,
                partitions=[described(topic.name, number) for number in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _or_none(value: int | None) -> int:
    return -1 if value is None else value


def list_transactions(server: KafkaServer, request: Any) -> Any:
    """ListTransactions: this gateway's share of the transactional ids, by state, producer id and
    age. Clients ask all gateways."""
    response = admin.ListTransactionsResponse
    code, _, found = tried(partial(server.admin.list_transactions, on_error=_logged))
    states, producers = set(request.state_filters), set(request.producer_id_filters)
    now_ms = server.connection.runtime.clock.wall_ms()

    def is_asked(one: TransactionListing) -> bool:
        age_ms = -1 if one.open is None else elapsed_ms(one.open.started_ms, now_ms)
        return (
            server.lists(one.transactional_id)
            and (not states or one.state in states)
            and (not producers or one.producer_id in producers)
            and age_ms >= request.duration_filter
        )

    return response(
        error_code=code,
        unknown_state_filters=sorted(states.difference(map(str, TransactionState))),
        transaction_states=[
            response.TransactionState(
                transactional_id=one.transactional_id,
                producer_id=one.producer_id,
                transaction_state=one.state,
            )
            for one in found or ()
            if is_asked(one)
        ],
    )


def describe_transactions(server: KafkaServer, request: Any) -> Any:
    """DescribeTransactions: state and partitions of transactional ids."""
    response = admin.DescribeTransactionsResponse
    unread: list[int] = []
    code, _, listed = tried(
        partial(
            server.admin.list_transactions, on_error=lambda *told: unread.append(code_of(told[2]))
        )
    )
    known = {one.transactional_id: one for one in listed or ()}
    # A coordinator that cannot be read may know it.
    missing = next(iter(unread), code or int(kafka.TransactionalIdNotFoundError.errno))
    return response(
        transaction_states=[
            _transaction(server, known[name])
            if name in known
            else response.TransactionState(error_code=missing, transactional_id=name, topics=[])
            for name in request.transactional_ids
        ]
    )


def _transaction(server: KafkaServer, found: TransactionListing) -> Any:
    kind = admin.DescribeTransactionsResponse.TransactionState
    partitions = server.producers.open_partitions(found.transactional_id)
    for participant in found.open.participants if found.open is not None else ():
        partitions |= {TopicPartition(participant.topic, p) for p in participant.partitions}
        staged = (batch.partition for part in participant.segments for batch in part.batches)
        partitions |= {TopicPartition(participant.topic, p) for p in staged}
    topics = sorted({where.topic for where in partitions})
    return kind(
        error_code=0,
        transactional_id=found.transactional_id,
        transaction_state=found.state,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=-1 if found.open is None else found.open.started_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=[
            kind.TopicData(
                topic=name, partitions=sorted(w.partition for w in partitions if w.topic == name)
            )
            for name in topics
        ],
    )
