"""The Spark source's offset in one topic."""

from collections.abc import Mapping

from spark_plugin.source.offsets import PartitionRange, SourceOffset
from txlog.model import TopicPartition


def offset_of(
    ranges: Mapping[int, tuple[int, int]],
    topic: str = "orders",
    topic_id: str = "id1",
    group: str | None = "g",
    log_id: str = "log",
) -> SourceOffset:
    """`ranges`: partition -> its first offset, and the offset after its last."""
    numbered = {TopicPartition(topic, p): PartitionRange(*pair) for p, pair in ranges.items()}
    return SourceOffset(log_id, group, numbered, {topic: topic_id})
