"""Small records ride in entries by default, where all that read or keep a log find them."""

from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pytest

import txlog
from spark_plugin.arrow_schema import read_layout, source_schema
from spark_plugin.connections import open_log
from spark_plugin.options import ReaderOptions, parse_reader_options
from spark_plugin.source.offsets import PartitionRange
from spark_plugin.source.read_plan import ReadTask, plan_reads, read_task
from spark_plugin.source.subscription import subscribed_topics
from tests.logs.empty_log import empty_log
from txlog.backup.log_copy import copy_log
from txlog.client.admin import Admin
from txlog.client.consumer.consumer import Consumer
from txlog.client.producer.producer import Producer
from txlog.clock import Runtime
from txlog.engine.connection import Connection, open_connection
from txlog.fan_out import SerialFanOut
from txlog.maintenance.maintenance import Maintenance
from txlog.model import TopicPartition
from txlog.settings import LogSettings, ProcessSettings
from txlog.sql.session import SqlSession
from txlog.storage import LocalStore
from txlog.topic.records.schema import KAFKA_SCHEMA
from txlog.topic.upkeep.compaction import CompactionLimits, compact
from txlog.verify.log_audit import audit_log, stored_objects

T0 = TopicPartition("t", 0)
WINDOW = 16
VALUES = [b"%d" % number for number in range(8)]
LIMITS = CompactionLimits(1_000, 1_000)


def process(root: Path) -> Connection:
    runtime = Runtime(fan_out=SerialFanOut())  # What is begun is done on return.
    return open_connection(LocalStore(root, runtime, durable=False), runtime)


def table(*values: bytes) -> pa.Table:
    return pa.table({"key": [value[:1] for value in values], "value": values})


def flush(connection: Connection, values: Iterable[bytes]) -> None:
    producer = Producer(connection)
    for value in values:
        producer.send("t", value, key=value[:1])
        producer.flush()


def small_log(folder: Path, config: dict[str, str] | None = None) -> Path:
    """A log with the default limit: flushes, tables, a transaction, and an aborted one."""
    root = folder / "log"
    empty_log(root, LogSettings(journal_snapshot_entries=WINDOW))
    connection = process(root)
    Admin(connection).create_topic("t", 1, config=config)
    flush(connection, VALUES[:3])
    Producer(connection).send_batch("t", table(VALUES[3]))
    producer = Producer(connection, transactional_id="writer")
    producer.init_transactions()
    with producer.transaction():
        producer.send("t", VALUES[4], key=VALUES[4])
        producer.send_batch("t", table(VALUES[5]))
        producer.send_batch("t", table(*VALUES[6:]))
    producer.begin_transaction()
    producer.send_batch("t", table(b"aborted"))
    producer.abort_transaction()
    producer.close()
    assert segments(root) == []
    return root


def segments(root: Path) -> list[Path]:
    return list(root.rglob("segments/*"))


def rewritten(root: Path) -> None:
    """Fill a window of the topic's journal, so that its records are moved, and prune it."""
    flush(process(root), [b"more"] * WINDOW)
    assert len(segments(root)) == 1
    assert process(root).cluster.topic("t").journal.prune(0) >= len(VALUES) - 3


def by_poll(root: Path) -> list[bytes]:
    consumer = Consumer("t", root=process(root), auto_offset_reset="earliest")
    return [r.value for r in consumer.poll(max_records=len(VALUES)).get(T0, [])]


def by_poll_arrow(root: Path) -> list[bytes]:
    consumer = Consumer("t", root=process(root), auto_offset_reset="earliest")
    found: list[bytes] = []
    while (polled := consumer.poll_arrow()) is not None:
        found += polled["value"].to_pylist()
    return found


def by_scan(root: Path) -> list[bytes]:
    scan = txlog.scan("t", root=process(root))
    found: list[bytes] = scan.to_table(["value", "_offset"]).sort_by("_offset")["value"].to_pylist()
    return found


