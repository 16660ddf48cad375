"""After deletion, merging and compaction readers find what a plain model has (I2, I3, I12)."""

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import Effect, full, preceded_by, unavailable
from txlog.client.admin import Admin
from txlog.client.producer.producer import Producer
from txlog.errors import (
    CorruptData,
    OffsetOutOfRange,
    PublishContention,
    SegmentExpired,
    StoreUnavailable,
)
from txlog.layout import segment_id_at
from txlog.model import IsolationLevel
from txlog.settings import LogSettings
from txlog.topic.events import AdvanceHorizon, AdvanceLogStart, SealIndex
from txlog.topic.read.reader import batch_source, read_batches, sliced
from txlog.topic.topic_log import TopicLog
from txlog.topic.upkeep.compaction import CompactionLimits, compact, is_due
from txlog.topic.upkeep.merging import merge_segments, next_group
from txlog.topic.upkeep.rewriting import kept_batches, publish, rewrite, select_all

KEYS = [b"a", b"b", b"c"]
NUMBERS = [b"%d" % number for number in range(200)]
BATCH_BYTES = 2_000
LIMITS = CompactionLimits(keys_max=1_000, batch_bytes=BATCH_BYTES)


@dataclass
class Written:
    """A record of the model."""

    offset: int
    key: bytes
    value: bytes | None
    transaction: int = -1


@dataclass
class Model:
    """One partition of a topic `t`, and a model of it."""

    log: MemoryLog
    records: list[Written] = field(default_factory=list)
    aborted: set[int] = field(default_factory=set)
    open: dict[str, int] = field(default_factory=dict)
    producers: dict[str, Producer] = field(default_factory=dict)
    log_start: int = 0
    numbers: int = 0

    @property
    def topic(self) -> TopicLog:
        topic = self.log.connection.cluster.topic("t")
        topic.catch_up()
        return topic

    def plain(self, key: int, count: int) -> None:
        """Append records without a transaction; some are tombstones."""
        self._send(self._producer(""), key, count, -1)

    def transactional(self, key: int, count: int) -> None:
        """Append records to an open transaction, or to a new one."""
        name = f"tx{key % 2}"
        producer = self._producer(name)
        if name not in self.open:
            self.numbers += 1
            self.open[name] = self.numbers
            producer.begin_transaction()
        self._send(producer, key, count, self.open[name])

    def commit(self, key: int, count: int) -> None:
        """End an open transaction."""
        name = f"tx{key % 2}"
        if self.open.pop(name, None) is not None:
            self.producers[name].commit_transaction()

    def abort(self, key: int, count: int) -> None:
        """Abort an open transaction."""
        name = f"tx{key % 2}"
        if name in self.open:
            self.aborted.add(self.open.pop(name))
            self.producers[name].abort_transaction()

    def seal(self, key: int, count: int) -> None:
        """Seal the index, so that even few records can be rewritten."""
        self.topic.execute(SealIndex())

    def merge(self, key: int, count: int) -> None:
        """Merge small segments."""
        assert not merge_segments(self.topic, BATCH_BYTES).interrupted

    def delete(self, key: int, count: int) -> None:
        """Delete old records, up to the last stable offset."""
        stable = self.topic.state.last_stable_offset(0)
        wanted = self.log_start + count * 2
        if wanted > stable:
            with pytest.raises(OffsetOutOfRange, match="can be deleted up to"):
                self.topic.execute(AdvanceLogStart({0: wanted}))
            return
        self.topic.execute(AdvanceLogStart({0: wanted}))
        self.log_start = max(self.log_start, wanted)

    def _producer(self, name: str) -> Producer:
        if name not in self.producers:
            self.producers[name] = self.log.producer(name or None)
        return self.producers[name]

    def _send(self, producer: Producer, key: int, count: int, transaction: int) -> None:
        for index in range(count):
            value = None if (key + index) % 4 == 3 else b"%d" % len(self.records)
            name = KEYS[(key + index) % 3]
            producer.send("t", key=name, value=value, partition=0)
            self.records.append(Written(len(self.records), name, value, transaction))
        producer.flush()

    def visible(self, isolation: IsolationLevel) -> list[tuple[int, bytes, bytes | None]]:
        """The records of a reader that begins at the log start."""
        stable = min(
            (r.offset for r in self.records if r.transaction in self.open.values()),
            default=len(self.records),
        )
        found = [r for r in self.records if r.offset >= self.log_start]
        if isolation is IsolationLevel.READ_COMMITTED:
            found = [r for r in found if r.transaction not in self.aborted and r.offset < stable]
        return [(r.offset, r.key, r.value) for r in found]


