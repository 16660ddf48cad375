"""When a compaction is due: by the share of new bytes, by ages, by tombstones that expire."""

from dataclasses import replace

import pytest

from tests.unit.topic.cut_model import World
from txlog.model import Decision, TxId
from txlog.settings import TopicConfig
from txlog.topic import batch_index
from txlog.topic.events import (
    AdvanceCleaner,
    AppendBatches,
    CleanerCheckpoint,
    SealIndex,
    WriteMarker,
)
from txlog.topic.records.batch import Segment, SegmentBatch
from txlog.topic.state import TopicState
from txlog.topic.topic_log import TopicLog
from txlog.topic.upkeep.compaction import is_due

NOW_MS = 1_000_000
TX = TxId(9, 0, 0)


class Topic:
    """A topic whose batches have the sizes and times that a test gives them."""

    def __init__(self) -> None:
        self.log: TopicLog = World().logs["a"]
        self._segments = 0

    def add(
        self, length: int, timestamp_ms: int = NOW_MS, partition: int = 0, tx: TxId | None = None
    ) -> None:
        """Append a batch of one record."""
        self._segments += 1
        path = self.log.layout.segment(f"{self._segments:032x}")
        times = (timestamp_ms, timestamp_ms)
        segment = Segment(path, 0, (SegmentBatch(partition, 1, 8, length, 1, *times),))
        producer = () if tx is None else (tx.pid, tx.epoch, tx, {partition: 0})
        self.log.execute(AppendBatches((segment,), *producer))

    def end(self, tx: TxId, decision: Decision) -> None:
        self.log.execute(WriteMarker(tx, decision, tx.number, 0))

    def seal(self) -> None:
        self.log.execute(SealIndex())

    def clean(self) -> None:
        """Compact all batches so far."""
        self.seal()
        cleaned = CleanerCheckpoint(cleaned_slot=self.log.state.sealed_slot)
        self.log.execute(AdvanceCleaner(cleaned, ""))

    def is_due(self, now_ms: int = NOW_MS, cleaner: object = None, **config: object) -> bool:
        """Whether a compaction is due with this configuration and that progress."""
        return is_due(self.log, self.state(cleaner, **config), now_ms)

    def state(self, cleaner: object = None, **config: object) -> TopicState:
        state = self.log.state
        changed = replace(TopicConfig(cleanup_policy="compact"), **config)
        if isinstance(cleaner, CleanerCheckpoint):
            return replace(state, config=changed, cleaner=cleaner)
        return replace(state, config=changed)


@pytest.fixture
def topic() -> Topic:
    return Topic()


def test_topic_without_new_records_is_never_due(topic: Topic) -> None:
    assert not topic.is_due()
    topic.add(100)
    topic.clean()
    for changes in ({}, {"min_cleanable_dirty_ratio": 0.0}, {"max_compaction_lag_ms": 1}):
        assert not topic.is_due(NOW_MS + 1_000, **changes)


@pytest.mark.parametrize("seals", [False, True], ids=["in the tail", "sealed"])
def test_share_of_new_bytes_must_exceed_min_cleanable_dirty_ratio(
    topic: Topic, seals: bool
) -> None:
    topic.add(40)
    topic.add(60, partition=1)
    topic.clean()
    topic.add(30)
    topic.add(70, partition=1)
    if seals:
        topic.seal()
    assert not topic.is_due()
    assert topic.is_due(min_cleanable_dirty_ratio=0.499)
    topic.add(1)
    assert topic.is_due()
    assert not topic.is_due(min_cleanable_dirty_ratio=0.51)


@pytest.mark.parametrize("seals", [False, True], ids=["in the tail", "sealed"])
def test_oldest_new_record_must_be_older_than_max_compaction_lag(topic: Topic, seals: bool) -> None:
    for timestamp_ms, partition in ((NOW_MS - 500, 0), (NOW_MS, 1), (NOW_MS - 100, 0)):
        topic.add(100, timestamp_ms, partition)
        if seals:
            topic.seal()
    lag = {"max_compaction_lag_ms": 500, "min_cleanable_dirty_ratio": 1.0}
    assert not topic.is_due(NOW_MS, **lag)
    assert topic.is_due(NOW_MS + 1, **lag)


