"""Options of source and sink: valid options, and the error of each invalid one."""

import os
import pickle
from collections.abc import Callable, Mapping
from dataclasses import fields, replace

import pytest

from spark_plugin import options
from spark_plugin.foreign_options import IGNORED, REFUSED, found
from spark_plugin.option_values import OffsetPoint, OffsetSpec, TimestampStrategy
from spark_plugin.options import (
    ReaderOptions,
    WriterOptions,
    parse_reader_options,
    parse_writer_options,
    warn_of_options_without_effect,
)
from txlog.errors import InvalidConfig, InvalidName, InvalidOption
from txlog.model import IsolationLevel, TopicPartition
from txlog.settings import TopicConfig
from txlog.topic.read.time_lookup import AtTime

READER = {"path": "/log", "subscribe": "orders"}
WRITER = {"path": "/log"}

EVERY_READER_OPTION = {
    "root": "s3://bucket/log",
    "subscribe": "orders, refunds",
    "startingoffsets": '{"orders": {"0": 23, "1": -2}, "refunds": {"0": -1}}',
    "startingtimestamp": "1700000000000",
    "startingoffsetsbytimestamp": '{"orders": {"0": 7}, "refunds": {"0": 0}}',
    "startingoffsetsbytimestampstrategy": "latest",
    "group.id": "g",
    "columns": "carrier, dep_delay",
    "maxoffsetspertrigger": "1000",
    "maxbytespertrigger": "1g",
    "minoffsetspertrigger": "100",
    "maxtriggerdelay": "30s",
    "minpartitions": "8",
    "maxrecordsperpartition": "50000",
    "bytespertask": "16m",
    "isolation.level": "read_uncommitted",
    "failondataloss": "false",
    "failonnewcolumns": "true",
    "failonmissingtopics": "false",
    "abandonedtopics": "returns, old.orders",
    "abandonedgroup": "before",
    "includeheaders": "true",
    "storage.endpoint_url": "http://127.0.0.1:9000",
    "storage.anon": "true",
    "storage.client_kwargs": '{"region_name": "x"}',
}

EVERY_WRITER_OPTION = {
    "root": "/log",
    "topic": "delays",
    "key": "carrier",
    "partition": "part",
    "transactional.id": "job-1",
    "checkpointlocation": "file:///cp with space/c%20p",
    "checkpointfilesystem": "hdfs://n",
    "queryname": "My Query",
    "group.takeover": "true",
    "createtopics": "true",
    "mergeschema": "true",
    "partitions": "8",
    "topic.Retention.ms": "1000",
    "label": "left",
}


def test_every_reader_option_is_parsed() -> None:
    assert parse_reader_options(EVERY_READER_OPTION, streaming=True) == ReaderOptions(
        root="s3://bucket/log",
        subscribe=("orders", "refunds"),
        starting_offsets=OffsetSpec(
            explicit={
                TopicPartition("orders", 0): 23,
                TopicPartition("orders", 1): OffsetPoint.EARLIEST,
                TopicPartition("refunds", 0): OffsetPoint.LATEST,
            }
        ),
        starting_timestamp=OffsetSpec(AtTime(1_700_000_000_000)),
        starting_offsets_by_timestamp=OffsetSpec(
            explicit={
                TopicPartition("orders", 0): AtTime(7),
                TopicPartition("refunds", 0): AtTime(0),
            }
        ),
        starting_offsets_by_timestamp_strategy=TimestampStrategy.LATEST,
        group_id="g",
        columns=("carrier", "dep_delay"),
        max_offsets_per_trigger=1000,
        max_bytes_per_trigger=1 << 30,
        min_offsets_per_trigger=100,
        max_trigger_delay_ms=30_000,
        min_partitions=8,
        max_records_per_partition=50_000,
        bytes_per_task=16 << 20,
        isolation_level=IsolationLevel.READ_UNCOMMITTED,
        fail_on_data_loss=False,
        fail_on_new_columns=True,
        fail_on_missing_topics=False,
        abandoned_topics=("returns", "old.orders"),
        abandoned_group="before",
        include_headers=True,
        storage={
            "endpoint_url": "http://127.0.0.1:9000",
            "anon": True,
            "client_kwargs": {"region_name": "x"},
        },
    )