def read(log: MemoryLog, isolation: IsolationLevel) -> list[tuple[int, Any, Any]]:
    """All records, read by a new consumer."""
    consumer = log.consumer("t", isolation_level=str(isolation))
    found: list[tuple[int, Any, Any]] = []
    while polled := consumer.poll(max_records=7):
        for records in polled.values():
            found.extend((record.offset, record.key, record.value) for record in records)
    return found


def new_model(**config: object) -> Model:
    """A log that seals its index every four entries."""
    log = MemoryLog(
        LogSettings(journal_snapshot_entries=4, entry_records_max_bytes=0),
        transaction_records="in.log",
    )
    log.admin.create_topic("t", 1, config={"segment.bytes": 65_536, **config})
    return Model(log)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["plain", "plain", "transactional", "transactional", "commit", "abort", "seal", "merge"]
        ),
        st.integers(0, 5),
        st.integers(1, 4),
    ),
    max_size=60,
)


@given(STEPS, st.integers(0, 8))
@settings(max_examples=examples(60), derandomize=True, deadline=None)
def test_I2_merging_and_deletion_leave_remaining_records_at_their_offsets(
    steps: list[tuple[str, int, int]], deletions: int
) -> None:
    model = new_model()
    every = max(1, len(steps) // max(deletions, 1))
    for number, (step, key, count) in enumerate(steps):
        getattr(model, step)(key, count)
        if deletions and number % every == every - 1:
            model.delete(key, count)
    model.seal(0, 0)
    model.merge(0, 0)
    for isolation in IsolationLevel:
        assert read(model.log, isolation) == model.visible(isolation)
    model.log.check()


@given(STEPS, st.integers(1, 5))
@settings(max_examples=examples(60), derandomize=True, deadline=None)
def test_I2_compaction_keeps_the_newest_record_of_each_key_at_its_offset(
    steps: list[tuple[str, int, int]], passes: int
) -> None:
    model = new_model(**{"cleanup.policy": "compact", "delete.retention.ms": 1_000})
    every = max(1, len(steps) // passes)
    for number, (step, key, count) in enumerate(steps):
        getattr(model, step)(key, count)
        if number % every == every - 1:
            assert not compact(model.topic, model.log.clock.wall_ms(), LIMITS).interrupted
    before = model.topic.state.last_stable_offset(0)
    compact(model.topic, model.log.clock.wall_ms(), LIMITS, force=True)
    committed = IsolationLevel.READ_COMMITTED
    visible = model.visible(committed)
    newest = {key: offset for offset, key, _ in visible}
    expected = [record for record in visible if newest[record[1]] == record[0]]
    assert read(model.log, committed) == expected
    assert model.topic.state.last_stable_offset(0) == before
    model.log.check()


def test_key_column_change_interrupts_compaction_and_next_pass_uses_new_key() -> None:
    """The newest record of each number stays; compaction by letter removes no record."""
    log = MemoryLog(
        LogSettings(journal_snapshot_entries=4, entry_records_max_bytes=0),
        transaction_records="in.log",
    )
    schema = pa.schema([("letter", pa.string()), ("number", pa.int64()), ("note", pa.string())])
    config = {"cleanup.policy": "compact", "key.column": "letter"}
    log.admin.create_topic("t", 1, schema=schema, config=config)
    rows = [{"letter": "ab"[n % 2], "number": n % 3, "note": str(n)} for n in range(12)]
    producer = log.producer()
    for row in rows:
        producer.send("t", row, partition=0).get()
    topic = log.connection.cluster.topic("t")
    admin = Admin(log.process())
    altered = preceded_by(lambda: admin.alter_topic_config("t", {"key.column": "number"}))
    log.store.on("put_new", "/segments/", altered)
    report = compact(topic, log.clock.wall_ms(), LIMITS, force=True)
    assert "key.column of topic 't' was changed" in report.interrupted
    assert log.values("t") == rows
    assert not compact(topic, log.clock.wall_ms(), LIMITS, force=True).interrupted
    assert log.values("t") == rows[-3:]
    log.check()


def test_a_record_of_1970_is_older_than_max_compaction_lag_ms() -> None:
    """Its time is 0, and a later record does not hide it."""
    log = MemoryLog()
    now_ms = log.clock.wall_ms()
    ratio, lag = "min.cleanable.dirty.ratio", "max.compaction.lag.ms"
    config = {"cleanup.policy": "compact", ratio: 1.0, lag: now_ms // 2}
    log.admin.create_topic("t", 1, config=config)
    producer = log.producer()
    for timestamp_ms in (0, now_ms):
        producer.send("t", key=b"k", value=b"v", partition=0, timestamp_ms=timestamp_ms).get()
    topic = log.process().cluster.topic("t")
    assert is_due(topic, topic.catch_up(), now_ms)
    assert not is_due(topic, topic.catch_up(), now_ms // 2)


def test_I2_merging_rewrites_leaves_below_nodes_of_a_deep_index() -> None:
    model = new_model()
    producer = model.log.producer()
    for number in range(700):
        producer.send("t", key=b"k", value=b"%d" % number, partition=0).get()
    topic = model.topic
    assert any(ref.level for ref in topic.state.sealed.roots())
    before = len(segments(topic))
    report = merge_segments(topic, BATCH_BYTES)
    assert report.segments_before > 8 * report.segments_after > 0
    assert len(segments(topic)) == before - report.segments_before + report.segments_after
    assert topic.state.cleaner.merged_slot > 0
    found = read(model.log, IsolationLevel.READ_COMMITTED)
    assert found == [(number, b"k", b"%d" % number) for number in range(700)]
    assert merge_segments(topic, BATCH_BYTES).segments_before == 0, "once is enough"
    model.log.check()


def test_merging_keeps_progress_of_a_compaction_that_came_just_before_its_own() -> None:
    model = new_model(**{"cleanup.policy": "compact"})
    producer = model.log.producer()
    for number in range(300):
        producer.send("t", key=b"%d" % number, value=None, partition=0).get()
    other = model.log.process().cluster.topic("t")
    now_ms = model.log.clock.wall_ms()
    compacted = preceded_by(lambda: compact(other, now_ms, LIMITS, force=True))
    rule = model.log.store.on("create", "/entries/", compacted, holding="cleaner_advanced")
    merge_segments(model.topic, BATCH_BYTES)
    assert rule.met == 1
    cleaner, before = model.topic.state.cleaner, other.state.cleaner
    assert cleaner.merged_slot > before.merged_slot
    assert cleaner.cleaned_slot == before.cleaned_slot > 0
    assert cleaner.delete_horizon_ms == before.delete_horizon_ms > now_ms
    model.log.check()


def segments(topic: TopicLog) -> set[str]:
    """All segments that the index refers to."""
    return {row.segment for row in topic.batches_from_slot(topic.catch_up(), 0)}


def test_I11_merging_never_combines_batches_of_two_transactions() -> None:
    model = new_model()
    for number in range(30):
        model.transactional(0, 2)
        (model.abort if number % 3 else model.commit)(0, 0)
    model.seal(0, 0)
    report = merge_segments(model.topic, BATCH_BYTES)
    assert report.segments_after < report.segments_before
    rows = list(model.topic.batches_from_slot(model.topic.state, 0))
    assert len({row.tx_id for row in rows}) == 30
    assert [row.aborted for row in rows] == [number % 3 != 0 for number in range(30)]


def test_second_of_two_concurrent_merges_is_refused() -> None:
    model = new_model()
    producer = model.log.producer()
    for number in range(300):
        producer.send("t", key=b"k", value=b"%d" % number, partition=0).get()
    other = model.log.process().cluster.topic("t")
    other.catch_up()
    assert merge_segments(model.topic, BATCH_BYTES).segments_before
    late = next_group(other, other.state, -1)
    assert late is not None
    parts = kept_batches(other, other.state, list(late.rows), select_all)
    with pytest.raises(PublishContention, match="changed by another process"):
        publish(other, other.state, rewrite(other, late, parts, BATCH_BYTES))
    assert len(read(model.log, IsolationLevel.READ_COMMITTED)) == 300
    model.log.check()


@pytest.mark.parametrize("trouble", [full, unavailable])
@pytest.mark.parametrize("path", ["/segments/", "/chunks/", "/entries/"])
def test_store_failure_is_raised_by_merging_and_compaction_without_loss(
    trouble: Effect, path: str
) -> None:
    model = new_model(**{"cleanup.policy": "compact"})
    for number in range(20):
        model.plain(number, 1)
    before = read(model.log, IsolationLevel.READ_COMMITTED)
    for call in (
        lambda: merge_segments(model.topic, BATCH_BYTES),
        lambda: compact(model.topic, model.log.clock.wall_ms(), LIMITS, force=True),
    ):
        rule = model.log.store.on("create|put_new", path, trouble)
        with pytest.raises(StoreUnavailable):
            call()
        assert rule.met == 1
    assert read(model.log, IsolationLevel.READ_COMMITTED) == before
    model.log.check()


def test_R17_merge_with_segment_below_the_horizon_is_refused() -> None:
    model = new_model()
    producer = model.log.producer()
    for number in range(100):
        producer.send("t", value=b"%d" % number, partition=0).get()
    topic = model.topic
    group = next_group(topic, topic.state, -1)
    assert group is not None
    rewritten = rewrite(
        topic, group, kept_batches(topic, topic.state, list(group.rows), select_all), BATCH_BYTES
    )
    topic.execute(AdvanceHorizon(segment_id_at(model.log.clock.wall_ms() + 1)))
    with pytest.raises(SegmentExpired):
        publish(topic, topic.state, rewritten)


def test_R19_reader_finds_records_moved_by_a_concurrent_merge() -> None:
    model = new_model()
    producer = model.log.producer()
    for number in range(100):
        producer.send("t", value=b"%d" % number, partition=0).get()
    topic = model.log.process().cluster.topic("t")
    state = topic.catch_up()
    rows = list(topic.batches(state, 0, 0, 100))
    assert merge_segments(model.topic, BATCH_BYTES).segments_before
    for path in {row.segment for row in rows} - segments(model.topic):
        model.log.memory.delete(path)
    found = [f for row in rows for f in read_batches(batch_source(topic, state), [row])]
    assert [value for f in found for value in f.batch.column("value").to_pylist()] == [
        b"%d" % number for number in range(100)
    ]
    assert [offset for f in found for offset in f.offsets.tolist()] == list(range(100))


def test_R19_reader_inside_a_moved_batch_continues_unless_its_records_are_deleted() -> None:
    """The records that were already read are deleted, and the batch has been moved."""
    model = new_model()
    model.log.producer().send_batch("t", pa.table({"value": NUMBERS[:100]}), partition=0)
    topic = model.log.process().cluster.topic("t")
    state = topic.catch_up()
    (row,) = topic.batches(state, 0, 0, 100)
    model.topic.execute(AdvanceLogStart({0: 60}))
    producer = model.log.producer()
    for value in NUMBERS[100:]:
        producer.send("t", value=value, partition=0).get()
    assert merge_segments(model.topic, BATCH_BYTES).segments_before
    assert row.segment not in segments(model.topic)
    model.log.memory.delete(row.segment)
    for start in (60, 61, 99):
        found = [
            sliced(f, start, 100) for f in read_batches(batch_source(topic, state, start), [row])
        ]
        values = [value for f in found for value in f.batch.column("value").to_pylist()]
        assert values == NUMBERS[start:100]
        assert [offset for f in found for offset in f.offsets] == list(range(start, 100))
    for start in (None, 0, 59):
        with pytest.raises(OffsetOutOfRange, match="it has 60 to 200"):
            list(read_batches(batch_source(topic, state, start), [row]))


def test_I15_merge_fails_on_a_damaged_batch_and_replaces_nothing() -> None:
    model = new_model()
    producer = model.log.producer()
    for number in range(100):
        producer.send("t", value=b"%d" % number, partition=0).get()
    path = sorted(segments(model.topic))[3]
    data = bytearray(model.log.memory.get(path) or b"")
    data[len(data) // 2] ^= 1
    model.log.memory.replace(path, bytes(data))
    before = model.topic.state.sealed
    with pytest.raises(CorruptData, match=path):
        merge_segments(model.topic, BATCH_BYTES)
    assert model.topic.state.sealed == before
