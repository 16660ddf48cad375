"""What each request of producers and consumers does: one function for each."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from kafka import errors as kafka
from kafka.protocol import consumer, metadata, producer

from txlog.client.consumer.consumer_group import pending_offsets
from txlog.engine.new_topic import NewTopic
from txlog.errors import CommitFailed, InvalidName, TxlogError, UnknownTopic, UnstableOffsetCommit
from txlog.fan_out import SerialFanOut
from txlog.groups.state import CommittedOffset
from txlog.kafka.error_codes import (
    GROUP_CODES,
    OFFSET_CODES,
    code_of,
    coordinator_code,
    message_of,
    tried,
    tried_as_coordinator,
)
from txlog.kafka.fetch import Fetched, fetched
from txlog.kafka.gateways import node_id_of
from txlog.kafka.group_leases import LEADER
from txlog.kafka.groups import refused_join
from txlog.kafka.record_batches import SentBatch, decoded, size_at_most
from txlog.kafka.security import CLIENT
from txlog.kafka.topic_records import stored_form
from txlog.metrics.listening import parsed_listen
from txlog.model import IsolationLevel, OffsetAndMetadata, TopicPartition
from txlog.topic.read.time_lookup import offset_for_time, offset_of_max_time
from txlog.topic.records.schema import is_kafka_schema
from txlog.topic.topic_log import TopicLog

if TYPE_CHECKING:
    from txlog.kafka.server import KafkaServer

_NO_OFFSET = -1
_LATEST, _EARLIEST, _MAX_TIMESTAMP = -1, -2, -3
_FETCH_TRY_S, _FAR_FETCH_TRY_S = 0.05, 0.25
"""Between two looks for records that another process has written, while a fetch waits."""
FETCH_WAIT_MAX_S = 60.0
"""A client that has gone is not always noticed while it waits; another one asks again."""
_AT_ONCE_BYTES_MAX, _AT_ONCE_PARTS_MAX = 12 << 10, 4
"""Of a request that the event loop serves itself. Each partition takes a quarter of a millisecond,
and so many bytes of the smallest records a millisecond."""
_TRANSACTION = 1
"""The key type of FindCoordinator for a transactional id."""
_TELLS_OF_FENCING = 4
"""From this version of InitProducerId on a fenced producer is told so."""


# Topics.


async def metadata_of(server: KafkaServer, request: Any) -> Any:
    """Metadata. All topics if it names none."""
    names = None if request.topics is None else [topic.name for topic in request.topics]
    if names == [] and request.API_VERSION == 0:
        names = None
    creates = server.creates_topics and request.allow_auto_topic_creation is not False
    described, (gateways, home) = await asyncio.gather(
        server.call(_described, server, names, creates),
        server.cluster(request.header.client_id),
    )
    response = metadata.MetadataResponse
    return response(
        brokers=[
            response.MetadataResponseBroker(node_id=node_id, host=host, port=port, rack=None)
            for node_id, host, port in gateways
        ],
        cluster_id=server.connection.cluster.log_id,
        controller_id=home,
        topics=[_topic(*one, home) for one in described],
    )


def _described(
    server: KafkaServer, names: list[str] | None, creates: bool
) -> list[tuple[str, int, int]]:
    """Name, number of partitions and error code of each topic."""
    cluster = server.connection.cluster
    if names is None:
        return [(topic.name, _count(topic), 0) for topic in cluster.topics()]
    found = []
    for name in names:
        try:
            try:
                topic = cluster.present_topic(name)
            except UnknownTopic:
                if not creates:
                    raise
                server.admin.create_topics([NewTopic(name)])
                topic = cluster.present_topic(name)
            found.append((name, _count(topic), 0))
        except TxlogError as error:
            found.append((name, 0, code_of(error)))
    return found


def _count(topic: TopicLog) -> int:
    return len((topic.state if topic.state.topic_id else topic.catch_up()).partitions)


def _topic(name: str, count: int, code: int, leader: int) -> Any:
    response = metadata.MetadataResponse.MetadataResponseTopic
    partitions = [
        response.MetadataResponsePartition(
            error_code=0,
            partition_index=partition,
            leader_id=leader,
            leader_epoch=0,
            replica_nodes=[leader],
            isr_nodes=[leader],
            offline_replicas=[],
        )
        for partition in range(count)
    ]
    return response(
        error_code=code, name=name, is_internal=name.startswith("__"), partitions=partitions
    )


# Records.


def produced_to(request: Any) -> set[TopicPartition]:
    """The partitions of a Produce request."""
    return {
        TopicPartition(topic.name, part.index)
        for topic in request.topic_data
        for part in topic.partition_data
    }


async def produce(server: KafkaServer, request: Any) -> Any:
    """Produce. With acks=0 there is no answer."""
    done = await _produced_at_once(server, request)
    if done is None:
        done = await server.call(_produce, server, request)
    if request.transactional_id is None:
        server.wake_readers()
    if request.acks == 0:
        if any(code for found in done.values() for code, _, _ in found.values()):
            raise ConnectionResetError("records without an answer were refused")  # As a broker.
        return None
    response = producer.ProduceResponse
    kind = response.TopicProduceResponse
    answers = [
        kind(
            name=name,
            partition_responses=[
                kind.PartitionProduceResponse(
                    index=partition,
                    error_code=code,
                    base_offset=offset,
                    log_append_time_ms=-1,
                    log_start_offset=-1,
                    error_message=message,
                )
                for partition, (code, offset, message) in found.items()
            ],
        )
        for name, found in done.items()
    ]
    return response(responses=answers)


_Answer: TypeAlias = tuple[int, int, str | None]
"""Code, base offset, message."""


_Answers: TypeAlias = dict[str, dict[int, _Answer]]
"""By topic and partition."""


async def _produced_at_once(server: KafkaServer, request: Any) -> _Answers | None:
    """Stage few records of a transaction without a thread, which would take longer than the rest.
    None if something has to be looked up, stored or repeated; what is staged by then is known."""
    parts = [part for topic in request.topic_data for part in topic.partition_data]
    size = sum(size_at_most(part.records or b"") for part in parts)
    if not parts or len(parts) > _AT_ONCE_PARTS_MAX or size > _AT_ONCE_BYTES_MAX:
        return None
    begun = server.producers.begun(request.transactional_id)
    if begun is None:
        return None
    try:
        done = _produce(server, request, may_wait=False)
    except BlockingIOError:
        return None
    if not begun.done():  # Not awaited itself: BEGIN goes on without a client that has gone.
        await asyncio.wait({asyncio.wrap_future(begun)})
    return done if begun.result() else None


def _produce(server: KafkaServer, request: Any, *, may_wait: bool = True) -> _Answers:
    """Without `may_wait` it raises BlockingIOError if it would have to wait, and does not wait for
    BEGIN."""
    calls = [partial(_produce_topic, server, request, one, may_wait) for one in request.topic_data]
    fan_out = server.connection.runtime.fan_out if may_wait else SerialFanOut()
    names = [topic.name for topic in request.topic_data]
    return dict(zip(names, fan_out.run_all(calls), strict=True))


def _topic_to(server: KafkaServer, data: Any, may_wait: bool) -> TopicLog:
    """The topic that records are sent to. Without `may_wait` it is open, has the partitions, and
    stores records as they are; else BlockingIOError is raised."""
    if may_wait:
        return server.connection.cluster.known_topic(data.name)
    topic = server.connection.cluster.opened_topic(data.name)
    if topic is None or not is_kafka_schema(topic.schema()):
        raise BlockingIOError
    count = len(topic.state.partitions)
    if not all(0 <= part.index < count for part in data.partition_data):
        raise BlockingIOError
    return topic


def _produce_topic(
    server: KafkaServer, request: Any, data: Any, may_wait: bool
) -> dict[int, _Answer]:
    answers: dict[int, _Answer] = {}
    batches: dict[tuple[int, int], dict[int, SentBatch]] = {}
    try:
        if request.acks not in (-1, 0, 1):
            raise kafka.InvalidRequiredAcksError(f"acks {request.acks}")
        topic = _topic_to(server, data, may_wait)
    except (TxlogError, kafka.BrokerResponseError) as error:
        return dict.fromkeys((part.index for part in data.partition_data), _refusal(error))
    now_ms = server.connection.runtime.clock.wall_ms()
    for part in data.partition_data:
        try:
            topic.check_partition(part.index)
            sent = decoded(bytes(part.records or b""), topic.state.batch_bytes_max)
            sent = stored_form(topic, sent, server.arrow_values, now_ms)
            who = sent.producer_id, sent.producer_epoch
            batches.setdefault(who, {})[part.index] = sent
        except (TxlogError, kafka.BrokerResponseError) as error:
            answers[part.index] = _refusal(error)
    # Java's idempotent producer sends batches of two of its epochs at once, for different
    # partitions (KIP-360). The older ones come first: later they would be refused.
    for who, own in sorted(batches.items()):
        try:
            answers |= _written(server, request, topic, who, own, may_wait)
        except (TxlogError, kafka.BrokerResponseError) as error:
            answers |= dict.fromkeys(own, _refusal(error))
    return answers


def _refusal(error: Exception) -> _Answer:
    return _told_to_abort(code_of(error)), _NO_OFFSET, message_of(error)


def _told_to_abort(code: int) -> int:
    """The code with which a fenced producer aborts, and learns from its coordinator that it is
    fenced, or that only a timeout has raised its epoch (KIP-588)."""
    is_fenced = code == kafka.ProducerFencedError.errno
    return int(kafka.InvalidProducerEpochError.errno) if is_fenced else code


def _written(
    server: KafkaServer,
    request: Any,
    topic: TopicLog,
    who: tuple[int, int],
    batches: Mapping[int, SentBatch],
    may_wait: bool,
) -> dict[int, _Answer]:
    """Of one producer id and epoch."""
    is_transactional = request.transactional_id is not None
    if any(batch.is_transactional is not is_transactional for batch in batches.values()):
        raise kafka.InvalidTxnStateError("a batch is not of the request's transaction")
    if is_transactional:
        try:
            session = server.producers.session(request.transactional_id, *who)
        except kafka.UnknownProducerIdError as error:
            # Java's producer repeats a request that is refused so for ever, and aborts after this.
            raise kafka.InvalidTxnStateError(message_of(error)) from error
        session.stage(topic, batches, may_wait=may_wait)
        return dict.fromkeys(batches, (0, _NO_OFFSET, None))
    offsets, _ = server.producers.append(topic, batches)
    return {partition: (0, offsets[partition], None) for partition in batches}


async def fetch(server: KafkaServer, request: Any) -> Any:
    """Fetch: waits for `min_bytes`, at most `max_wait_ms`. It has no sessions (KIP-227)."""
    response = consumer.FetchResponse
    if request.session_id:
        return response(error_code=kafka.FetchSessionIdNotFoundError.errno, responses=[])
    loop = asyncio.get_running_loop()
    deadline = loop.time() + min(request.max_wait_ms / 1_000, FETCH_WAIT_MAX_S)
    isolation = _isolation(request)
    far, client = server.connection.cluster.is_far, CLIENT.get()
    server.fetches += 1
    try:
        while True:
            appended = server.appended
            found = await server.call(
                fetched, server.connection, request, isolation, server.arrow_values
            )
            size = sum(one.size for one in found)
            left = deadline - loop.time()
            is_enough = size >= request.min_bytes or any(one.code for one in found)
            if is_enough or left <= 0 or client.is_gone():
                break
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, _FAR_FETCH_TRY_S if far else _FETCH_TRY_S)):
                    await appended.wait()
    finally:
        server.fetches -= 1
    by_topic: dict[str, list[Fetched]] = {}
    for one in found:
        by_topic.setdefault(one.topic, []).append(one)
    kind = response.FetchableTopicResponse
    return response(
        responses=[
            kind(
                topic=name,
                partitions=[
                    kind.PartitionData(
                        partition_index=one.partition,
                        error_code=one.code,
                        high_watermark=one.end,
                        last_stable_offset=one.last_stable,
                        log_start_offset=one.log_start,
                        aborted_transactions=None,
                        preferred_read_replica=-1,
                        records=one.records,
                    )
                    for one in parts
                ],
            )
            for name, parts in by_topic.items()
        ]
    )


def _isolation(request: Any) -> IsolationLevel:
    return (
        IsolationLevel.READ_COMMITTED
        if request.isolation_level
        else IsolationLevel.READ_UNCOMMITTED
    )


async def list_offsets(server: KafkaServer, request: Any) -> Any:
    """ListOffsets: the log start, the end, the first record at or after a time, or the one with the
    latest time."""
    response = consumer.ListOffsetsResponse
    kind = response.ListOffsetsTopicResponse
    isolation = _isolation(request)

    def listed(name: str, asked: Any) -> Any:
        code, offset, time_ms = 0, _NO_OFFSET, -1
        try:
            topic = server.connection.cluster.present_topic(name, linearizable=True)
            topic.check_partition(asked.partition_index)
            offset, time_ms = _offset_at(topic, asked, isolation)
        except (TxlogError, kafka.BrokerResponseError) as error:
            code = code_of(error)
        return kind.ListOffsetsPartitionResponse(
            partition_index=asked.partition_index,
            error_code=code,
            timestamp=time_ms,
            offset=offset,
            leader_epoch=0,
        )

    def all_listed() -> list[Any]:
        return [
            kind(name=topic.name, partitions=[listed(topic.name, one) for one in topic.partitions])
            for topic in request.topics
        ]

    return response(topics=await server.call(all_listed))


def _offset_at(topic: TopicLog, asked: Any, isolation: IsolationLevel) -> tuple[int, int]:
    partition, time_ms = asked.partition_index, asked.timestamp
    state = topic.state
    if time_ms == _LATEST:
        return state.visible_end(partition, isolation), -1
    if time_ms == _EARLIEST:
        return state.bounds(partition).log_start, -1
    if time_ms == _MAX_TIMESTAMP:
        found = offset_of_max_time(topic, partition, isolation)
    elif time_ms < 0:
        raise kafka.UnsupportedVersionError(f"offsets for time {time_ms}")
    else:
        found = offset_for_time(topic, partition, time_ms, isolation)
    return (_NO_OFFSET, -1) if found is None else (found.offset, found.timestamp)


# Transactions.


async def init_producer_id(server: KafkaServer, request: Any) -> Any:
    """InitProducerId: a producer id, or a new epoch of a transactional id."""
    code, pid, epoch = 0, -1, -1
    known = -1 if request.producer_id is None else request.producer_id
    try:
        if request.transactional_id is None:
            pid, epoch = await server.call(server.connection.cluster.producer_id), 0
        elif not server.serves(request.header.client_id):
            raise kafka.NotCoordinatorError("another gateway serves the client")
        else:
            longest = server.connection.cluster.process.transaction_max_timeout_ms
            if not 0 < request.transaction_timeout_ms <= longest:
                raise kafka.InvalidTransactionTimeoutError(f"choose 1 to {longest} ms")
            found = await server.call(
                server.producers.register,
                request.transactional_id,
                request.transaction_timeout_ms,
                known,
                request.producer_epoch,
            )
            pid, epoch = found.pid, found.epoch
    except (TxlogError, kafka.BrokerResponseError) as error:
        code = coordinator_code(code_of(error))
        if isinstance(error, InvalidName):
            code = int(kafka.InvalidRequestError.errno)
        if request.API_VERSION < _TELLS_OF_FENCING:
            code = _told_to_abort(code)
    return producer.InitProducerIdResponse(error_code=code, producer_id=pid, producer_epoch=epoch)


async def add_partitions(server: KafkaServer, request: Any) -> Any:
    """AddPartitionsToTxn, which begins a transaction."""
    topics = request.v3_and_below_topics
    who = (
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
    )
    serves = server.serves(request.header.client_id)

    def call() -> None:
        named = {TopicPartition(topic.name, each) for topic in topics for each in topic.partitions}
        for where in named:
            server.connection.cluster.known_topic(where.topic).check_partition(where.partition)
        session = server.producers.session(*who)
        # Its records would go to another gateway.
        if not serves and not session.partitions():
            raise kafka.NotCoordinatorError("another gateway serves the client")
        session.add(named)

    code = 0
    # Mostly without a thread, which would take longer than the rest.
    if not (serves and server.producers.add_at_once(*who, topics)):
        code = await server.call(tried_as_coordinator, call)
    response = producer.AddPartitionsToTxnResponse
    kind = response.AddPartitionsToTxnTopicResult
    return response(
        results_by_topic_v3_and_below=[
            kind(
                name=topic.name,
                results_by_partition=[
                    kind.AddPartitionsToTxnPartitionResult(
                        partition_index=partition, partition_error_code=code
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in topics
        ]
    )


async def add_offsets(server: KafkaServer, request: Any) -> Any:
    """AddOffsetsToTxn, which begins a transaction."""

    def call() -> None:
        server.producers.session(
            request.transactional_id, request.producer_id, request.producer_epoch
        ).add(set(), request.group_id)

    return producer.AddOffsetsToTxnResponse(
        error_code=await server.call(tried_as_coordinator, call)
    )


async def txn_offset_commit(server: KafkaServer, request: Any) -> Any:
    """TxnOffsetCommit."""
    group = request.group_id
    code = await _led(server, group) or server.groups.check_commit(
        request.generation_id, request, is_transactional=True
    )

    def call() -> None:
        who = (request.transactional_id, request.producer_id, request.producer_epoch)
        condition = server.leases.condition(group)
        try:
            server.producers.pend(who, group, _offsets(request), condition)
        except CommitFailed as error:
            raise server.leases.lost(group) from error

    code = code or _told_to_abort(
        await server.commit(group, tried_as_coordinator, call, OFFSET_CODES)
    )
    return _committed(producer.TxnOffsetCommitResponse, "TxnOffsetCommit", request, code)


async def end_txn(server: KafkaServer, request: Any) -> Any:
    """EndTxn."""

    def call() -> None:
        who = (request.transactional_id, request.producer_id, request.producer_epoch)
        try:
            session = server.producers.session(*who)
        except kafka.UnknownProducerIdError:
            server.producers.end_elsewhere(*who, commits=request.committed)
            return
        session.end(commits=request.committed)

    return producer.EndTxnResponse(error_code=await server.call(tried_as_coordinator, call))


def _offsets(request: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    return {
        TopicPartition(topic.name, one.partition_index): OffsetAndMetadata(
            one.committed_offset, one.committed_metadata or ""
        )
        for topic in request.topics
        for one in topic.partitions
    }


def _committed(
    response: Any,
    name: str,
    request: Any,
    code: int,
    refused: Mapping[TopicPartition, int] = MappingProxyType({}),
) -> Any:
    """The answer to a commit: one code for all, or that of each refused partition."""
    kind = getattr(response, f"{name}ResponseTopic")
    part = getattr(kind, f"{name}ResponsePartition")
    return response(
        topics=[
            kind(
                name=topic.name,
                partitions=[
                    part(
                        partition_index=one.partition_index,
                        error_code=code
                        or refused.get(TopicPartition(topic.name, one.partition_index), 0),
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


# Groups.


async def find_coordinator(server: KafkaServer, request: Any) -> Any:
    """FindCoordinator: for a transaction the gateway that serves the client, for a group the one
    that leads it, or would take it."""
    code, gateways, node_id = 0, [(server.node_id, *server.advertised)], server.node_id
    if request.key_type == _TRANSACTION:
        gateways, node_id = await server.cluster(request.header.client_id)
    else:
        try:
            address = await server.leader_of(request.key)
            node_id = node_id_of(address)
            gateways = [(node_id, *parsed_listen(address))]
        except (TxlogError, kafka.BrokerResponseError) as error:
            code = coordinator_code(code_of(error), GROUP_CODES)
    [(host, port)] = [where for number, *where in gateways if number == node_id]
    return metadata.FindCoordinatorResponse(error_code=code, node_id=node_id, host=host, port=port)


async def _led(server: KafkaServer, group: str) -> int:
    """Lead the group, unless another gateway does; the code if it cannot be led."""
    try:
        await server.lead(group)
    except (TxlogError, kafka.BrokerResponseError) as error:
        return coordinator_code(code_of(error), GROUP_CODES)
    return 0


async def code_of_leader(server: KafkaServer, group: str) -> int:
    """An error if another gateway may have members of the group. Nothing is written."""
    try:
        is_here = await server.leader_of(group) == server.url
    except (TxlogError, kafka.BrokerResponseError) as error:
        return coordinator_code(code_of(error), GROUP_CODES)
    return 0 if is_here else int(kafka.NotCoordinatorError.errno)


async def _code_of_member(server: KafkaServer, group: str) -> int:
    """An error if this gateway does not lead the group. If no other one does, its members are
    unknown, and join again: told to look for another gateway, they would be sent here."""
    if server.leases.leads(group):
        return 0
    return await code_of_leader(server, group) or int(kafka.UnknownMemberIdError.errno)


async def offset_commit(server: KafkaServer, request: Any) -> Any:
    """OffsetCommit."""
    code = await _led(server, request.group_id) or server.groups.check_commit(
        request.generation_id_or_member_epoch, request
    )

    offsets, refused = _offsets(request), dict[TopicPartition, int]()

    def call() -> None:
        pended = partial(pending_offsets, server.connection, group=request.group_id)
        failed, _, pending = tried(partial(pended, offsets))
        if failed:  # Each alone: a topic that is gone stops no other.
            each = {at: tried(partial(pended, {at: one})) for at, one in offsets.items()}
            refused.update(
                {at: coordinator_code(found, OFFSET_CODES) for at, (found, _, _) in each.items()}
            )
            pending = tuple(one for _, _, found in each.values() for one in found or ())
        server.leases.commit(request.group_id, pending or ())

    code = code or await server.commit(request.group_id, tried_as_coordinator, call)
    return _committed(consumer.OffsetCommitResponse, "OffsetCommit", request, code, refused)


async def offset_fetch(server: KafkaServer, request: Any) -> Any:
    """OffsetFetch; without topics all that the group has. Offsets that a transaction has pending
    are an error if the client asks for stable ones, as consumers do."""
    response = consumer.OffsetFetchResponse
    kind = response.OffsetFetchResponseTopic
    wanted = [
        TopicPartition(topic.name, p)
        for topic in request.topics or ()
        for p in topic.partition_indexes
    ]

    def found() -> Mapping[TopicPartition, CommittedOffset | None]:
        offsets = server.connection.offsets
        if request.topics is None:
            committed = offsets.shown(request.group_id).committed
            return {where: at for where, at in committed.items() if where != LEADER}
        topics = {w.topic: server.connection.cluster.find_topic(w.topic) for w in wanted}
        ids = {name: topic.topic_id for name, topic in topics.items() if topic is not None}
        try:
            return offsets.resolve_and_fetch(request.group_id, wanted, ids)
        except UnstableOffsetCommit:
            if request.require_stable:
                raise
            return offsets.shown(request.group_id).committed

    await server.groups.commits_noted(request.group_id)
    code, _, committed = await server.call(tried, found)
    # Of single partitions, although it is said of all: clients repeat it only there.
    unstable = code if code == kafka.UnstableOffsetCommitError.errno else 0
    if request.topics is None:
        wanted = list(committed or ())
    by_topic: dict[str, list[Any]] = {}
    for where in wanted if not code or unstable else ():
        at = (committed or {}).get(where)
        by_topic.setdefault(where.topic, []).append(
            kind.OffsetFetchResponsePartition(
                partition_index=where.partition,
                committed_offset=_NO_OFFSET if at is None else at.offset,
                committed_leader_epoch=-1,
                metadata="" if at is None else at.metadata,
                error_code=unstable,
            )
        )
    topics = [kind(name=name, partitions=parts) for name, parts in by_topic.items()]
    return response(topics=topics, error_code=0 if unstable else coordinator_code(code))


async def join_group(server: KafkaServer, request: Any) -> Any:
    """JoinGroup."""
    code = await _led(server, request.group_id)
    return refused_join(code, request.member_id) if code else await server.groups.join(request)


async def sync_group(server: KafkaServer, request: Any) -> Any:
    """SyncGroup."""
    code = await _code_of_member(server, request.group_id)
    if code:
        return consumer.SyncGroupResponse(error_code=code, assignment=b"")
    return await server.groups.sync(request)


async def heartbeat(server: KafkaServer, request: Any) -> Any:
    """Heartbeat."""
    code = await _code_of_member(server, request.group_id)
    return consumer.HeartbeatResponse(error_code=code or server.groups.heartbeat(request))


async def leave_group(server: KafkaServer, request: Any) -> Any:
    """LeaveGroup."""
    return server.groups.leave(request)