def test_every_writer_option_is_parsed() -> None:
    assert parse_writer_options(EVERY_WRITER_OPTION) == WriterOptions(
        root="/log",
        topic="delays",
        key="carrier",
        partition="part",
        transactional_id="job-1",
        checkpoint_location="file:///cp with space/c%20p",
        checkpoint_file_system="hdfs://n",
        query_name="My Query",
        group_takeover=True,
        create_topics=True,
        merge_schema=True,
        partitions=8,
        topic_config={"retention.ms": "1000"},
        label="left",
    )


def test_defaults_are_kafkas_where_kafka_has_them() -> None:
    streaming = parse_reader_options(READER, streaming=True)
    assert streaming.starting_offsets == OffsetSpec(OffsetPoint.LATEST)
    assert streaming.isolation_level is IsolationLevel.READ_COMMITTED
    assert streaming.fail_on_data_loss
    assert not streaming.include_headers
    batch = parse_reader_options(READER, streaming=False)
    assert batch.starting_offsets == OffsetSpec(OffsetPoint.EARLIEST)
    assert batch.ending_offsets == OffsetSpec(OffsetPoint.LATEST)


def test_option_names_are_case_insensitive() -> None:
    for name in ("minpartitions", "minPartitions", "MINPARTITIONS"):
        assert parse_reader_options({**READER, name: "3"}).min_partitions == 3


@pytest.mark.parametrize(
    ("alias", "field", "value"),
    [("kafka.group.id", "group_id", "g"), ("groupid", "group_id", "g")],
)
def test_reader_accepts_kafka_option_names(alias: str, field: str, value: str) -> None:
    assert getattr(parse_reader_options({**READER, alias: value}), field) == value


def test_writer_accepts_option_name_of_kafkas_connector() -> None:
    parsed = parse_writer_options({**WRITER, "kafka.transactional.id": "job"})
    assert parsed.transactional_id == "job"


@pytest.mark.parametrize("name", TopicConfig.names())
def test_writer_accepts_every_setting_of_a_topic(name: str) -> None:
    default = str(TopicConfig().to_dotted()[name])
    parsed = parse_writer_options({**WRITER, f"topic.{name}": default})
    assert parsed.topic_config == {name: default}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"topic.max.mesage.bytes": "1"}, "did you mean 'max.message.bytes'?"),
        ({"topic.max.message.bytes": "5m"}, "must be a whole number"),
        ({"topic.compression.type": "gzip"}, "must be one of none, lz4, zstd"),
        ({"topic.retention.ms": "1", "createTopics": "false"}, "'createTopics' is false"),
        ({"topic.key.column": "a", "key": "b"}, "leave one of them out"),
        ({"compression": "zstd"}, "set 'topic.compression.type'"),
    ],
)
def test_wrong_setting_of_a_topic_is_refused(given: dict[str, str], why: str) -> None:
    with pytest.raises((InvalidOption, InvalidConfig)) as raised:
        parse_writer_options({**WRITER, **given})
    assert why in str(raised.value)


def test_option_given_under_two_names_must_have_one_value() -> None:
    assert parse_writer_options({"path": "/log", "root": "/log"}).root == "/log"
    with pytest.raises(InvalidOption, match="'root' is given twice"):
        parse_writer_options({"path": "/log", "root": "/other"})


@pytest.mark.parametrize("name", [n for n in REFUSED if "*" not in n])
def test_refused_option_of_another_connector_has_its_own_hint(name: str) -> None:
    """A suggestion would name another option, which may do the opposite."""
    for parse, given in ((parse_reader_options, READER), (parse_writer_options, WRITER)):
        with pytest.raises(InvalidOption) as raised:
            parse({**given, name.lower(): "secret"})
        assert f"does not exist here; {REFUSED[name]}." in str(raised.value)
        assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    "name",
    [
        "kafka.security.protocol",
        "kafka.sasl.jaas.config",
        "kafka.ssl.truststore.location",
        "kafka.key.deserializer",
        "kafka.value.serializer",
    ],
)
def test_refused_pattern_matches_kafkas_own_options(name: str) -> None:
    with pytest.raises(InvalidOption, match="does not exist here; "):
        parse_reader_options({**READER, name: "x"})


TUNING = {
    "kafka.max.poll.records": "500",
    "kafka.session.timeout.ms": "45000",
    "kafka.fetch.max.bytes": "1",
    "kafka.acks": "all",
    "kafka.linger.ms": "5",
    "kafka.max.request.size": "1",
    "kafka.client.id": "job",
    "groupidprefix": "spark",
    "skipchangecommits": "true",
}


