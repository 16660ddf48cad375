"""A group's first commit stores every position, also of partitions where nothing was read."""

from pathlib import Path

import pytest

from txlog.client.admin import Admin
from txlog.client.consumer.consumer import Consumer
from txlog.client.producer.producer import Producer
from txlog.model import OffsetAndMetadata, TopicPartition

FIRST = TopicPartition("orders", 0)


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A log with an empty topic of two partitions."""
    Admin(str(tmp_path), create=True).create_topic("orders", 2)
    return str(tmp_path)


def member(root: str) -> Consumer:
    return Consumer(
        "orders", root=root, group_id="g", auto_offset_reset="latest", enable_auto_commit=False
    )


def test_records_sent_after_commit_without_reads_are_not_skipped(root: str) -> None:
    with member(root) as consumer:
        consumer.poll()
        consumer.commit()
        assert [consumer.committed(TopicPartition("orders", p)) for p in (0, 1)] == [0, 0]
    producer = Producer(root)
    producer.send("orders", b"x", partition=0)
    producer.flush()
    with member(root) as consumer:
        assert [record.value for record in consumer.poll()[FIRST]] == [b"x"]


def test_second_commit_of_unchanged_positions_writes_nothing(root: str) -> None:
    with member(root) as consumer:
        consumer.commit()
        before = sorted(Path(root).rglob("*.json"))
        consumer.commit()
        assert sorted(Path(root).rglob("*.json")) == before


def test_metadata_is_committed_although_offset_is_unchanged(root: str) -> None:
    with member(root) as consumer:
        consumer.commit()
        consumer.commit({FIRST: OffsetAndMetadata(0, "seen")})
    (found,) = (p for p in Admin(root).describe_group("g").partitions if p.where == FIRST)
    assert found.metadata == "seen"
