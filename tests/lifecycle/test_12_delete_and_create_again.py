"""Stage 12: a topic is deleted and created again as another topic with the same name."""

import pyarrow as pa
import pytest

from tests.lifecycle.log_place import LogPlace
from txlog.errors import UnknownTopic
from txlog.model import TopicPartition


def test_R11_recreated_topic_contains_nothing_of_the_deleted_one(place: LogPlace) -> None:
    topic, group = place.topic("events", 2), place.name("group")
    producer = place.producer(place.name("writer"))
    with producer.transaction():
        producer.send(topic, b"old", partition=0)
    where = TopicPartition(topic, 0)
    place.consumer(topic, group_id=group).commit({where: 1})
    waiting = place.producer()
    waiting.send(topic, b"for the old one")
    place.admin().delete_topics([topic])
    with pytest.raises(UnknownTopic):
        place.consumer().end_offsets([where])
    place.admin().create_topic(topic, 1, pa.schema([("id", pa.int64())]))
    with pytest.raises(UnknownTopic, match="was deleted while it was in use"):
        waiting.flush()
    with producer.transaction():
        producer.send(topic, {"id": 7})
    assert place.values(topic, group_id=group) == [{"id": 7}]
    assert place.consumer(topic, group_id=group).committed(where) is None
