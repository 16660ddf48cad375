"""A writer is suspended after its entry is stored, and the journal is pruned past it (R15, I13).

The writer cannot tell whether its entry counts. With a producer id the append is decided again and
recognised by its sequences; without one it would be another append.
"""

import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import preceded_by
from txlog.errors import OutcomeUnknown


def prune_behind_the_next_entry(log: MemoryLog) -> None:
    """Prune between the writer's entry and its read of the boundary."""

    def elsewhere() -> None:
        other = log.process()
        producer = log.elsewhere()
        for _ in range(3):
            producer.send("u", b"other").get()
        topic = other.cluster.topic("u")
        topic.catch_up()
        topic.journal.prune(1)

    def once_created() -> None:
        log.store.on("get", "topics/u/.*/boundaries/", preceded_by(elsewhere))

    log.store.on("create", "topics/u/.*/entries", preceded_by(once_created))


@pytest.mark.segments
def test_I13_append_without_producer_id_and_retries_raises_outcome_unknown(
    log: MemoryLog,
) -> None:
    producer = log.producer(enable_idempotence=False, retries=0)
    producer.send("u", b"first").get()
    prune_behind_the_next_entry(log)
    with pytest.raises(OutcomeUnknown, match="carry it out twice"):
        producer.send("u", b"mine").get()
    assert log.values("u") == [b"first", b"mine", *[b"other"] * 3], "it counted, and is there once"
    log.check()


@pytest.mark.segments
def test_append_without_idempotence_is_retried_and_stored_twice(log: MemoryLog) -> None:
    producer = log.producer(enable_idempotence=False)
    producer.send("u", b"first").get()
    prune_behind_the_next_entry(log)
    producer.send("u", b"mine").get()
    assert log.values("u") == [b"first", b"mine", *[b"other"] * 3, b"mine"]


def test_I7_append_with_producer_id_is_stored_once_and_acknowledged(log: MemoryLog) -> None:
    producer = log.producer()
    producer.send("u", b"first").get()
    prune_behind_the_next_entry(log)
    assert producer.send("u", b"mine").get().offset == 1
    assert log.values("u") == [b"first", b"mine", *[b"other"] * 3]
    log.check()
