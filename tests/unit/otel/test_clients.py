"""Producers and consumers as OpenTelemetry's SDK sees them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from tests.logs.memory_log import MemoryLog
from tests.processes.command_line import environment
from tests.source_tree import ROOT
from tests.stores.scripted_store import unavailable
from tests.unit.otel.kept_telemetry import KeptTelemetry
from txlog import TopicPartition
from txlog.errors import (
    CommitFailed,
    NoOffsetForPartition,
    ProducerFenced,
    StoreUnavailable,
    UnknownTopic,
    UsageError,
)
from txlog.otel import instrument, uninstrument

DURATION = "messaging.client.operation.duration"
SENT = "messaging.client.sent.messages"
CONSUMED = "messaging.client.consumed.messages"


@pytest.fixture
def kept() -> Iterator[KeptTelemetry]:
    """What the clients of the test's process report."""
    found = KeptTelemetry()
    instrument(found.tracers, found.meters)
    yield found
    uninstrument()


@pytest.fixture
def log(log: MemoryLog) -> MemoryLog:
    log.admin.create_topic("orders", 2)
    log.admin.create_topic("payments")
    return log


def described(span: ReadableSpan) -> dict[str, Any]:
    """The span's attributes, without the prefix and what all have."""
    attributes = dict(span.attributes or {})
    assert attributes.pop("messaging.system") == "txlog"
    assert attributes["messaging.operation.name"] == span.name.partition(" ")[0]
    return {name.removeprefix("messaging."): value for name, value in attributes.items()}


@pytest.mark.both_ways
def test_transaction_of_any_number_of_records_is_one_span(
    log: MemoryLog, kept: KeptTelemetry
) -> None:
    producer = log.producer("copier")
    with producer.transaction() as tx_id:
        for number in range(100):
            producer.send("orders", b"%d" % number)
        producer.flush()
        producer.send("orders", b"last")
        log.clock.advance(250)
    (span,) = kept.spans()
    assert (span.name, span.kind) == ("send orders", SpanKind.PRODUCER)
    assert described(span) == {
        "operation.name": "send",
        "operation.type": "send",
        "destination.name": "orders",
        "client.id": "copier",
        "batch.message_count": 101,
        "txlog.transaction.id": str(tx_id),
        "txlog.transaction.outcome": "COMMITTED",
    }
    assert span.start_time is not None
    assert span.end_time is not None
    assert span.end_time - span.start_time >= 250_000_000
    assert span.status.status_code is StatusCode.UNSET
    assert kept.counts(SENT) == {("send", "orders", ""): 101}


@pytest.mark.both_ways
def test_transaction_over_two_topics_names_none_and_counts_each(
    log: MemoryLog, kept: KeptTelemetry
) -> None:
    producer = log.producer("copier")
    with producer.transaction():
        producer.send("orders", b"a")
        producer.send("payments", b"b")
        producer.send("payments", b"c")
    (span,) = kept.spans()
    assert (span.name, described(span)["batch.message_count"]) == ("send", 3)
    assert "destination.name" not in described(span)
    assert kept.counts(SENT) == {("send", "orders", ""): 1, ("send", "payments", ""): 2}
    assert kept.points(DURATION, "messaging.operation.name", "messaging.operation.type") == {
        ("commit", "settle"): (1, 0.0)
    }


@pytest.mark.both_ways
def test_abort_is_told_and_counts_no_sent_record(log: MemoryLog, kept: KeptTelemetry) -> None:
    producer = log.producer("copier")
    producer.begin_transaction()
    producer.send("orders", b"a")
    producer.flush()
    producer.abort_transaction()
    with pytest.raises(ZeroDivisionError), producer.transaction():
        _ = 1 // 0
    for span in kept.spans():
        assert described(span)["txlog.transaction.outcome"] == "ABORTED"
        assert span.status.status_code is StatusCode.UNSET
    with pytest.raises(UnknownTopic), producer.transaction():
        producer.send("nowhere", b"a")
    (failed,) = kept.spans()
    assert described(failed)["error.type"] == "unknown-topic"
    assert failed.status.status_code is StatusCode.ERROR
    assert "nowhere" in str(failed.status.description)
    assert kept.counts(SENT) == {}


@pytest.mark.both_ways
@pytest.mark.parametrize("is_closed_at_once", [False, True])
def test_fenced_producer_leaves_one_failed_span(
    is_closed_at_once: bool, log: MemoryLog, kept: KeptTelemetry
) -> None:
    old = log.producer("copier")
    tx_id = old.begin_transaction()
    old.send("orders", b"a")
    log.elsewhere("copier")
    with pytest.raises(ProducerFenced):
        old.flush() if is_closed_at_once else old.commit_transaction()
    old.close()
    (span,) = kept.spans()
    found = described(span)
    assert (found["txlog.transaction.id"], found["txlog.transaction.outcome"]) == (
        str(tx_id),
        "ABORTED",
    )
    assert found["error.type"] == "producer-fenced"


