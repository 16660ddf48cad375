"""Makes the golden log of format version 3: `python -m tests.formats.v3.make_golden`.

Every later txlog must read a log that a released txlog wrote, so once version 3 is released,
`log.tar.xz` and `expected.json` are never changed. The log holds every event, and every field with
a value that is not its default. Clock and identifiers are seeded, so that the program always makes
the same log.
"""

from __future__ import annotations

import datetime as dt
import io
import json
import tarfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from spark_plugin.source.offsets import encode
from tests.formats.golden_view import view
from tests.formats.v3 import rare_values as rare
from tests.logs.memory_log import MemoryLog
from tests.unit.spark_plugin.offset_lines import offset_of
from txlog.client.half_messages.half_message import HalfTransaction, LocalTransactionState, Message
from txlog.client.half_messages.transaction_mq_producer import TransactionMQProducer
from txlog.coordinator.events import OffsetRange, Participant, ReplayMark, StagingHorizonAdvanced
from txlog.engine import connection
from txlog.engine.transaction_session import TransactionSession
from txlog.groups.state import PendingOffset
from txlog.layout import segment_id_at
from txlog.model import OffsetAndMetadata, TopicPartition, TxId
from txlog.settings import LogSettings
from txlog.topic.events import AdvanceHorizon, RetireProducers, SealIndex
from txlog.topic.records.conversion import with_timestamp
from txlog.topic.records.python_rows import record_batch_from_rows
from txlog.topic.upkeep.compaction import CompactionLimits, compact
from txlog.topic.upkeep.merging import merge_segments
from txlog.verify.invariants import check_log

FOLDER = Path(__file__).parent
SETTINGS = LogSettings(
    transaction_state_log_num_partitions=2,
    journal_snapshot_entries=2,
    boundary_trust_ms=500,
    boundary_grace_ms=1_000,
    entry_records_max_bytes=1_000,
)
FIRST_MS = 1_700_000_000_000
LONG = 140
"""The number of records in topic `long`, one per entry: enough for chunks to be packed into a
node."""
STEP = 40
"""The number of these records that one micro-batch reads."""

TYPED = pa.schema(
    [
        pa.field("id", pa.int32(), nullable=False),
        pa.field("flag", pa.bool_()),
        pa.field("small", pa.uint8()),
        pa.field("ratio", pa.float32()),
        pa.field("text", pa.string()),
        pa.field("raw", pa.binary()),
        pa.field("fixed", pa.binary(3)),
        pa.field("day", pa.date32()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("local", pa.timestamp("ms")),
        pa.field("clock", pa.time64("us")),
        pa.field("span", pa.duration("s")),
        pa.field("price", pa.decimal128(12, 3)),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("place", pa.struct([("x", pa.int64()), ("y", pa.float64())])),
        pa.field("counts", pa.map_(pa.string(), pa.int64())),
    ]
)
EVOLVED = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        *(f for f in TYPED if f.name not in ("id", "ratio", "price")),
        pa.field("ratio", pa.float64()),
        pa.field("price", pa.decimal128(20, 3)),
        pa.field("added", pa.string()),
    ]
)
ROW = {
    "id": 7,
    "flag": True,
    "small": 255,
    "ratio": 0.5,
    "text": "naïve ☃ \x00",
    "raw": b"\xff\x00",
    "fixed": b"abc",
    "day": dt.date(2013, 1, 1),
    "at": dt.datetime(2013, 1, 1, 5, 15, tzinfo=dt.UTC),
    "local": dt.datetime(1969, 12, 31, 23, 59, 59, 1000),  # noqa: DTZ001 - it has none
    "clock": dt.time(5, 15, 0, 1),
    "span": dt.timedelta(seconds=-3),
    "price": Decimal("-12.345"),
    "tags": ["a", None, ""],
    "place": {"x": 1, "y": None},
    "counts": [("k", 1), ("l", None)],
}
EMPTY = dict.fromkeys(ROW) | {"id": -1}


class _Asked:
    """Commits half transactions named `paid`, rolls back `void`, and leaves others undecided."""

    def execute_local_transaction(self, half: HalfTransaction, arg: Any) -> LocalTransactionState:
        states = LocalTransactionState
        if half.transaction_id.startswith("paid"):
            return states.COMMIT_MESSAGE
        return states.ROLLBACK_MESSAGE if half.transaction_id == "void" else states.UNKNOW

    def check_local_transaction(self, half: HalfTransaction) -> LocalTransactionState:
        return LocalTransactionState.UNKNOW