def test_accepted_options_of_other_connectors_change_nothing_and_are_named_with_reasons() -> None:
    for parse, given in ((parse_reader_options, READER), (parse_writer_options, WRITER)):
        parsed = parse({**given, **TUNING})
        assert replace(parsed, without_effect=()) == parse(given)
        assert [text.partition(" (")[0] for text in parsed.without_effect] == [
            *list(TUNING)[:-2],
            "groupIdPrefix",
            "skipChangeCommits",
        ]


def test_accepted_options_are_warned_of_together_and_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for _ in range(2):
        warn_of_options_without_effect(parse_reader_options({**READER, **TUNING}))
    warn_of_options_without_effect(parse_reader_options(READER))
    (warning,) = caplog.messages
    assert warning.startswith("options without effect in txlog: kafka.max.poll.records (")
    assert "; skipChangeCommits (records are never changed)" in warning


def test_option_of_other_kind_is_named_as_such_under_its_kafka_name() -> None:
    with pytest.raises(InvalidOption, match="is an option of the reader, not of the writer"):
        parse_writer_options({**WRITER, "kafka.group.id": "g"})
    with pytest.raises(InvalidOption, match="is an option of the writer, not of the reader"):
        parse_reader_options({**READER, "kafka.transactional.id": "x"})


def test_no_option_is_both_accepted_and_refused_or_known() -> None:
    known = {
        spelling.lower()
        for table in (options._READER, options._WRITER)
        for option in table.values()
        for spelling in (option.name, *option.aliases)
    }
    for name in [*REFUSED, *IGNORED]:
        both = found(REFUSED, name) is not None, found(IGNORED, name) is not None
        assert both in ((True, False), (False, True)), name
        # The sink of Kafka's connector has it, too, where it means nothing here.
        assert name.lower() not in known or name == "includeHeaders"
    assert [k for k in known if found(REFUSED, k)] == []


def test_min_offsets_and_max_trigger_delay_are_parsed() -> None:
    given = {**READER, "minOffsetsPerTrigger": "10", "maxTriggerDelay": "30s"}
    parsed = parse_reader_options(given, streaming=True)
    assert (parsed.min_offsets_per_trigger, parsed.max_trigger_delay_ms) == (10, 30_000)
    default = parse_reader_options({**READER, "minOffsetsPerTrigger": "10"}, streaming=True)
    assert default.max_trigger_delay_ms == 15 * 60_000
    for text, ms in {"500": 500, "2 min": 120_000, "15m": 900_000, "1H": 3_600_000}.items():
        again = parse_reader_options({**given, "maxTriggerDelay": text}, streaming=True)
        assert again.max_trigger_delay_ms == ms


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "9"}, "more than 'maxOffsetsPer"),
        ({"maxTriggerDelay": "10s"}, "'minOffsetsPerTrigger', which is not given"),
        ({"minOffsetsPerTrigger": "0"}, "at least 1"),
        ({"minOffsetsPerTrigger": "1", "maxTriggerDelay": "soon"}, "a time such as"),
    ],
)
def test_invalid_or_contradictory_batch_limits_are_refused(given: dict[str, str], why: str) -> None:
    with pytest.raises(InvalidOption, match=why):
        parse_reader_options({**READER, **given}, streaming=True)


@pytest.mark.parametrize(
    "name",
    [
        *("minOffsetsPerTrigger", "maxOffsetsPerTrigger", "maxBytesPerTrigger"),
        *("abandonedTopics", "abandonedGroup"),
    ],
)
def test_options_of_streams_are_refused_for_batch_reads(name: str) -> None:
    with pytest.raises(InvalidOption, match=f"'{name}' is for streams only"):
        parse_reader_options({**READER, name: "1"}, streaming=False)
    parse_reader_options({**READER, name: "1"}, streaming=True)


