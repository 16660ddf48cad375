"""The end: whatever the stages before have left in the log, it keeps every invariant."""

import pytest

from tests.lifecycle.log_place import LogPlace
from txlog.testing.invariants import check_log


# In a bucket each of thousands of objects would be a request.
@pytest.mark.parametrize("place", ["disk", "memory"], indirect=True)
def test_the_log_of_the_whole_story_keeps_its_invariants(place: LogPlace) -> None:
    topic = place.topic("last")
    producer = place.producer(place.name("last"))
    with producer.transaction():
        producer.send(topic, b"x")
    producer.close()
    assert check_log(place.process()) == []
