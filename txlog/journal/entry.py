"""One journal entry: its bytes, its checksum and its link to the entry before.

An entry file has two JSON lines: a header (format version, the txlog that wrote it, length and
CRC32 of what follows) and the body (log, journal, slot, token, writer, time, CRC32 of the entry
before, events). An entry may hold records, as bytes between the two (docs/design/0037): its header
is padded, so that they begin at a place that is known before the body is. Keeps I15: an entry that
does not decode exactly is CorruptData that names the object, and so is an object that was copied
from another journal or another log. An old release cannot read what a newer one added, so each
stored object names the release that wrote it, which errors mention. This module must not know what
events mean.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Protocol, cast

from txlog.checksum import crc32_of
from txlog.distribution import VERSION
from txlog.errors import CorruptData, InternalError, UnsupportedFormat
from txlog.journal.codec import Json, parsed
from txlog.layout import JournalLayout
from txlog.model import OFFSET_MAX
from txlog.settings import ENTRY_RECORDS_MAX

FORMAT_VERSION = 3
"""Version of everything that a log stores; docs/dev/format.md has the reasons to change it."""
HEADER_BYTES_MAX = 256
"""The longest first line of a sealed object: txlog writes 60 bytes, which leaves room for the
fields of later formats. The end of the line is searched no further, whatever the size of a damaged
object."""

RECORDS_START = HEADER_BYTES_MAX
"""Where the records in an entry begin."""

RECORDS_BYTES_MAX = ENTRY_RECORDS_MAX
"""Records in an entry at most, whatever `entry.records.max.bytes` says: the other half of an entry
is left for its events. A larger object is refused (I16)."""

EVENTS_MAX = 1_000
"""Events of an entry. A process puts up to `publish.batch.max` commands of one or two events into
one; an event may cost a reader a look through the whole state, so a forged entry of a million bytes
must not have one in every fifty."""

GENESIS_CRC32 = 0
"""The checksum of the entry before slot 0, which does not exist."""

_BODY: dict[str, type] = {
    "log_id": str,
    "journal": str,
    "slot": int,
    "token": str,
    "writer": str,
    "written_at_ms": int,
    "prior_crc32": int,
    "carries": bool,
    "events": list,
}
"""Fields of the body. Others are ignored."""
_NUMBERS = tuple(name for name, kind in _BODY.items() if kind is int)

# What an error may show: any process that can write to the store can put any text there.
_RELEASE = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,6}){1,3}[a-z0-9.+-]{0,20}")


_encoded_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


@dataclass(frozen=True, slots=True)
class Entry:
    """The content of a slot. `events` are JSON values; the machine decodes them."""

    slot: int
    token: str
    """Unique to this attempt to publish, so that a read-back tells whose entry it is."""
    writer: str
    written_at_ms: int
    """The writer's wall clock: information only (I14)."""
    prior_crc32: int
    """Checksum of the entry in the slot below: the running check of the whole journal."""
    events: tuple[Json, ...]
    carries: bool = False
    """Whether its writer carries for other processes (`carrier_rules.py`): information only."""
    journal: str = ""
    """The journal that the entry belongs to: see `require_own`."""
    log_id: str = ""
    records: bytes = b""
    """Records that its events name by their places in the entry's object."""
    txlog: str = field(default="", compare=False)
    """The release that wrote it, according to its header: information for errors only."""


@dataclass(slots=True)
class EntryRecords:
    """The records of an entry that is being put together."""

    path: str = ""
    """The entry's object."""
    data: bytearray = field(default_factory=bytearray)

    def add(self, data: bytes) -> int:
        """Add bytes; returns their place in the entry's object."""
        self.data += data
        return RECORDS_START + len(self.data) - len(data)


