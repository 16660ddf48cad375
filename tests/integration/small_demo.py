"""A small version of a demo's log: one day of flights from the demo's producer, and both jobs run
by hand."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from examples.demo.expected import Expected, expected_outputs, outputs_of
from examples.demo.flights import CSV_SCHEMA, MEMBER, csv_archive, read_flights
from examples.demo.produce import produce
from examples.demo.root import prepare_root
from examples.demo.verify import OFFSET, PARTITION, SOURCE, Proof, read_topic, verify
from txlog.coordinator.events import OffsetRange, Participant, ReplayMark
from txlog.engine.connection import Connection, connect
from txlog.engine.transaction_session import TransactionSession
from txlog.groups.state import PendingOffset
from txlog.topic.records.conversion import adapt, with_timestamp
from txlog.topic.records.schema import physical_schema

DAY_ROWS = 842
"""Flights of the first of January, four of them cancelled."""

TRANSACTION_ROWS = 100

Tables = dict[str, pa.Table]
Change = Callable[[list[Tables]], None]
"""A test's change of the stateless job's batches before they are written."""


def one_day(folder: Path) -> Path:
    """An archive like the package's, with only the first day of its file."""
    with zipfile.ZipFile(csv_archive()) as whole, whole.open(MEMBER) as lines:
        text = b"".join(line for _, line in zip(range(DAY_ROWS + 1), lines, strict=False))
    archive = folder / "day.csv.zip"
    with zipfile.ZipFile(archive, "w") as small:
        small.writestr(MEMBER, text)
    return archive


@dataclass
class SmallDemo:
    """A log after both jobs have run; `change` damages the stateless job's output."""

    root: str
    archive: Path
    change: Change = field(default=lambda batches: None)
    batches_left_out: int = 0
    """The number of the stateless job's last batches that are left out."""

    def __post_init__(self) -> None:
        prepare_root(self.root, fresh=False)
        flights = read_flights(self.archive)
        produce(self.root, flights, seed=1, aborts=2, transaction_rows=TRANSACTION_ROWS)
        self.connection: Connection = connect(self.root)
        self.expected: Expected = expected_outputs(self.archive)
        self._run_delays()
        self._run_hourly()

    def proof(self) -> Proof:
        """The verifier's result."""
        return verify(self.connection, self.expected, TRANSACTION_ROWS)

    def _run_delays(self) -> None:
        ranges = self._halves()
        flights = read_topic(self.connection.cluster.topic(SOURCE))
        batches = [_outputs(flights, half) for half in ranges]
        self.change(batches)
        job = _Job(self.connection, "delays")
        kept = len(batches) - self.batches_left_out
        for half, tables in list(zip(ranges, batches, strict=True))[:kept]:
            job.commit(half, tables)
        job.end()

    def _run_hourly(self) -> None:
        """Two batches that read, and one without records that writes."""
        job = _Job(self.connection, "hourly")
        for half in self._halves():
            job.commit(half, {})
        job.commit({}, {"hourly": self.expected.hourly})
        job.end()

    def _halves(self) -> list[dict[int, tuple[int, int]]]:
        state = self.connection.cluster.topic(SOURCE).catch_up()
        ends = {number: bounds.next_offset for number, bounds in enumerate(state.partitions)}
        return [
            {number: (0, end // 2) for number, end in ends.items()},
            {number: (end // 2, end) for number, end in ends.items()},
        ]


def _outputs(flights: pa.Table, ranges: Mapping[int, tuple[int, int]]) -> Tables:
    parts = []
    for partition, (start, end) in ranges.items():
        inside = pc.and_(
            pc.equal(flights[PARTITION], partition),
            pc.and_(
                pc.greater_equal(flights[OFFSET], start),
                pc.less(flights[OFFSET], end),
            ),
        )
        parts.append(flights.filter(inside))
    rows = pa.concat_tables(parts).select(CSV_SCHEMA.names)
    kinds = [pa.int64() if pa.types.is_integer(f.type) else f.type for f in CSV_SCHEMA]
    plain = rows.cast(pa.schema(list(zip(CSV_SCHEMA.names, kinds, strict=True))))
    expected = outputs_of(plain)
    return {"delays": expected.delays, "cancellations": expected.cancellations}


class _Job:
    """Commits as the Spark sink does, without Spark."""

    def __init__(self, connection: Connection, group: str) -> None:
        self._connection = connection
        self._group = group
        self._session = TransactionSession(connection, f"spark.{group}", group)
        self._session.register(f"run of {group}", is_run=True, groups=(group,))
        self._batch_id = 0

    def commit(self, ranges: Mapping[int, tuple[int, int]], tables: Tables) -> None:
        """Commit one micro-batch: its records and its offsets."""
        topic_id = self._connection.cluster.topic(SOURCE).topic_id
        self._session.begin()
        if ranges:
            pending = [PendingOffset(SOURCE, topic_id, p, *moved) for p, moved in ranges.items()]
            self._session.pend_staged(self._group, tuple(pending))
        moved = tuple(OffsetRange(self._group, SOURCE, p, *m) for p, m in ranges.items())
        staged = tuple(self._staged(*item) for item in tables.items() if item[1].num_rows)
        self._session.commit(staged, ReplayMark(f"query of {self._group}", self._batch_id, moved))
        self._batch_id += 1

    def end(self) -> None:
        """Wait until every transaction is complete."""
        self._session.join()

    def _staged(self, name: str, table: pa.Table) -> Participant:
        topic = self._connection.cluster.topic(name)
        topic.catch_up()
        wanted = topic.schema()
        (batch,) = table.select(wanted.names).cast(wanted).combine_chunks().to_batches()
        stored = adapt(with_timestamp(batch, 0), physical_schema(wanted))
        segment = topic.stage({0: [stored]}, topic.state.newest_schema_id)
        return Participant(topic.topic_id, name, (), (segment,))