def test_every_field_but_those_of_many_options_has_an_option() -> None:
    for kind, without in ((ReaderOptions, set()), (WriterOptions, {"topic_config"})):
        named = options.options_of(kind)
        assert {f.name for f in fields(kind)} - set(named) == {
            *without,
            "storage",
            "without_effect",
        }
        assert named["root"].name == "root"


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("startingofsets", "did you mean 'startingOffsets'?"),
        ("maxoffsetpertrigger", "did you mean 'maxOffsetsPerTrigger'?"),
        ("groupid.", "did you mean 'group.id'?"),
        ("zzz", "the options are"),
        ("kafka.bootstrap.servers", "give the log's URL as 'root'"),
        ("paths", "give load one path"),
        ("checkpointlocation", "is an option of the writer"),
        ("storagekey", "unknown reader option"),
    ],
)
def test_unknown_reader_option_is_refused_with_a_remedy(name: str, remedy: str) -> None:
    with pytest.raises(InvalidOption) as raised:
        parse_reader_options({**READER, name: "x"})
    assert remedy in str(raised.value)
    assert repr(name) in str(raised.value)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("topics", "did you mean 'topic'?"),
        ("transactionalid", "did you mean 'transactional.id'?"),
        ("startingoffsets", "is an option of the reader"),
    ],
)
def test_unknown_writer_option_is_refused_with_a_remedy(name: str, remedy: str) -> None:
    with pytest.raises(InvalidOption) as raised:
        parse_writer_options({**WRITER, name: "x"})
    assert remedy in str(raised.value)


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("minpartitions", "0", "a whole number of at least 1"),
        ("minpartitions", "-1", "a whole number of at least 1"),
        ("minpartitions", "1.5", "a whole number of at least 1"),
        ("minpartitions", "", "a whole number of at least 1"),
        ("maxbytespertrigger", "0", "a number of bytes"),
        ("maxbytespertrigger", "-5m", "a number of bytes"),
        ("maxbytespertrigger", "all", "a number of bytes"),
        ("maxrecordsperpartition", "0", "a whole number of at least 1"),
        ("maxrecordsperpartition", "1e3", "a whole number of at least 1"),
        ("maxoffsetspertrigger", "many", "a whole number of at least 1"),
        ("bytespertask", "0", "a number of bytes"),
        ("bytespertask", "64x", "a number of bytes"),
        ("isolation.level", "serializable", "read_committed or read_uncommitted"),
        ("failondataloss", "yes", "true or false"),
        ("failonmissingtopics", "no", "true or false"),
        ("abandonedtopics", "a,,b", "none of them empty"),
        ("abandonedgroup", " ", "a string that is not empty"),
        ("abandonedtopics", "a,orders", "'abandonedTopics' names orders, which is subscribed to"),
        ("columns", "a,,b", "names separated by commas"),
        ("columns", "a,b,a", "each of them once"),
        ("startingoffsets", "newest", "earliest, latest, committed or JSON"),
        ("startingoffsets", "{", "JSON ("),
        ("startingoffsets", "{}", "names at least one partition"),
        ("startingoffsets", '{"orders": {}}', "names at least one partition"),
        ("startingoffsets", '{"orders": [1]}', "JSON such as"),
        ("startingoffsets", '{"orders": {"0": -3}}', "-2 for earliest"),
        ("startingoffsets", '{"orders": {"0": "5"}}', "-2 for earliest"),
        ("startingoffsets", '{"orders": {"0": true}}', "-2 for earliest"),
        ("startingoffsets", '{"orders": {"x": 5}}', "whole numbers in quotes"),
        ("startingoffsets", '{"orders": {"0": 5, "0": 6}}', "occurs twice"),
        ("startingtimestamp", "2026-01-01", "a time in milliseconds"),
        ("startingtimestamp", "-1", "a time in milliseconds"),
        ("endingtimestamp", "9" * 19, "a time in milliseconds"),
        ("startingoffsetsbytimestamp", "earliest", "JSON ("),
        ("startingoffsetsbytimestamp", '{"orders": {"0": -1}}', "JSON with times of at least 0"),
        ("endingoffsetsbytimestamp", '{"orders": {"0": true}}', "JSON with times of at least 0"),
        ("endingoffsetsbytimestamp", '{"orders": {"0": 1e30}}', "JSON with times of at least 0"),
        ("endingoffsetsbytimestamp", '{"orders": 5}', "JSON such as"),
        ("startingoffsetsbytimestampstrategy", "earliest", "error or latest"),
        ("asof", "yesterday", "'asOf': 'yesterday' is no moment; write it as 2013"),
        ("asof", "2026-01-01", "may be a day or a transaction"),
        ("assign", "orders", "JSON ("),
        ("assign", "{}", "names at least one partition"),
        ("assign", "[0, 1]", 'JSON such as {"orders": [0, 1]}'),
        ("assign", '{"orders": 0}', 'JSON such as {"orders": [0, 1]}'),
        ("assign", '{"orders": {"0": 1}}', 'JSON such as {"orders": [0, 1]}'),
        ("assign", '{"orders": [-1]}', 'JSON such as {"orders": [0, 1]}'),
        ("assign", '{"orders": ["0"]}', 'JSON such as {"orders": [0, 1]}'),
        ("assign", '{"orders": [true]}', 'JSON such as {"orders": [0, 1]}'),
        ("assign", '{"orders": []}', "at least one partition a topic, each once"),
        ("assign", '{"orders": [1, 1]}', "at least one partition a topic, each once"),
        ("assign", '{"orders": [1], "orders": [2]}', "occurs twice"),
        ("root", " ", "a string that is not empty"),
    ],
)
def test_invalid_reader_option_value_is_refused(name: str, value: str, wanted: str) -> None:
    with pytest.raises(InvalidOption) as raised:
        parse_reader_options({"root": "/log", "subscribe": "orders", name: value})
    assert wanted in str(raised.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("subscribe", "a/b"),
        ("subscribe", ".."),
        ("subscribe", "__internal"),
        ("assign", '{"a/b": [0]}'),
        ("startingOffsetsByTimestamp", '{"..": {"0": 1}}'),
        ("group.id", "a\nb"),
    ],
)
def test_invalid_topic_or_group_name_is_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidName):
        parse_reader_options({"path": "/log", "subscribe": "orders", name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("partitions", "0"),
        ("createtopics", "1"),
        ("group.takeover", ""),
        ("checkpointlocation", ""),
        ("key", ""),
    ],
)
def test_invalid_writer_option_value_is_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidOption, match="it must be"):
        parse_writer_options({**WRITER, name: value})