def encode_entry(entry: Entry) -> tuple[bytes, int]:
    """The bytes of an entry and its checksum, which the next entry contains. Raises InternalError
    for too many events or records."""
    if len(entry.events) > EVENTS_MAX or len(entry.records) > RECORDS_BYTES_MAX:
        raise InternalError(
            f"an entry of {entry.journal} would have {len(entry.events)} events and "
            f"{len(entry.records)} bytes of records, and a reader takes at most {EVENTS_MAX} and "
            f"{RECORDS_BYTES_MAX}. Nothing was written; please report this."
        )
    body = _encoded_json(
        {
            "log_id": entry.log_id,
            "journal": entry.journal,
            "slot": entry.slot,
            "token": entry.token,
            "writer": entry.writer,
            "written_at_ms": entry.written_at_ms,
            "prior_crc32": entry.prior_crc32,
            "carries": entry.carries,
            "events": entry.events,
        }
    ).encode(errors="surrogatepass")  # A user's text may contain half a surrogate pair.
    return seal(body, entry.records), crc32_of(body, crc32_of(entry.records))


def decode_entry(data: bytes, path: str, slot: int) -> tuple[Entry, int]:
    """The entry in `data` and its checksum.

    Raises CorruptData or UnsupportedFormat, naming `path`, if anything is wrong.
    """
    header, content = _opened(data, path)
    count = _records_length(header, data, len(content), path)
    records, body = content[:count], content[count:]
    try:
        value = parsed(body)
        parts: dict[str, Json] = {name: value[name] for name in _BODY}
        # By exact type, because `true` is an int too.
        if [*map(type, parts.values())] != [*_BODY.values()]:
            raise TypeError("a field has another type")
        if not all(0 <= parts[name] <= OFFSET_MAX for name in _NUMBERS):
            raise TypeError("a number is out of bounds")
        parts |= {"events": tuple(parts["events"]), "txlog": release(header.get("txlog"))}
        parts["records"] = records
        entry = Entry(**parts)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(path, f"its body is not a journal entry ({type(error).__name__})") from error
    if entry.slot != slot:
        raise _damaged(path, f"it says that it fills slot {entry.slot!r}")
    if len(entry.events) > EVENTS_MAX:
        raise _damaged(
            path, f"it has {len(entry.events)} events, and at most {EVENTS_MAX} are read"
        )
    return entry, crc32_of(content)


def _records_length(header: dict[str, object], data: bytes, length: int, path: str) -> int:
    """How many bytes of an entry are records. Raises CorruptData."""
    count = header.get("records", 0)
    if type(count) is not int or not 0 <= count <= min(length, RECORDS_BYTES_MAX):
        raise _damaged(
            path,
            f"its header says that {count!r:.20} bytes are records; it has {length} bytes, and at "
            f"most {RECORDS_BYTES_MAX} are read",
        )
    if count and data.find(b"\n", 0, RECORDS_START) != RECORDS_START - 1:
        raise _damaged(path, f"its records do not begin at byte {RECORDS_START}")
    return count


def decode_own_entry(data: bytes, layout: JournalLayout, slot: int) -> tuple[Entry, int]:
    """The same for an entry of this journal. Raises CorruptData for another journal's entry."""
    entry, crc32 = decode_entry(data, path := layout.entry(slot), slot)
    require_own(entry, layout, path)
    return entry, crc32


def written_by(data: bytes) -> str:
    """The release that the header of a sealed object names, or nothing."""
    return release(_header(data[: max(data.find(b"\n", 0, HEADER_BYTES_MAX), 0)], "").get("txlog"))


def seal(body: bytes, records: bytes = b"") -> bytes:
    """A body with its header line: the format of every small JSON object of a journal. An entry's
    records are before the body."""
    content = records + body
    header: dict[str, object] = {
        "format": FORMAT_VERSION,
        "txlog": VERSION,
        "length": len(content),
        "crc32": _sealing_crc32(content, VERSION),
    }
    if records:
        header["records"] = len(records)
    line = _encoded_json(header).encode()
    return line.ljust(RECORDS_START - 1 if records else 0) + b"\n" + content + b"\n"


def checked_body(data: bytes, path: str) -> tuple[bytes, int]:
    """The body of a sealed object and its CRC32. Raises CorruptData or UnsupportedFormat."""
    _, body = _opened(data, path)
    return body, crc32_of(body)


