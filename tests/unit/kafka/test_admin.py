"""What administrators ask the gateway, by the admin clients of librdkafka and kafka-python."""

from collections.abc import Iterator

import confluent_kafka as librdkafka
import pytest
from confluent_kafka import admin as librdkafka_admin
from kafka import KafkaAdminClient, TopicPartition
from kafka import errors as kafka
from kafka.admin import AlterConfigOp, ConfigResource
from kafka.protocol import admin, consumer, metadata

import txlog
from tests.processes.kafka_gateway import WAIT_S, Gateway
from tests.unit.kafka.raw_requests import asked_alone
from txlog.kafka.gateways import Gateways
from txlog.kafka.group_leases import GroupLeases


@pytest.fixture(scope="module")
def client(gateway: Gateway) -> Iterator[KafkaAdminClient]:
    found = KafkaAdminClient(bootstrap_servers=gateway.address)
    yield found
    found.close()


@pytest.fixture(scope="module")
def log(gateway: Gateway) -> txlog.Admin:
    return txlog.Admin(gateway.root)


def produced(gateway: Gateway, topic: str, count: int = 3) -> None:
    producer = librdkafka.Producer(gateway.config())
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(WAIT_S) == 0


def joined(gateway: Gateway, group: str, topic: str) -> librdkafka.Consumer:
    """A member of the group that has committed."""
    member = librdkafka.Consumer(
        gateway.config(group_id=group, auto_offset_reset="earliest", client_id="member")
    )
    member.subscribe([topic])
    assert member.consume(1, WAIT_S)
    member.commit(asynchronous=False)
    return member


# Topics.


def test_topic_is_created_as_asked_or_only_checked(
    gateway: Gateway, client: KafkaAdminClient, log: txlog.Admin
) -> None:
    wanted = {"num_partitions": 2, "replication_factor": 1, "configs": {"retention.ms": "1000"}}
    client.create_topics({"created": wanted})
    found = log.describe_topic("created")
    assert (len(found.partitions), found.config.retention_ms) == (2, 1_000)
    client.create_topics({"unmade": wanted}, validate_only=True)
    assert "unmade" not in log.list_topics()
    kind = admin.CreateTopicsRequest.CreatableTopic
    for topic, error in (
        (kind(name="created", num_partitions=1), kafka.TopicAlreadyExistsError),
        (kind(name="a/b", num_partitions=1), kafka.InvalidTopicError),
        (kind(name="none", num_partitions=0), kafka.InvalidPartitionsError),
        (
            kind(name="bad", num_partitions=1, configs=[("segment.ms", "1")]),
            kafka.InvalidConfigurationError,
        ),
    ):
        topic.replication_factor, topic.assignments = 1, []
        topic.configs = topic.configs or []
        for only_checks in (True, False):
            request = admin.CreateTopicsRequest(
                topics=[topic], timeout_ms=1_000, validate_only=only_checks
            )
            [answer] = asked_alone(gateway, request, 4).topics
            assert (answer.error_code, bool(answer.error_message)) == (error.errno, True)
    assert not {"none", "bad"} & set(log.list_topics())


def test_partitions_are_added_and_fewer_are_refused(
    client: KafkaAdminClient, log: txlog.Admin
) -> None:
    log.create_topic("grown")
    client.create_partitions({"grown": 3})
    assert len(log.describe_topic("grown").partitions) == 3
    for count in (2, 0, 1 << 30):
        with pytest.raises(kafka.InvalidPartitionsError):
            client.create_partitions({"grown": count})
    with pytest.raises(kafka.UnknownTopicOrPartitionError):
        client.create_partitions({"absent": 3})
    client.create_partitions({"grown": 5}, validate_only=True)
    assert len(log.describe_topic("grown").partitions) == 3


def test_records_are_deleted_below_an_offset_and_beyond_the_end_refused(
    gateway: Gateway, client: KafkaAdminClient, log: txlog.Admin
) -> None:
    log.create_topic("trimmed", 2)
    produced(gateway, "trimmed")
    first, second = TopicPartition("trimmed", 0), TopicPartition("trimmed", 1)
    with pytest.raises(kafka.OffsetOutOfRangeError):
        client.delete_records({first: 2, second: 1})
    assert log.describe_topic("trimmed").partitions[0].log_start_offset == 2
    assert client.delete_records({first: -1})[first]["low_watermark"] == 3


# Settings.