@pytest.mark.parametrize("value", ["", "x" * 513, "a\nb"])
def test_invalid_transactional_id_is_refused(value: str) -> None:
    with pytest.raises((InvalidName, InvalidOption)):
        parse_writer_options({**WRITER, "transactional.id": value})


def test_invalid_topic_name_of_the_writer_is_refused() -> None:
    with pytest.raises(InvalidName):
        parse_writer_options({**WRITER, "topic": "../x"})


# Options that exclude or require each other.


def test_missing_log_root_is_refused() -> None:
    with pytest.raises(InvalidOption, match="pass it to load"):
        parse_reader_options({"subscribe": "orders"})
    with pytest.raises(InvalidOption, match="pass it to start"):
        parse_writer_options({"topic": "orders"})


def test_exactly_one_kind_of_subscription_is_required() -> None:
    with pytest.raises(InvalidOption, match="none of subscribe, subscribePattern, assign is given"):
        parse_reader_options({"path": "/log"})
    for name, value in {"subscribePattern": "o.*", "assign": '{"orders": [0]}'}.items():
        with pytest.raises(
            InvalidOption, match=f"'subscribe' and '{name}' are given; give exactly"
        ):
            parse_reader_options({**READER, name: value})


def test_a_pattern_matches_whole_names() -> None:
    parsed = parse_reader_options({"path": "/log", "subscribepattern": "orders|ref.*"})
    assert [parsed.reads(name) for name in ("orders", "refunds", "orders2")] == [True, True, False]
    with pytest.raises(InvalidOption, match="a regular expression"):
        parse_reader_options({"path": "/log", "subscribepattern": "("})


@pytest.mark.parametrize("pattern", ["a{99999999999999999999}", "(" * 3000 + ")" * 3000])
def test_pattern_that_python_cannot_compile_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidOption, match="it must be a regular expression"):
        parse_reader_options({"path": "/log", "subscribepattern": pattern})


def test_R29_committed_offsets_need_a_group() -> None:
    with pytest.raises(InvalidOption, match=r"set 'group\.id'"):
        parse_reader_options({**READER, "startingoffsets": "committed"})
    parsed = parse_reader_options({**READER, "startingoffsets": "committed", "group.id": "g"})
    assert parsed.starting_offsets.at(TopicPartition("orders", 5)) is OffsetPoint.COMMITTED


