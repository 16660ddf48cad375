"""The futures of records, used as kafka-python's, and what they say once a record cannot be stored
any more."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import failing
from txlog.client.admin import Admin
from txlog.client.consumer.consumer import Consumer
from txlog.client.producer.producer import Producer
from txlog.engine.append.producer_batch import ProduceRequestResult, RecordMetadata
from txlog.errors import (
    CorruptData,
    InvalidConfig,
    OutcomeUnknown,
    ProducerFenced,
    StoreUnavailable,
    TransactionAborted,
    TxlogError,
    UnknownTopic,
)

TABLE = pa.table({"value": [b"a", b"b"]})


# As in kafka-python.


def test_future_is_done_read_or_called(log: MemoryLog) -> None:
    producer = log.producer()
    future = producer.send("u", b"x")
    assert (bool(future.is_done), future.is_done(), str(future.is_done)) == (False, False, "False")
    assert (future.succeeded(), future.failed(), future.exception) == (False, False, None)
    producer.flush(timeout=5)
    assert (bool(future.is_done), future.is_done(), str(future.is_done)) == (True, True, "True")
    assert (future.succeeded(), future.failed(), future.exception) == (True, False, None)
    assert future.get(timeout=5).offset == 0
    producer.close(timeout=5)


@pytest.mark.parametrize("added", ["before the flush", "after the flush", "when it is stored"])
def test_callbacks_get_arguments_and_metadata_once(log: MemoryLog, added: str) -> None:
    told: list[Any] = []
    producer = log.producer("a")
    with producer.transaction():
        if added == "after the flush":
            producer.send("u", b"w")
        future = producer.send("u", b"x", timestamp_ms=7)
        if added != "before the flush":
            producer.flush()
        if added == "when it is stored":
            producer.commit_transaction()
            producer.begin_transaction()
        both = future.add_callback(lambda *a, **k: told.append((a, k)), 1, key=2)
        assert both.add_errback(told.append) is future
        del future, both
    position = 1 if added == "after the flush" else 0
    assert told == [((1, RecordMetadata("u", 0, position, 7)), {"key": 2})]


def test_errback_gets_its_arguments_and_the_error_once(log: MemoryLog) -> None:
    told: list[Any] = []
    producer = log.producer("a")
    producer.begin_transaction()
    future = producer.send("u", b"x")
    for key in (2, 3):
        assert future.add_errback(lambda *a, **k: told.append((a, k)), 1, key=key) is future
    future.add_callback(lambda *_: told.append("stored"))
    producer.abort_transaction()
    error = future.exception
    assert isinstance(error, TransactionAborted)
    assert told == [((1, error), {"key": 2}), ((1, error), {"key": 3})]


def test_callback_that_another_thread_has_called_is_not_called_again() -> None:
    """While this thread has found out what to call it with."""
    told: list[str] = []
    result = ProduceRequestResult("u", lambda: None)

    def meanwhile(name: str) -> Callable[[ProduceRequestResult], tuple[str]]:
        def arguments(settled: ProduceRequestResult) -> tuple[str]:
            if not told:
                told.append("meanwhile")
                settled.fire_callbacks()
            return (name,)

        return arguments

    for name in ("first", "second", "third"):
        result.add_callback(told.append, meanwhile(name))
    result.fail(None)
    result.fire_callbacks()
    assert told == ["meanwhile", "first", "second", "third"]


def test_callbacks_of_other_records_follow_a_raising_one(log: MemoryLog) -> None:
    told: list[int] = []
    producer = log.producer()
    for _ in range(3):
        future = producer.send("u", b"x")
        future.add_callback(lambda metadata: 1 // metadata.offset)
        future.add_callback(lambda metadata: told.append(metadata.offset))
    with pytest.raises(ZeroDivisionError):
        producer.flush()
    assert told == [0, 1, 2]
    producer.flush()
    assert len(log.values("u")) == 3


def test_callback_that_cannot_be_called_is_refused(log: MemoryLog) -> None:
    future = log.producer().send("u", b"x")
    for add in (future.add_callback, future.add_errback):
        with pytest.raises(InvalidConfig, match="callback is 5|errback is 5"):
            add(5)  # type: ignore[arg-type]


# Records that cannot get into their topic any more.

Cause = Callable[[MemoryLog, Producer], object]


def fenced(log: MemoryLog, producer: Producer) -> None:
    log.elsewhere("a")


def late(log: MemoryLog, producer: Producer) -> None:
    log.clock.advance(producer.config.transaction_timeout_ms + 1)


def damaged(log: MemoryLog, producer: Producer) -> None:
    log.store.on("create", "transactions/", failing(CorruptData("damaged")))


def refused(log: MemoryLog, producer: Producer) -> None:
    with pytest.raises(UnknownTopic):
        producer.send("no-topic", b"x")


CAUSES: dict[str, tuple[Cause, type[TxlogError]]] = {
    "fenced": (fenced, ProducerFenced),
    "too late": (late, TransactionAborted),
    "damage": (damaged, CorruptData),
    "a refused record": (refused, UnknownTopic),
    "aborted": (lambda _, producer: producer.abort_transaction(), TransactionAborted),
    "closed": (lambda _, producer: producer.close(), TransactionAborted),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_futures_and_callbacks_get_the_error_that_ends_their_transaction(
    log: MemoryLog, cause: str
) -> None:
    happens, error = CAUSES[cause]
    told: list[type] = []
    producer = log.producer("a")
    producer.begin_transaction()
    futures = [producer.send("u", b"flushed")]
    producer.send_batch("u", TABLE, on_delivery=lambda e, found: told.append(type(e)))
    producer.flush()
    futures.append(producer.send("u", b"waits"))
    for future in futures:
        future.add_errback(lambda e: told.append(type(e))).add_callback(told.append)
    happens(log, producer)
    if producer._status.is_open:
        with pytest.raises(error):
            producer.commit_transaction()
    for future in futures:
        assert (bool(future.is_done), future.succeeded(), future.failed()) == (True, False, True)
        assert isinstance(future.exception, error)
        with pytest.raises(error):
            future.get()
    assert told == [error] * 3
    log.store.heal()
    producer.close()
    assert (told, log.values("u")) == ([error] * 3, [])


def test_records_stay_done_in_an_error_of_a_later_transaction(log: MemoryLog) -> None:
    producer = log.producer("a")
    with producer.transaction():
        first = producer.send("u", b"x")
    producer.begin_transaction()
    log.elsewhere("a")
    lost = producer.send("u", b"y")
    with pytest.raises(ProducerFenced):
        producer.commit_transaction()
    assert (first.get().offset, first.succeeded(), lost.failed()) == (0, True, True)


def test_record_whose_commit_has_no_answer_has_not_failed(log: MemoryLog) -> None:
    producer = log.producer("a")
    producer.begin_transaction()
    future = producer.send("u", b"x")
    log.store.on("create", "transactions/", failing(StoreUnavailable("gone")), times=99)
    with pytest.raises((OutcomeUnknown, StoreUnavailable)):
        producer.commit_transaction()
    assert not future.failed()
    log.store.heal()
    producer.commit_transaction()
    assert future.get().offset == 0


def test_table_that_was_given_up_is_reported_to_its_callback(log: MemoryLog) -> None:
    told: list[Any] = []
    log.admin.create_topic("gone", 1)
    producer = log.producer()
    producer.send_batch("gone", TABLE)
    log.process().cluster.delete_topics(["gone"])
    with pytest.raises(UnknownTopic):
        producer.send_batch("gone", TABLE, on_delivery=lambda e, b: told.append((type(e), b)))
    assert told == [(UnknownTopic, ())]


# The end of the program.

PROGRAM = """
import sys
from txlog import Producer
def main():
    producer = Producer(sys.argv[1])
    for value in (b"1", b"2"):
        producer.send("t", value)
main()
"""


def test_records_that_a_program_does_not_flush_are_written_at_its_end(tmp_path: Path) -> None:
    root = str(tmp_path / "log")
    Admin(root, create=True).create_topic("t")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, root], capture_output=True, check=True, timeout=60
    )
    assert done.stderr == b""
    (records,) = Consumer("t", root=root, auto_offset_reset="earliest").poll().values()
    assert [record.value for record in records] == [b"1", b"2"]