def by_sql(root: Path) -> list[bytes]:
    statement = "select value from t order by _offset"
    with SqlSession(process(root)).run(statement) as result:
        found: list[bytes] = result.read_all()["value"].to_pylist()
        return found


def spark_tasks(root: Path) -> tuple[list[ReadTask], ReaderOptions]:
    options = parse_reader_options({"root": str(root), "subscribe": "t"}, streaming=False)
    topics = subscribed_topics(open_log(options), options)
    return list(plan_reads(topics, {T0: PartitionRange(0, len(VALUES))}, options)), options


def spark_rows(tasks: list[ReadTask], options: ReaderOptions) -> list[bytes]:
    layout = read_layout(KAFKA_SCHEMA, source_schema(KAFKA_SCHEMA, ("value",)))
    batches = [batch for task in tasks for batch in read_task(task, {"t": layout}, options)]
    return [value for batch in batches for value in batch["value"].to_pylist()]


def by_spark(root: Path) -> list[bytes]:
    return spark_rows(*spark_tasks(root))


READERS = [by_poll, by_poll_arrow, by_scan, by_sql, by_spark]


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_has_small_records(
    tmp_path: Path, reader: Callable[[Path], list[bytes]]
) -> None:
    root = small_log(tmp_path)
    assert reader(root) == VALUES
    rewritten(root)
    assert reader(root)[: len(VALUES)] == VALUES


def test_spark_task_that_runs_after_its_records_were_moved_has_them(tmp_path: Path) -> None:
    root = small_log(tmp_path)
    planned = spark_tasks(root)
    rewritten(root)
    assert spark_rows(*planned) == VALUES


def test_audit_of_small_records_finds_nothing_and_a_changed_one(tmp_path: Path) -> None:
    root = small_log(tmp_path)
    connection = process(root)
    assert audit_log(connection, (), stored_objects(connection)).findings == []
    entry = root / connection.cluster.topic("t").layout.entry(1)
    data = entry.read_bytes()
    entry.write_bytes(data[:300] + bytes([data[300] ^ 1]) + data[301:])
    connection = process(root)
    findings = audit_log(connection, (), stored_objects(connection)).findings
    assert any(entry.name in str(found) for found in findings)


def test_backup_of_small_records_is_read_like_the_original(tmp_path: Path) -> None:
    root, copy = small_log(tmp_path), tmp_path / "copy"
    copy_log(process(root), LocalStore(copy, Runtime(), durable=False))
    assert by_poll(copy) == by_scan(copy) == VALUES
    flush(process(copy), [b"later"])
    assert by_scan(copy) == [*VALUES, b"later"]


def test_compaction_keeps_the_newest_small_record_of_each_key(tmp_path: Path) -> None:
    root = small_log(tmp_path, {"cleanup.policy": "compact"})
    flush(process(root), [b"0 again", b"5 again"])
    compact(process(root).cluster.topic("t"), 10**15, LIMITS, force=True)
    kept = [value for value in VALUES if value not in (b"0", b"5")]
    assert by_spark(root)[: len(kept)] == kept
    assert by_scan(root) == [*kept, b"0 again", b"5 again"]


def test_retention_deletes_small_records_by_size(tmp_path: Path) -> None:
    root = small_log(tmp_path, {"retention.bytes": "1"})
    for _ in range(2):
        assert Maintenance(process(root), ProcessSettings()).run_once().failures == []
    assert by_scan(root) == VALUES[6:]
    flush(process(root), [b"later"])
    assert by_poll_arrow(root) == [*VALUES[6:], b"later"]


def test_maintenance_leaves_small_records_as_they_are(tmp_path: Path) -> None:
    root = small_log(tmp_path)
    settings = ProcessSettings(
        file_delete_delay_ms=1, staging_retention_ms=60_001, journal_retention_entries=1
    )
    upkeep = Maintenance(process(root), settings)
    for _ in range(3):
        assert upkeep.run_once().failures == []
    assert [reader(root) for reader in READERS] == [VALUES] * len(READERS)
