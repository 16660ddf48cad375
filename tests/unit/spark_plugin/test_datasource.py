"""The entry point that Spark calls: the columns, and which reader or writer gets which options."""

import logging
import pickle
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, LongType, StructType

from spark_plugin import datasource
from spark_plugin.datasource import TxlogDataSource, register
from spark_plugin.python_worker import CHECKPOINT_LOCATION, FILTERS
from spark_plugin.source.batch_reader import TxlogBatchReader, TxlogFilteredReader
from spark_plugin.source.stream_reader import TxlogStreamReader
from tests.unit.spark_plugin.spark_query import Query, new_log
from txlog.client.admin import Admin
from txlog.errors import IncompatibleSchema, InvalidOption, NotATxlog, UnknownTopic, UsageError

TYPED = pa.schema([("n", pa.int64()), ("m", pa.int64())])
KAFKA = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
VALUE = StructType().add("value", BinaryType())


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A log with a Kafka-shaped topic and a typed one."""
    root = str(tmp_path / "log")
    admin = Admin(root, create=True)
    admin.create_topic("plain", 1)
    admin.create_topic("typed", 1, TYPED)
    return root


def source(root: str, **options: str) -> TxlogDataSource:
    """The data source with these options, as Spark makes it."""
    return TxlogDataSource({"path": root, **options})


# Columns.


def test_columns_are_those_of_the_subscribed_topics(root: str) -> None:
    assert TxlogDataSource.name() == "txlog"
    typed = ["n", "m", "_topic", "_partition", "_offset", "_timestamp"]
    assert source(root, subscribe="typed").schema().names == typed
    chosen = source(root, subscribe="typed", columns="_offset,m")
    assert chosen.schema().names == ["_offset", "m"]
    assert source(root, subscribe="plain").schema().names == KAFKA
    with_headers = source(root, subscribe="plain", includeHeaders="true")
    assert with_headers.schema().names == [*KAFKA, "headers"]


def test_topic_that_does_not_exist_is_refused_unless_an_option_allows_it(root: str) -> None:
    waits = {"failOnMissingTopics": "false"}
    loses = {"failOnDataLoss": "false"}
    for given in ({}, loses):
        with pytest.raises(UnknownTopic, match="absent"):
            source(root, subscribe="absent", **given).schema()
    with pytest.raises(UnknownTopic, match="absent"):
        source(root, subscribe="absent,typed").schema()
    for given in (waits, loses):
        assert source(root, subscribe="absent,typed", **given).schema()[0].name == "n"
    assert source(root, subscribe="absent", **waits).schema().names == KAFKA


def test_log_that_does_not_exist_is_refused_and_not_created(tmp_path: Path) -> None:
    with pytest.raises(NotATxlog):
        source(str(tmp_path / "log"), subscribe="t").schema()
    assert list(tmp_path.iterdir()) == []


# Readers.


def test_readers_take_the_options_of_their_kind(root: str) -> None:
    with pytest.raises(InvalidOption, match="'maxOffsetsPerTrigger' is for streams only"):
        source(root, subscribe="plain", maxOffsetsPerTrigger="5").reader(VALUE)
    with pytest.raises(InvalidOption, match="'endingOffsets' is for spark.read only"):
        source(root, subscribe="plain", endingOffsets="latest").streamReader(VALUE)
    made = source(root, subscribe="plain", endingOffsets="latest").reader(VALUE)
    assert type(made) is TxlogBatchReader
    stream = source(root, subscribe="plain", maxOffsetsPerTrigger="5").streamReader(VALUE)
    assert type(stream) is TxlogStreamReader


def test_reader_takes_filters_where_spark_passes_them(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elsewhere Spark refuses a reader that has the method."""
    monkeypatch.setitem(sys.modules, FILTERS, ModuleType(FILTERS))
    made = source(root, subscribe="typed", columns="n").reader(StructType().add("n", LongType()))
    assert type(made) is TxlogFilteredReader
    assert len(made.partitions()) == 1


def read(loaded: TxlogDataSource, schema: StructType) -> None:
    loaded.reader(schema).partitions()


def stream(loaded: TxlogDataSource, schema: StructType) -> None:
    reader = loaded.streamReader(schema)
    reader.latestOffset(reader.initialOffset(), ReadAllAvailable())


