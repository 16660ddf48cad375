"""Options of Kafka's and Delta's connectors that have no meaning here: accepted, or refused.

A job which moves here by changing the format's name does what it did, or says why not. An option
whose loss could change the result, or who may read it, is refused with what to use instead. One
that only tunes a client, or asks for what always holds here, is accepted; a warning names it.
Kafka's client has some more options, which are refused as unknown ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

_BYTES = "keys and values are bytes: cast them in the query"
_STORE_GUARDS = (
    "the store's permissions and encryption protect a log: set 'storage.*', or leave it out"
)
_NO_BROKER = "there is no broker to connect to"
_NO_MEMBERS = "a group has no members that could be lost"
_NO_FETCH = "tasks read whole stored batches: see 'bytesPerTask'"
_ONE_APPEND = "a task stores its rows in segments of its own, without a queue"
_APPEND_ONLY = "a log can only be appended to"
_NO_VERSIONS = "a log has offsets instead of versions: give '{}'"
_BY_COLUMN = "give each row its partition with the option 'key' or 'partition'"
_TOPIC_COMPRESSION = (
    "it is a setting of the topic; for one that the sink creates set 'topic.compression.type'"
)

REFUSED: Mapping[str, str] = {
    # Kafka's source and sink, and the clients that they configure.
    "kafka.bootstrap.servers": "a txlog has no brokers: give the log's URL as 'root'",
    "kafka.security.*": _STORE_GUARDS,
    "kafka.sasl.*": _STORE_GUARDS,
    "kafka.ssl.*": _STORE_GUARDS,
    "auto.offset.reset": "use 'startingOffsets'",
    "kafka.auto.offset.reset": "use 'startingOffsets'",
    "enable.auto.commit": "the sink commits the offsets, in the transaction of the records",
    "kafka.enable.auto.commit": "the sink commits the offsets, in the transaction of the records",
    "kafka.*.deserializer": _BYTES,
    "kafka.*.serializer": _BYTES,
    "kafka.interceptor.classes": "none of Kafka's classes is loaded: do it in the query",
    "kafka.partitioner.class": _BY_COLUMN,
    "kafka.partitioner.ignore.keys": _BY_COLUMN,
    "kafka.transaction.two.phase.commit.enable": "the driver alone decides a transaction",
    "kafka.exclude.internal.topics": "narrow 'subscribePattern'",
    # Delta's.
    "versionAsOf": _NO_VERSIONS.format("asOf"),
    "timestampAsOf": "give 'asOf', a time or a transaction",
    "startingVersion": _NO_VERSIONS.format("startingOffsets"),
    "endingVersion": _NO_VERSIONS.format("endingOffsets"),
    "readChangeFeed": "a log is its own feed of changes: read its topics",
    "readChangeData": "a log is its own feed of changes: read its topics",
    "withEventTimeOrder": "records come in the order of their offsets: set a longer watermark",
    "maxFilesPerTrigger": "a batch is limited by 'maxOffsetsPerTrigger'",
    "schemaTrackingLocation": "a topic keeps all its schemas: restart the query after a change",
    "overwriteSchema": _APPEND_ONLY,
    "replaceWhere": _APPEND_ONLY,
    "partitionOverwriteMode": _APPEND_ONLY,
    "dataChange": "each write is new data to all readers: leave it out",
    "userMetadata": "a log keeps no text of a commit: write it to a topic",
    # Spark's own.
    "paths": "a txlog has one root: give load one path",
    "compression": _TOPIC_COMPRESSION,
    "compression.type": _TOPIC_COMPRESSION,
}
"""Name -> what to do instead. A * stands for any text; case does not matter."""

IGNORED: Mapping[str, str] = {
    # Kafka's source and sink.
    "kafkaConsumer.pollTimeoutMs": _NO_BROKER,
    "fetchOffset.numRetries": "the store's client repeats requests by itself",
    "fetchOffset.retryIntervalMs": "the store's client repeats requests by itself",
    "groupIdPrefix": "no name of a group is generated",
    "includeHeaders": "the sink stores the column headers whenever the rows have it",
    # Kafka's consumer.
    "kafka.allow.auto.create.topics": "a source creates no topics",
    "kafka.auto.commit.interval.ms": "offsets are committed with each micro-batch",
    "kafka.check.crcs": "checksums are always compared",
    "kafka.default.api.timeout.ms": _NO_BROKER,
    "kafka.fetch.*": _NO_FETCH,
    "kafka.group.instance.id": _NO_MEMBERS,
    "kafka.group.protocol": _NO_MEMBERS,
    "kafka.group.remote.assignor": _NO_MEMBERS,
    "kafka.heartbeat.interval.ms": _NO_MEMBERS,
    "kafka.max.partition.fetch.bytes": _NO_FETCH,
    "kafka.max.poll.interval.ms": _NO_MEMBERS,
    "kafka.max.poll.records": _NO_FETCH,
    "kafka.partition.assignment.strategy": _NO_MEMBERS,
    "kafka.session.timeout.ms": _NO_MEMBERS,
    # Kafka's producer.
    "kafka.acks": "each write is durable before it counts",
    "kafka.batch.size": _ONE_APPEND,
    "kafka.buffer.memory": _ONE_APPEND,
    "kafka.compression.*": "the topic's compression.type decides",
    "kafka.delivery.timeout.ms": "the store's deadline applies",
    "kafka.enable.idempotence": "the sink stores each row exactly once",
    "kafka.linger.ms": _ONE_APPEND,
    "kafka.max.block.ms": "the store's deadline applies",
    "kafka.max.in.flight.requests.per.connection": _ONE_APPEND,
    "kafka.max.request.size": "the topic's max.message.bytes decides",
    "kafka.partitioner.adaptive.partitioning.enable": _NO_BROKER,
    "kafka.partitioner.availability.timeout.ms": _NO_BROKER,
    "kafka.retries": "the store's client repeats requests by itself",
    "kafka.transaction.timeout.ms": "a micro-batch has ten seconds to decide its commit",
    # Both of Kafka's clients.
    "kafka.auto.include.jmx.reporter": "Kafka's metrics are not kept",
    "kafka.client.*": _NO_BROKER,
    "kafka.connections.max.idle.ms": _NO_BROKER,
    "kafka.enable.metrics.push": "Kafka's metrics are not kept",
    "kafka.metadata.*": _NO_BROKER,
    "kafka.metric.reporters": "Kafka's metrics are not kept",
    "kafka.metrics.*": "Kafka's metrics are not kept",
    "kafka.receive.buffer.bytes": _NO_BROKER,
    "kafka.reconnect.backoff.*": _NO_BROKER,
    "kafka.request.timeout.ms": "the store's deadline applies",
    "kafka.retry.backoff.*": "the store's client repeats requests by itself",
    "kafka.send.buffer.bytes": _NO_BROKER,
    "kafka.socket.connection.*": _NO_BROKER,
    # Delta's.
    "ignoreChanges": "records are never changed",
    "ignoreDeletes": "records are never changed",
    "skipChangeCommits": "records are never changed",
    "maxRecordsPerFile": "a task stores its rows in segments of about 32 MB",
    "optimizeWrite": "a task stores its rows in segments of about 32 MB",
}
"""Name -> why nothing depends on it."""


def found(table: Mapping[str, str], name: str) -> tuple[str, str] | None:
    """The option's spelling, and what the table says of it; None if it does not have it."""
    for pattern, text in table.items():
        if fnmatchcase(name.lower(), pattern.lower()):
            return (name if "*" in pattern else pattern), text
    return None