def crc32_of_body(data: bytes) -> int:
    """The CRC32 of what follows the header, without a check: to compare with a known entry's."""
    return crc32_of(data[data.find(b"\n") + 1 : -1])


def _opened(data: bytes, path: str) -> tuple[dict[str, object], bytes]:
    """Header and body of a sealed object. Raises CorruptData or UnsupportedFormat."""
    end = data.find(b"\n", 0, HEADER_BYTES_MAX)
    header = _header(data[: max(end, 0)], path)
    # Before length and checksum, which another version may define differently: an object of a newer
    # release must not be called damaged.
    if header.get("format") != FORMAT_VERSION:
        raise unsupported(path, header.get("format"), FORMAT_VERSION, header.get("txlog"))
    body = data[end + 1 : -1]
    if len(body) != header.get("length") or data[-1:] != b"\n":
        raise _damaged(path, f"it has {len(body)} bytes instead of {header.get('length')}")
    crc32 = _sealing_crc32(body, header.get("txlog", ""))
    if crc32 != header.get("crc32"):
        raise _damaged(path, f"its CRC32 is {crc32}, not {header.get('crc32')}")
    return header, body


def _sealing_crc32(body: bytes, txlog: object) -> int:
    """The CRC32 of the release's name and the body; of the body alone if there is no release."""
    # The release is covered because a changed byte of it is damage, too (I15).
    return crc32_of(body, crc32_of(str(txlog).encode(errors="surrogatepass")))


def _header(line: bytes, path: str) -> dict[str, object]:
    try:
        header = parsed(line)
    except ValueError as error:
        raise _damaged(path, "its first line is not a header") from error
    if not isinstance(header, dict):
        raise _damaged(path, "its first line is not a header")
    return cast("dict[str, object]", header)


def _damaged(path: str, why: str) -> CorruptData:
    return CorruptData(
        f"{path} is damaged: {why}. Restore the object from a backup; nothing was skipped.",
        path=path,
    )


# Which journal an object belongs to, and which release wrote it.


class Owned(Protocol):
    """A stored object that names its journal."""

    @property
    def journal(self) -> str:
        """The journal's folder below the root of its log."""

    @property
    def log_id(self) -> str:
        """The id of the log."""


def require_own(found: Owned, layout: JournalLayout, path: str) -> None:
    """Raises CorruptData if the object at `path` belongs to another journal, or another log: it may
    have been copied by hand, or written by a producer that outlived its log."""
    if (found.journal, found.log_id) != (layout.root, layout.log_id):
        raise CorruptData(
            f"{path} does not belong to this journal but to {found.journal!r:.300} of log "
            f"{found.log_id!r:.40} (this log is {layout.log_id!r}). It was copied there: restore "
            "the right object from a backup of this log.",
            path=path,
        )


def unsupported(path: str, version: object, read: int, txlog: object) -> UnsupportedFormat:
    """The error for an object of another format version than this program reads; `txlog` is the
    release that it says wrote it."""
    if type(version) is int and 0 < version < read:
        remedy = "It is from before the first release, and no release reads it: create the log anew"
    else:
        remedy = newer_release(txlog)
    return UnsupportedFormat(
        f"{path} has format version {version!r:.20}; this txlog reads version {read}. {remedy}.",
        path=path,
        version=version,
        txlog=release(txlog),
    )


def not_understood(path: str, what: str, why: str, txlog: object) -> UnsupportedFormat:
    """The error for an object of this version with `what` that this program does not know."""
    return UnsupportedFormat(
        f"{path} contains {what} that this txlog cannot read: {why}. {newer_release(txlog)}.",
        path=path,
        txlog=release(txlog),
    )


def newer_release(txlog: object) -> str:
    """The remedy for an object of a newer release: that release, or a later one, reads it."""
    if (found := release(txlog)) and found != VERSION:
        return f"txlog {found} wrote it, and this is {VERSION}: use {found} or a newer txlog"
    return f"A newer txlog than {VERSION} wrote it: use a newer txlog"


def release(txlog: object) -> str:
    """The release that an object names as its writer; empty if it names none."""
    return txlog if isinstance(txlog, str) and _RELEASE.fullmatch(txlog) else ""
