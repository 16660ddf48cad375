"""A consumer's commits whose answer was lost: the next commit finds out whether they succeeded."""

import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import Late, answer_lost, failing, never_lands
from txlog.client.consumer.consumer import Consumer
from txlog.errors import CommitFailed, OutcomeUnknown, StoreDenied
from txlog.model import TopicPartition

U0 = TopicPartition("u", 0)
ENTRY = "transactions/.*/entries"


def reader(log: MemoryLog) -> Consumer:
    """A consumer of group `g` on a scripted store; it has read two of six records."""
    producer = log.producer()
    for number in range(6):
        producer.send("u", b"%d" % number)
    producer.close()
    consumer = Consumer(
        "u",
        root=log.connection,
        group_id="g",
        auto_offset_reset="earliest",
        max_poll_records=2,
        enable_auto_commit=False,
    )
    consumer.poll()
    return consumer


def committed(log: MemoryLog) -> int:
    return log.process().offsets.group("g").committed[U0].offset


@pytest.mark.parametrize("reads_on", [True, False])
@pytest.mark.parametrize("has_landed", [True, False])
def test_I13_commit_with_lost_answer_can_be_repeated(
    log: MemoryLog, has_landed: bool, reads_on: bool
) -> None:
    consumer = reader(log)
    log.store.on("create", ENTRY, never_lands, times=100)
    if has_landed:
        log.store.on("create", ENTRY, answer_lost)
    with pytest.raises(OutcomeUnknown):
        consumer.commit()
    log.store.heal()
    if reads_on:
        consumer.poll()
    consumer.commit()
    assert committed(log) == consumer.position(U0) == (4 if reads_on else 2)


def test_I13_late_landing_of_first_of_two_unanswered_commits_is_recognised(
    log: MemoryLog,
) -> None:
    consumer = reader(log)
    late = Late()
    log.store.on("create", ENTRY, never_lands, times=100)
    log.store.on("create", ENTRY, late)
    with pytest.raises(OutcomeUnknown):
        consumer.commit()
    consumer.poll()
    with pytest.raises(OutcomeUnknown):
        consumer.commit()
    log.store.heal()
    late.land()
    assert committed(log) == 2
    consumer.commit()
    assert committed(log) == 4


def test_I6_commit_by_another_instance_is_detected_after_unanswered_commit(log: MemoryLog) -> None:
    consumer = reader(log)
    log.store.on("create", ENTRY, never_lands, times=100)
    with pytest.raises(OutcomeUnknown):
        consumer.commit()
    log.store.heal()
    other = log.consumer("u", group_id="g", max_poll_records=3)
    other.poll()
    other.commit()
    with pytest.raises(CommitFailed, match="another instance of the group"):
        consumer.commit()
    assert committed(log) == 3


def test_I6_refused_commit_is_not_taken_for_stored_once_another_reaches_its_offset(
    log: MemoryLog,
) -> None:
    consumer = reader(log)
    other = log.consumer("u", group_id="g", max_poll_records=1)
    for _ in range(2):
        other.poll()
        other.commit()
        with pytest.raises(CommitFailed, match="another instance of the group"):
            consumer.commit()
    assert committed(log) == 2


def test_I13_refused_commit_does_not_hide_an_earlier_one_that_lands_late(log: MemoryLog) -> None:
    consumer = reader(log)
    late = Late()
    log.store.on("create", ENTRY, never_lands, times=100)
    log.store.on("create", ENTRY, late)
    with pytest.raises(OutcomeUnknown):
        consumer.commit()
    consumer.poll()
    log.store.heal()
    log.store.on("create", ENTRY, failing(StoreDenied("not allowed; allow it.")), times=100)
    with pytest.raises(StoreDenied):
        consumer.commit()
    log.store.heal()
    late.land()
    assert committed(log) == 2
    consumer.commit()
    assert committed(log) == 4


@pytest.mark.parametrize("is_whole_group", [True, False])
def test_commit_stores_offsets_that_were_deleted_meanwhile(
    log: MemoryLog, is_whole_group: bool
) -> None:
    """Also those of partitions where nothing was read since: with `auto.offset.reset=latest` the
    next start would skip records there."""
    producer = log.elsewhere()
    for partition in (0, 1):
        producer.send("t", b"x", partition=partition)
    producer.flush()
    consumer = log.consumer("t", group_id="g")
    consumer.poll()
    consumer.commit()
    if is_whole_group:
        log.admin.delete_group("g")
    else:
        log.admin.delete_group_offsets("g", [TopicPartition("t", 0), TopicPartition("t", 1)])
    producer.send("t", b"x", partition=0).get()
    consumer.poll()
    consumer.commit()
    found = log.process().offsets.group("g").committed
    assert {where.partition: at.offset for where, at in found.items()} == {0: 2, 1: 1}