def test_json_starting_offsets_must_name_exactly_the_subscribed_topics() -> None:
    with pytest.raises(InvalidOption, match="names refunds, which is not subscribed"):
        parse_reader_options({**READER, "startingoffsets": '{"refunds": {"0": 1}}'})
    with pytest.raises(InvalidOption, match="does not name refunds"):
        parse_reader_options(
            {
                "path": "/log",
                "subscribe": "orders,refunds",
                "startingoffsets": '{"orders": {"0": 1}}',
            }
        )


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"startingOffsetsByTimestamp": '{"refunds": {"0": 1}}'}, "names refunds, which is not"),
        ({"endingOffsets": '{"orders": {"2": 1}}'}, "'endingOffsets' names orders-2, which is not"),
        ({"startingTimestamp": "9", "endingTimestamp": "8"}, "is later than 'endingTimestamp'"),
    ],
)
def test_positions_must_be_of_assigned_partitions_and_in_order(
    given: dict[str, str], why: str
) -> None:
    with pytest.raises(InvalidOption, match=why):
        parse_reader_options({"path": "/log", "assign": '{"orders": [0, 1]}', **given})


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"endingOffsets": "latest"}, "'asOf' and 'endingOffsets' are given"),
        ({"endingTimestamp": "5"}, "'asOf' and 'endingTimestamp' are given"),
        ({"isolation.level": "read_uncommitted"}, "'asOf' is a consistent cut"),
    ],
)
def test_as_of_excludes_another_end_and_read_uncommitted(given: dict[str, str], why: str) -> None:
    with pytest.raises(InvalidOption, match=why):
        parse_reader_options({**READER, "asOf": "7-0-12", **given}, streaming=False)


def test_partition_missing_from_json_offsets_is_refused() -> None:
    spec = OffsetSpec(explicit={TopicPartition("orders", 0): 4})
    assert spec.at(TopicPartition("orders", 0)) == 4
    with pytest.raises(InvalidOption, match="no offset for orders-1"):
        spec.at(TopicPartition("orders", 1))


@pytest.mark.parametrize(
    ("streaming", "name", "value", "why"),
    [
        (True, "endingoffsets", "latest", "'endingOffsets' is for spark.read only"),
        (True, "asof", "5", "'asOf' is for spark.read only"),
        (True, "endingtimestamp", "5", "'endingTimestamp' is for spark.read only"),
        (
            True,
            "endingoffsetsbytimestamp",
            '{"orders": {"0": 5}}',
            "'endingOffsetsByTimestamp' is for spark.read only",
        ),
        (False, "maxoffsetspertrigger", "5", "'maxOffsetsPerTrigger' is for streams only"),
        (False, "startingoffsets", "latest", "'startingOffsets' may not be latest"),
        (False, "startingoffsets", '{"orders": {"0": -1}}', "'startingOffsets' may not be latest"),
        (False, "endingoffsets", "earliest", "'endingOffsets' must be latest, or JSON"),
        (False, "endingoffsets", "committed", "'endingOffsets' must be latest, or JSON"),
        (False, "endingoffsets", '{"orders": {"0": -2}}', "'endingOffsets' must be latest"),
    ],
)
def test_options_for_the_other_read_mode_are_refused(
    streaming: bool, name: str, value: str, why: str
) -> None:
    given = {**READER, "group.id": "g", name: value}
    with pytest.raises(InvalidOption, match=why):
        parse_reader_options(given, streaming=streaming)
    parse_reader_options(given)


def test_key_and_partition_must_be_different_columns() -> None:
    with pytest.raises(InvalidOption, match="both name the column 'k'"):
        parse_writer_options({**WRITER, "key": "k", "partition": "k"})


def test_partitions_option_conflicts_with_create_topics_false() -> None:
    with pytest.raises(InvalidOption, match="leave one of them out"):
        parse_writer_options({**WRITER, "createtopics": "false", "partitions": "4"})


# Secrets.


def test_storage_options_are_never_printed() -> None:
    parsed = parse_writer_options({**WRITER, "storage.secret": "hush", "storage.key": "me"})
    assert parsed.storage["secret"] == "hush"
    assert dict(parsed.storage) == {"secret": "hush", "key": "me"}
    for text in (repr(parsed), str(parsed)):
        assert "hush" not in text


def test_malformed_storage_option_is_refused_without_showing_its_value() -> None:
    with pytest.raises(InvalidOption, match=r"storage\.client_kwargs") as raised:
        parse_writer_options({**WRITER, "storage.client_kwargs": '{"secret": "hush"'})
    assert "hush" not in str(raised.value)