def test_settings_of_a_topic_are_shown_with_their_source_and_changed(
    gateway: Gateway, client: KafkaAdminClient, log: txlog.Admin
) -> None:
    log.create_topic("set", config={"retention.ms": 1_000})
    shown = client.describe_configs([ConfigResource("topic", "set")], config_filter="all")
    entries = shown["topic"]["set"]
    assert entries["retention.ms"]["value"] == "1000"
    assert entries["retention.ms"]["config_source"] == "DYNAMIC_TOPIC_CONFIG"
    assert entries["cleanup.policy"]["config_type"] == "LIST"
    assert entries.keys() == log.describe_topic("set").config.to_dotted().keys()
    changes = {
        "retention.ms": (AlterConfigOp.DELETE, None),
        "cleanup.policy": (AlterConfigOp.APPEND, "compact"),
        "max.message.bytes": "2000",
    }
    resource = ConfigResource("topic", "set", changes)
    client.alter_configs([resource], validate_only=True)
    assert log.describe_topic("set").config.retention_ms == 1_000
    client.alter_configs([resource])
    config = log.describe_topic("set").config
    assert (config.retention_ms, config.cleanup_policy) == (-1, "delete,compact")
    assert config.max_message_bytes == 2_000
    change = {"cleanup.policy": (AlterConfigOp.SUBTRACT, "delete")}
    client.alter_configs([ConfigResource("topic", "set", change)])
    assert log.describe_topic("set").config.cleanup_policy == "compact"
    # The old request: what it does not name gets its default, so the client names it.
    change = {"retention.bytes": "5"}
    client.alter_configs([ConfigResource("topic", "set", change)], incremental=False)
    config = log.describe_topic("set").config
    assert (config.retention_bytes, config.cleanup_policy) == (5, "compact")
    request = admin.AlterConfigsRequest(
        resources=[(2, "set", [("retention.bytes", "6")])], validate_only=False
    )
    assert asked_alone(gateway, request, 2).responses[0].error_code == 0
    config = log.describe_topic("set").config
    assert (config.retention_bytes, config.cleanup_policy) == (6, "delete")


def altered(name: str, operation: int, value: str | None, kind: int = 2) -> object:
    response = admin.IncrementalAlterConfigsRequest
    resource = response.AlterConfigsResource
    entry = resource.AlterableConfig(name=name, config_operation=operation, value=value)
    return response(
        resources=[resource(resource_type=kind, resource_name="settled", configs=[entry])],
        validate_only=False,
    )


@pytest.mark.parametrize(
    ("name", "operation", "value", "kind", "error"),
    [
        ("no.such.name", 0, "1", 2, kafka.InvalidConfigurationError),
        ("no.such.name", 1, None, 2, kafka.InvalidConfigurationError),
        ("retention.ms", 0, "soon", 2, kafka.InvalidConfigurationError),
        ("retention.ms", 0, None, 2, kafka.InvalidRequestError),
        ("retention.ms", 2, "1", 2, kafka.InvalidConfigurationError),
        ("retention.ms", 9, "1", 2, kafka.InvalidRequestError),
        ("retention.ms", 0, "1", 4, kafka.InvalidRequestError),
        ("key.column", 0, "no column", 2, kafka.InvalidConfigurationError),
    ],
)
def test_change_of_a_setting_that_makes_no_sense_is_refused(
    gateway: Gateway,
    log: txlog.Admin,
    name: str,
    operation: int,
    value: str | None,
    kind: int,
    error: type[kafka.BrokerResponseError],
) -> None:
    if "settled" not in log.list_topics():
        log.create_topic("settled")
    before = log.describe_topic("settled").config
    [answer] = asked_alone(gateway, altered(name, operation, value, kind), 1).responses
    assert (answer.error_code, bool(answer.error_message)) == (error.errno, True)
    assert log.describe_topic("settled").config == before


def test_settings_of_the_gateway_are_shown_read_only(client: KafkaAdminClient) -> None:
    number = str(client.describe_cluster()["controller_id"])
    shown = client.describe_configs([ConfigResource("broker", number)], config_filter="all")
    entries = shown["broker"][number]
    assert entries["transaction.max.timeout.ms"]["value"] == "900000"
    assert entries["auto.create.topics.enable"]["value"] == "true"
    assert all(entry["read_only"] for entry in entries.values())


# Groups.


