"""Topics as JSON documents."""

from __future__ import annotations

from typing import Any

from txlog.client.admin import TopicDescription
from txlog.documents.type_text import type_text

LIST_NAMES = ("topic", "partitions", "offsets", "open_transactions")
"""Columns of a list of topics."""


def list_row(topic: TopicDescription) -> tuple[str, int, int, int]:
    """The values of LIST_NAMES."""
    offsets = sum(part.end_offset - part.log_start_offset for part in topic.partitions)
    return topic.name, len(topic.partitions), offsets, len(topic.open_transactions)


def topic_document(topic: TopicDescription) -> dict[str, Any]:
    """A topic: its columns, its configuration, its partitions."""
    return {
        "topic": topic.name,
        "topic_id": topic.topic_id,
        "schema_id": topic.schema_id,
        "schema": [
            {"column": field.name, "type": type_text(field.type), "nullable": field.nullable}
            for field in topic.schema
        ],
        "config": topic.config.to_dotted(),
        "partitions": [
            {
                "partition": part.partition,
                "log_start_offset": part.log_start_offset,
                "last_stable_offset": part.last_stable_offset,
                "log_end_offset": part.end_offset,
            }
            for part in topic.partitions
        ],
        "open_transactions": [str(tx_id) for tx_id in topic.open_transactions],
        "is_being_deleted": topic.is_being_deleted,
    }
