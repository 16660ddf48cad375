"""Partitions, offsets and notes as callers pass them, checked before anything is written.

Values only. It guards I15 for writers: every other process reads back exactly what is stored.
numpy's whole numbers are accepted; a float, a bool or a text is not.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any

from txlog.errors import InvalidName, InvalidRecord, OffsetOutOfRange
from txlog.model import OffsetAndMetadata, TopicPartition
from txlog.settings import LONG_MAX

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


def given_offset(what: str, value: object) -> int:
    """An offset that a partition may have, as an int. Raises InvalidRecord, OffsetOutOfRange."""
    offset = whole_number(what, value)
    if not 0 <= offset <= LONG_MAX:
        raise OffsetOutOfRange(f"{what} is {offset}; offsets begin at 0.", offset=offset)
    return offset


def given_time(what: str, value: object) -> int:
    """Milliseconds since 1970, as an int. Raises InvalidRecord."""
    time_ms = whole_number(what, value)
    if not 0 <= time_ms <= LONG_MAX:
        raise InvalidRecord(f"{what} must be milliseconds since 1970, not {time_ms}.")
    return time_ms


def given_partition(where: object) -> TopicPartition:
    """A topic and a partition's number, as a tuple. Raises InvalidRecord."""
    if not (isinstance(where, tuple) and len(where) == 2 and isinstance(where[0], str)):
        raise InvalidRecord(
            f"{where!r:.80} is not a partition; give TopicPartition(topic, number), as in "
            "TopicPartition('orders', 0)."
        )
    topic, partition = where
    return TopicPartition(topic, whole_number(f"the partition of {topic!r}", partition))


def given_partitions(partitions: object) -> list[TopicPartition]:
    """Several of them, or one. Raises InvalidRecord."""
    if isinstance(partitions, TopicPartition):
        return [given_partition(partitions)]
    return [given_partition(where) for where in _several(partitions, "partitions")]


def given_names(names: object) -> list[str]:
    """Names of topics, or one: a text is one name, not its letters. Raises InvalidName."""
    if isinstance(names, str):
        return [names]
    found = list(_several(names, "names"))
    for name in found:
        if not isinstance(name, str):
            raise InvalidName(f"{name!r:.80} is not the name of a topic; give names as texts.")
    return found


def given_mapping(values: object, example: str) -> Mapping[Any, Any]:
    """`values` as a mapping from partitions. Raises InvalidRecord."""
    if isinstance(values, Mapping):
        return values
    raise InvalidRecord(
        f"{values!r:.80} is not a mapping from partitions; give a dict, as in "
        f"{{TopicPartition('orders', 0): {example}}}."
    )


def _several(values: object, kind: str) -> Iterable[Any]:
    if isinstance(values, Iterable) and not isinstance(values, str | bytes):
        return values
    raise InvalidRecord(f"{values!r:.80} is not a list of {kind}; give a list.")


def given_offsets(offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The offsets, all as ints. Raises InvalidRecord."""
    found = {}
    for named, offset in given_mapping(offsets, "23").items():
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
            f"{OFFSET_METADATA_BYTES_MAX}. Store longer notes elsewhere, with a reference here."
        )
    return metadata