def test_group_shows_its_member_and_goes_after_it(
    gateway: Gateway, client: KafkaAdminClient, log: txlog.Admin
) -> None:
    produced(gateway, "members")
    member = joined(gateway, "manned", "members")
    by_librdkafka = librdkafka_admin.AdminClient(gateway.config())
    listed = by_librdkafka.list_consumer_groups().result(WAIT_S).valid
    assert {"manned": "STABLE"}.items() <= {g.group_id: g.state.name for g in listed}.items()
    described = by_librdkafka.describe_consumer_groups(["manned"])["manned"].result(WAIT_S)
    [found] = described.members
    assert (found.client_id, found.host) == ("member", "/127.0.0.1")
    assert [(p.topic, p.partition) for p in found.assignment.topic_partitions] == [("members", 0)]
    assert client.delete_groups(["manned"]) == {"manned": kafka.NonEmptyGroupError.__name__}
    where = TopicPartition("members", 0)
    refused = client.delete_group_offsets("manned", [where])
    assert refused == {where: kafka.GroupSubscribedToTopicError}
    member.close()
    group = client.describe_groups(["manned"])["manned"]
    assert (group["group_state"], group["members"]) == ("Empty", [])
    assert client.delete_group_offsets("manned", [where]) == {where: kafka.NoError}
    assert log.describe_group("manned").partitions == ()


def test_group_without_members_is_deleted_and_an_unknown_one_is_not_there(
    gateway: Gateway, client: KafkaAdminClient
) -> None:
    produced(gateway, "left")
    joined(gateway, "left", "left").close()
    assert "left" in {one["group_id"] for one in client.list_groups(states_filter=["EMPTY"])}
    assert "left" not in {one["group_id"] for one in client.list_groups(states_filter=["STABLE"])}
    assert client.list_groups(types_filter=["CONSUMER"]) == []
    assert client.delete_groups(["left"]) == {"left": "OK"}
    assert client.delete_groups(["left"]) == {"left": kafka.GroupIdNotFoundError.__name__}
    [new] = asked_alone(gateway, admin.DescribeGroupsRequest(groups=["left"]), 6).groups
    [old] = asked_alone(gateway, admin.DescribeGroupsRequest(groups=["left"]), 5).groups
    assert (new.error_code, new.group_state) == (kafka.GroupIdNotFoundError.errno, "Dead")
    assert (old.error_code, old.group_state) == (0, "Dead")
    topics = [("left", [(0,)])]
    missing = asked_alone(gateway, consumer.OffsetDeleteRequest(group_id="left", topics=topics), 0)
    assert missing.error_code == kafka.GroupIdNotFoundError.errno


def test_group_that_is_only_asked_for_is_not_stored(gateway: Gateway) -> None:
    find = metadata.FindCoordinatorRequest(key="unknown", key_type=0)
    assert asked_alone(gateway, find, 3).error_code == 0
    fetch = consumer.OffsetFetchRequest(group_id="unknown", topics=None)
    assert asked_alone(gateway, fetch, 7).error_code == 0
    for request in (
        admin.DeleteGroupsRequest(groups_names=["unknown"]),
        admin.DescribeGroupsRequest(groups=["unknown"]),
    ):
        asked_alone(gateway, request, 1)
    stored = txlog.Admin(gateway.root).connection.offsets.group("unknown")
    assert not stored.committed
    commit = consumer.OffsetCommitRequest(
        group_id="unknown", generation_id_or_member_epoch=-1, member_id="", topics=[]
    )
    asked_alone(gateway, commit, 5)
    assert txlog.Admin(gateway.root).connection.offsets.group("unknown").committed


def test_group_that_another_gateway_leads_is_described_there(gateway: Gateway) -> None:
    elsewhere = txlog.Admin(gateway.root).connection
    GroupLeases(elsewhere, Gateways(elsewhere, lambda: "elsewhere:2")).take("there")
    request = admin.DescribeGroupsRequest(groups=["there"])
    [found] = asked_alone(gateway, request, 5).groups
    assert found.error_code == kafka.NotCoordinatorError.errno
    [deleted] = asked_alone(gateway, admin.DeleteGroupsRequest(groups_names=["there"]), 1).results
    assert deleted.error_code == kafka.NotCoordinatorError.errno