def test_numeric_storage_option_stays_a_string() -> None:
    parsed = parse_writer_options({**WRITER, "storage.key": "0123"})
    assert parsed.storage["key"] == "0123"


def test_options_can_be_pickled() -> None:
    for parsed in (
        parse_reader_options(EVERY_READER_OPTION),
        parse_writer_options(EVERY_WRITER_OPTION),
    ):
        assert pickle.loads(pickle.dumps(parsed)) == parsed


def test_option_tables_cover_every_field() -> None:
    """`subscribePattern`, `assign`, `asOf` and other ends exclude others in their own tables,
    as do an application and its version; `storage` and `without_effect` are shared.
    """
    assert len(fields(ReaderOptions)) == len(EVERY_READER_OPTION) - 2 + 7
    assert len(fields(WriterOptions)) == len(EVERY_WRITER_OPTION) + 1 + 3


VERSIONED = {"root": "/log", "txnAppId": "job", "txnVersion": "7"}


def test_txn_app_id_and_txn_version_are_parsed() -> None:
    parsed = parse_writer_options(VERSIONED)
    assert (parsed.txn_app_id, parsed.txn_version) == ("job", 7)
    assert parse_writer_options({**VERSIONED, "txnVersion": "0"}).txn_version == 0


@pytest.mark.parametrize("given", ["txnAppId", "txnVersion"])
def test_txn_app_id_and_txn_version_require_each_other(given: str) -> None:
    with pytest.raises(InvalidOption, match="give both, or neither"):
        parse_writer_options({"root": "/log", given: "7"})


@pytest.mark.parametrize("value", ["-1", "1.5", "", "x", "9223372036854775808", "9" * 5000, "٣"])
def test_invalid_txn_version_is_refused(value: str) -> None:
    with pytest.raises(InvalidOption, match="'txnVersion'"):
        parse_writer_options({**VERSIONED, "txnVersion": value})


@pytest.mark.parametrize("other", ["transactional.id", "checkpointLocation"])
def test_txn_version_excludes_transactional_id_and_checkpoint_location(other: str) -> None:
    with pytest.raises(InvalidOption, match=f"leave '{other}' out"):
        parse_writer_options({**VERSIONED, other: "x"})


CREATED = {"provider": "txlog", "owner": "me", "location": "file:/log", "path": "file:/log"}


@pytest.mark.parametrize("parse", [parse_reader_options, parse_writer_options])
@pytest.mark.parametrize("options", [CREATED, {}], ids=["as it is made", "as it is used"])
def test_catalog_table_is_refused_with_temporary_view_remedy(
    parse: Callable[[Mapping[str, str]], object], options: dict[str, str]
) -> None:
    """The error once named the options 'provider' or 'location', which the user had not given."""
    with pytest.raises(InvalidOption, match="Use CREATE TEMPORARY VIEW ... USING txlog OPTIONS"):
        parse(options)


@pytest.mark.parametrize("value", ["x" * 201, "a\nb", "\x1b[2J", " "])
@pytest.mark.parametrize("option", ["label", "txnAppId"])
def test_label_and_txn_app_id_must_be_short_and_printable(option: str, value: str) -> None:
    with pytest.raises(InvalidOption, match=f"'{option}' is "):
        parse_writer_options({**WRITER, "txnVersion": "1", option: value})


def test_transactional_id_with_label_is_at_most_512_characters() -> None:
    named = {**WRITER, "transactional.id": "i" * 400, "label": "x" * 100}
    assert parse_writer_options(named).label == "x" * 100
    with pytest.raises(InvalidName, match="at most 512"):
        parse_writer_options({**named, "label": "x" * 200})


@pytest.mark.parametrize(
    ("given", "root"),
    [
        ("data/log", "{cwd}/data/log"),
        ("file://./log", "{cwd}/log"),
        ("/data/log", "/data/log"),
        ("file:/data/log", "file:/data/log"),
        ("s3://bucket/log", "s3://bucket/log"),
        ("memory://log", "memory://log"),
    ],
)
def test_relative_root_begins_at_the_drivers_folder_also_in_executors(
    given: str, root: str
) -> None:
    expected = root.format(cwd=os.getcwd())
    assert parse_writer_options({**WRITER, "path": given}).root == expected
    assert parse_reader_options({**READER, "path": given}).root == expected
