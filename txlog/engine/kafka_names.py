"""Configuration names of Kafka's clients that txlog's clients do not have, with advice. Data only.

If a name was ignored, the client would break a promise; if it was called unknown, its user would
look for a typo. The values are the ends of the error messages.
"""

from __future__ import annotations

from collections.abc import Mapping

_NO_BROKER = "there is no broker, and it has no meaning here; leave it out"
_STORE = "access to the store is access to the log; give the store's credentials, and leave it out"
_DEADLINE = "each store has a deadline of its own; leave it out"
_NO_METRICS = "clients keep no metrics; 'txlog group describe' shows a lag. Leave it out"
_SHARED: Mapping[str, str] = {
    "bootstrap.servers": "there is no broker; give 'root', the log's folder or URL",
    "security.protocol": _STORE,
    "security.providers": _STORE,
    "sasl.*": _STORE,
    "ssl.*": _STORE,
    "client.id": _NO_BROKER,
    "client.rack": _NO_BROKER,
    "client.dns.lookup": _NO_BROKER,
    "config.providers": "values are taken as they are; read them where you make the client",
    "connections.max.idle.ms": _NO_BROKER,
    "socket.connection.setup.timeout.ms": _NO_BROKER,
    "socket.connection.setup.timeout.max.ms": _NO_BROKER,
    "send.buffer.bytes": _NO_BROKER,
    "receive.buffer.bytes": _NO_BROKER,
    "request.timeout.ms": _DEADLINE,
    "default.api.timeout.ms": _DEADLINE,
    "retry.backoff.ms": _DEADLINE,
    "retry.backoff.max.ms": _DEADLINE,
    "reconnect.backoff.ms": _NO_BROKER,
    "reconnect.backoff.max.ms": _NO_BROKER,
    "metadata.recovery.strategy": _NO_BROKER,
    "metadata.recovery.rebootstrap.trigger.ms": _NO_BROKER,
    "metrics.*": _NO_METRICS,
    "metric.reporters": _NO_METRICS,
    "enable.metrics.push": _NO_METRICS,
    "interceptor.classes": "there are no interceptors; call your own code around the client",
}
_LISTENER = "give it as a keyword to the constructor"

PRODUCER: Mapping[str, str] = {
    **_SHARED,
    "metadata.max.age.ms": _NO_BROKER,
    "metadata.max.idle.ms": _NO_BROKER,
    "linger.ms": "records wait until flush(), a commit or a full buffer.memory; leave it out",
    "batch.size": "records wait until flush(), a commit or a full buffer.memory; leave it out",
    "max.block.ms": "nothing waits for a broker's metadata; leave it out",
    "compression.type": "it belongs to the topic: 'txlog topic config TOPIC compression.type=zstd'",
    "compression.gzip.level": "topics have lz4 and zstd, at their default levels; leave it out",
    "compression.lz4.level": "topics have lz4 and zstd, at their default levels; leave it out",
    "compression.zstd.level": "topics have lz4 and zstd, at their default levels; leave it out",
    "key.serializer": _LISTENER,
    "value.serializer": _LISTENER,
    "partitioner.*": "give each record its partition, or a key, whose murmur2 hash chooses it",
    "max.request.size": "it belongs to the topic: 'txlog topic config TOPIC max.message.bytes=...'",
    "transaction.two.phase.commit.enable": "every transaction has two phases; leave it out",
}
"""Names of the producer's configuration."""

_NO_MEMBERS = "consumers of a group do not divide partitions; assign() them, and leave it out"

CONSUMER: Mapping[str, str] = {
    **_SHARED,
    "key.deserializer": "records hold bytes; decode them where they are used",
    "value.deserializer": "records hold bytes; decode them where they are used",
    "max.poll.interval.ms": _NO_MEMBERS,
    "session.timeout.ms": _NO_MEMBERS,
    "heartbeat.interval.ms": _NO_MEMBERS,
    "group.instance.id": _NO_MEMBERS,
    "group.protocol": _NO_MEMBERS,
    "group.remote.assignor": _NO_MEMBERS,
    "share.*": "there are no share groups; leave it out",
    "partition.assignment.strategy": _NO_MEMBERS,
    "fetch.min.bytes": "poll() answers as soon as there is a record; leave it out",
    "fetch.max.wait.ms": "poll() waits as long as its timeout says; leave it out",
    "max.partition.fetch.bytes": "use fetch.max.bytes, which counts all partitions",
    "check.crcs": "checksums are always checked; leave it out",
    "allow.auto.create.topics": "a consumer creates no topics; leave it out",
    "internal.throw.on.fetch.stable.offset.unsupported": _NO_BROKER,
    "exclude.internal.topics": "no pattern matches an internal topic; leave it out",
}
"""Names of the consumer's configuration."""
