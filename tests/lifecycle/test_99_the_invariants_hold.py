"""The end: the log that the earlier stages used keeps every invariant."""

import pytest

from tests.lifecycle.log_place import LogPlace
from txlog.verify.invariants import check_log


# In a bucket reading each of thousands of objects would take a request.
@pytest.mark.parametrize("place", ["disk", "memory"], indirect=True)
def test_log_of_all_stages_keeps_its_invariants(place: LogPlace) -> None:
    topic = place.topic("last")
    producer = place.producer(place.name("last"))
    with producer.transaction():
        producer.send(topic, b"x")
    producer.close()
    assert check_log(place.process()) == []
