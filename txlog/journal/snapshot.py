"""Snapshots: the state after a slot, as an Arrow IPC file of (section, row) texts.

They only make opening quick: a missing or damaged snapshot is never an error of the log while the
entries below it exist. Keeps I15: the rows end with their own checksum; and I16: rows are counted
before they are read, so that a forged snapshot takes no more memory than its bytes justify. It must
not know what the rows mean.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import pyarrow as pa

from txlog.arrow_columns import text_column
from txlog.checksum import crc32_of
from txlog.distribution import VERSION
from txlog.errors import CorruptData, InternalError, UnsupportedFormat
from txlog.journal.arrow_ipc import NotAnArrowFile, decode_file, encode_file
from txlog.journal.codec import Json, decode, encode, json_text, parsed
from txlog.journal.entry import FORMAT_VERSION, not_understood, release, unsupported
from txlog.model import Crc32, Slot, SlotOrNone
from txlog.stored import stored

_SCHEMA = pa.schema([pa.field("section", pa.string()), pa.field("row", pa.string())])
_HEAD = "journal"
_TAIL = "checksum"
ROWS_MAX = 1 << 21
"""Rows of a snapshot: one for each 128 of the bytes that it can have; few rows are smaller."""
_TXLOG = "txlog"
"""In the head: the release that wrote the snapshot, information for errors only."""


@stored(
    "snapshot_head",
    format="format",
    slot="slot",
    crc32="crc32",
    boundary="boundary",
    journal="journal",
    log_id="log_id",
)
@dataclass(frozen=True, slots=True)
class SnapshotHead:
    """The snapshot's place in the journal."""

    format: int
    slot: Slot
    """The last entry that it covers."""
    crc32: Crc32
    """Checksum of that entry."""
    boundary: SlotOrNone
    """Ordinal of the newest boundary that its writer knew, or -1 (rule R14)."""
    journal: str = ""
    """The journal that the snapshot belongs to: see `require_own`."""
    log_id: str = ""


def encode_snapshot(head: SnapshotHead, sections: Mapping[str, Iterable[Json]]) -> bytes:
    """The bytes of a snapshot."""
    names, rows = [_HEAD], [json.dumps({**encode(head), _TXLOG: VERSION})]
    for name, values in sections.items():
        texts = list(map(json_text, values))
        names.extend([name] * len(texts))
        rows.extend(texts)
    names.append(_TAIL)
    rows.append(str(_checksum(names, rows)))
    if len(rows) > ROWS_MAX:
        raise InternalError(
            f"a snapshot would have {len(rows)} rows, and a reader takes at most {ROWS_MAX}. "
            "Nothing was written or pruned; end transactions that are open for long, and please "
            "report this."
        )
    batch = pa.record_batch([text_column(names), text_column(rows)], schema=_SCHEMA)
    return encode_file(batch)


def decode_snapshot(
    data: bytes, path: str, rows_max: Mapping[str, int] = MappingProxyType({})
) -> tuple[SnapshotHead, dict[str, list[Json]]]:
    """Head and sections of a snapshot; `rows_max` limits the rows of some sections.

    Raises CorruptData or UnsupportedFormat naming `path`.
    """
    try:
        batch = decode_file(data, _SCHEMA)
        if batch.num_rows > ROWS_MAX:
            raise NotAnArrowFile(f"it has {batch.num_rows} rows, and at most {ROWS_MAX} are read")
        names = batch["section"].to_pylist()
        # Arrow counts faster, but its compute functions take 30 ms to import.
        for name, count in Counter(names).items():
            if count > rows_max.get(name, ROWS_MAX):
                raise NotAnArrowFile(f"it has {count} rows {name!r}, and at most {rows_max[name]}")
        rows = batch["row"].to_pylist()
    except (NotAnArrowFile, UnicodeDecodeError) as error:
        raise _damaged(path, f"{error!s:.140}") from error
    if len(rows) < 2:
        raise _damaged(path, "it does not have the rows of a snapshot")
    _verify(path, names, rows)
    head = _head(path, rows[0])
    sections: dict[str, list[Json]] = {}
    for name, row in zip(names[1:-1], rows[1:-1], strict=True):
        sections.setdefault(name, []).append(_value(path, row))
    return head, sections


def snapshot_release(data: bytes) -> str:
    """The release that wrote a snapshot which `decode_snapshot` has read, or nothing."""
    head = json.loads(decode_file(data, _SCHEMA)["row"][0].as_py())
    return release(head.get(_TXLOG))


def _value(path: str, row: str) -> Json:
    try:
        return parsed(row)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"a row is not JSON ({error!s:.80})") from error


def _head(path: str, row: str) -> SnapshotHead:
    """The version comes first: a newer one may have other fields."""
    value = _value(path, row)
    version = value.get("format") if isinstance(value, dict) else None
    if version != FORMAT_VERSION:
        txlog = value.get(_TXLOG) if isinstance(value, dict) else None
        raise unsupported(path, version, FORMAT_VERSION, txlog)
    txlog = value.pop(_TXLOG, None)
    try:
        head: SnapshotHead = decode(SnapshotHead, value)
    except UnsupportedFormat as error:
        raise not_understood(path, "a head", error.message, txlog) from error
    except CorruptData as error:
        raise _damaged(path, error.message) from error
    return head


def _verify(path: str, names: list[str | None], rows: list[str | None]) -> None:
    if None in names or None in rows or names[0] != _HEAD or names[-1] != _TAIL:
        raise _damaged(path, "its first or last row is missing")
    expected = str(_checksum([str(name) for name in names], [str(row) for row in rows[:-1]]))
    if rows[-1] != expected:
        raise _damaged(path, f"its checksum is {expected}, not {rows[-1]}")


def _checksum(names: list[str], rows: list[str]) -> int:
    return crc32_of("\n".join(rows).encode(), crc32_of("\n".join(names).encode()))


def _damaged(path: str, why: str) -> CorruptData:
    return CorruptData(f"{path} is damaged: {why}. It is rebuilt from the journal.", path=path)
