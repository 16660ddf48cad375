"""Source and sink as OpenTelemetry's SDK sees them, of a query whose steps are made without
Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.trace import SpanKind

from spark_plugin.option_values import OffsetPoint, OffsetSpec
from spark_plugin.options import ReaderOptions, parse_reader_options
from spark_plugin.otel import instrument, uninstrument
from spark_plugin.source.batch_reader import TxlogBatchReader
from spark_plugin.source.stream_reader import TxlogStreamReader
from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import unavailable
from tests.unit.otel.kept_telemetry import KeptTelemetry
from tests.unit.otel.test_clients import CONSUMED, DURATION, SENT, described
from tests.unit.spark_plugin.spark_query import COLUMNS, COUNT, Query
from tests.unit.spark_plugin.spark_stream import Stream
from txlog import Admin, Producer
from txlog.engine.connection import Connection
from txlog.errors import CheckpointConflict, StoreUnavailable


@pytest.fixture
def kept() -> Iterator[KeptTelemetry]:
    """What this process reports in the place of one of Spark's."""
    found = KeptTelemetry()
    instrument(found.tracers, found.meters)
    yield found
    uninstrument()


def test_micro_batch_is_a_span_a_task_and_one_of_its_transaction(
    query: Query, kept: KeptTelemetry
) -> None:
    process = query.log.process()
    query.run(process, "run", 0, 0, COUNT)
    first, second, transaction = kept.spans()
    assert [(span.name, span.kind) for span in (first, second, transaction)] == [
        ("stage", SpanKind.PRODUCER),
        ("stage", SpanKind.PRODUCER),
        ("send", SpanKind.PRODUCER),
    ]
    tasks = [described(span)["batch.message_count"] for span in (first, second)]
    assert tasks == [COUNT // 2, COUNT // 2]
    found = described(transaction)
    listed = {known.transactional_id: known for known in query.log.admin.list_transactions()}
    assert found == {
        "operation.name": "send",
        "operation.type": "send",
        "consumer.group.name": "g",
        "client.id": "spark.query",
        "batch.message_count": COUNT,
        "txlog.transaction.id": str(listed["spark.query"].last_tx_id),
        "txlog.transaction.outcome": "COMMITTED",
        "txlog.query.id": "query",
        "txlog.batch.id": 0,
    }
    assert kept.counts(SENT) == {("send", "even", ""): 5, ("send", "odd", ""): 5}
    query.replay(process, "run", 0, 0, COUNT)
    assert [span.name for span in kept.spans()] == ["stage", "stage"], "a replay commits nothing"
    assert kept.counts(SENT) == {("send", "even", ""): 5, ("send", "odd", ""): 5}


def test_batch_with_too_many_segments_for_one_entry_counts_its_records(
    query: Query, kept: KeptTelemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connection, "entry_batches_max", 1)
    query.run(query.log.process(), "run", 0, 0, COUNT)
    transaction = described(kept.spans()[-1])
    assert transaction["batch.message_count"] == COUNT


def test_commit_that_fails_tells_its_error_and_counts_nothing(
    query: Query, kept: KeptTelemetry
) -> None:
    process = query.log.process()
    query.plan(0, 0, COUNT)
    messages = query.tasks(process, "run", 0, 0, COUNT)
    kept.spans()
    query.log.store.on("create", "transactions/", unavailable, holding="commit", times=100)
    with pytest.raises(StoreUnavailable):
        query.commit(query.log.connection, "run", 0, messages)
    (span,) = kept.spans()
    found = described(span)
    assert (found["txlog.transaction.outcome"], found["error.type"]) == (
        "OPEN",
        "store-unavailable",
    )
    assert kept.counts(SENT) == {}


def test_task_that_reads_is_a_span_with_its_records(tmp_path: Path, kept: KeptTelemetry) -> None:
    root = str(tmp_path / "log")
    admin = Admin(root, create=True)
    for name, count in (("orders", 3), ("payments", 2)):
        admin.create_topic(name)
        with Producer(root) as producer:
            for _ in range(count):
                producer.send(name, b"x")
    for topics in ("orders", "orders,payments"):
        options = {"root": root, "subscribe": topics, "group.id": "g"}
        reader = TxlogBatchReader(parse_reader_options(options, streaming=False), COLUMNS)
        for task in reader.partitions():
            assert sum(batch.num_rows for batch in reader.read(task))
    one, several = kept.spans()
    assert (one.name, one.kind) == ("poll orders", SpanKind.CLIENT)
    assert described(one) == {
        "operation.name": "poll",
        "operation.type": "receive",
        "destination.name": "orders",
        "destination.partition.id": "0",
        "consumer.group.name": "g",
        "batch.message_count": 3,
    }
    assert (several.name, described(several)["batch.message_count"]) == ("poll", 5)
    assert kept.counts(CONSUMED) == {("poll", "orders", "g"): 3, ("poll", "", "g"): 5}


def plans(kept: KeptTelemetry) -> list[dict[str, Any]]:
    return [described(span) for span in kept.spans() if span.name.startswith("plan")]


def test_planned_batch_is_a_span_and_an_idle_look_is_none(
    tmp_path: Path, kept: KeptTelemetry
) -> None:
    log = MemoryLog()
    log.admin.create_topic("events", 2)
    producer = log.producer()
    for partition in (0, 0, 1):
        producer.send("events", b"x", partition=partition)
    producer.flush()
    stream = Stream(log, tmp_path / "checkpoint", OffsetSpec(OffsetPoint.EARLIEST))
    stream.plan()
    (plan,) = plans(kept)
    assert plan == {
        "operation.name": "plan",
        "operation.type": "receive",
        "destination.name": "events",
        "consumer.group.name": "g",
        "batch.message_count": 3,
    }
    stream.commit()
    stream.plan()
    assert plans(kept) == []
    reader = TxlogStreamReader(
        ReaderOptions("memory://log", subscribe=("events",)), stream.columns, has_all_columns=True
    )
    reader._connection = stream.process
    with pytest.raises(CheckpointConflict):
        reader._next_end(stream.end or {}, reader.getDefaultReadLimit())
    (failed,) = plans(kept)
    assert failed["error.type"] == "checkpoint-conflict"
    names = {key[0]: value[0] for key, value in kept.points(DURATION, "error.type").items()}
    assert names["checkpoint-conflict"] == 1
