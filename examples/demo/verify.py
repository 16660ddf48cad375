"""The proof: every topic record by record, every offset, every transaction, every stored byte.

It reads the segments through the log's own reader, at read_committed, with the transaction of each
record, and compares them with what `expected.py` recomputes from the CSV. A record is torn if it
was written by another transaction than the one that committed the offset of its flight: a crash
between the two would have lost or doubled it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from examples.demo.comparison import Difference, compare
from examples.demo.expected import Expected
from examples.demo.transactions import PRODUCER, Endings, endings
from txlog.engine.connection import Connection
from txlog.journal.audit import Finding
from txlog.model import IsolationLevel, TopicPartition, TxId
from txlog.topic.batch_index import IndexedBatch
from txlog.topic.read.reader import batch_source, read_batches, visible_batches
from txlog.topic.topic_log import TopicLog
from txlog.verify.invariants import log_facts

SOURCE = "flights"
GROUPS = ("delays", "hourly")
KEY = ("event_time", "carrier", "flight")
"""The columns that identify a flight."""

PARTITION, OFFSET, TRANSACTION = "__partition", "__offset", "__transaction"
MICROSECONDS = pa.timestamp("us", "UTC")


@dataclass(frozen=True, slots=True)
class GroupProof:
    """The position of a consumer group."""

    offsets_behind: int
    """Offsets between its committed positions and the ends of `flights`, over all partitions."""


@dataclass(frozen=True, slots=True)
class Proof:
    """The findings; the log is sound if `problems` is empty."""

    topics: dict[str, Difference]
    torn: dict[str, int]
    """Incomplete transactions of `flights` and of the stateless job."""
    records_aborted: int
    """Records in `flights` that readers at read_committed leave out."""
    groups: dict[str, GroupProof]
    endings: dict[str, Endings]
    """By group; PRODUCER for the producer's."""
    hours_open: int
    findings: list[Finding]

    def problems(self) -> list[str]:
        """A description of everything that is lost, doubled or torn."""
        found = []
        for name, difference in self.topics.items():
            if not difference.is_none:
                found.append(
                    f"topic {name}: {difference.lost} records lost, {difference.duplicated} "
                    f"duplicated, {difference.wrong} wrong"
                )
        found += [f"{name}: {n} transactions torn" for name, n in self.torn.items() if n]
        found += [
            f"group {name} is {group.offsets_behind} offsets from the ends of {SOURCE}"
            for name, group in self.groups.items()
            if group.offsets_behind
        ]
        return found + [str(finding) for finding in self.findings]


def verify(connection: Connection, expected: Expected, transaction_rows: int) -> Proof:
    """Prove or disprove a log at rest; `transaction_rows` is the producer's."""
    facts = log_facts(connection)
    ended = endings(facts)
    wanted = {
        SOURCE: expected.flights,
        "delays": expected.delays,
        "cancellations": expected.cancellations,
        "hourly": expected.hourly,
    }
    found = {name: read_topic(connection.cluster.topic(name)) for name in wanted}
    hidden = [PARTITION, OFFSET, TRANSACTION]
    outputs = [found["delays"], found["cancellations"]]
    return Proof(
        {n: compare(table, found[n].drop_columns(hidden)) for n, table in wanted.items()},
        {
            SOURCE: _torn_sizes(found[SOURCE], transaction_rows, expected.flights.num_rows),
            "delays": torn_transactions(found[SOURCE], outputs, ended.get("delays", Endings())),
        },
        sum(row.row_count for row in _all_rows(connection.cluster.topic(SOURCE)) if row.aborted),
        {group: _group_proof(connection, group) for group in GROUPS},
        {name: ended.get(name, Endings()) for name in (PRODUCER, *GROUPS)},
        expected.hours_open,
        facts.all_findings(),
    )


