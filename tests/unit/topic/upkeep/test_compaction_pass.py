"""One pass of compaction, record by record: what goes, what stays, what the report says."""

import pyarrow as pa
import pytest

from tests.logs.memory_log import MemoryLog
from txlog.settings import LONG_MAX, LogSettings
from txlog.topic.batch_index import IndexedBatch
from txlog.topic.events import AdvanceLogStart, SealIndex
from txlog.topic.topic_log import TopicLog
from txlog.topic.upkeep.compaction import CompactionLimits, CompactionReport, compact

LIMITS = CompactionLimits(keys_max=1_000, batch_bytes=1_000_000)
DAY_MS = 86_400_000
LARGE = "x" * 1_024
Row = tuple[str, str | None]


class Compacted:
    """A compacted topic of one partition in a log that seals nothing by itself."""

    def __init__(self, **config: object) -> None:
        self.log = MemoryLog(LogSettings(journal_snapshot_entries=4_096, entry_records_max_bytes=0))
        self.log.admin.create_topic("t", 1, config={"cleanup.policy": "compact", **config})
        self.topic: TopicLog = self.log.connection.cluster.topic("t")
        self._producer = self.log.producer(enable_idempotence=False)

    def write(self, *rows: Row, seals: bool = True) -> None:
        """Append these records as one batch, in a leaf of its own."""
        for key, value in rows:
            stored = None if value is None else value.encode()
            self._producer.send("t", key=key.encode(), value=stored, partition=0)
        self._producer.flush()
        if seals:
            self.seal()

    def seal(self) -> None:
        self.topic.catch_up()
        self.topic.execute(SealIndex())

    def compact(
        self, limits: CompactionLimits = LIMITS, *, force: bool = True, after_ms: int = 0
    ) -> CompactionReport:
        return compact(self.topic, self.log.clock.wall_ms() + after_ms, limits, force=force)

    def records(self) -> list[tuple[int, str, str | None]]:
        """Offset, key and value of all records."""
        consumer = self.log.consumer("t")
        found: list[tuple[int, str, str | None]] = []
        while polled := consumer.poll(max_records=100):
            for records in polled.values():
                for one in records:
                    value = None if one.value is None else one.value.decode()
                    found.append((one.offset, one.key.decode(), value))
        return found

    def rows(self) -> list[IndexedBatch]:
        return list(self.topic.batches_from_slot(self.topic.catch_up(), 0))


def test_report_counts_records_tombstones_and_bytes_that_were_written() -> None:
    topic = Compacted()
    topic.write(("a", "1"), ("b", "1"), ("c", "1"))
    topic.write(("a", "2"), ("b", None))
    topic.write(("d", "1"))
    before = topic.rows()
    done = topic.compact()
    assert topic.records() == [(2, "c", "1"), (3, "a", "2"), (4, "b", None), (5, "d", "1")]
    after = topic.rows()
    assert [row.next_offset for row in after][-1] == 6
    written = sum(row.length for row in after)
    assert done == CompactionReport(
        records_removed=2, tombstones_removed=0, records_kept=4, bytes_written=written
    )
    assert {row.segment for row in after}.isdisjoint(row.segment for row in before)
    again = topic.compact(after_ms=DAY_MS)
    assert (again.records_removed, again.tombstones_removed, again.records_kept) == (1, 1, 3)
    assert topic.records() == [(2, "c", "1"), (3, "a", "2"), (5, "d", "1")]
    assert topic.compact(after_ms=2 * DAY_MS) == CompactionReport(records_kept=3)
    topic.log.check()


def test_unchanged_batches_are_not_written_again() -> None:
    topic = Compacted()
    topic.write(("a", "1"), ("b", "1"))
    topic.write(("c", "1"))
    before = topic.rows()
    assert topic.compact() == CompactionReport(records_kept=3)
    assert topic.rows() == before


def test_pass_of_another_policy_or_that_is_not_due_changes_nothing() -> None:
    topic = Compacted(**{"min.cleanable.dirty.ratio": 1.0})
    topic.write(("a", "1"), ("a", "2"), seals=False)
    before = topic.log.objects()
    assert topic.compact(force=False) == CompactionReport()
    assert topic.log.changed_since(before) == []
    assert compact(topic.topic, topic.log.clock.wall_ms(), LIMITS) == CompactionReport()
    topic.log.admin.alter_topic_config("t", {"cleanup.policy": "delete"})
    before = topic.log.objects()
    assert topic.compact() == CompactionReport()
    assert topic.log.changed_since(before) == []


