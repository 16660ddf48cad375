"""Topics that do not fit a query, are deleted, or created again: Spark gets no
offset that cannot be read, and with failOnDataLoss=false a query continues without them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from spark_plugin.datasource import TxlogDataSource
from spark_plugin.option_values import OffsetPoint, OffsetSpec
from spark_plugin.options import ReaderOptions
from spark_plugin.source.batch_reader import TxlogBatchReader
from spark_plugin.source.read_plan import ReadTask
from spark_plugin.source.subscription import inferred_schema
from tests.logs.memory_log import MemoryLog
from tests.unit.spark_plugin.spark_query import GROUP, ONE_JOURNAL
from tests.unit.spark_plugin.spark_stream import Stream
from txlog.client.admin import Admin
from txlog.errors import CheckpointConflict, IncompatibleSchema, InvalidOption, UnknownTopic
from txlog.model import TopicPartition
from txlog.topic.records.schema import KAFKA_SCHEMA

EARLIEST, COMMITTED = OffsetSpec(OffsetPoint.EARLIEST), OffsetSpec(OffsetPoint.COMMITTED)
PATTERN = {"subscribe": (), "subscribe_pattern": "e.*"}
LOSES = {"fail_on_data_loss": False}
TYPED = pa.schema([("n", pa.int32())])


@pytest.fixture
def log() -> MemoryLog:
    """A log with a topic that the query reads from its beginning."""
    log = MemoryLog(ONE_JOURNAL)
    log.admin.create_topic("events", 1)
    put(log, "events", 4)
    return log


def put(log: MemoryLog, topic: str, count: int) -> None:
    producer = log.producer()
    for number in range(count):
        producer.send(topic, b"%d" % number)
    producer.flush()


def group_position(log: MemoryLog, topic: str = "events") -> int | None:
    """The group's position in the current topic of that name."""
    topic_id = log.admin.describe_topic(topic).topic_id
    committed = log.process().offsets.group(GROUP).committed
    found = {where.topic: at.offset for where, at in committed.items() if at.topic_id == topic_id}
    return found.get(topic)


def latest(stream: Stream) -> dict[str, Any]:
    assert stream.end is not None
    return stream.reader.latestOffset(stream.end, ReadAllAvailable())


# Topics that do not fit.


def test_new_topic_with_incompatible_schema_fails_latest_offset(
    log: MemoryLog, tmp_path: Path
) -> None:
    stream = Stream(log, tmp_path / "first", EARLIEST, **PATTERN)
    assert stream.run() == 4
    log.admin.create_topic("extras", 1, TYPED)
    put(log, "events", 1)
    with pytest.raises(IncompatibleSchema, match="topic 'extras' .* no column 'value'.*narrow"):
        latest(stream)
    log.admin.delete_topics(["extras"])
    assert stream.restarted().run("second run") == 1
    log.check()


def test_topic_with_incompatible_schema_fails_initial_offset(
    log: MemoryLog, tmp_path: Path
) -> None:
    log.admin.create_topic("extras", 1, TYPED)
    stream = Stream(log, tmp_path / "first", EARLIEST, **PATTERN)
    with pytest.raises(IncompatibleSchema, match="failOnDataLoss=false"):
        stream.reader.initialOffset()


