"""Two topics, and a model with every record of every transaction, for tests of cuts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from hypothesis import strategies as st

from txlog.journal.replication.replica_options import ReplicaOptions
from txlog.model import Decision, TopicPartition, TxId
from txlog.settings import TopicConfig
from txlog.storage.memory import MemoryStore
from txlog.testing.clock import manual_runtime
from txlog.topic.events import AppendBatches, TopicOpened, WriteMarker
from txlog.topic.read.cut import Ends, TopicView, limited_cut, stable_ends, view_of
from txlog.topic.records.batch import Segment, SegmentBatch
from txlog.topic.topic_log import TopicLog

PARTITIONS = 2
TOPICS = ("a", "b")


def histories(steps_max: int) -> st.SearchStrategy[list[tuple[object, ...]]]:
    """Calls of a World's methods, with their arguments."""
    number, topic = st.integers(1, 3), st.sampled_from(TOPICS)
    steps = st.one_of(
        st.tuples(
            st.just("write"),
            number,
            topic,
            st.integers(0, PARTITIONS - 1),
            st.integers(1, 3),
            st.booleans(),
        ),
        st.tuples(st.just("append"), topic, st.integers(0, 1), st.integers(1, 3)),
        st.tuples(st.just("decide"), number, st.sampled_from([True, True, False])),
        st.tuples(st.just("apply_one"), st.integers(0, 5)),
        st.tuples(st.just("apply_all")),
    )
    return st.lists(steps, min_size=5, max_size=steps_max)


_OPENED = {name: TopicOpened(16 * name, name, PARTITIONS, "", TopicConfig()) for name in TOPICS}


@dataclass
class Transaction:
    """The model of one transaction."""

    tx_id: TxId
    topics: set[str] = field(default_factory=set)
    staged: dict[str, Segment] = field(default_factory=dict)
    committed: bool = False
    unmarked: set[str] = field(default_factory=set)


class World:
    """Two topics, and every record's transaction."""

    def __init__(self) -> None:
        self.runtime = manual_runtime(1)
        store = MemoryStore(self.runtime)
        options = ReplicaOptions(snapshot_entries=3)
        self.logs = {
            name: TopicLog(store, opened, self.runtime, options) for name, opened in _OPENED.items()
        }
        for log in self.logs.values():
            log.journal.execute(log.opened)
        self.open: dict[int, Transaction] = {}
        self.numbers: dict[int, int] = defaultdict(int)
        self.sequences: dict[tuple[int, str, int], int] = defaultdict(int)
        self.pieces: dict[TxId, set[tuple[TopicPartition, int, int]]] = defaultdict(set)
        self.committed: set[TxId] = set()
        self.pending: list[tuple[Transaction, str]] = []
        self.segments = 0

    def segment(self, topic: str, partition: int, rows: int) -> Segment:
        self.segments += 1
        batch = SegmentBatch(partition, rows, 10_000 * self.segments, 10 * rows, 1, 0, 0)
        path = self.logs[topic].layout.segment(f"{self.segments:032x}")
        return Segment(path, 0, (batch,))

    def append(self, topic: str, partition: int, rows: int) -> None:
        self.logs[topic].execute(AppendBatches((self.segment(topic, partition, rows),)))

    def write(self, pid: int, topic: str, partition: int, rows: int, staged: bool) -> None:
        """Add records to the producer's transaction: in the log, or staged for its commit."""
        transaction = self.open.get(pid)
        if transaction is None:
            if any(waiting.tx_id.pid == pid for waiting, _ in self.pending):
                return  # R5: the previous one must be complete
            transaction = self.open[pid] = Transaction(TxId(pid, 0, self.numbers[pid]))
            self.numbers[pid] += 1
        transaction.topics.add(topic)
        segment = self.segment(topic, partition, rows)
        if staged:
            known = transaction.staged.get(topic)
            batches = (known.batches if known else ()) + segment.batches
            transaction.staged[topic] = Segment(segment.path, 0, batches)
            return
        key = (pid, topic, partition)
        result = self.logs[topic].execute(
            AppendBatches((segment,), pid, 0, transaction.tx_id, {partition: self.sequences[key]})
        )
        self.sequences[key] += rows
        base = result.base_offsets[partition]
        where = TopicPartition(topic, partition)
        self.pieces[transaction.tx_id].add((where, base, base + rows))

    def decide(self, pid: int, commit: bool) -> None:
        transaction = self.open.pop(pid, None)
        if transaction is None:
            return
        transaction.committed = commit
        if commit:
            self.committed.add(transaction.tx_id)
        self.pending += [(transaction, topic) for topic in sorted(transaction.topics)]

    def apply_one(self, choice: int) -> None:
        """Write one marker of one decided transaction."""
        if not self.pending:
            return
        transaction, topic = self.pending.pop(choice % len(self.pending))
        tx_id, topics = transaction.tx_id, sorted(transaction.topics)
        staged = transaction.staged.get(topic) if transaction.committed else None
        before = [p.next_offset for p in self.logs[topic].state.partitions]
        self.logs[topic].execute(
            WriteMarker(
                tx_id,
                Decision.COMMIT if transaction.committed else Decision.ABORT,
                tx_id.number,
                0,
                topic_ids=tuple(16 * name for name in topics) if len(topics) > 1 else (),
                segments=(staged,) if staged else (),
            )
        )
        for batch in staged.batches if staged else ():
            base = before[batch.partition]
            before[batch.partition] += batch.row_count
            where = TopicPartition(topic, batch.partition)
            self.pieces[tx_id].add((where, base, base + batch.row_count))

    def apply_all(self) -> None:
        while self.pending:
            self.apply_one(0)

    def views(self, partitions: Iterable[int] | None = None) -> list[TopicView]:
        return [view_of(log, partitions) for log in self.logs.values()]

    def is_whole(self, ends: Ends) -> bool:
        """Check that no committed transaction has records both below the cut and above it or
        unwritten."""
        waiting = {transaction.tx_id for transaction, _ in self.pending}
        for tx_id in self.committed:
            below = [end <= ends[where] for where, _, end in self.pieces[tx_id]]
            touched = [first < ends[where] for where, first, _ in self.pieces[tx_id]]
            if any(touched) and not (all(below) and tx_id not in waiting):
                return False
        return True

    def holds_open(self, ends: Ends) -> bool:
        return any(
            first < ends[where]
            for transaction in self.open.values()
            for where, first, _ in self.pieces[transaction.tx_id]
        )


ZERO = {TopicPartition(name, p): 0 for name in TOPICS for p in range(PARTITIONS)}


def next_ends(world: World, limit: int) -> list[int]:
    """Ends of the first limited cut: a 0, a 1, b 0, b 1."""
    ends = limited_cut(world.views(), dict(ZERO), stable_ends(world.views(), ZERO), limit)
    assert world.is_whole(ends)
    return [ends[where] for where in ZERO]