def test_pass_sees_what_other_processes_have_written_just_before() -> None:
    topic = Compacted()
    topic.topic.catch_up()
    producer = topic.log.elsewhere()
    for value in (b"1", b"2"):
        producer.send("t", key=b"a", value=value).get()
    assert topic.compact().records_removed == 1


def test_first_batch_of_a_journal_is_compacted_alone() -> None:
    """It is in slot 1, behind the entry that opens the topic."""
    topic = Compacted()
    topic.write(("a", "1"), ("a", "2"))
    (ref,) = topic.topic.state.sealed.roots()
    assert ref.last_slot == 1
    assert topic.compact().records_removed == 1
    assert topic.records() == [(1, "a", "2")]


@pytest.mark.parametrize(("keys_max", "read"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (100, 3)])
def test_pass_reads_whole_groups_until_it_has_keys_max_keys(keys_max: int, read: int) -> None:
    # Groups of one leaf each.
    topic = Compacted(**{"segment.bytes": 1_024})
    for number in range(3):
        topic.write((f"x{number}", LARGE), (f"y{number}", LARGE))
    leaves = topic.topic.state.sealed.roots()
    assert topic.compact(CompactionLimits(keys_max, 1_000_000)).records_kept == 2 * read
    assert topic.topic.state.cleaner.cleaned_slot == leaves[read - 1].last_slot
    kept = topic.compact().records_kept
    assert kept == 6, "the next pass continues, and goes through all"
    assert topic.topic.state.cleaner.cleaned_slot == leaves[-1].last_slot


def test_pass_ends_before_the_first_group_with_a_young_record() -> None:
    topic = Compacted(**{"min.compaction.lag.ms": 1_000, "segment.bytes": 1_024})
    topic.write(("a", LARGE))
    topic.write(("a", LARGE))
    topic.log.clock.advance(500)
    topic.write(("a", LARGE))
    leaves = topic.topic.state.sealed.roots()
    assert topic.compact(after_ms=499) == CompactionReport()
    assert topic.topic.state.cleaner.cleaned_slot == -1
    assert topic.compact(after_ms=500).records_removed == 1
    assert topic.topic.state.cleaner.cleaned_slot == leaves[1].last_slot
    assert [offset for offset, _, _ in topic.records()] == [1, 2]
    assert topic.compact(after_ms=1_000).records_removed == 1


@pytest.mark.parametrize(
    ("retention_ms", "expire_ms"), [(1_000, 1_001_000), (0, 1_000_000), (LONG_MAX, LONG_MAX)]
)
def test_tombstone_expires_delete_retention_after_the_pass_that_found_it(
    retention_ms: int, expire_ms: int
) -> None:
    topic = Compacted(**{"delete.retention.ms": retention_ms})
    topic.write(("a", "1"), ("a", None), ("b", "1"))
    assert topic.log.clock.wall_ms() == 1_000_000
    topic.compact()
    assert [row.delete_horizon_ms for row in topic.rows()] == [expire_ms]
    assert topic.topic.state.cleaner.delete_horizon_ms == expire_ms
    early = topic.compact(after_ms=expire_ms - 1_000_001)
    assert early == CompactionReport(records_kept=2)
    assert [row.delete_horizon_ms for row in topic.rows()] == [expire_ms], "it is not put off"
    done = topic.compact(after_ms=expire_ms - 1_000_000)
    assert (done.tombstones_removed, done.records_removed, done.records_kept) == (1, 1, 1)
    assert topic.topic.state.cleaner.delete_horizon_ms == -1
    assert [row.delete_horizon_ms for row in topic.rows()] == [-1]


def test_earliest_tombstone_says_when_the_topic_is_due_again() -> None:
    topic = Compacted(**{"delete.retention.ms": 1_000})
    topic.write(("a", "1"), ("a", None))
    topic.compact()
    topic.log.clock.advance(100)
    topic.write(("b", "1"), ("b", None))
    topic.compact()
    assert topic.topic.state.cleaner.delete_horizon_ms == 1_001_000
    assert [row.delete_horizon_ms for row in topic.rows()] == [1_001_000, 1_001_100]