def make() -> tuple[MemoryLog, list[str]]:
    """The log, and the transactions and tags whose outcomes the view shows."""
    log = MemoryLog(SETTINGS, transaction_records="in.log")
    log.producer("idle")
    log.clock.now_ms = float(FIRST_MS - 100_000)
    rare.make_forgotten(log)
    rare.make_checked(log, _Asked())
    log.clock.now_ms = float(FIRST_MS)
    log.admin.create_topic("plain", 2)
    log.admin.create_topic("typed", 1, TYPED, {"compression.type": "lz4", "key.column": "text"})
    log.admin.create_topic("small", 1, config={"compression.type": "zstd"})
    log.admin.create_topic("long", 1)
    log.admin.create_topic("newest", 1, config={"cleanup.policy": "compact"})
    log.admin.create_topic("merged", 1)
    log.admin.alter_topic_config("plain", {"max.message.bytes": 2_000_000})
    make_deleted(log)
    asked = [str(tx_id) for tx_id in make_plain(log)]
    make_typed(log)
    make_long(log)
    asked += [str(tx_id) for tx_id in make_staged(log)]
    make_half(log)
    make_groups(log)
    make_cleaned(log)
    rare.make_changed_topic(log)
    rare.make_ended_early(log)
    rare.make_labelled(log)
    rare.make_replaced(log)
    rare.make_cleaned_again(log)
    rare.make_buried(log)
    rare.make_large(log)
    log.process().cluster.topic("plain").journal.prune(keep_entries=6)
    log.clock.advance(SETTINGS.boundary_grace_ms + 1)
    log.process().cluster.topic("plain").journal.prune(keep_entries=6)
    return log, [*asked, "order-1", "paid", "open", "9-9-9"]


def make_deleted(log: MemoryLog) -> None:
    """Topics of which one was deleted with its files, and one was created again under its name."""
    for name in ("gone", "again"):
        log.admin.create_topic(name, 1)
        producer = log.producer()
        producer.send(name, b"old")
        producer.flush()
        log.admin.delete_topics([name])
    log.admin.create_topic("again", 1)
    producer = log.producer()
    producer.send("again", b"new", timestamp_ms=FIRST_MS)
    producer.flush()


def make_plain(log: MemoryLog) -> list[TxId]:
    """Records outside of transactions, committed, tagged and aborted ones, and a fenced
    instance."""
    producer = log.producer()
    producer.send("plain", b"v", key=b"k", headers=[("h", b"1"), ("h", None)], timestamp_ms=5)
    producer.send("plain", None, key=None, partition=1, timestamp_ms=FIRST_MS)
    producer.flush()
    found = []
    log.producer("shop")
    shop = log.elsewhere("shop")
    for number, ending in enumerate(("commit", "abort", "tagged", "commit")):
        found.append(shop.begin_transaction("order-1" if ending == "tagged" else ""))
        for partition in (0, 1):
            shop.send("plain", b"%s %d" % (ending.encode(), number), partition=partition)
        shop.send("small", b"small " * 50)
        if ending == "abort":
            shop.flush()
            shop.abort_transaction()
        else:
            where = TopicPartition("plain", 0)
            shop.send_offsets_to_transaction({where: OffsetAndMetadata(number, "note")}, "billing")
            shop.commit_transaction()
    shop.close()
    return found


def make_typed(log: MemoryLog) -> None:
    """Records of both schemas."""
    producer = log.producer()
    for row in (ROW, EMPTY):
        producer.send("typed", row, timestamp_ms=FIRST_MS)
    producer.flush()
    log.admin.evolve_schema("typed", EVOLVED)
    producer.send("typed", {**ROW, "id": 1 << 40, "added": "new"}, timestamp_ms=FIRST_MS)
    producer.flush()


def make_long(log: MemoryLog) -> None:
    """One record per entry."""
    producer = log.producer()
    for number in range(LONG):
        producer.send("long", b"%d" % number, timestamp_ms=FIRST_MS + number)
        producer.flush()


def make_staged(log: MemoryLog) -> list[TxId]:
    """The state that a Spark query leaves: two batches complete, one decided and not applied."""
    process = log.process()
    session = TransactionSession(process, "spark.query", "copier")
    for run in ("first run", "run"):
        session.register(run, is_run=True, groups=("copier",))
    found = []
    for batch in range(2):
        found.append(session.begin())
        _pend(session, log, batch)
        session.commit((_staged(log, batch),), _mark(batch))
        session.join()
    found.append(session.begin())
    _pend(session, log, 2)
    coordinator = process.coordinator_of("copier")
    name = session.transactional_id
    coordinator.prepare_commit(name, session.tx_id, (_staged(log, 2),), ("copier",), _mark(2), "")
    return found


def _pend(session: TransactionSession, log: MemoryLog, batch: int) -> None:
    topic_id = log.process().cluster.topic("long").topic_id
    moved = PendingOffset("long", topic_id, 0, STEP * batch, STEP * batch + STEP)
    session.pend_staged("copier", (moved,))


def _mark(batch: int) -> ReplayMark:
    moved = OffsetRange("copier", "long", 0, STEP * batch, STEP * batch + STEP)
    return ReplayMark("query", batch, (moved,), f"fingerprint {batch}")


def _staged(log: MemoryLog, batch: int) -> Participant:
    topic = log.process().cluster.topic("plain")
    topic.catch_up()
    rows = [{"key": None, "value": b"staged %d" % batch, "headers": None}]
    stored = with_timestamp(record_batch_from_rows(rows, topic.schema()), FIRST_MS)
    return Participant(topic.topic_id, "plain", (), (topic.stage({0: [stored]}, 0),))


