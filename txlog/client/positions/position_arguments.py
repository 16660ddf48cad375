"""Checks of the partitions, offsets, offset metadata, transactions, limits and waits that callers
pass. Values only.

Only values which every other process reads back unchanged are stored (I15). numpy's integers are
accepted; floats, bools and strings are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any

from txlog.errors import InvalidConfig, InvalidName, InvalidRecord, OffsetOutOfRange, UsageError
from txlog.model import OffsetAndMetadata, TopicPartition, TxId, as_whole_number
from txlog.settings import LONG_MAX

OFFSET_METADATA_BYTES_MAX = 4096
"""Kafka's default of `offset.metadata.max.bytes`."""


def whole_number(what: str, value: object) -> int:
    """The value as an int. Raises InvalidRecord."""
    number = as_whole_number(value)
    if number is None:
        raise InvalidRecord(f"{what} must be a whole number, not {value!r:.80}.")
    return number


def checked_offset(what: str, value: object) -> int:
    """An offset that a partition may have, as an int. Raises InvalidRecord, OffsetOutOfRange."""
    offset = whole_number(what, value)
    if not 0 <= offset <= LONG_MAX:
        raise OffsetOutOfRange(f"{what} is {offset}; offsets begin at 0.", offset=offset)
    return offset


def checked_time(what: str, value: object) -> int:
    """Milliseconds since 1970, as an int. Raises InvalidRecord."""
    time_ms = whole_number(what, value)
    if not 0 <= time_ms <= LONG_MAX:
        raise InvalidRecord(f"{what} must be milliseconds since 1970, not {time_ms}.")
    return time_ms


def checked_partition(where: object) -> TopicPartition:
    """A topic and a partition's number, as a tuple. Raises InvalidRecord."""
    if not (isinstance(where, tuple) and len(where) == 2 and isinstance(where[0], str)):
        raise InvalidRecord(
            f"{where!r:.80} is not a partition; give TopicPartition(topic, number), as in "
            "TopicPartition('orders', 0)."
        )
    topic, partition = where
    return TopicPartition(topic, whole_number(f"the partition of {topic!r}", partition))


def checked_partitions(partitions: object) -> list[TopicPartition]:
    """Several partitions, or one. Raises InvalidRecord."""
    if isinstance(partitions, TopicPartition):
        return [checked_partition(partitions)]
    return [checked_partition(where) for where in _several(partitions, "partitions")]


def checked_names(names: object) -> list[str]:
    """Names of topics; a string is one name. Raises InvalidName."""
    if isinstance(names, str):
        return [names]
    found = list(_several(names, "names"))
    for name in found:
        if not isinstance(name, str):
            raise InvalidName(f"{name!r:.80} is not the name of a topic; give names as strings.")
    return found


def checked_mapping(values: object, example: str) -> Mapping[Any, Any]:
    """A mapping from partitions; the error shows one with `example`. Raises InvalidRecord."""
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


def checked_offsets(offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The offsets, as ints. Raises InvalidRecord."""
    found = {}
    for named, offset in checked_mapping(offsets, "23").items():
        where = checked_partition(named)
        found[where] = whole_number(f"the offset of {where}", offset)
    return found


def checked_position(where: TopicPartition, wanted: OffsetAndMetadata | int) -> OffsetAndMetadata:
    """An offset to commit, with its metadata. Raises InvalidRecord."""
    given = wanted if isinstance(wanted, OffsetAndMetadata) else OffsetAndMetadata(wanted)
    offset = whole_number(f"the offset of {where}", given.offset)
    return OffsetAndMetadata(offset, _checked_metadata(where, given.metadata))


def _checked_metadata(where: TopicPartition, metadata: object) -> str:
    if not isinstance(metadata, str):
        raise InvalidRecord(
            f"the metadata of the offset of {where} must be text, not {metadata!r:.80}; leave it "
            "out if there is none."
        )
    # Half a surrogate pair is stored as it is, so it counts here instead of raising.
    size_bytes = len(metadata.encode(errors="surrogatepass"))
    if size_bytes > OFFSET_METADATA_BYTES_MAX:
        raise InvalidRecord(
            f"the metadata of the offset of {where} has {size_bytes} bytes; the limit is "
            f"{OFFSET_METADATA_BYTES_MAX}. Store longer text elsewhere, with a reference here."
        )
    return metadata


def checked_transaction(tx_id: object) -> TxId:
    """A transaction id, given as such or as text. Raises InvalidName, UsageError."""
    if isinstance(tx_id, str):
        return TxId.parse(tx_id)
    if isinstance(tx_id, TxId):
        parts = (tx_id.pid, tx_id.epoch, tx_id.number)
        if all(type(part) is int and 0 <= part <= LONG_MAX for part in parts):
            return tx_id
    raise UsageError(f"{tx_id!r:.80} is not a transaction; give a TxId, as from list_transactions.")


def checked_timeout(value: object) -> float:
    """A time to wait, in ms. Raises UsageError."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if is_number and 0 <= value <= LONG_MAX:  # type: ignore[operator]
        return float(value)  # type: ignore[arg-type]
    raise UsageError(f"timeout_ms is {value!r:.40}; give milliseconds from 0 to {LONG_MAX}.")


def checked_limit(what: str, value: object) -> int:
    """A number of records of 1 or more. Raises InvalidConfig."""
    number = as_whole_number(value)
    if number is not None and number >= 1:
        return number
    raise InvalidConfig(f"{what} is {value!r:.40}; it must be at least 1, and whole.")