def test_incompatible_topic_is_skipped_with_one_warning_without_fail_on_data_loss(
    log: MemoryLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log.admin.create_topic("extras", 1, TYPED)
    stream = Stream(log, tmp_path / "first", EARLIEST, **PATTERN, **LOSES)
    assert stream.run() == 4
    put(log, "events", 2)
    assert stream.run() == 2
    assert stream.end is not None
    assert list(stream.end["topics"]) == ["events"]
    told = [record.message for record in caplog.records if "extras is left out" in record.message]
    assert len(told) == 1, "once a run"
    log.check()


def test_recreated_topic_with_compatible_schema_joins_query(log: MemoryLog, tmp_path: Path) -> None:
    log.admin.create_topic("extras", 1, TYPED)
    stream = Stream(log, tmp_path / "first", EARLIEST, **PATTERN, **LOSES)
    assert stream.run() == 4
    log.admin.delete_topics(["extras"])
    log.admin.create_topic("extras", 1)
    put(log, "extras", 3)
    assert stream.run() == 3
    log.check()


def test_incompatible_topic_named_in_subscribe_fails_even_without_fail_on_data_loss(
    log: MemoryLog, tmp_path: Path
) -> None:
    log.admin.create_topic("extras", 1, TYPED)
    stream = Stream(log, tmp_path / "first", EARLIEST, subscribe=("events", "extras"), **LOSES)
    with pytest.raises(IncompatibleSchema, match="leave the topic out of 'subscribe'"):
        stream.reader.initialOffset()


def test_job_with_a_user_schema_that_does_not_fit_is_told_to_declare_the_topics_columns(
    tmp_path: Path,
) -> None:
    """A job has no checkpoint, and without its only topic it would read nothing."""
    root = str(tmp_path / "log")
    Admin(root, create=True).create_topic("events", 1, TYPED)
    options = ReaderOptions(root, subscribe=("events",), starting_offsets=EARLIEST)
    reader = TxlogBatchReader(options, StructType().add("n", LongType()))
    with pytest.raises(IncompatibleSchema, match="declare its columns as they are in") as raised:
        reader.partitions()
    assert "checkpoint" not in raised.value.message


@pytest.mark.parametrize(
    "options", [{}, LOSES], ids=["failOnDataLoss=true", "failOnDataLoss=false"]
)
def test_widened_column_fails_latest_offset_of_running_query(
    log: MemoryLog, tmp_path: Path, options: dict[str, Any]
) -> None:
    """The query has read the topic, so it is not left out. The next run reads the new columns."""
    log.admin.create_topic("even", 1, TYPED)
    log.producer().send("even", {"n": 1}).get()
    columns = StructType().add("n", IntegerType())
    given = {"subscribe": (), "subscribe_pattern": "even", **options}
    stream = Stream(log, tmp_path / "first", EARLIEST, columns=columns, **given)
    assert stream.run() == 1
    log.admin.evolve_schema("even", pa.schema([("n", pa.int64())]))
    log.producer().send("even", {"n": 2}).get()
    with pytest.raises(IncompatibleSchema, match="n is int64 and is declared int32.*start the"):
        latest(stream)
    again = stream.restarted()
    again.columns = StructType().add("n", LongType())
    assert again.restarted().run("second run") == 1


def test_added_column_fails_running_query_only_with_fail_on_new_columns(
    log: MemoryLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log.admin.create_topic("even", 1, TYPED)
    columns = StructType().add("n", IntegerType())
    stream = Stream(log, tmp_path / "first", EARLIEST, columns=columns, subscribe=("even",))
    stream.run()
    log.admin.evolve_schema("even", TYPED.append(pa.field("m", pa.string())))
    log.producer().send("even", {"n": 2, "m": "more"}).get()
    strict = stream.restarted(fail_on_new_columns=True)
    with pytest.raises(IncompatibleSchema, match="even has columns .*lacks: m.* restart the query"):
        latest(strict)
    strict.columns = StructType().add("n", IntegerType()).add("m", StringType())
    assert strict.restarted().plan() == 1
    assert (stream.run(), stream.run()) == (1, 0)
    told = [record.message for record in caplog.records if "lacks: m" in record.message]
    assert len(told) == 1, "once a run"


# Columns of a DataFrame without a schema.


def inferred(log: MemoryLog, **options: Any) -> pa.Schema:
    topics = {d.name: log.connection.cluster.topic(d.name) for d in log.admin.describe_topics()}
    return inferred_schema(topics, ReaderOptions("memory://log", **options))


def test_inferred_columns_are_those_of_most_topics_if_others_may_be_skipped(
    log: MemoryLog,
) -> None:
    log.admin.create_topic("a-typed-one", 1, TYPED)
    log.admin.create_topic("extras", 1)
    with pytest.raises(IncompatibleSchema, match="have different schemas"):
        inferred(log, **PATTERN)
    with pytest.raises(IncompatibleSchema, match="have different schemas"):
        inferred(log, subscribe=("events", "a-typed-one", "extras"), **LOSES)
    assert inferred(log, **PATTERN, **LOSES).equals(KAFKA_SCHEMA)


# Missing topics.


@pytest.mark.parametrize("subscribed", [PATTERN, {"subscribe": ("events", "extras")}])
def test_query_continues_without_deleted_topic_only_without_fail_on_data_loss(
    log: MemoryLog, tmp_path: Path, subscribed: dict[str, Any]
) -> None:
    log.admin.create_topic("extras", 1)
    put(log, "extras", 3)
    stream = Stream(log, tmp_path / "first", EARLIEST, **subscribed)
    assert stream.run() == 7
    log.admin.delete_topics(["extras"])
    put(log, "events", 2)
    for run in (stream, stream.restarted()):
        with pytest.raises((CheckpointConflict, UnknownTopic), match="^topic .*failOnDataLoss=fa"):
            latest(run)
    again = stream.restarted(**LOSES)
    assert again.run("second run") == 2
    put(log, "events", 1)
    again.reader.prepareForTriggerAvailableNow()
    assert again.run("second run") == 1
    assert group_position(log) == 7
    log.check()


def test_running_query_continues_after_one_of_its_topics_is_deleted(
    log: MemoryLog, tmp_path: Path
) -> None:
    log.admin.create_topic("extras", 1)
    put(log, "extras", 3)
    topics = {"subscribe": ("events", "extras")}
    stream = Stream(log, tmp_path / "first", EARLIEST, **topics, **LOSES)
    assert stream.run() == 7
    log.admin.delete_topics(["extras"])
    assert latest(stream) is stream.end, "nothing is new"
    put(log, "events", 2)
    assert stream.run() == 2
    log.check()


def test_planned_batch_skips_deleted_topic_only_without_fail_on_data_loss(
    log: MemoryLog, tmp_path: Path
) -> None:
    log.admin.create_topic("extras", 1)
    put(log, "extras", 3)
    stream = Stream(log, tmp_path / "first", EARLIEST, **PATTERN)
    start = stream.reader.initialOffset()
    assert stream.plan() == 7
    log.admin.delete_topics(["extras"])
    assert stream.end is not None
    with pytest.raises(CheckpointConflict, match="failOnDataLoss=false"):
        stream.restarted().read(start, stream.end)
    again = stream.restarted(**LOSES)
    assert again.read(start, stream.end) == 4
    again.commit("second run")
    put(log, "events", 1)
    assert again.run("second run") == 1
    log.check()


@pytest.mark.parametrize("group", [GROUP, None])
def test_recreated_topic_is_read_from_beginning_only_without_fail_on_data_loss(
    log: MemoryLog, tmp_path: Path, group: str | None
) -> None:
    log.admin.create_topic("extras", 2)
    put(log, "extras", 3)
    stream = Stream(log, tmp_path / "first", EARLIEST, **PATTERN, group_id=group)
    assert stream.plan() == 7
    if group:
        stream.commit()
    log.admin.delete_topics(["extras"])
    log.admin.create_topic("extras", 1)
    put(log, "extras", 5)
    with pytest.raises(CheckpointConflict, match="^topic extras was deleted and created again"):
        latest(stream)
    again = stream.restarted(**LOSES)
    assert again.plan() == 5
    assert again.end is not None
    assert "replaced" in again.end["topics"]["extras"]
    if group:
        again.commit("second run")
        put(log, "extras", 1)
        assert again.run("second run") == 1
        assert "replaced" not in again.end["topics"]["extras"]
        assert (group_position(log), group_position(log, "extras")) == (4, 6)
    log.check()


# Topics that are no longer subscribed to.

TWO = {"subscribe": ("events", "extras")}


def test_query_with_fewer_topics_continues_only_without_fail_on_data_loss_and_keeps_positions(
    log: MemoryLog, tmp_path: Path
) -> None:
    log.admin.create_topic("extras", 1)
    put(log, "extras", 3)
    stream = Stream(log, tmp_path / "first", EARLIEST, **TWO)
    assert stream.run() == 7
    for topic in TWO["subscribe"]:
        put(log, topic, 2)
    fewer = stream.restarted(subscribe=("events",))
    with pytest.raises(CheckpointConflict, match="^topic extras is not subscribed .* it again; or"):
        latest(fewer)
    fewer = fewer.restarted(**LOSES)
    assert fewer.run("second run") == 2
    assert (group_position(log), group_position(log, "extras")) == (6, 3)
    assert fewer.restarted(**TWO).run("third run") == 2, "extras continues at its position"
    assert (group_position(log), group_position(log, "extras")) == (6, 5)
    log.check()


def test_planned_batch_reads_topic_that_is_no_longer_subscribed_to(
    log: MemoryLog, tmp_path: Path
) -> None:
    """Its commit moves the group past these records, so they would be lost."""
    log.admin.create_topic("extras", 1)
    put(log, "extras", 3)
    stream = Stream(log, tmp_path / "first", EARLIEST, **TWO)
    start = stream.reader.initialOffset()
    assert stream.plan() == 7
    assert stream.end is not None
    fewer = stream.restarted(subscribe=("events",), **LOSES)
    assert fewer.read(start, stream.end) == 7
    fewer.commit("second run")
    put(log, "events", 1)
    assert fewer.run("second run") == 1
    log.check()


def test_query_whose_topics_are_all_deleted_waits_for_a_matching_topic(
    log: MemoryLog, tmp_path: Path
) -> None:
    stream = Stream(log, tmp_path / "first", EARLIEST, **PATTERN, **LOSES)
    assert stream.run() == 4
    log.admin.delete_topics(["events"])
    again = stream.restarted()
    again.reader.prepareForTriggerAvailableNow()
    assert latest(again) == stream.end
    log.admin.create_topic("extras", 1)
    put(log, "extras", 2)
    assert stream.restarted().run("third run") == 2
    log.check()


def test_R25_offset_of_existing_unsubscribed_topic_is_refused(
    log: MemoryLog, tmp_path: Path
) -> None:
    """This happens in a union with exchanged sources: no topic is missing, even with
    failOnDataLoss=false.
    """
    log.admin.create_topic("others", 1)
    stream = Stream(log, tmp_path / "first", EARLIEST, **LOSES)
    stream.run()
    swapped = stream.restarted(subscribe=("others",))
    with pytest.raises(CheckpointConflict, match="topics events there, none of them here"):
        latest(swapped)


def test_new_query_with_missing_topic_or_unmatched_pattern_is_refused(
    log: MemoryLog, tmp_path: Path
) -> None:
    topics = {"subscribe": ("events", "evnts")}
    stream = Stream(log, tmp_path / "first", EARLIEST, **topics, **LOSES)
    with pytest.raises(UnknownTopic, match="no topic 'evnts'.*did you mean 'events'"):
        stream.reader.initialOffset()
    none = Stream(log, tmp_path / "second", EARLIEST, subscribe=(), subscribe_pattern="x.*")
    with pytest.raises(InvalidOption, match="no topic .* matches"):
        none.reader.initialOffset()


# Topics that do not exist yet.

WAITS = {"fail_on_missing_topics": False}


@pytest.mark.parametrize(
    "topics",
    [
        {"subscribe": ("later",)},
        {"subscribe": (), "subscribe_pattern": "l.*"},
        {"subscribe": (), "assign": {"later": (0, 1)}},
    ],
    ids=["subscribe", "subscribePattern", "assign"],
)
@pytest.mark.parametrize("start", [EARLIEST, OffsetSpec(OffsetPoint.LATEST), COMMITTED])
def test_query_waits_for_a_missing_topic_only_if_fail_on_missing_topics_is_false(
    log: MemoryLog,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    topics: dict[str, Any],
    start: OffsetSpec,
) -> None:
    refused = Stream(log, tmp_path / "refused", start, **topics)
    with pytest.raises((UnknownTopic, InvalidOption)):
        refused.reader.initialOffset()
    stream = Stream(log, tmp_path / "first", start, **topics, **WAITS)
    stream.end = empty = stream.reader.initialOffset()
    once = stream.restarted()
    once.reader.prepareForTriggerAvailableNow()
    assert latest(once) == latest(stream) == empty
    assert stream.reader.partitions(empty, empty)[0].spans == ()
    told = [m for m in caplog.messages if "waiting for topics that do not exist" in m]
    assert len(told) == 2, "once for each run"
    log.admin.create_topic("later", 2)
    put(log, "later", 3)
    assert stream.run() == 3, "from its first record, as a new partition in Kafka's source"
    put(log, "later", 2)
    assert stream.restarted().run("second run") == 2
    log.check()


def test_waiting_query_stops_if_a_topic_that_it_has_read_is_deleted(
    log: MemoryLog, tmp_path: Path
) -> None:
    stream = Stream(log, tmp_path / "first", EARLIEST, subscribe=("events", "later"), **WAITS)
    assert stream.run() == 4
    log.admin.delete_topics(["events"])
    with pytest.raises(CheckpointConflict, match="topic events was deleted"):
        latest(stream)


def test_awaited_topic_with_other_columns_is_refused_with_restart_as_remedy(
    log: MemoryLog, tmp_path: Path
) -> None:
    stream = Stream(log, tmp_path / "first", EARLIEST, subscribe=("later",), **WAITS)
    empty = stream.reader.initialOffset()
    log.admin.create_topic("later", 1, TYPED)
    with pytest.raises(IncompatibleSchema, match="restart the query to load its columns"):
        stream.reader.latestOffset(empty, ReadAllAvailable())


def test_json_starting_offsets_for_a_missing_topic_are_refused(
    log: MemoryLog, tmp_path: Path
) -> None:
    """Waiting, the query would begin at the topic's first record instead."""
    spec = OffsetSpec(explicit={TopicPartition("later", 0): 5})
    stream = Stream(log, tmp_path / "first", spec, subscribe=("later",), **WAITS)
    with pytest.raises(InvalidOption, match="startingOffsets names later-0, which is not read"):
        stream.reader.initialOffset()


def test_columns_of_missing_topics_are_kafkas_and_a_batch_of_them_is_empty(tmp_path: Path) -> None:
    root = str(tmp_path / "log")
    Admin(root, create=True)
    given = {"root": root, "subscribe": "later", "failOnMissingTopics": "false"}
    source = TxlogDataSource(given)
    schema = source.schema()
    assert schema.names[:2] == ["key", "value"]
    (task,) = source.reader(schema).partitions()
    assert isinstance(task, ReadTask)
    assert task.spans == ()
    with pytest.raises(UnknownTopic):
        TxlogDataSource({**given, "failOnMissingTopics": "true"}).schema()
    with pytest.raises(InvalidOption, match="no column 'n'"):
        TxlogDataSource({**given, "columns": "n"}).schema()


# Topics that are given up.


def test_query_continues_without_an_abandoned_topic_and_keeps_its_position(
    log: MemoryLog, tmp_path: Path
) -> None:
    log.admin.create_topic("extras", 1)
    put(log, "extras", 3)
    stream = Stream(log, tmp_path / "first", EARLIEST, **TWO)
    assert stream.run() == 7
    for topic in TWO["subscribe"]:
        put(log, topic, 2)
    with pytest.raises(CheckpointConflict, match="set abandonedTopics=extras in the source"):
        latest(stream.restarted(subscribe=("events",)))
    fewer = stream.restarted(subscribe=("events",), abandoned_topics=("extras",))
    assert fewer.run("second run") == 2
    assert (group_position(log), group_position(log, "extras")) == (6, 3)
    again = fewer.restarted(**TWO, abandoned_topics=())
    assert again.run("third run") == 2, "extras continues at its position"
    log.check()


def test_abandoned_topics_give_up_nothing_else(log: MemoryLog, tmp_path: Path) -> None:
    log.admin.create_topic("extras", 1)
    stream = Stream(log, tmp_path / "first", EARLIEST, **TWO)
    stream.run()
    fewer = stream.restarted(subscribe=("events",), abandoned_topics=("extras",))
    log.admin.delete_topics(["events"])
    with pytest.raises(UnknownTopic, match="failOnDataLoss=false"):
        latest(fewer)


def test_all_topics_of_a_query_can_be_replaced_by_others_if_they_are_abandoned(
    log: MemoryLog, tmp_path: Path
) -> None:
    """Otherwise it could be the source of another query (R25)."""
    log.admin.create_topic("others", 1)
    put(log, "others", 3)
    stream = Stream(log, tmp_path / "first", EARLIEST)
    stream.run()
    moved = stream.restarted(subscribe=("others",), abandoned_topics=("events",))
    assert moved.run("second run") == 3
    log.check()


def test_pattern_does_not_match_an_abandoned_topic(log: MemoryLog, tmp_path: Path) -> None:
    log.admin.create_topic("extras", 1)
    put(log, "extras", 3)
    stream = Stream(log, tmp_path / "first", EARLIEST, **PATTERN)
    assert stream.run() == 7
    fewer = stream.restarted(abandoned_topics=("extras",))
    log.admin.delete_topics(["extras"])
    put(log, "events", 1)
    assert fewer.run("second run") == 1
    log.check()


def test_query_that_begins_at_the_end_of_an_empty_topic_reads_its_first_record(
    log: MemoryLog, tmp_path: Path
) -> None:
    log.admin.create_topic("later", 2)
    latest_of = OffsetSpec(OffsetPoint.LATEST)
    stream = Stream(log, tmp_path / "first", latest_of, subscribe=("later",))
    stream.end = stream.reader.initialOffset()
    put(log, "later", 1)
    assert stream.run() == 1