def test_offsets_that_a_transaction_has_pending_are_unstable(
    gateway: Gateway, client: KafkaAdminClient
) -> None:
    produced(gateway, "pended")
    reader = joined(gateway, "pended", "pended")
    producer = librdkafka.Producer(gateway.config(transactional_id="pender"))
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    done = [librdkafka.TopicPartition("pended", 0, 3)]
    producer.send_offsets_to_transaction(done, reader.consumer_group_metadata(), WAIT_S)
    topics = [("pended", [0])]
    for stable, code in ((True, kafka.UnstableOffsetCommitError.errno), (False, 0)):
        request = consumer.OffsetFetchRequest(
            group_id="pended", topics=topics, require_stable=stable
        )
        answer = asked_alone(gateway, request, 7)
        [part] = answer.topics[0].partitions
        assert (answer.error_code, part.error_code) == (0, code)
    producer.commit_transaction(WAIT_S)
    offsets = client.list_group_offsets("pended")
    assert [one.offset for one in offsets["pended"].values()] == [3]
    reader.close()


# Transactions.


def test_open_transaction_is_listed_and_described(
    gateway: Gateway, client: KafkaAdminClient
) -> None:
    producer = librdkafka.Producer(
        gateway.config(transactional_id="described", transaction_timeout_ms=30_000)
    )
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    produced(gateway, "described", 1)
    producer.produce("described", b"1", partition=0)
    assert producer.flush(WAIT_S) == 0
    [listed] = [
        one
        for found in client.list_transactions(state_filters=["Ongoing"]).values()
        for one in found
        if one.transactional_id == "described"
    ]
    found = client.describe_transactions(["described"])["described"]
    assert (found.state, found.transaction_timeout_ms) == ("Ongoing", 30_000)
    assert found.topic_partitions == {TopicPartition("described", 0)}
    assert found.producer_id == listed.producer_id
    [aged] = client.list_transactions(duration_filter_ms=3_600_000).values()
    assert aged == []
    producer.commit_transaction(WAIT_S)
    where = TopicPartition("described", 0)
    producers = client.describe_producers([where])[where].active_producers
    assert [(p.producer_id, p.current_transaction_start_offset) for p in producers] == [
        (found.producer_id, -1)
    ]
    with pytest.raises(kafka.TransactionalIdNotFoundError):
        client.describe_transactions(["absent"])


def test_states_of_transactions_that_do_not_exist_are_named(gateway: Gateway) -> None:
    request = admin.ListTransactionsRequest(
        state_filters=["Ongoing", "Lost"], producer_id_filters=[], duration_filter=-1
    )
    assert asked_alone(gateway, request, 1).unknown_state_filters == ["Lost"]


# What is where.


def test_cluster_is_this_gateway_with_the_log_s_id(
    gateway: Gateway, client: KafkaAdminClient, log: txlog.Admin
) -> None:
    found = client.describe_cluster()
    [broker] = found["brokers"]
    assert f"{broker['host']}:{broker['port']}" == gateway.address
    assert found["cluster_id"] == log.connection.cluster.log_id
    assert client.list_partition_reassignments() == {}


def test_sizes_of_partitions_are_shown(
    gateway: Gateway, client: KafkaAdminClient, log: txlog.Admin
) -> None:
    log.create_topic("sized", 2)
    produced(gateway, "sized")
    [broker] = client.describe_log_dirs({"sized": [0, 1]})
    [folder] = broker["log_dirs"]
    [topic] = folder["topics"]
    sizes = {p["partition_index"]: p["partition_size"] for p in topic["partitions"]}
    assert sizes[0] > 0 == sizes[1]
    log.delete_records({txlog.TopicPartition("sized", 0): -1})
    request = admin.DescribeLogDirsRequest(topics=None)
    [folder] = asked_alone(gateway, request, 4).results
    [topic] = [topic for topic in folder.topics if topic.name == "sized"]
    assert [part.partition_size for part in topic.partitions] == [0, 0]


# What the gateway does not have.


def test_request_that_is_not_served_is_not_offered_and_clients_say_so(gateway: Gateway) -> None:
    found = librdkafka_admin.AdminClient(gateway.config())
    kind = librdkafka_admin
    anything = kind.AclBindingFilter(
        kind.ResourceType.ANY,
        None,
        kind.ResourcePatternType.ANY,
        None,
        None,
        kind.AclOperation.ANY,
        kind.AclPermissionType.ANY,
    )
    with pytest.raises(librdkafka.KafkaException) as refused:
        found.describe_acls(anything).result(WAIT_S)
    assert refused.value.args[0].code() == librdkafka.KafkaError._UNSUPPORTED_FEATURE
