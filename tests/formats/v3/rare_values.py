"""Events and fields that common use does not produce, for the golden log.

Each function adds some to a log; `make_golden.py` calls them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.logs.memory_log import MemoryLog
from txlog.client.half_messages.dead_letter import DEAD_LETTER_TOPIC, letters
from txlog.client.half_messages.half_message import Message
from txlog.client.half_messages.half_store import read_half
from txlog.client.half_messages.transaction_mq_producer import TransactionMQProducer
from txlog.client.producer.producer import Producer
from txlog.coordinator import state
from txlog.coordinator.coordinator import coordinator_number_of
from txlog.coordinator.events import (
    GroupReleased,
    OffsetRange,
    Participant,
    ParticipantsAdded,
    ReplayMark,
)
from txlog.engine.large_transactions import decidable
from txlog.engine.producer_config import STAGED
from txlog.engine.transaction_session import TransactionSession
from txlog.groups.state import UNCHECKED, PendingOffset
from txlog.topic.events import SealIndex
from txlog.topic.records.conversion import with_timestamp
from txlog.topic.records.python_rows import record_batch_from_rows
from txlog.topic.upkeep.compaction import CompactionLimits, compact

EVERY_CONFIG = {
    "compression.type": "lz4",
    "max.message.bytes": 1_000_000,
    "key.column": "key",
    "cleanup.policy": "compact,delete",
    "retention.ms": 1 << 40,
    "retention.bytes": 1 << 40,
    "delete.retention.ms": 1_000,
    "min.compaction.lag.ms": 1_000,
    "max.compaction.lag.ms": 1 << 40,
    "min.cleanable.dirty.ratio": 0.25,
    "segment.bytes": 1_048_576,
    "message.timestamp.type": "LogAppendTime",
    "message.timestamp.before.max.ms": 1 << 40,
    "message.timestamp.after.max.ms": 1_000,
}
"""No value is a default."""


def make_forgotten(log: MemoryLog) -> None:
    """Dropped outcomes, which a coordinator drops after 16,384 others: of an id that still exists,
    and of one that has expired. The entries that they follow from are pruned."""
    names = (f"id {number}" for number in range(20))
    first, second, *_ = (name for name in names if coordinator_number_of(name, 2) == 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "OUTCOME_GENERATION", 1)
        patch.setattr(state, "OUTCOME_GENERATIONS_MAX", 1)
        for tag, name in enumerate((first, second) * 2):
            session = TransactionSession(log.connection, name)
            session.register("i")
            session.begin(f"tag {tag}")
            session.commit()
            session.join()
    coordinator = log.connection.coordinator_of(first)
    log.clock.now_ms += 1_000
    TransactionSession(log.connection, first).register("i")
    coordinator.expire_ids(log.clock.wall_ms() - 500)
    coordinator.journal.prune(keep_entries=0)


def make_checked(log: MemoryLog, listener: Any) -> None:
    """Half transactions that were checked: one still open, one given up, one being given up."""
    log.admin.create_topic("orders", 1)
    producer = TransactionMQProducer(
        "checked-group",
        log.connection,
        listener=listener,
        transaction_check_interval_ms=20_000,
        transaction_check_max=1,
    )
    producer.start(check_in_background=False)
    for name in ("asked", "given up", "being given up"):
        producer.send_half(Message("orders", name.encode()), transaction_id=name)
    log.clock.now_ms += 7_000
    producer.check()
    process = log.process()
    for coordinator in process.coordinators():
        for name, transaction in list(coordinator.catch_up().open_transactions()):
            if transaction.tag != "asked":
                letter = letters(process, DEAD_LETTER_TOPIC, read_half(process, transaction))
                tx_id = transaction.tx_id
                coordinator.prepare_commit(name, tx_id, (letter,), dead_letter=True)
            if transaction.tag == "given up":
                coordinator.finish(name, transaction.tx_id)


def make_changed_topic(log: MemoryLog) -> None:
    """A topic with more partitions and another configuration than at its creation."""
    log.admin.create_topic("changed", 1)
    log.admin.create_partitions("changed", 2)
    log.admin.alter_topic_config("changed", EVERY_CONFIG)


def make_ended_early(log: MemoryLog) -> None:
    """A late participant, an abort with a pend, a transaction decided and not applied, one that
    ends its epoch, one unknown to the coordinator, and a group without an owner."""
    process = log.process()
    topic = process.cluster.topic("small")
    for name in ("early", "cut off", "fenced"):
        group, session = f"group of {name}", TransactionSession(process, name)
        session.register("i", groups=(group,))
        session.begin("a tag")
        coordinator = process.coordinator_of(name)
        for _ in range(2):
            session.declare(topic, {0})
            topic = process.cluster.topic("plain")
        coordinator.execute(ParticipantsAdded(name, session.tx_id, (), (group,)))
        if name == "cut off":
            coordinator.prepare_abort(name, session.tx_id, fence=True)
            continue
        if name == "fenced":
            coordinator.abort(name, session.tx_id, fence=True)
            continue
        session.pend(group, (PendingOffset("plain", topic.topic_id, 0, 0, 1),))
        session.abort()
        coordinator.execute(GroupReleased(group))
        never = replace(session.tx_id, number=session.tx_id.number + 1)
        coordinator.prepare_abort(name, never)


def make_labelled(log: MemoryLog) -> None:
    """A write in a `foreachBatch`."""
    session = TransactionSession(log.process(), "spark.other.left")
    session.register("run", is_run=True, may_skip=True)
    session.begin()
    session.commit((), ReplayMark("other", 0, (OffsetRange("g", "long", 0, 0, 1),), "plan", "left"))
    session.join()


def make_replaced(log: MemoryLog) -> None:
    """A group with a position in a topic that was deleted and created again."""
    for _ in range(2):
        process = log.process()
        log.admin.create_topic("returned", 1)
        topic = process.cluster.topic("returned")
        where = PendingOffset("returned", topic.topic_id, 0, UNCHECKED, 0, "note")
        known = process.offsets.group("returning").committed.get(where.where)
        old = process.offsets.replaced(where.where, topic.topic_id, known)
        process.offsets.commit("returning", (replace(where, replaced=old),))
        if not old:
            log.admin.delete_topics(["returned"])


def make_cleaned_again(log: MemoryLog) -> None:
    """Chunks that replaced others are replaced, too. They contain records of a transaction of
    several topics, committed or not."""
    topic = log.process().cluster.topic("newest")
    producer = log.elsewhere("cleaned")
    for number in range(4):
        producer.begin_transaction()
        for name in ("newest", "merged"):
            producer.send(name, b"%d" % number, key=b"key")
        producer.flush()
        producer.abort_transaction() if number == 1 else producer.commit_transaction()
        if number >= 2:
            topic.execute(SealIndex())
            limits = CompactionLimits(keys_max=100, batch_bytes=2_000)
            compact(topic, log.clock.wall_ms(), limits, force=True)
    producer.close()


def make_buried(log: MemoryLog) -> None:
    """The last boundary of a deleted topic."""
    log.admin.create_topic("buried", 1)
    topic = log.process().cluster.topic("buried")
    log.admin.delete_topics(["buried"])
    topic.journal.close()


def make_large(log: MemoryLog) -> None:
    """Transactions with manifests: one with its parts in a chunk, one with parts in the tail, and
    one that is decided and has no marker."""
    log.admin.create_topic("wide", 2)
    process = log.process()
    process.entry_batches_max = 0
    producer = Producer(process, transactional_id="wide", transaction_records=STAGED)
    producer.init_transactions()
    for number in range(3):
        with producer.transaction():
            for value in (b"large %d" % number, b"again %d" % number):
                for partition in (0, 1):
                    producer.send("wide", value, partition=partition, timestamp_ms=7)
                producer.flush()
    producer.close()
    topic = process.cluster.topic("wide")
    topic.catch_up()
    rows = [{"key": None, "value": b"decided", "headers": None}]
    stored = with_timestamp(record_batch_from_rows(rows, topic.schema()), 7)
    segments = tuple(topic.stage({partition: [stored]}, 0) for partition in (0, 1))
    session = TransactionSession(process, "wide decided")
    session.register("i")
    session.begin()
    named = decidable(process, (Participant(topic.topic_id, "wide", (), segments),))
    coordinator = process.coordinator_of("wide decided")
    coordinator.prepare_commit(session.transactional_id, session.tx_id, named, (), None, "")