@pytest.mark.in_log
def test_aborted_records_are_removed_and_supersede_none() -> None:
    topic = Compacted()
    topic.write(("a", "1"))
    producer = topic.log.producer("tx", transaction_records="in.log")
    producer.begin_transaction()
    producer.send("t", key=b"a", value=b"2", partition=0)
    producer.send("t", key=b"b", value=b"2", partition=0)
    producer.flush()
    producer.abort_transaction()
    topic.seal()
    assert topic.compact().records_removed == 2
    assert topic.records() == [(0, "a", "1")]
    assert [(row.row_count, row.record_count) for row in topic.rows()] == [(3, 1)]
    topic.log.check()


def test_records_below_the_log_start_are_removed_within_a_batch() -> None:
    topic = Compacted()
    topic.write(("a", "1"), ("b", "1"), ("c", "1"))
    topic.topic.execute(AdvanceLogStart({0: 1}))
    assert topic.compact() == CompactionReport(
        records_removed=1, records_kept=2, bytes_written=topic.rows()[0].length
    )
    assert topic.records() == [(1, "b", "1"), (2, "c", "1")]


def test_batches_below_the_log_start_leave_the_index() -> None:
    topic = Compacted()
    topic.write(("a", "1"), seals=False)
    topic.write(("b", "1"))
    topic.topic.execute(AdvanceLogStart({0: 1}))
    assert len(topic.rows()) == 2, "they are in one leaf"
    topic.compact()
    assert [row.base_offset for row in topic.rows()] == [1]


def typed(*fields: str, **config: object) -> tuple[MemoryLog, TopicLog]:
    """A typed topic that is compacted by its column `id`."""
    log = MemoryLog()
    schema = pa.schema([(name, pa.string()) for name in fields])
    config = {"cleanup.policy": "compact", "key.column": "id", **config}
    log.admin.create_topic("t", 1, schema=schema, config=config)
    return log, log.connection.cluster.topic("t")


def test_typed_tombstone_has_nulls_in_all_columns_but_the_key() -> None:
    log, topic = typed("a", "id", "b", **{"delete.retention.ms": 0})
    producer = log.producer()
    rows = [
        {"a": None, "id": "1", "b": None},
        {"a": "x", "id": "2", "b": None},
        {"a": None, "id": "3", "b": "x"},
    ]
    for row in rows:
        producer.send("t", row)
    producer.flush()
    compact(topic, log.clock.wall_ms(), LIMITS, force=True)
    done = compact(topic, log.clock.wall_ms(), LIMITS, force=True)
    assert (done.tombstones_removed, log.values("t")) == (1, rows[1:])


def test_topic_whose_only_column_is_the_key_has_no_tombstones() -> None:
    log, topic = typed("id", **{"delete.retention.ms": 0})
    producer = log.producer()
    for key in ("1", "2", "1"):
        producer.send("t", {"id": key})
    producer.flush()
    for _ in range(2):
        done = compact(topic, log.clock.wall_ms(), LIMITS, force=True)
        assert done.tombstones_removed == 0
    assert log.values("t") == [{"id": "2"}, {"id": "1"}]


def test_records_that_are_older_than_the_key_column_all_stay() -> None:
    log = MemoryLog()
    schema = pa.schema([("a", pa.string())])
    log.admin.create_topic("t", 1, schema=schema)
    producer = log.producer()
    for value in ("1", None):
        producer.send("t", {"a": value})
    producer.flush()
    log.admin.evolve_schema("t", schema.append(pa.field("id", pa.string())))
    changes = {"cleanup.policy": "compact", "key.column": "id", "delete.retention.ms": 0}
    log.admin.alter_topic_config("t", changes)
    later = log.elsewhere()
    for value in ("2", "3"):
        later.send("t", {"a": value, "id": "x"}).get()
    topic = log.connection.cluster.topic("t")
    for _ in range(2):
        compact(topic, log.clock.wall_ms(), LIMITS, force=True)
    expected = [("1", None), (None, None), ("3", "x")]
    assert [(row["a"], row["id"]) for row in log.values("t")] == expected
