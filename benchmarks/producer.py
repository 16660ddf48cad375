"""The Python producer: records one by one, and whole Arrow tables, both in transactions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from benchmarks import sample
from benchmarks.figures import Figure, Side, at_least, in_turn, rate, ratio, timed
from benchmarks.raw import arrow_file
from txlog.client.admin import Admin
from txlog.client.producer.producer import Producer
from txlog.engine.connection import connect

PARTITIONS = 4
TRANSACTION = 10_000
TRANSACTIONS = 10
TABLE = 1_000_000
ROUNDS = 9


def run(folder: Path) -> Sequence[Figure]:
    """Rates, and their ratios to raw Arrow files of the same records."""
    root = str(folder / "log")
    admin = Admin(root, create=True)
    producer = Producer(root, transactional_id="producer")
    producer.init_transactions()
    singles, batches = _sends(admin, producer), _batches(admin, producer)
    idempotent = _idempotent_sends(admin, Producer(root))
    count = TRANSACTION * TRANSACTIONS
    one = in_turn({"send": singles, "raw": _raw_sends(folder), "idempotent": idempotent}, ROUNDS)
    many = in_turn({"send_batch": batches, "raw": _raw_batches(folder)}, ROUNDS)
    _require_records(root, "singles", count * (ROUNDS + 1))
    _require_records(root, "idempotent", count * (ROUNDS + 1))
    _require_records(root, "batches", TABLE * (ROUNDS + 1))
    return (
        rate("send, transactions of 10,000", one["send"], count, at_least(200_000)),
        ratio("send: rate / raw Arrow files of the same records", one["raw"], one["send"]),
        ratio("send: rate / idempotent flushes of 10,000", one["idempotent"], one["send"]),
        rate("send_batch, keyed, 1 M a transaction", many["send_batch"], TABLE, at_least(3e6)),
        ratio("send_batch: rate / raw Arrow file", many["raw"], many["send_batch"]),
    )


def _sends(admin: Admin, producer: Producer) -> Side:
    admin.create_topic("singles", PARTITIONS)
    records = list(zip(sample.values(TRANSACTION), sample.keys(TRANSACTION), strict=True))

    def send_all() -> None:
        for _ in range(TRANSACTIONS):
            with producer.transaction():
                for value, key in records:
                    producer.send("singles", value, key=key)

    return lambda: timed(send_all)


def _idempotent_sends(admin: Admin, producer: Producer) -> Side:
    """The rate without transactions: the difference is the cost of atomicity."""
    admin.create_topic("idempotent", PARTITIONS)
    records = list(zip(sample.values(TRANSACTION), sample.keys(TRANSACTION), strict=True))

    def send_all() -> None:
        for _ in range(TRANSACTIONS):
            for value, key in records:
                producer.send("idempotent", value, key=key)
            producer.flush()

    return lambda: timed(send_all)


def _raw_sends(folder: Path) -> Side:
    """The same records, from Python values, as one durable file for each transaction."""
    values, keys = sample.values(TRANSACTION), sample.keys(TRANSACTION)
    numbers = iter(range(1_000_000))

    def write_all() -> None:
        for _ in range(TRANSACTIONS):
            table = pa.table({"key": keys, "value": values})
            arrow_file(folder / f"raw-{next(numbers)}", table)

    return lambda: timed(write_all)


def _batches(admin: Admin, producer: Producer) -> Side:
    admin.create_topic("batches", PARTITIONS)
    table = sample.keyed_table(TABLE)

    def send_table() -> None:
        with producer.transaction():
            producer.send_batch("batches", table, key="key")

    return lambda: timed(send_table)


def _raw_batches(folder: Path) -> Side:
    table = sample.keyed_table(TABLE)
    path = folder / "raw-table"

    def side() -> float:
        path.unlink(missing_ok=True)
        return timed(lambda: arrow_file(path, table))

    return side


def _require_records(root: str, topic: str, count: int) -> None:
    """Check that the log has every sent record."""
    state = connect(root).cluster.topic(topic).catch_up()
    stored = sum(state.last_stable_offset(p) for p in range(PARTITIONS))
    assert stored == count, f"{topic}: {stored} records of {count}"
