"""Retention by the index agrees with a plain scan of all batches, however deep the index is."""

import random
from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.unit.machine_without_journal import MachineHarness
from tests.unit.topic_commands import append, new_topic
from txlog.model import TxId
from txlog.settings import TopicConfig
from txlog.topic.batch_index import FANOUT, ChunkRef, decode_batches, decode_refs
from txlog.topic.events import AdvanceLogStart, AppendBatches, TopicOpened
from txlog.topic.machine import TopicMachine
from txlog.topic.records.batch import Segment, SegmentBatch
from txlog.topic.state import TopicState
from txlog.topic.topic_log import ChunkContent
from txlog.topic.upkeep.retention import expired_log_starts

PARTITIONS = 2
NOW_MS = 100


@dataclass(frozen=True)
class Stored:
    """A batch with its offsets in its partition."""

    partition: int
    rows: int
    length: int
    timestamp_ms: int
    next_offset: int = 0


@dataclass
class Topic:
    """A topic that is sealed every two entries, each with one batch."""

    batches: list[Stored] = field(default_factory=list)
    log_starts: list[int] = field(default_factory=lambda: [0] * PARTITIONS)

    def __post_init__(self) -> None:
        self.harness: MachineHarness[TopicState] = MachineHarness(TopicMachine(window_slots=2))
        self.harness.run(TopicOpened("0123456789abcdef", "t", PARTITIONS, "schema", TopicConfig()))

    def append(self, batch: Stored) -> None:
        """Append a batch in its own entry."""
        times = (batch.timestamp_ms, batch.timestamp_ms)
        stored = SegmentBatch(batch.partition, batch.rows, 8, batch.length, 0, *times)
        path = f"topics/t/0123456789abcdef/segments/{'0' * 32}.arrow"
        self.harness.run(AppendBatches((Segment(path, 0, (stored,)),)))
        end = self.harness.state.end_offset(batch.partition)
        self.batches.append(replace(batch, next_offset=end))

    def expire(self, config: TopicConfig) -> dict[int, int]:
        """Apply retention, and return the new log starts."""
        state = replace(self.harness.state, config=config)
        risen = expired_log_starts(state, self._load, NOW_MS)
        self.harness.run(AdvanceLogStart(risen))
        return risen

    def expected(self, config: TopicConfig) -> dict[int, int]:
        """The log starts that a plain scan returns."""
        before = self.log_starts.copy()
        for partition, log_start in enumerate(before):
            own = [b for b in self.batches if b.partition == partition]
            alive = [b for b in own if b.next_offset > log_start]
            limits = [log_start, *too_old(alive, config), *too_much(alive, config)]
            self.log_starts[partition] = max(limits)
        return {p: at for p, at in enumerate(self.log_starts) if at > before[p]}

    def _load(self, ref: ChunkRef) -> ChunkContent:
        """Read the chunk from memory: no snapshot has saved it."""
        chunks = {(c.first_slot, c.last_slot): c.data for c in self.harness.state.sealed.unsaved}
        data = chunks[ref.first_slot, ref.last_slot]
        return decode_refs(data, ref, "node") if ref.level else decode_batches(data, ref, "leaf")


def too_old(alive: list[Stored], config: TopicConfig) -> list[int]:
    """Ends of the oldest batches, up to the first that is young enough."""
    ends: list[int] = []
    for batch in alive:
        if config.retention_ms < 0 or batch.timestamp_ms >= NOW_MS - config.retention_ms:
            break
        ends.append(batch.next_offset)
    return ends


def too_much(alive: list[Stored], config: TopicConfig) -> list[int]:
    """Ends of the oldest batches, while enough bytes are left without them."""
    ends: list[int] = []
    left = sum(batch.length for batch in alive)
    for batch in alive:
        left -= batch.length
        if config.retention_bytes < 0 or left < config.retention_bytes:
            break
        ends.append(batch.next_offset)
    return ends


BATCHES = st.builds(
    Stored, st.integers(0, PARTITIONS - 1), st.integers(1, 3), st.integers(1, 9), st.integers(0, 99)
)
CONFIGS = st.builds(
    TopicConfig, retention_ms=st.integers(-1, 100), retention_bytes=st.integers(-1, 100)
)


@given(st.lists(st.tuples(st.lists(BATCHES, max_size=30), CONFIGS), max_size=4))
@settings(max_examples=examples(100), derandomize=True, deadline=None)
def test_retention_by_age_and_size_matches_a_plain_scan(
    steps: list[tuple[list[Stored], TopicConfig]],
) -> None:
    topic = Topic()
    for batches, config in steps:
        for batch in batches:
            topic.append(batch)
        assert topic.expire(config) == topic.expected(config)


def test_chunk_with_newest_record_at_the_age_limit_is_partly_deleted() -> None:
    topic = Topic()
    for timestamp_ms in (10, 50, 60, 99, 99, 99, 99):
        topic.append(Stored(0, 1, 1, timestamp_ms))
    config = TopicConfig(retention_ms=NOW_MS - 60)
    assert topic.expire(config) == topic.expected(config) == {0: 2}


def test_retention_matches_a_plain_scan_with_chunks_packed_into_nodes() -> None:
    topic, choices = Topic(), random.Random(1)
    for number in range(5 * FANOUT):
        # Time passes, although clocks differ a little.
        batch = Stored(number % 2, choices.randint(1, 3), choices.randint(1, 9), number // 4)
        topic.append(replace(batch, timestamp_ms=batch.timestamp_ms + choices.randint(0, 5)))
    assert len(topic.harness.state.sealed.levels) > 1
    for age_ms, size in [(90, -1), (-1, 700), (70, 690), (-1, 400), (30, 500), (20, -1), (-1, 9)]:
        config = TopicConfig(retention_ms=age_ms, retention_bytes=size)
        risen = topic.expire(config)
        assert risen == topic.expected(config)
        assert risen


def test_I12_retention_never_exceeds_the_last_stable_offset() -> None:
    topic = new_topic()
    topic.run(append({0: 2, 1: 2}))
    topic.run(append({0: 1}, tx=TxId(9, 0, 0)))
    topic.run(append({0: 1, 1: 1}, sequence=2))
    state = replace(topic.state, config=TopicConfig(retention_ms=0))
    assert expired_log_starts(state, lambda ref: (), NOW_MS) == {0: 2, 1: 3}
