"""Stage 13: the log grows past its snapshots, is pruned, and opens as quickly as before."""

from contextlib import suppress

from tests.lifecycle.log_place import LogPlace
from txlog.testing.counting_store import CountingStore
from txlog.topic.upkeep.moving import move_records
from txlog.topic.upkeep.rewriting import OVERTAKEN

COMMITS = 40
"""Each is two entries of the topic's journal; a snapshot is due after 64."""


def test_long_log_opens_with_few_requests_and_is_complete_after_pruning(place: LogPlace) -> None:
    topic = place.topic("events")
    producer = place.producer(place.name("writer"), transaction_records="in.log")
    for number in range(COMMITS):
        with producer.transaction():
            producer.send(topic, b"%d" % number)
    counting = CountingStore(place.store)
    opened = place.process(counting).cluster.topic(topic)
    counting.reset()
    assert opened.catch_up().end_offset(0) == COMMITS
    counts = counting.snapshot()
    assert (counts.puts, counts.lists) == (0, 0)
    assert counts.of("get", "entry") < 64
    pruned = place.process().cluster.topic(topic)
    with suppress(*OVERTAKEN):  # The producer's process moves records in the background.
        move_records(pruned)
    # In a bucket entries are kept until their boundary is old enough (R14).
    assert pruned.journal.prune(keep_entries=20) + pruned.journal.kept_entries >= 61
    assert place.values(topic) == [b"%d" % number for number in range(COMMITS)]
    with producer.transaction():
        producer.send(topic, b"after")
    assert place.values(topic)[-1] == b"after"
