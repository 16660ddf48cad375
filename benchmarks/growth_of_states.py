"""What one more event costs in a log with few producers, ids, groups, topics, open transactions and
schemas, and in one with very many of them; what opening such a log takes, and its snapshot.

The states are made at once and not by as many events. A round is as many operations as there may be
entries between two snapshots, so that each round pays for one. Processor time, because the store is
the same for both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any, TypeAlias

from benchmarks.figures import Figure, at_most, in_turn, ratio
from txlog.catalog.cluster_file import create_cluster
from txlog.client.admin import Admin
from txlog.client.consumer.consumer import Consumer
from txlog.client.producer.producer import Producer
from txlog.clock import Runtime
from txlog.coordinator.transaction import transactional_ids
from txlog.engine.connection import Connection, open_connection
from txlog.journal.replication.opening import ENTRIES_APART_MAX
from txlog.journal.replication.replica import Replica
from txlog.model import TopicPartition, TxId
from txlog.settings import LogSettings
from txlog.sorted_map import SortedMap
from txlog.storage.disk.local import LocalStore
from txlog.topic.events import BatchesAppended
from txlog.topic.producer_state import producer_states
from txlog.topic.records.batch import Segment, SegmentBatch
from txlog.topic.state import apply

FEW, MANY = 10, 100_000
ROUNDS = 3
RATIO_MAX = 1.2
FIRST_PID = 10**9

Operation: TypeAlias = Callable[[], object]


def figures(folder: Path) -> Iterator[Figure]:
    """For each kind of entry the time of an operation, of opening, and the size of a snapshot."""
    for name, kind in KINDS.items():
        few, many = (
            _Log(folder / f"{name} {size}".replace(" ", "-"), kind, size) for size in (FEW, MANY)
        )
        taken = in_turn({"few": few.round, "many": many.round}, ROUNDS)
        low, high = (1000 * median(taken[side]) / ENTRIES_APART_MAX for side in ("few", "many"))
        text = f"{name}: {low:.2f} -> {high:.2f} ms"
        yield ratio(text, taken["many"], taken["few"], at_most(RATIO_MAX))
        opened = [1000 * log.opening() for log in (few, many)]
        yield Figure(f"  open: {opened[0]:.0f} -> {opened[1]:.0f} ms", opened[1], "ms")
        sizes = [log.snapshot_bytes / 1024 for log in (few, many)]
        yield Figure(f"  snapshot: {sizes[0]:.0f} -> {sizes[1]:.0f} KiB", sizes[1], "KiB")


class _Log:
    """A log with that many entries of one kind in a state."""

    def __init__(self, folder: Path, kind: Kind, size: int) -> None:
        self._folder = folder
        self._kind = kind
        settings = LogSettings(transaction_state_log_num_partitions=1)
        create_cluster(self._store(), Runtime(), settings)
        self._connection = open_connection(self._store(), Runtime())
        Admin(self._connection).create_topic("t", 2)
        with Producer(self._connection) as first:
            first.send("t", b"x", partition=1)
        kind.prepare(self._connection)
        journal = kind.journal(self._connection)
        journal.catch_up()
        filled = kind.filled(journal.state, size, journal.next_slot - 1)
        journal._at, journal.state = replace(journal._at, state=filled), filled
        journal.snapshot()
        found = (folder / journal.layout.snapshot(journal.next_slot - 1)).stat()
        self.snapshot_bytes = found.st_size
        self._operation = kind.operation(self._connection)

    def _store(self) -> LocalStore:
        return LocalStore(self._folder, Runtime(), durable=False)

    def round(self) -> float:
        begun = process_time()
        for _ in range(ENTRIES_APART_MAX):
            self._operation()
        return process_time() - begun

    def opening(self) -> float:
        """Processor time until a fresh process has the state."""
        begun = process_time()
        self._kind.journal(open_connection(self._store(), Runtime())).catch_up()
        return process_time() - begun


@dataclass(frozen=True, slots=True)
class Kind:
    """Entries of a state, and an operation that must not cost more with more of them."""

    journal: Callable[[Connection], Replica[Any]]
    filled: Callable[[Any, int, int], Any]
    """The state with that many entries, as of a slot."""
    operation: Callable[[Connection], Operation]
    prepare: Callable[[Connection], object] = lambda _: None
    """Writes the entry that is the template of the others."""


def _topic(connection: Connection) -> Replica[Any]:
    return connection.cluster.topic("t").journal


def _coordinator(connection: Connection) -> Replica[Any]:
    (coordinator,) = connection.coordinators()
    return coordinator.journal


def _cluster(connection: Connection) -> Replica[Any]:
    return connection.cluster.journal


def _with_producers(state: Any, size: int, slot: int) -> Any:
    known = next(iter(state.producers.values()))
    return replace(state, producers=producer_states((FIRST_PID + n, known) for n in range(size)))


def _with_open_transactions(state: Any, size: int, slot: int) -> Any:
    path = f"topics/t/{state.topic_id}/segments/{'0' * 32}.arrow"
    for number in range(size):
        batch = SegmentBatch(0, 1, 8, 100, 0, 1, 1)
        tx_id = TxId(FIRST_PID + number, 0, 0)
        segments = (Segment(path, 0, (batch,)),)
        state = apply(
            state, BatchesAppended(segments, {0: number}, tx_id.pid, 0, tx_id, {0: 0}), slot
        )
    return state


def _with_schemas(state: Any, size: int, slot: int) -> Any:
    return replace(state, schemas=SortedMap((n, state.schemas[0]) for n in range(size)))


def _with_ids(state: Any, size: int, slot: int) -> Any:
    known = state.transactions.ids["template"]
    ids = {f"id {n}": replace(known, pid=FIRST_PID + n) for n in range(size)}
    return replace(state, transactions=replace(state.transactions, ids=transactional_ids(ids)))


def _with_groups(state: Any, size: int, slot: int) -> Any:
    known = state.offsets.groups["template"]
    groups = SortedMap((f"group {n}", known) for n in range(size))
    return replace(state, offsets=replace(state.offsets, groups=groups))


def _with_topics(state: Any, size: int, slot: int) -> Any:
    known = state.topics["t"]
    names = ((f"t{n}", f"{n:016x}") for n in range(size))
    topics = {
        name: replace(known, opened=replace(known.opened, name=name, topic_id=topic_id))
        for name, topic_id in names
    }
    return replace(state, topics=state.topics.with_items(topics))


def _flush(connection: Connection) -> Operation:
    producer = Producer(connection)

    def operation() -> None:
        producer.send("t", b"x", partition=1)
        producer.flush()

    return operation


def _flush_and_poll(connection: Connection) -> Operation:
    flush = _flush(connection)
    consumer = Consumer(root=connection, isolation_level="read_committed")
    consumer.assign([TopicPartition("t", 1)])
    consumer.seek_to_end()
    consumer.poll()

    def operation() -> None:
        flush()
        assert sum(map(len, consumer.poll().values())) == 1

    return operation


def _transaction(connection: Connection) -> Operation:
    producer = Producer(connection, transactional_id="measured")
    producer.init_transactions()
    offsets = count()

    def operation() -> None:
        with producer.transaction():
            producer.send("t", b"x", partition=1)
            position = {TopicPartition("t", 1): next(offsets)}
            producer.send_offsets_to_transaction(position, "measured")

    return operation


def _register(connection: Connection) -> None:
    with Producer(connection, transactional_id="template") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send("t", b"x", partition=1)
            producer.send_offsets_to_transaction({TopicPartition("t", 0): 0}, "template")


def _create(connection: Connection) -> Operation:
    admin, names = Admin(connection), map("new{}".format, count())
    return lambda: admin.create_topic(next(names), 1)


KINDS: dict[str, Kind] = {
    "flush by producers": Kind(_topic, _with_producers, _flush),
    "flush and poll by open transactions": Kind(_topic, _with_open_transactions, _flush_and_poll),
    "flush and poll by schemas": Kind(_topic, _with_schemas, _flush_and_poll),
    "transaction by ids": Kind(_coordinator, _with_ids, _transaction, _register),
    "transaction by groups": Kind(_coordinator, _with_groups, _transaction, _register),
    "new topic by topics": Kind(_cluster, _with_topics, _create),
}
