"""Stage 8: a process dies at any of its writes, and the next instance finds all or nothing."""

import pytest

from tests.lifecycle.log_place import LogPlace
from tests.stores.faulty_stores import DyingStore, ProcessDied
from txlog.client.producer.producer import Producer
from txlog.engine.producer_config import IN_LOG, STAGED
from txlog.model import TopicPartition, TransactionOutcome

WRITES = {STAGED: 7, IN_LOG: 11}
"""For the topic of large records the segment, in the log for both topics also the declaration and
the append; the pend, PREPARE, two markers, the offsets, COMPLETE."""

PREPARE = {STAGED: 2, IN_LOG: 6}
LARGE = [("large", bytes(70_000))]


STEPS = [
    (records, write, after)
    for records, writes in WRITES.items()
    for write in range(writes)
    for after in (False, True)
]
IN_A_BUCKET = [
    *((STAGED, *step) for step in [(0, True), (2, False), (2, True), (4, False), (6, True)]),
    *((IN_LOG, *step) for step in [(0, True), (4, True), (6, False), (6, True), (8, False)]),
    (IN_LOG, 10, True),
]
"""In a bucket a step takes long, so that only some steps are tested."""


@pytest.mark.parametrize("place", ["disk", "memory"], indirect=True)
@pytest.mark.parametrize(("records", "write", "after"), STEPS)
def test_crash_at_any_write_leaves_the_transaction_whole_or_absent(
    place: LogPlace, records: str, write: int, after: bool
) -> None:
    _die_and_recover(place, records, write, after)


@pytest.mark.s3
@pytest.mark.parametrize("place", ["bucket"], indirect=True)
@pytest.mark.parametrize(("records", "write", "after"), IN_A_BUCKET)
def test_crash_in_a_bucket_leaves_the_transaction_whole_or_absent(
    place: LogPlace, records: str, write: int, after: bool
) -> None:
    _die_and_recover(place, records, write, after)


def _die_and_recover(place: LogPlace, records: str, write: int, after: bool) -> None:
    topics, group, name = [place.topic(), place.topic()], place.name("group"), place.name("writer")
    where = TopicPartition(topics[0], 0)
    place.producer().send(topics[0], b"source").get()
    # The log is shared with other tests: its journals may be due for a snapshot here.
    store = DyingStore(place.store, counts_upkeep=False)
    producer = Producer(place.process(store), transactional_id=name, transaction_records=records)
    producer.init_transactions()
    tx_id = producer.begin_transaction()
    store.die_at(write, after=after)
    with pytest.raises(ProcessDied):
        _fill_and_commit(producer, topics, group)

    successor = place.producer(name)
    expected = TransactionOutcome.ABORTED
    if (write, after) >= (PREPARE[records], True):
        expected = TransactionOutcome.COMMITTED
    assert place.admin().outcome(tx_id) is expected
    is_in = expected is TransactionOutcome.COMMITTED
    assert place.values(*topics) == [b"source", *[b"x"] * (2 * is_in)]
    assert place.consumer(topics[0], group_id=group).committed(where) == (1 if is_in else None)

    successor.begin_transaction()
    _fill_and_commit(successor, topics, group)
    assert place.values(topics[1]) == [b"x"] * (1 + is_in)


def _fill_and_commit(producer: Producer, topics: list[str], group: str) -> None:
    producer.send(topics[0], b"x", headers=LARGE)
    producer.flush()
    producer.send(topics[1], b"x")
    if producer.config.transaction_records == IN_LOG:
        producer.flush()
    producer.send_offsets_to_transaction({TopicPartition(topics[0], 0): 1}, group)
    producer.commit_transaction()