@pytest.mark.parametrize("call", [read, stream])
def test_new_column_is_told_only_of_a_frame_that_had_all(
    root: str, call: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    whole, given = source(root, subscribe="typed"), source(root, subscribe="typed")
    part = source(root, subscribe="typed", columns="n")
    stops = source(root, subscribe="typed", failOnNewColumns="true")
    schema, _ = whole.schema(), stops.schema()
    narrow = part.schema()
    Admin(root).evolve_schema("typed", TYPED.append(pa.field("later", pa.int64())))
    call(pickle.loads(pickle.dumps(part)), narrow)
    call(given, narrow)
    assert not caplog.messages
    call(pickle.loads(pickle.dumps(whole)), schema)
    assert "columns that this DataFrame lacks: later" in caplog.text
    with pytest.raises(IncompatibleSchema, match="lacks: later"):
        call(pickle.loads(pickle.dumps(stops)), schema)


@pytest.mark.parametrize("call", [read, stream])
def test_frame_of_chosen_columns_cannot_stop_at_new_ones(root: str, call: Any) -> None:
    part = source(root, subscribe="typed", columns="n", failOnNewColumns="true")
    narrow = part.schema()
    given = source(root, subscribe="typed", failOnNewColumns="true")
    for loaded in (part, given):
        with pytest.raises(InvalidOption, match="'failOnNewColumns' is for a DataFrame with all"):
            call(loaded, narrow)


# Writers.


def test_writer_only_appends(root: str) -> None:
    given = source(root, topic="plain")
    given.writer(VALUE, overwrite=False)
    with pytest.raises(InvalidOption, match="can only be appended to"):
        given.writer(VALUE, overwrite=True)
    with pytest.raises(InvalidOption, match="'complete' cannot be written") as refused:
        given.streamWriter(VALUE, overwrite=True)
    assert refused.value.facts["option"] == "outputMode"


class Session:
    """What registering takes of a session of Spark."""

    def __init__(self, location: str | None) -> None:
        settings = {CHECKPOINT_LOCATION: location} if location else {}
        self.conf = SimpleNamespace(get=settings.get)
        self.kinds: list[type[TxlogDataSource]] = []
        self.dataSource = SimpleNamespace(register=self.kinds.append)


def test_registered_sink_finds_a_named_query_below_the_sessions_location(
    root: str, tmp_path: Path
) -> None:
    Query(new_log(), tmp_path / "checkpoints" / "copy").plan_other(3, 10)
    plain, located = Session(None), Session(str(tmp_path / "checkpoints"))
    for session in (plain, located):
        register(session)  # type: ignore[arg-type]
    assert plain.kinds == [TxlogDataSource]
    (kind,) = located.kinds
    assert (kind.__name__, kind.name()) == ("TxlogDataSource", "txlog")
    options = {"path": root, "topic": "plain", "queryname": "copy"}
    plan = kind(options).streamWriter(VALUE, overwrite=False)._plan
    assert plan is not None
    assert plan.batch_id == 3
    with pytest.raises(InvalidOption, match="checkpointLocation"):
        TxlogDataSource(options).streamWriter(VALUE, overwrite=False)


# From an archive.


def test_source_from_an_archive_is_opened_where_only_the_archive_is(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver's process of a streaming source gets the source, and no path to its code."""
    archive = tmp_path / "txlog.zip"
    archive.touch()
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(datasource, "own_archive", lambda: archive)
    kind = type("TxlogDataSource", (TxlogDataSource,), {"_checkpoints": "/checkpoints"})
    sent = kind({"path": root, "subscribe": "typed"})
    sent.schema()
    opened = cloudpickle.loads(cloudpickle.dumps(sent))
    assert type(opened) is TxlogDataSource
    assert str(archive) in sys.path
    assert vars(opened) == {**vars(sent), "_checkpoints": "/checkpoints"}
    assert opened.schema() == sent.schema()


def test_archive_cannot_be_shipped_over_connect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasource, "own_archive", lambda: tmp_path / "txlog.zip")
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    monkeypatch.setenv("SPARK_REMOTE", "sc://localhost")
    session = Session(None)
    with pytest.raises(UsageError, match="Connect cannot ship it; install txlog"):
        register(session)  # type: ignore[arg-type]
    assert session.kinds == []