def read_topic(topic: TopicLog) -> pa.Table:
    """The topic's committed records, each with partition, offset and transaction."""
    state = topic.catch_up()
    source = batch_source(topic, state)
    columns = topic.schema().names
    batches = []
    for partition, bounds in enumerate(state.partitions):
        start, end = bounds.log_start, bounds.next_offset
        isolation = IsolationLevel.READ_COMMITTED
        rows = list(visible_batches(topic, state, partition, start, end, isolation))
        for row, fetched in zip(rows, read_batches(source, rows, columns), strict=True):
            batches.append(_placed(row, fetched.batch))
    return pa.Table.from_batches(batches, schema=_placed_schema(topic.schema()))


def _placed_schema(schema: pa.Schema) -> pa.Schema:
    return (
        schema.append(pa.field(PARTITION, pa.int64()))
        .append(pa.field(OFFSET, pa.int64()))
        .append(pa.field(TRANSACTION, pa.string()))
    )


def _placed(row: IndexedBatch, batch: pa.RecordBatch) -> pa.RecordBatch:
    count = batch.num_rows
    offsets = np.arange(row.base_offset, row.base_offset + count)
    return (
        batch.append_column(PARTITION, pa.array(np.full(count, row.partition)))
        .append_column(OFFSET, pa.array(offsets))
        .append_column(TRANSACTION, pa.repeat(pa.scalar(str(row.tx_id)), count))
    )


def _all_rows(topic: TopicLog) -> Iterator[IndexedBatch]:
    state = topic.catch_up()
    for partition, bounds in enumerate(state.partitions):
        yield from topic.batches(state, partition, bounds.log_start, bounds.next_offset)


# Torn transactions.


def _torn_sizes(flights: pa.Table, transaction_rows: int, total: int) -> int:
    """The producer's transactions of a wrong size. All but the last must be full."""
    full, rest = divmod(total, transaction_rows)
    due = Counter([transaction_rows] * full + [rest] * bool(rest))
    sizes = flights.group_by(TRANSACTION).aggregate([([], "count_all")])["count_all"]
    return (Counter(sizes.to_pylist()) - due).total()


def torn_transactions(flights: pa.Table, outputs: list[pa.Table], ended: Endings) -> int:
    """Transactions whose records do not match the offsets that they committed."""
    read = _keys(flights, "reader", _readers(flights, ended))
    tables = [_keys(table, "writer", table[TRANSACTION]) for table in outputs]
    pairs = pa.concat_tables(tables).join(read, list(KEY), join_type="inner")
    is_torn = pc.not_equal(pairs["writer"], pairs["reader"])
    torn = pairs.filter(is_torn)
    return len({*torn["writer"].to_pylist(), *torn["reader"].to_pylist()} - {""})


def _keys(table: pa.Table, name: str, transactions: pa.Array | pa.ChunkedArray) -> pa.Table:
    keys = table.select(KEY)
    keys = keys.set_column(0, KEY[0], keys[KEY[0]].cast(MICROSECONDS))
    return keys.append_column(name, transactions)


def _readers(flights: pa.Table, ended: Endings) -> pa.Array:
    """The transaction that committed each flight's offset; "" if none did."""
    partitions = flights[PARTITION].to_numpy()
    offsets = flights[OFFSET].to_numpy()
    readers = np.full(len(offsets), "", dtype=object)
    for partition, tx_id, start, end in _ranges(ended):
        inside = (partitions == partition) & (offsets >= start) & (offsets < end)
        readers[inside] = str(tx_id)
    return pa.array(readers, pa.string())


def _ranges(ended: Endings) -> Iterator[tuple[int, TxId, int, int]]:
    for tx_id, consumed in ended.consumed.items():
        for moved in consumed:
            if moved.topic == SOURCE:
                yield moved.partition, tx_id, moved.start, moved.end


# Consumer groups.


def _group_proof(connection: Connection, group: str) -> GroupProof:
    topic = connection.cluster.topic(SOURCE)
    state = topic.catch_up()
    ends = {TopicPartition(SOURCE, p): b.next_offset for p, b in enumerate(state.partitions)}
    committed = connection.offsets.resolve_and_fetch(group, ends, {SOURCE: topic.topic_id})
    behind = 0
    for where, end in ends.items():
        known = committed[where]
        behind += abs(end - (0 if known is None else known.offset))
    return GroupProof(behind)
