"""The Python consumer at read_committed: records one by one, and Arrow tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks import sample
from benchmarks.figures import Figure, Side, at_least, in_turn, rate, ratio, timed
from benchmarks.raw import read_arrow_files
from txlog.client.admin import Admin
from txlog.client.consumer.consumer import Consumer
from txlog.client.producer.producer import Producer

PARTITIONS = 4
RECORDS = 400_000
TABLE_ROWS = 1_000_000
TABLES = 4
ROUNDS = 9


def run(folder: Path) -> Sequence[Figure]:
    """Rates, and their ratios to raw reads of the same segments with pyarrow."""
    root = str(folder / "log")
    _fill(root)
    one = in_turn({"poll": _polls(root), "raw": _raw_records(folder)}, ROUNDS)
    many = in_turn({"poll_arrow": _tables(root), "raw": _raw_tables(folder)}, ROUNDS)
    rows = TABLE_ROWS * TABLES
    return (
        rate("poll, 500 records a call", one["poll"], RECORDS, at_least(300_000)),
        ratio("poll: rate / raw Arrow files as Python rows", one["raw"], one["poll"]),
        rate("poll_arrow", many["poll_arrow"], rows, at_least(10e6)),
        ratio(
            "poll_arrow: rate / raw Arrow files read into memory", many["raw"], many["poll_arrow"]
        ),
    )


def _fill(root: str) -> None:
    """A topic written record by record, and one written as large tables."""
    admin = Admin(root, create=True)
    admin.create_topic("records", PARTITIONS)
    admin.create_topic("tables", PARTITIONS)
    producer = Producer(root, transactional_id="producer")
    producer.init_transactions()
    records = list(zip(sample.values(10_000), sample.keys(10_000), strict=True))
    for _ in range(RECORDS // len(records)):
        with producer.transaction():
            for value, key in records:
                producer.send("records", value, key=key)
    table = sample.keyed_table(TABLE_ROWS)
    for _ in range(TABLES):
        with producer.transaction():
            producer.send_batch("tables", table, key="key")


def _consumer(root: str, topic: str) -> Consumer:
    return Consumer(
        topic, root=root, isolation_level="read_committed", auto_offset_reset="earliest"
    )


def _polls(root: str) -> Side:
    def read_all() -> None:
        consumer, count = _consumer(root, "records"), 0
        while found := consumer.poll():
            count += sum(map(len, found.values()))
        assert count == RECORDS, f"{count} records of {RECORDS}"

    return lambda: timed(read_all)


def _tables(root: str) -> Side:
    def read_all() -> None:
        consumer, count = _consumer(root, "tables"), 0
        while (table := consumer.poll_arrow()) is not None:
            count += table.num_rows
        assert count == TABLE_ROWS * TABLES, f"{count} records of {TABLE_ROWS * TABLES}"

    return lambda: timed(read_all)


def _segments(folder: Path, topic: str) -> list[Path]:
    return sorted((folder / "log" / "topics" / topic).glob("*/segments/*"))


def _raw_records(folder: Path) -> Side:
    paths = _segments(folder, "records")

    def read_all() -> None:
        count = sum(len(table.to_pylist()) for table in read_arrow_files(paths))
        assert count == RECORDS, f"{count} records of {RECORDS}"

    return lambda: timed(read_all)


def _raw_tables(folder: Path) -> Side:
    paths = _segments(folder, "tables")

    def read_all() -> None:
        count = sum(table.num_rows for table in read_arrow_files(paths))
        assert count == TABLE_ROWS * TABLES, f"{count} records of {TABLE_ROWS * TABLES}"

    return lambda: timed(read_all)
