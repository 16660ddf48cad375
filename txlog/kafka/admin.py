"""Requests of administrators for topics, their settings, and what is where: what `Admin` does.

A function that is not async reads or changes the log, and is called in a thread. Each item of a
request succeeds or fails alone, as at a broker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from kafka import errors as kafka
from kafka.protocol import admin

from txlog.engine.new_topic import NewTopic, check_configuration, checked_topic
from txlog.errors import InvalidConfig, TopicExists
from txlog.kafka.error_codes import tried
from txlog.model import TopicPartition
from txlog.redaction import redact
from txlog.settings import TopicConfig
from txlog.topic.events import check_partition_count
from txlog.topic.topic_log import TopicLog
from txlog.topic.upkeep.retention import stored_bytes

if TYPE_CHECKING:
    from txlog.kafka.server import KafkaServer

_TOPIC, _BROKER = 2, 4
"""Kafka's ConfigResource.Type."""
_DYNAMIC_TOPIC, _STATIC_BROKER, _DEFAULT = 1, 4, 5
"""Kafka's ConfigEntry.ConfigSource."""
_CONFIG_TYPES = {bool: 1, str: 2, int: 5, float: 6}
"""Kafka's ConfigEntry.ConfigType: BOOLEAN, STRING, LONG, DOUBLE."""
_LIST_TYPE, _LISTS = 7, ("cleanup.policy",)
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
"""Kafka's AlterConfigOp.OpType."""


# Topics.


def create_topics(server: KafkaServer, request: Any) -> Any:
    """CreateTopics. One partition unless it asks for others."""
    kind = admin.CreateTopicsResponse.CreatableTopicResult

    def create(topic: Any) -> int:
        count = len(topic.assignments) or topic.num_partitions
        new = NewTopic(
            topic.name,
            _partition_count(topic.name, 1 if count == -1 else count),
            config={entry.name: entry.value for entry in topic.configs},
        )
        checked_topic(new)
        if not request.validate_only:
            server.admin.create_topics([new])
        elif server.connection.cluster.find_topic(new.name) is not None:
            raise TopicExists(f"topic {new.name!r} exists already.")
        return new.num_partitions

    results = []
    for topic in request.topics:
        code, message, count = tried(partial(create, topic))
        results.append(
            kind(
                name=topic.name,
                error_code=code,
                error_message=message,
                num_partitions=-1 if count is None else count,
            )
        )
    return admin.CreateTopicsResponse(topics=results)


def _partition_count(name: str, count: int) -> int:
    """Raises InvalidPartitionsError."""
    try:
        return check_partition_count(name, count)
    except InvalidConfig as error:
        raise kafka.InvalidPartitionsError(error.message) from error


def delete_topics(server: KafkaServer, request: Any) -> Any:
    """DeleteTopics."""
    kind = admin.DeleteTopicsResponse.DeletableTopicResult
    results = []
    for name in request.topic_names:
        code, message, _ = tried(partial(server.admin.delete_topics, [name]))
        results.append(kind(name=name, error_code=code, error_message=message))
    return admin.DeleteTopicsResponse(responses=results)


def create_partitions(server: KafkaServer, request: Any) -> Any:
    """CreatePartitions: up to a count in all."""
    kind = admin.CreatePartitionsResponse.CreatePartitionsTopicResult

    def create(name: str, count: int) -> None:
        known = len(
            server.connection.cluster.present_topic(name, linearizable=True).state.partitions
        )
        if _partition_count(name, count) < known:
            raise kafka.InvalidPartitionsError(f"topic {name!r} has {known} partitions already.")
        if not request.validate_only:
            server.admin.create_partitions(name, count)

    results = []
    for topic in request.topics:
        code, message, _ = tried(partial(create, topic.name, topic.count))
        results.append(kind(name=topic.name, error_code=code, error_message=message))
    return admin.CreatePartitionsResponse(results=results)


