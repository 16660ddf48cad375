"""Stage 1: a topic is created, grows, and is described."""

import pytest

from tests.lifecycle.log_place import LogPlace
from txlog.errors import TopicExists
from txlog.settings import TopicConfig


def test_topic_is_created_altered_and_described(place: LogPlace) -> None:
    name = place.topic("orders", 2, config={"compression.type": "lz4"})
    with pytest.raises(TopicExists):
        place.admin().create_topic(name)
    assert name in place.admin().list_topics()
    place.admin().create_partitions(name, 3)
    place.admin().alter_topic_config(name, {"max.message.bytes": 500})
    found = place.admin().describe_topic(name)
    assert [part.partition for part in found.partitions] == [0, 1, 2]
    assert found.config.to_dotted() == {
        **TopicConfig().to_dotted(),
        "compression.type": "lz4",
        "max.message.bytes": 500,
    }