def make_half(log: MemoryLog) -> None:
    """Half transactions: one that is never decided, and others that end before it, each with
    messages to two topics."""
    producer = TransactionMQProducer("shop-group", log.connection, listener=_Asked())
    producer.start(check_in_background=False)
    for name in ("open", "paid", "paid too", "void"):
        messages = [
            Message(topic, b"half " + name.encode(), b"k", [("n", b"1")], 0, FIRST_MS)
            for topic in ("plain", "small")
        ]
        producer.send_message_in_transaction(messages, transaction_id=name)


def make_groups(log: MemoryLog) -> None:
    """A group that was moved by its own commits, one with a deleted position, a deleted group, a
    pend."""
    consumer = log.consumer("long", group_id="reader")
    consumer.commit({TopicPartition("long", 0): OffsetAndMetadata(125, "half way")})
    offsets = log.process().offsets
    for group in ("forgotten", "partly"):
        log.consumer("plain", group_id=group).commit(
            {TopicPartition("plain", 0): 1, TopicPartition("plain", 1): 1}
        )
    offsets.delete("forgotten")
    offsets.delete_offsets("partly", (TopicPartition("plain", 1),))
    late = log.elsewhere("late", transaction_timeout_ms=900_000)
    late.begin_transaction()
    late.send("plain", b"open", partition=1)
    late.flush()
    late.send_offsets_to_transaction({TopicPartition("long", 0): 130}, "reader")


def without_old_snapshots(log: MemoryLog) -> None:
    """Keep the newest snapshot of each journal, and those that boundaries name: others may vanish
    (R16)."""
    objects = log.objects()
    named = set()
    for path in objects:
        folder, is_boundary, _ = path.partition("/boundaries/")
        if is_boundary:
            slot = json.loads(objects[path].split(b"\n")[1])["snapshot_slot"]
            named.add(f"{folder}/snapshots/{slot:020d}.arrow")
    newest: dict[str, str] = {}
    for path in sorted(objects):
        folder, is_snapshot, _ = path.partition("/snapshots/")
        if is_snapshot:
            if folder in newest and newest[folder] not in named:
                log.memory.delete(newest[folder])
            newest[folder] = path


def make_cleaned(log: MemoryLog) -> None:
    """The results of maintenance: compacted, merged and truncated topics, a horizon, a retired
    producer."""
    producer = log.producer()
    for number in range(20):
        key = b"key %d" % (number % 3)
        value = None if number == 18 else b"value %d" % number
        producer.send("newest", value, key=key, timestamp_ms=FIRST_MS + number)
        producer.send("merged", b"merged %d" % number, timestamp_ms=FIRST_MS + number)
        producer.flush()
    newest, merged = (log.connection.cluster.topic(name) for name in ("newest", "merged"))
    now_ms = log.clock.wall_ms()
    for topic in (newest, merged):
        topic.execute(SealIndex())
    limits = CompactionLimits(keys_max=100, batch_bytes=2_000)
    compact(newest, now_ms, limits, force=True)
    merge_segments(merged, 2_000)
    merge_segments(log.connection.cluster.topic("long"), 2_000, LONG + 1)  # Only noted: too few.
    log.admin.delete_records({TopicPartition("merged", 0): 4})
    for topic in (newest, merged):
        topic.execute(AdvanceHorizon(segment_id_at(now_ms - 1)))
    newest.execute(RetireProducers(tuple(newest.state.producers)[:1], now_ms + 1))
    for coordinator in log.connection.coordinators():
        coordinator.execute(StagingHorizonAdvanced(segment_id_at(now_ms - 1)))
        coordinator.expire_ids(FIRST_MS - 1)


def offset_line(log: MemoryLog) -> str:
    """The line that the source writes into Spark's checkpoint."""
    cluster = log.process().cluster
    topic_id = cluster.topic("long").topic_id
    ranges = {0: (STEP, 2 * STEP)}
    return encode(offset_of(ranges, "long", topic_id, "copier", cluster.log_id))


def main() -> None:
    """Write `log.tar.xz` and `expected.json` to this folder."""
    connection.writer_name = lambda: "golden"  # Otherwise entries would have the machine's name.
    log, asked = make()
    without_old_snapshots(log)
    found = check_log(log.process())
    if found:
        raise SystemExit("\n".join(map(str, found)))
    objects = log.objects()
    shown = MemoryLog(objects=objects)
    shown.clock.now_ms = FIRST_MS + 1000.0
    with tarfile.open(FOLDER / "log.tar.xz", "w:xz", preset=9) as archive:
        for path, data in sorted(objects.items()):
            entry = tarfile.TarInfo(path)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    expected = {
        "asked": asked,
        "offset": offset_line(log),
        "view": view(shown.process(), asked),
    }
    text = json.dumps(expected, indent=1, sort_keys=True)
    (FOLDER / "expected.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