def test_commit_that_is_repeated_is_one_transaction(log: MemoryLog, kept: KeptTelemetry) -> None:
    producer = log.producer("copier")
    producer.begin_transaction()
    producer.send("orders", b"a")
    producer.flush()
    log.store.on("create", "transactions/", unavailable, times=100)
    with pytest.raises(StoreUnavailable):
        producer.commit_transaction()
    assert kept.spans() == []
    log.store.heal()
    producer.commit_transaction()
    (span,) = kept.spans()
    assert described(span)["txlog.transaction.outcome"] == "COMMITTED"
    assert "error.type" not in described(span)
    commits = kept.points(DURATION, "messaging.operation.name", "error.type")
    assert {key: count for key, (count, _) in commits.items()} == {
        ("commit", "store-unavailable"): 1,
        ("commit", ""): 1,
    }


def test_flush_without_a_transaction_is_a_span_a_topic(log: MemoryLog, kept: KeptTelemetry) -> None:
    producer = log.producer()
    for topic, count in (("orders", 3), ("payments", 2)):
        for _ in range(count):
            producer.send(topic, b"x")
    producer.flush()
    found = {span.name: described(span)["batch.message_count"] for span in kept.spans()}
    assert found == {"send orders": 3, "send payments": 2}
    assert kept.counts(SENT) == {("send", "orders", ""): 3, ("send", "payments", ""): 2}


def test_poll_is_a_span_unless_it_finds_nothing(log: MemoryLog, kept: KeptTelemetry) -> None:
    producer = log.producer()
    for partition in (0, 0, 1):
        producer.send("orders", b"x", partition=partition)
    producer.flush()
    consumer = log.consumer("orders", group_id="billing")
    kept.spans()
    assert len(consumer.poll()) == 2
    assert consumer.poll() == {}
    consumer.seek_to_beginning()
    consumer.pause(TopicPartition("orders", 1))
    assert consumer.poll_arrow() is not None
    both, one = kept.spans()
    assert (both.name, both.kind) == ("poll orders", SpanKind.CLIENT)
    assert described(both) == {
        "operation.name": "poll",
        "operation.type": "receive",
        "destination.name": "orders",
        "consumer.group.name": "billing",
        "batch.message_count": 3,
    }
    assert described(one)["destination.partition.id"] == "0"
    assert kept.counts(CONSUMED) == {("poll", "orders", "billing"): 5}
    assert (
        kept.points(DURATION, "messaging.operation.name", "messaging.destination.name")[
            "poll", "orders"
        ][0]
        == 2
    )


def test_failed_poll_and_failed_commit_tell_their_errors(
    log: MemoryLog, kept: KeptTelemetry
) -> None:
    producer = log.producer()
    producer.send("orders", b"x", partition=0)
    producer.flush()
    first, second = (log.consumer("orders", group_id="billing") for _ in range(2))
    kept.spans()
    for consumer in (first, second):
        consumer.poll()
    first.commit()
    with pytest.raises(CommitFailed):
        second.commit()
    *_, committed, failed = kept.spans()
    assert (committed.name, described(committed)["consumer.group.name"]) == ("commit", "billing")
    assert described(failed)["error.type"] == "commit-failed"
    lost = log.consumer("orders", auto_offset_reset="none")
    with pytest.raises(NoOffsetForPartition):
        lost.poll()
    (poll,) = kept.spans()
    assert (poll.name, described(poll)["error.type"]) == ("poll", "no-offset-for-partition")


def test_span_of_a_transaction_belongs_to_the_span_in_which_it_began(
    log: MemoryLog, kept: KeptTelemetry
) -> None:
    producer = log.producer("copier")
    with kept.tracers.get_tracer("program").start_as_current_span("order") as parent:
        producer.begin_transaction()
    producer.send("orders", b"x")
    producer.commit_transaction()
    send = kept.spans()[-1]
    assert send.parent is not None
    assert send.parent.span_id == parent.get_span_context().span_id


def test_second_instrument_changes_nothing_and_uninstrument_puts_all_back(
    log: MemoryLog, kept: KeptTelemetry
) -> None:
    other = KeptTelemetry()
    instrument(other.tracers, other.meters)
    producer = log.producer()
    producer.send("orders", b"x")
    producer.flush()
    assert (len(kept.spans()), len(other.spans())) == (1, 0)
    uninstrument()
    producer.send("orders", b"x")
    producer.flush()
    assert kept.spans() == []
    assert log.values("orders") == [b"x", b"x"]


def test_program_that_does_not_instrument_imports_no_opentelemetry() -> None:
    code = """
import sys
import txlog, txlog.otel
txlog.Producer, txlog.Consumer, txlog.Admin
import spark_plugin.datasource
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, env=environment()
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_without_the_package_instrument_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(UsageError, match=r"txlog-spark\[otel\]"):
        instrument()


def test_attributes_of_metrics_have_few_values(log: MemoryLog, kept: KeptTelemetry) -> None:
    """Each value is a series: an id of each transaction would make as many as transactions."""
    producer = log.producer("copier")
    for _ in range(3):
        with producer.transaction():
            producer.send("orders", b"x")
    consumer = log.consumer("orders", group_id="billing")
    consumer.poll()
    consumer.commit()
    for metric in (DURATION, SENT, CONSUMED):
        assert kept.points(metric, "txlog.transaction.id", "messaging.client.id").keys() == {
            ("", "")
        }
