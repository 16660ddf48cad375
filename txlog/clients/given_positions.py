"""Partitions, offsets and notes as callers give them, checked before anything is written.

Values only. It guards I15 from the other side: what is stored is exactly what every other process
reads back. Whole numbers of numpy are taken for what they are; a float, a bool or a text is none.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping

from txlog.errors import InvalidRecord
from txlog.model import OffsetAndMetadata, TopicPartition

OFFSET_METADATA_BYTES_MAX = 4096
"""Kafka's default of `offset.metadata.max.bytes`."""


def whole_number(what: str, value: object) -> int:
    """The same, as an int. Raises InvalidRecord."""
    if not isinstance(value, bool):
        try:
            return operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            pass
    raise InvalidRecord(f"{what} must be a whole number, not {value!r:.80}.")


def given_partition(where: tuple[str, object]) -> TopicPartition:
    """The same, its number an int. Raises InvalidRecord."""
    topic, partition = where
    return TopicPartition(topic, whole_number(f"the partition of {topic!r}", partition))


def given_offsets(offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The same, all of them ints. Raises InvalidRecord."""
    found = {}
    for named, offset in offsets.items():
        where = given_partition(named)
        found[where] = whole_number(f"the offset of {where}", offset)
    return found


def given_position(where: TopicPartition, wanted: OffsetAndMetadata | int) -> OffsetAndMetadata:
    """A position to commit. Raises InvalidRecord."""
    given = wanted if isinstance(wanted, OffsetAndMetadata) else OffsetAndMetadata(wanted)
    offset = whole_number(f"the offset of {where}", given.offset)
    return OffsetAndMetadata(offset, _note(where, given.metadata))


def _note(where: TopicPartition, metadata: object) -> str:
    if not isinstance(metadata, str):
        raise InvalidRecord(
            f"the note with the offset of {where} must be a text, not {metadata!r:.80}; leave it "
            "out if there is none."
        )
    size_bytes = len(metadata.encode(errors="surrogatepass"))
    if size_bytes > OFFSET_METADATA_BYTES_MAX:
        raise InvalidRecord(
            f"the note with the offset of {where} has {size_bytes} bytes; the limit is "
            f"{OFFSET_METADATA_BYTES_MAX}. Keep what is longer elsewhere, and note where."
        )
    return metadata