def test_leaf_is_as_old_as_its_newest_record(topic: Topic) -> None:
    for partition, timestamp_ms in ((0, NOW_MS), (1, NOW_MS - 500), (0, NOW_MS - 700)):
        topic.add(100, timestamp_ms, partition)
    topic.seal()
    lag = {"max_compaction_lag_ms": 500, "min_cleanable_dirty_ratio": 1.0}
    assert not topic.is_due(NOW_MS + 500, **lag)
    assert topic.is_due(NOW_MS + 501, **lag)


@pytest.mark.parametrize("seals", [False, True], ids=["in the tail", "sealed"])
def test_topic_is_not_due_while_all_new_records_are_young(topic: Topic, seals: bool) -> None:
    topic.add(100, NOW_MS)
    topic.add(100, NOW_MS + 5_000)
    if seals:
        topic.seal()
    assert topic.is_due(NOW_MS - 10_000), "without a lag the future is no reason to wait"
    assert not topic.is_due(NOW_MS, min_compaction_lag_ms=1)
    lag = 100 if not seals else 5_100
    assert not topic.is_due(NOW_MS + lag - 1, min_compaction_lag_ms=100)
    assert topic.is_due(NOW_MS + lag, min_compaction_lag_ms=100)


@pytest.mark.parametrize("decision", [Decision.COMMIT, Decision.ABORT])
def test_records_of_an_open_transaction_count_only_towards_the_total(
    topic: Topic, decision: Decision
) -> None:
    topic.add(100, tx=TX)
    assert not topic.is_due(min_cleanable_dirty_ratio=0.0)
    topic.add(100, NOW_MS + 9)
    assert not topic.is_due()
    assert topic.is_due(min_cleanable_dirty_ratio=0.49)
    lag = {"max_compaction_lag_ms": 1, "min_cleanable_dirty_ratio": 1.0}
    assert not topic.is_due(NOW_MS + 2, **lag), "nor does it age the others"
    topic.end(TX, decision)
    assert topic.is_due()
    assert topic.is_due(NOW_MS + 2, **lag)


@pytest.mark.parametrize(
    ("horizon_ms", "now_ms", "due"),
    [(NOW_MS, NOW_MS - 1, False), (NOW_MS, NOW_MS, True), (-1, NOW_MS, False), (0, 0, True)],
)
def test_topic_is_due_once_tombstones_have_expired(
    topic: Topic, horizon_ms: int, now_ms: int, due: bool
) -> None:
    topic.add(100)
    topic.clean()
    cleaned = replace(topic.log.state.cleaner, delete_horizon_ms=horizon_ms)
    assert topic.is_due(now_ms, cleaned) is due


def test_progress_within_a_tree_of_chunks_divides_old_bytes_from_new_ones(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_index, "FANOUT", 2)
    lengths = [10, 20, 30, 40, 50, 60, 70]
    slots = []
    for length in lengths:
        topic.add(length)
        topic.seal()
        slots.append(topic.log.state.sealed_slot)
    assert [ref.level for ref in topic.log.state.sealed.roots()] == [2, 1, 0]
    for cleaned in range(len(lengths) - 1):
        share = sum(lengths[cleaned + 1 :]) / sum(lengths)
        at = CleanerCheckpoint(cleaned_slot=slots[cleaned])
        assert not topic.is_due(cleaner=at, min_cleanable_dirty_ratio=share)
        assert topic.is_due(cleaner=at, min_cleanable_dirty_ratio=share - 0.001)
    assert not topic.is_due(cleaner=CleanerCheckpoint(cleaned_slot=slots[-1]))


def test_chunks_below_the_progress_are_not_loaded(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_index, "FANOUT", 2)
    for _ in range(7):
        topic.add(10)
        topic.seal()
    upper, _, _ = topic.log.state.sealed.roots()
    for stored in list(topic.log.store.list_after(f"{topic.log.layout.root}/chunks/")):
        if last_slot_of(stored.path) <= upper.last_slot:
            topic.log.store.delete(stored.path)
    cleaned = CleanerCheckpoint(cleaned_slot=upper.last_slot)
    assert topic.is_due(cleaner=cleaned, min_cleanable_dirty_ratio=0.4)


def last_slot_of(path: str) -> int:
    """The last slot that a chunk covers, from its name."""
    return int(path.rpartition("/")[2].removesuffix(".arrow").split("-")[1])
