"""The end: whatever the stages before have left in the log, it keeps every invariant."""

from tests.log_place import LogPlace
from txlog.testing.invariants import check_log, log_facts


def test_the_log_of_the_whole_story_keeps_its_invariants(place: LogPlace) -> None:
    topic = place.topic("last")
    producer = place.producer(place.name("last"))
    with producer.transaction():
        producer.send(topic, b"x")
    producer.close()
    assert check_log(place.process()) == []
    assert log_facts(place.process()).topics
