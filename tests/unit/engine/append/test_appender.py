"""What an appender writes: segments of a size, entries of a weight, and repeats within limits."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import (
    Call,
    answer_lost,
    never_lands,
    preceded_by,
    unavailable,
)
from tests.unit.segments import segment
from txlog.engine.append import appender as appender_module
from txlog.engine.append.appender import (
    ENCODED_FIRST_BYTES_MAX,
    Appender,
    _in_entries,
    entry_weight,
    row_counts_of,
)
from txlog.engine.producer_config import ProducerConfig
from txlog.errors import OutcomeUnknown, StoreUnavailable
from txlog.layout import segment_id_at
from txlog.settings import ProcessSettings
from txlog.topic.events import NO_PRODUCER, AdvanceHorizon, RetireProducers
from txlog.topic.records.schema import KAFKA_SCHEMA, physical_schema
from txlog.topic.topic_log import TopicLog


def rows(count: int, size: int = 10) -> pa.RecordBatch:
    values = [b"%0*d" % (size, number) for number in range(count)]
    columns = {
        "key": [None] * count,
        "value": values,
        "headers": [None] * count,
        "_timestamp": [0] * count,
    }
    return pa.RecordBatch.from_pydict(columns, schema=physical_schema(KAFKA_SCHEMA))


def partitions(*numbers: int) -> "np.ndarray[tuple[int], np.dtype[np.int32]]":
    return np.array(numbers, dtype=np.int32)


@pytest.fixture
def topic(log: MemoryLog) -> TopicLog:
    """The topic `t`, of two partitions."""
    return log.connection.cluster.present_topic("t")


def appender_of(log: MemoryLog, idempotent: bool = False, **config: object) -> Appender:
    process = ProcessSettings(append_attempts_max=4)
    new_pid = log.connection.cluster.producer_id if idempotent else None
    dotted = {"enable.idempotence": idempotent, **config}
    given = ProducerConfig.from_dotted(dotted)
    return Appender(log.connection.runtime, process, given, new_pid)


# Segments and entries.


def test_rows_of_segments_are_counted_by_partition() -> None:
    found = row_counts_of([segment({0: [3, 2], 1: 4}), segment({1: 1})])
    assert found == {0: 5, 1: 5}


def test_weight_of_segments_counts_their_batches_and_their_paths() -> None:
    assert entry_weight([]) == 0
    assert entry_weight([segment({0: 1})]) == 3
    assert entry_weight([segment({0: [1, 1], 1: 1}), segment({0: 1})]) == 8


@pytest.mark.parametrize(
    ("weights", "groups"),
    [
        ([], []),
        ([3], [1]),
        ([99], [1]),
        ([5, 5], [2]),
        ([5, 6], [1, 1]),
        ([3, 3, 3, 3], [3, 1]),
        ([5, 5, 5, 5, 5], [2, 2, 1]),
        ([99, 3, 99], [1, 1, 1]),
    ],
)
def test_entries_name_as_many_segments_as_fit(
    monkeypatch: pytest.MonkeyPatch, weights: Sequence[int], groups: Sequence[int]
) -> None:
    monkeypatch.setattr(appender_module, "ENTRY_BATCHES_MAX", 10)
    segments = [segment({0: [1] * (weight - 2)}) for weight in weights]
    found = list(_in_entries(segments))
    assert [len(group) for group in found] == groups
    assert [one for group in found for one in group] == segments


def test_large_flush_is_divided_into_segments_in_order(
    log: MemoryLog, topic: TopicLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = rows(10)
    monkeypatch.setattr(appender_module, "SEGMENT_BYTES", batch.nbytes // 3)
    appender = appender_of(log)
    staged = appender.stage(topic, batch, partitions(*[0, 1] * 5))
    assert [sum(one.row_count for one in part.batches) for part in staged] == [3, 3, 3, 1]
    bases = appender.append(topic, batch, partitions(*[0, 1] * 5), None)
    assert bases == {0: 0, 1: 0}
    values = [b"%010d" % number for number in range(10)]
    assert log.values("t") == values[::2] + values[1::2]
    monkeypatch.setattr(appender_module, "SEGMENT_BYTES", 1)
    assert len(appender.stage(topic, rows(3), partitions(0, 0, 0))) == 3


@pytest.mark.parametrize("size", [1, ENCODED_FIRST_BYTES_MAX * 2])
def test_staging_in_the_background_gives_what_staging_gives(
    log: MemoryLog, topic: TopicLog, size: int
) -> None:
    appender = appender_of(log)
    staged = appender.begin_stage(topic, rows(2, size), partitions(1, 0))()
    assert row_counts_of(staged) == {0: 1, 1: 1}
    assert row_counts_of(appender.stage(topic, rows(2, size), partitions(1, 0))) == {0: 1, 1: 1}


def test_small_flush_is_encoded_by_the_caller_and_a_large_one_in_the_background(
    log: MemoryLog, topic: TopicLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = rows(4)
    monkeypatch.setattr(appender_module, "ENCODED_FIRST_BYTES_MAX", batch.nbytes)
    appender = appender_of(log)
    for rest, sizes in ((batch, [4]), (rows(5), [5])):
        begin = appender.begin_stage(topic, rest, partitions(*[0] * rest.num_rows))
        (staged,) = begin()
        assert [one.row_count for one in staged.batches] == sizes


# Sequences.


def test_sequences_continue_for_each_partition_and_begin_anew_with_an_id(
    log: MemoryLog, topic: TopicLog
) -> None:
    appender = appender_of(log, idempotent=True)
    assert (appender.pid != NO_PRODUCER, appender.epoch) == (True, 0)
    appender.append(topic, rows(3), partitions(0, 0, 1), None)
    appender.forget()
    appender.append(topic, rows(1), partitions(1), None)
    appender.forget()
    assert appender.next_sequences == {(topic.topic_id, 0): 2, (topic.topic_id, 1): 2}
    stored = [(row.partition, row.base_sequence) for row in topic.catch_up().tail]
    assert sorted(stored) == [(0, 0), (1, 0), (1, 1)]
    appender.use_producer(5, 7)
    assert (appender.pid, appender.epoch, appender.next_sequences) == (5, 7, {})


def test_repeated_flush_keeps_its_sequences_until_it_is_forgotten(
    log: MemoryLog, topic: TopicLog
) -> None:
    appender = appender_of(log, idempotent=True)
    batch = rows(2)
    first = appender.append(topic, batch, partitions(0, 0), None)
    assert appender.append(topic, batch, partitions(0, 0), None) == first == {0: 0}
    assert log.values("t") == [b"%010d" % number for number in range(2)]
    appender.forget()
    assert appender.append(topic, batch, partitions(0, 0), None) == {0: 2}
    log.check()


def test_producer_without_an_id_has_no_sequences(log: MemoryLog, topic: TopicLog) -> None:
    appender = appender_of(log)
    assert (appender.pid, appender.epoch) == (NO_PRODUCER, -1)
    appender.append(topic, rows(2), partitions(0, 0), None)
    assert appender.next_sequences == {}
    assert [row.base_sequence for row in topic.catch_up().tail] == [-1]


# Repeats.


def appends_until_it_gives_up(
    log: MemoryLog, topic: TopicLog, appender: Appender, batch: pa.RecordBatch
) -> int:
    """Commands that were sent without an answer before the error. Nothing is stored."""
    rule = log.store.on("create", "topics/t/", never_lands, holding="batches_appended", times=1_000)
    staged = len([path for verb, path in log.store.writes if "/segments/" in path])
    with pytest.raises(OutcomeUnknown):
        appender.append(topic, batch, partitions(*[0] * batch.num_rows), None)
    log.store.heal()
    written = len([path for verb, path in log.store.writes if "/segments/" in path]) - staged
    assert rule.met > 0
    return written if appender.pid == NO_PRODUCER else rule.met


@pytest.mark.segments
def test_append_without_an_answer_is_sent_as_often_as_the_settings_say(
    log: MemoryLog, topic: TopicLog
) -> None:
    assert appends_until_it_gives_up(log, topic, appender_of(log), rows(1)) == 4
    fewer = appender_of(log, retries=1)
    assert appends_until_it_gives_up(log, topic, fewer, rows(1)) == 2
    once = appender_of(log, retries=0)
    assert (once.may_repeat, fewer.may_repeat) == (False, True)
    assert appends_until_it_gives_up(log, topic, once, rows(1)) == 1


@pytest.mark.segments
@pytest.mark.parametrize(("took_ms", "sent"), [(1_000, 1), (999, 2)])
def test_no_append_is_repeated_once_the_delivery_timeout_has_passed(
    log: MemoryLog, topic: TopicLog, took_ms: int, sent: int
) -> None:
    appender = appender_of(log, **{"delivery.timeout.ms": 1_000})
    begun_ms = log.clock.wall_ms()

    def late(call: Call) -> object:
        log.clock.now_ms = max(log.clock.now_ms, begun_ms + took_ms)
        return never_lands(call)

    log.store.on("create", "topics/t/", late, holding="batches_appended", times=1_000)
    with pytest.raises(OutcomeUnknown):
        appender.append(topic, rows(1), partitions(0), None)
    written = [path for _, path in log.store.writes if "/segments/" in path]
    assert len(written) == sent


def test_idempotent_append_whose_answer_was_lost_is_stored_once(
    log: MemoryLog, topic: TopicLog
) -> None:
    appender = appender_of(log, idempotent=True)
    assert appender.may_repeat
    log.store.on("create", "topics/t/", answer_lost, holding="batches_appended")
    assert appender.append(topic, rows(2), partitions(0, 0), None) == {0: 0}
    assert len(log.values("t")) == 2
    assert appender.next_sequences == {(topic.topic_id, 0): 2}


def test_calls_that_run_meanwhile_are_made_once(log: MemoryLog, topic: TopicLog) -> None:
    appender = appender_of(log)
    made: list[int] = []
    log.store.on("create", "topics/t/", never_lands, holding="batches_appended", times=2)
    appender.append(topic, rows(1), partitions(0), None, [lambda: made.append(1)])
    assert made == [1]


def test_idempotent_append_is_repeated_while_the_store_is_away(
    log: MemoryLog, topic: TopicLog
) -> None:
    appender = appender_of(log, idempotent=True)
    batch = rows(1)
    rule = log.store.on("create", "topics/t/", unavailable, holding="batches_appended", times=1_000)
    with pytest.raises(StoreUnavailable):
        appender.append(topic, batch, partitions(0), None)
    assert rule.met == 4
    log.store.heal()
    assert appender.append(topic, batch, partitions(0), None) == {0: 0}


def test_producer_that_a_topic_has_forgotten_gets_another_id(
    log: MemoryLog, topic: TopicLog
) -> None:
    appender = appender_of(log, idempotent=True)
    first = appender.pid
    appender.append(topic, rows(1), partitions(0), None)
    appender.forget()
    log.clock.advance(1)
    topic.execute(RetireProducers((first,), log.clock.wall_ms()))
    assert appender.append(topic, rows(1), partitions(0), None) == {0: 1}
    assert appender.pid > first
    assert appender.next_sequences == {(topic.topic_id, 0): 1}


def test_segments_below_the_horizon_are_written_again_above_it(
    log: MemoryLog, topic: TopicLog
) -> None:
    appender = appender_of(log)
    other = log.process().cluster.present_topic("t")
    raised = preceded_by(
        lambda: other.execute(AdvanceHorizon(segment_id_at(log.clock.wall_ms() + 1_000_000)))
    )
    rule = log.store.on("create", "topics/t/", raised, holding="batches_appended")
    assert appender.append(topic, rows(2), partitions(0, 0), None) == {0: 0}
    assert rule.met == 1
    assert len(log.values("t")) == 2


@pytest.mark.parametrize("idempotent", [False, True])
def test_append_has_the_time_at_which_it_began(log: MemoryLog, idempotent: bool) -> None:
    log.admin.create_topic("timed", 1, config={"message.timestamp.type": "LogAppendTime"})
    topic = log.connection.cluster.present_topic("timed")
    appender_of(log, idempotent).append(topic, rows(1), partitions(0), None)
    (row,) = topic.catch_up().tail
    assert (row.timestamp_min_ms, row.timestamp_max_ms) == (log.clock.wall_ms(),) * 2
