"""Random histories of a topic, and a plain model of what a reader must find in them."""

from dataclasses import dataclass, field
from typing import Any, Protocol

from hypothesis import strategies as st

from tests.unit.segments import segment
from txlog.model import Decision, TxId
from txlog.topic.events import AddPartitions, AppendBatches, WriteMarker

PIDS = 3
PARTITIONS = 2

Step = tuple[str, int, tuple[tuple[int, int], ...]]

ROWS = st.lists(
    st.tuples(st.integers(0, PARTITIONS - 1), st.integers(1, 3)), min_size=1, max_size=2
).map(lambda rows: tuple(dict(rows).items()))
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["plain", "tx", "tx", "commit", "abort", "staged", "staged abort", "grow"]),
        st.integers(0, PIDS - 1),
        ROWS,
    ),
    max_size=60,
)


class Topic(Protocol):
    """A topic that a history changes."""

    def run(self, command: Any) -> Any:
        """Decide the command and apply its events."""


@dataclass
class Batch:
    """One batch of the history."""

    partition: int
    offset: int
    count: int
    tx_id: TxId | None = None


@dataclass
class History:
    """Runs steps on a topic, and keeps a model of their results."""

    topic: Topic
    batches: list[Batch] = field(default_factory=list)
    ends: dict[int, int] = field(default_factory=dict)
    decisions: dict[TxId, Decision] = field(default_factory=dict)
    open: dict[int, TxId] = field(default_factory=dict)
    numbers: dict[int, int] = field(default_factory=dict)
    sequences: dict[tuple[int, int], int] = field(default_factory=dict)
    partition_count: int = PARTITIONS
    segments: int = 0

    def take(self, steps: list[Step]) -> None:
        """Run all steps in order."""
        for name, pid, rows in steps:
            getattr(self, name.replace(" ", "_"))(pid, dict(rows))

    def plain(self, pid: int, rows: dict[int, int]) -> None:
        """Append records without a transaction."""
        self.topic.run(AppendBatches((self._segment(rows),)))
        self._note(rows, None)

    def tx(self, pid: int, rows: dict[int, int]) -> None:
        """Append records to the producer's open transaction, or to a new one."""
        tx_id = self.open.get(pid) or self._next(pid)
        self.open[pid] = tx_id
        sequences = {p: self.sequences.get((pid, p), 0) for p in rows}
        self.topic.run(AppendBatches((self._segment(rows),), pid, 0, tx_id, sequences))
        for partition, count in rows.items():
            self.sequences[pid, partition] = sequences[partition] + count
        self._note(rows, tx_id)

    def commit(self, pid: int, rows: dict[int, int]) -> None:
        """Commit the open transaction, if there is one."""
        self._end(pid, Decision.COMMIT, {})

    def abort(self, pid: int, rows: dict[int, int]) -> None:
        """Abort the open transaction, if there is one."""
        self._end(pid, Decision.ABORT, {})

    def staged(self, pid: int, rows: dict[int, int]) -> None:
        """Commit a transaction with staged records; the open one if there is one."""
        self.open.setdefault(pid, self._next(pid))
        self._end(pid, Decision.COMMIT, rows)

    def staged_abort(self, pid: int, rows: dict[int, int]) -> None:
        """Abort a transaction with staged records, which no reader ever sees."""
        if pid not in self.open:
            self.open[pid] = self._next(pid)
            self._end(pid, Decision.ABORT, rows)

    def grow(self, pid: int, rows: dict[int, int]) -> None:
        """Add a partition, which later steps do not use."""
        self.partition_count += 1
        self.topic.run(AddPartitions(self.partition_count))

    def last_stable_offset(self, partition: int) -> int:
        """The last stable offset, from the model."""
        undecided = [
            batch.offset
            for batch in self.batches
            if batch.partition == partition
            and batch.tx_id is not None
            and batch.tx_id not in self.decisions
        ]
        return min(undecided, default=self.ends.get(partition, 0))

    def found(self, partition: int, start: int, end: int) -> list[tuple[int, int, TxId | None]]:
        """The batches with an offset in [start, end), from the model."""
        return [
            (batch.offset, batch.count, batch.tx_id)
            for batch in self.batches
            if batch.partition == partition
            and batch.offset < end
            and batch.offset + batch.count > start
        ]

    def _next(self, pid: int) -> TxId:
        self.numbers[pid] = self.numbers.get(pid, -1) + 1
        return TxId(pid, 0, self.numbers[pid])

    def _end(self, pid: int, decision: Decision, rows: dict[int, int]) -> None:
        tx_id = self.open.pop(pid, None)
        if tx_id is None:
            return
        segments = (self._segment(rows),) if rows else ()
        self.topic.run(WriteMarker(tx_id, decision, tx_id.number, 0, segments=segments))
        self.decisions[tx_id] = decision
        if decision is Decision.COMMIT:
            self._note(rows, tx_id)

    def _segment(self, rows: dict[int, int]) -> Any:
        self.segments += 1
        return segment(rows, f"{self.segments:032d}")

    def _note(self, rows: dict[int, int], tx_id: TxId | None) -> None:
        for partition, count in sorted(rows.items()):
            offset = self.ends.get(partition, 0)
            self.batches.append(Batch(partition, offset, count, tx_id))
            self.ends[partition] = offset + count
