"""Every configuration name of Kafka 4.2 is accepted, or refused with a reason."""

import pytest

from txlog.client.consumer.consumer_config import ConsumerConfig
from txlog.engine.producer_config import ProducerConfig
from txlog.errors import InvalidConfig
from txlog.settings import SettingsGroup, TopicConfig

TOPIC = """
    cleanup.policy compression.gzip.level compression.lz4.level compression.type
    compression.zstd.level delete.retention.ms file.delete.delay.ms flush.messages flush.ms
    follower.replication.throttled.replicas index.interval.bytes internal.segment.bytes
    leader.replication.throttled.replicas local.retention.bytes local.retention.ms
    max.compaction.lag.ms max.message.bytes message.timestamp.after.max.ms
    message.timestamp.before.max.ms message.timestamp.type min.cleanable.dirty.ratio
    min.compaction.lag.ms min.insync.replicas preallocate remote.log.copy.disable
    remote.log.delete.on.disable remote.storage.enable retention.bytes retention.ms
    segment.bytes segment.index.bytes segment.jitter.ms segment.ms
    unclean.leader.election.enable
"""
PRODUCER = """
    acks batch.size bootstrap.servers buffer.memory client.dns.lookup client.id
    compression.gzip.level compression.lz4.level compression.type compression.zstd.level
    config.providers connections.max.idle.ms delivery.timeout.ms enable.idempotence
    enable.metrics.push interceptor.classes key.serializer linger.ms max.block.ms
    max.in.flight.requests.per.connection max.request.size metadata.max.age.ms
    metadata.max.idle.ms metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy
    metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
    partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms
    partitioner.class partitioner.ignore.keys receive.buffer.bytes reconnect.backoff.max.ms
    reconnect.backoff.ms request.timeout.ms retries retry.backoff.max.ms retry.backoff.ms
    sasl.mechanism sasl.oauthbearer.scope security.protocol security.providers send.buffer.bytes
    socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms ssl.key.password
    ssl.truststore.location transaction.timeout.ms transaction.two.phase.commit.enable
    transactional.id value.serializer
"""
CONSUMER = """
    allow.auto.create.topics auto.commit.interval.ms auto.offset.reset bootstrap.servers
    check.crcs client.dns.lookup client.id client.rack config.providers connections.max.idle.ms
    default.api.timeout.ms enable.auto.commit enable.metrics.push exclude.internal.topics
    fetch.max.bytes fetch.max.wait.ms fetch.min.bytes group.id group.instance.id group.protocol
    group.remote.assignor heartbeat.interval.ms interceptor.classes
    internal.throw.on.fetch.stable.offset.unsupported isolation.level key.deserializer
    max.partition.fetch.bytes max.poll.interval.ms max.poll.records metadata.max.age.ms
    metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters
    metrics.num.samples metrics.recording.level metrics.sample.window.ms
    partition.assignment.strategy receive.buffer.bytes reconnect.backoff.max.ms
    reconnect.backoff.ms request.timeout.ms retry.backoff.max.ms retry.backoff.ms sasl.mechanism
    sasl.oauthbearer.scope security.protocol security.providers send.buffer.bytes
    session.timeout.ms share.acknowledgement.mode share.acquire.mode
    socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms ssl.key.password
    ssl.truststore.location value.deserializer
"""
"""The names that Kafka's ConfigDefs list; of `ssl.` and `sasl.` only a few."""

BEFORE_4 = (
    "message.downconversion.enable",
    "message.format.version",
    "message.timestamp.difference.max.ms",
)
GROUPS: dict[type[SettingsGroup], list[str]] = {
    TopicConfig: [*TOPIC.split(), *BEFORE_4],
    ProducerConfig: PRODUCER.split(),
    ConsumerConfig: CONSUMER.split(),
}
CASES = [
    pytest.param(group, name, id=f"{group.__name__} {name}")
    for group, names in GROUPS.items()
    for name in names
    if name not in group.names()
]


@pytest.mark.parametrize(("group", "name"), CASES)
def test_unsupported_kafka_setting_is_refused_with_a_reason(
    group: type[SettingsGroup], name: str
) -> None:
    with pytest.raises(InvalidConfig) as refused:
        group.from_dotted({name: "1"})
    assert "unknown" not in refused.value.message
    assert "did you mean" not in refused.value.message
    assert refused.value.message.startswith(f"{group.kind} {name!r}: ")


@pytest.mark.parametrize("group", GROUPS)
def test_supported_settings_are_not_listed_as_foreign(group: type[SettingsGroup]) -> None:
    values = group().to_dotted()
    assert group.from_dotted(values).to_dotted() == values
    assert set(values).isdisjoint(group.foreign)


@pytest.mark.parametrize("value", ["gzip", "snappy", "producer", "uncompressed"])
def test_unsupported_kafka_compression_is_refused_with_a_reason(value: str) -> None:
    with pytest.raises(InvalidConfig, match=r"must be one of none, lz4, zstd: \w+"):
        TopicConfig(compression_type=value)
    with pytest.raises(InvalidConfig, match=r"none, lz4, zstd\.$"):
        TopicConfig(compression_type="bzip2")


def test_cleanup_policy_list_may_contain_spaces() -> None:
    config = TopicConfig(cleanup_policy="compact, delete")
    assert (config.is_compacted, config.is_deleted) == (True, True)
    assert config.cleanup_policy == "compact,delete"


@pytest.mark.parametrize(
    ("name", "lowest"), [("max.compaction.lag.ms", 1), ("min.compaction.lag.ms", 0)]
)
def test_compaction_lags_have_kafkas_lower_limits(name: str, lowest: int) -> None:
    TopicConfig.from_dotted({name: lowest})
    with pytest.raises(InvalidConfig, match=f"must be between {lowest} and"):
        TopicConfig.from_dotted({name: lowest - 1})