def delete_records(server: KafkaServer, request: Any) -> Any:
    """DeleteRecords: below an offset; -1 is the last stable one."""
    kind = admin.DeleteRecordsResponse.DeleteRecordsTopicResult
    delete = server.admin.delete_records

    def deleted(topic: Any) -> Any:
        wanted = {TopicPartition(topic.name, p.partition_index): p.offset for p in topic.partitions}
        # One entry for all of them; if one is refused, each of the others alone.
        code, _, found = tried(partial(delete, wanted))
        results = []
        for where, offset in wanted.items():
            one = 0
            if code:
                one, _, found = tried(partial(delete, {where: offset}))
            results.append(
                kind.DeleteRecordsPartitionResult(
                    partition_index=where.partition,
                    low_watermark=-1 if found is None else found[where],
                    error_code=one,
                )
            )
        return kind(name=topic.name, partitions=results)

    return admin.DeleteRecordsResponse(topics=[deleted(topic) for topic in request.topics])


# Settings.


def describe_configs(server: KafkaServer, request: Any) -> Any:
    """DescribeConfigs, of topics and of the gateway."""
    kind = admin.DescribeConfigsResponse.DescribeConfigsResult
    results = []
    for resource in request.resources:
        code, message, found = tried(partial(_described, server, resource))
        names = resource.configuration_keys
        results.append(
            kind(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=[one for one in found or () if names is None or one.name in names],
            )
        )
    return admin.DescribeConfigsResponse(results=results)


def _described(server: KafkaServer, resource: Any) -> list[Any]:
    cluster, name = server.connection.cluster, resource.resource_name
    if resource.resource_type == _TOPIC:
        config = cluster.present_topic(name, linearizable=True).state.config.to_dotted()
        defaults = TopicConfig().to_dotted()
        sources = {n: _DEFAULT if v == defaults[n] else _DYNAMIC_TOPIC for n, v in config.items()}
        return [_entry(n, value, sources[n], defaults[n]) for n, value in config.items()]
    if resource.resource_type == _BROKER and name in ("", str(server.node_id)):
        values = {
            "auto.create.topics.enable": server.creates_topics,
            "delete.topic.enable": True,
            **cluster.file.settings.to_dotted(),
            **cluster.process.to_dotted(),
        }
        return [_entry(n, value, _STATIC_BROKER, value) for n, value in values.items()]
    raise _only_topics(resource)


def _only_topics(resource: Any) -> kafka.InvalidRequestError:
    return kafka.InvalidRequestError(
        f"resource {resource.resource_name!r} of type {resource.resource_type} has no settings "
        "here: topics have some, and those of the gateway are read-only."
    )


def _entry(name: str, value: object, source: int, default: object) -> Any:
    kind = admin.DescribeConfigsResponse.DescribeConfigsResult.DescribeConfigsResourceResult
    is_list = name in _LISTS
    given = [(source, value)] if source == _DYNAMIC_TOPIC else []
    return kind(
        name=name,
        value=_text(value),
        read_only=source == _STATIC_BROKER,
        config_source=source,
        is_sensitive=False,
        synonyms=[
            kind.DescribeConfigsSynonym(name=name, value=_text(one), source=where)
            for where, one in (*given, (_DEFAULT, default))
        ],
        config_type=_LIST_TYPE if is_list else _CONFIG_TYPES[type(value)],
        documentation=None,
    )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def alter_configs(server: KafkaServer, request: Any) -> Any:
    """AlterConfigs: what is not named gets its default."""

    def changes(resource: Any, _: TopicConfig) -> dict[str, object]:
        given = {entry.name: entry.value for entry in resource.configs}
        return {**TopicConfig().to_dotted(), **given}

    return _alter(server, request, admin.AlterConfigsResponse, changes)


def incremental_alter_configs(server: KafkaServer, request: Any) -> Any:
    """IncrementalAlterConfigs."""
    return _alter(server, request, admin.IncrementalAlterConfigsResponse, _incremental_changes)


def _alter(
    server: KafkaServer,
    request: Any,
    response: Any,
    changes_of: Callable[[Any, TopicConfig], Mapping[str, object]],
) -> Any:
    def alter(resource: Any) -> None:
        name = resource.resource_name
        if resource.resource_type != _TOPIC:
            raise _only_topics(resource)
        topic = server.connection.cluster.present_topic(name, linearizable=True)
        changes = changes_of(resource, topic.state.config)
        if request.validate_only:
            check_configuration(name, topic.schema(), topic.state.config.altered(changes))
        else:
            server.admin.alter_topic_config(name, changes)

    results = []
    for resource in request.resources:
        code, message, _ = tried(partial(alter, resource))
        results.append(
            response.AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return response(responses=results)


def _incremental_changes(resource: Any, known: TopicConfig) -> dict[str, object]:
    """Raises InvalidRequestError, InvalidConfigurationError."""
    changes: dict[str, object] = {}
    defaults = TopicConfig().to_dotted()
    for entry in resource.configs:
        name, value, operation = entry.name, entry.value, entry.config_operation
        if name in changes or (value is None and operation != _DELETE):
            raise kafka.InvalidRequestError(f"{name!r} is given twice, or without a value.")
        if operation == _DELETE:
            value = defaults.get(name)  # An unknown name is refused with the others.
        elif operation in (_APPEND, _SUBTRACT):
            if name not in _LISTS:
                raise kafka.InvalidConfigurationError(f"{name!r} has one value: set it.")
            items = [item.strip() for item in value.split(",")]
            had = [item for item in known.cleanup_policy.split(",") if item not in items]
            value = ",".join([*had, *items] if operation == _APPEND else had)
        elif operation != _SET:
            raise kafka.InvalidRequestError(f"a setting has no operation {operation}; give 0 to 3.")
        changes[name] = value
    return changes


# What is where.


async def describe_cluster(server: KafkaServer, request: Any) -> Any:
    """DescribeCluster: the gateways."""
    response = admin.DescribeClusterResponse
    gateways, home = await server.cluster(request.header.client_id)
    return response(
        error_code=0,
        cluster_id=server.connection.cluster.log_id,
        controller_id=home,
        brokers=[
            response.DescribeClusterBroker(broker_id=node_id, host=host, port=port)
            for node_id, host, port in gateways
        ],
    )


def describe_log_dirs(server: KafkaServer, request: Any) -> Any:
    """DescribeLogDirs: the bytes of each partition in the one store, at one of the gateways,
    without what compaction and aborts have made useless only if it was removed already."""
    response = admin.DescribeLogDirsResponse
    kind = response.DescribeLogDirsResult
    cluster = server.connection.cluster
    if request.topics is None:
        asked: dict[str, Any] = {topic.name: None for topic in cluster.topics()}
    else:
        asked = {topic.topic: topic.partitions for topic in request.topics}

    def described(topic: TopicLog) -> Any:
        state = topic.state
        sizes = stored_bytes(state, lambda ref: topic.chunk(state, ref))
        wanted = asked[topic.name]
        return kind.DescribeLogDirsTopic(
            name=topic.name,
            partitions=[
                kind.DescribeLogDirsTopic.DescribeLogDirsPartition(
                    partition_index=number, partition_size=size, offset_lag=0, is_future_key=False
                )
                for number, size in enumerate(sizes)
                if wanted is None or number in wanted
            ],
        )

    def all_described() -> list[Any]:
        found = cluster.answers(
            [partial(cluster.find_topic, name) for name in asked if server.lists(name)]
        )
        return [described(topic) for topic in found if topic is not None]

    code, _, topics = tried(all_described)
    folder = kind(error_code=code, log_dir=redact(cluster.store.url), topics=topics or [])
    return response(error_code=code, results=[folder])


async def list_reassignments(server: KafkaServer, request: Any) -> Any:
    """ListPartitionReassignments: the store keeps the replicas."""
    return admin.ListPartitionReassignmentsResponse(error_code=0, error_message=None, topics=[])
