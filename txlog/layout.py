"""Every object name of a log, in one place.

No stored name can leave the root: each part is a validated name, a number or a hexadecimal id; and
a log shares no name with another log that was, or will be, in its place. It must not access a
store. Below the root of a log are

    txlog.json                                 the cluster file: format version, log id, probe
    cluster/<log id>/                          journal: topics and producer id blocks
    topics/<name>/<topic id>/                  journal of a topic, and its segments
    transactions/<log id>/<n>/                 journal of a coordinator and of its consumer groups

and in each journal

    entries/<20 digits>.json                   the entries
    snapshots/<20 digits>.arrow                the state after that entry
    chunks/<20 digits>-<20 digits>.arrow       shared parts of the state (batch index)
    chunks/<20 digits>-<20 digits>-<32 hex>.arrow   the same, written by merging or compaction
    boundaries/<20 digits>.json                lowest live entry (rule R14)
    hint.json                                  a recent snapshot; may be old, wrong or gone
    segments/<32 hex>.arrow                    records (topics only): 20 random digits, then 12 of
                                               the milliseconds since 1970
    manifests/<32 hex>.arrow                   stored batches of a large transaction (topics only)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

CLUSTER_FILE = "txlog.json"
CLUSTER_JOURNAL = "cluster"
TOPICS = "topics"
TRANSACTIONS = "transactions"
PROBES = "probes"

SLOT_DIGITS = 20
SEGMENT_TIME_DIGITS = 12
SEGMENT_RANDOM_DIGITS = 20
"""Hexadecimal digits of a segment's id: milliseconds since 1970, then random ones."""

SEGMENT_NAME_LENGTH = SEGMENT_TIME_DIGITS + SEGMENT_RANDOM_DIGITS + len(".arrow")
"""Characters of a segment's name."""

HINT_BYTES_MAX = 1_000
"""Limit of a hint, which holds one slot in some 30 bytes: a forged one costs no more to read
(I16)."""

SMALL_BYTES_MAX = 1_000_000
"""Limit of an entry, a boundary and the cluster file: one conditional write, which every store
takes whole. With less, fewer commands could share an entry; with more, a lost slot and each retry
would cost a larger upload."""
STATE_BYTES_MAX = 256 << 20
"""Limit of a stored snapshot or chunk, for readers and writers: a merged chunk takes 4 MB. A state
that exceeds it, after a million appends beside one open transaction, is not saved, and its journal
is not pruned."""
_NUMBERED = re.compile(r"(?:.*/)?(\d{20})\.(?:json|arrow)")
# Exactly the names that txlog writes: maintenance deletes no other object below the root.
_JOURNALS = re.compile(
    rf"({CLUSTER_JOURNAL}/[0-9a-f]{{32}}|{TOPICS}/[A-Za-z0-9._-]{{1,249}}/[A-Za-z0-9_-]{{1,64}}"
    rf"|{TRANSACTIONS}/[0-9a-f]{{32}}/[0-9]+)/"
    r"(?:hint\.json|(?:entries|boundaries)/\d{20}\.json|snapshots/\d{20}\.arrow"
    r"|chunks/\d{20}-\d{20}(?:-[0-9a-f]{32})?\.arrow|(?:segments|manifests)/[0-9a-f]{32}\.arrow)"
)


@dataclass(frozen=True, slots=True)
class JournalLayout:
    """Object names of one journal; `root` is its folder below the log's root."""

    root: str
    log_id: str = ""
    """The id of the log that it belongs to: its entries contain both."""

    @property
    def name(self) -> str:
        """The name in messages: its folder without the log's id."""
        return self.root.replace(f"/{self.log_id}", "", 1) if self.log_id else self.root

    def entry(self, slot: int) -> str:
        """Name of the entry that fills `slot`."""
        return f"{self.root}/entries/{slot:020d}.json"

    def snapshot(self, slot: int) -> str:
        """Name of the snapshot that covers every entry up to and including `slot`."""
        return f"{self.root}/snapshots/{slot:020d}.arrow"

    def chunk(self, first: int, last: int, name: str = "") -> str:
        """Name of an index chunk that covers the entries `first` to `last`; `name` distinguishes
        one written by merging or compaction from the one that it replaced."""
        suffix = f"-{name}" if name else ""
        return f"{self.root}/chunks/{first:020d}-{last:020d}{suffix}.arrow"

    @property
    def chunks(self) -> str:
        """Prefix of all index chunks of a topic."""
        return f"{self.root}/chunks/"

    @property
    def boundaries(self) -> str:
        """Prefix of all boundaries."""
        return f"{self.root}/boundaries/"

    def boundary(self, ordinal: int) -> str:
        """Name of the boundary object of that ordinal."""
        return f"{self.root}/boundaries/{ordinal:020d}.json"

    @property
    def hint(self) -> str:
        """Name of the hint."""
        return f"{self.root}/hint.json"

    @property
    def entries(self) -> str:
        """Prefix of all entries."""
        return f"{self.root}/entries/"

    @property
    def snapshots(self) -> str:
        """Prefix of all snapshots."""
        return f"{self.root}/snapshots/"

    @property
    def segments(self) -> str:
        """Prefix of all segments of a topic."""
        return f"{self.root}/segments/"

    def segment(self, segment_id: str) -> str:
        """Name of a segment; `segment_id` comes from `clock.segment_id`. The random digits come
        first, because a bucket serves each range of names by servers of its own, and names that
        begin with the time would all be written in one range."""
        time, drawn = segment_id[:SEGMENT_TIME_DIGITS], segment_id[SEGMENT_TIME_DIGITS:]
        return f"{self.root}/segments/{drawn}{time}.arrow"

    @property
    def manifests(self) -> str:
        """Prefix of all manifests of a topic."""
        return f"{self.root}/manifests/"

    def manifest(self, manifest_id: str) -> str:
        """Name of a manifest; its id is like a segment's, and its digits are in the same order."""
        time, drawn = manifest_id[:SEGMENT_TIME_DIGITS], manifest_id[SEGMENT_TIME_DIGITS:]
        return f"{self.root}/manifests/{drawn}{time}.arrow"


def parse_number(path: str) -> int | None:
    """The number in the name of an entry, snapshot or boundary, or None for another name."""
    match = _NUMBERED.fullmatch(path)
    return int(match.group(1)) if match else None


def journal_root(path: str) -> str | None:
    """The folder of the journal that an object belongs to, or None for a foreign name."""
    match = _JOURNALS.fullmatch(path)
    return match.group(1) if match else None


@lru_cache(1_024)  # A waiting reader requests the same object repeatedly.
def bytes_max(path: str) -> int | None:
    """The largest size of an object of that path; None for a segment, and for a foreign name."""
    if path == CLUSTER_FILE:
        return SMALL_BYTES_MAX
    # Segments are read in ranges; the other objects are read whole, and a forged one must not fill
    # the memory (I16).
    if not _JOURNALS.fullmatch(path) or path.rsplit("/", 2)[-2] == "segments":
        return None
    if path.endswith("/hint.json"):
        return HINT_BYTES_MAX
    return SMALL_BYTES_MAX if path.endswith(".json") else STATE_BYTES_MAX


def is_segment(path: str) -> bool:
    """Whether the path is the name of a segment."""
    return _JOURNALS.fullmatch(path) is not None and path.rsplit("/", 2)[-2] == "segments"


def is_manifest(path: str) -> bool:
    """Whether the path is the name of a manifest."""
    return _JOURNALS.fullmatch(path) is not None and path.rsplit("/", 2)[-2] == "manifests"


def is_entry(path: str) -> bool:
    """Whether the path is the name of an entry."""
    return _JOURNALS.fullmatch(path) is not None and path.rsplit("/", 2)[-2] == "entries"


def is_log_id(text: str) -> bool:
    """Whether the text can be a log's id, and so a part of names."""
    return re.fullmatch(r"[0-9a-f]{32}", text) is not None


@dataclass(frozen=True, slots=True)
class LogLayout:
    """The journals of the log with that id. A topic has an id of its own instead of the log's."""

    log_id: str

    def cluster(self) -> JournalLayout:
        """Journal of topics and producer ids."""
        return JournalLayout(f"{CLUSTER_JOURNAL}/{self.log_id}", self.log_id)

    def topic(self, name: str, topic_id: str) -> JournalLayout:
        """Journal of one incarnation of a topic (rule R11)."""
        return JournalLayout(f"{TOPICS}/{name}/{topic_id}", self.log_id)

    def transactions(self, partition: int) -> JournalLayout:
        """Journal of one coordinator, and of its consumer groups."""
        return JournalLayout(f"{TRANSACTIONS}/{self.log_id}/{partition}", self.log_id)


def segment_time_ms(path: str) -> int:
    """When a segment was named, by its writer's clock; 0 if its name has no time."""
    digits = segment_id_of(path)[:SEGMENT_TIME_DIGITS]
    return int(digits, 16) if re.fullmatch(r"[0-9a-f]{12}", digits) else 0


def segment_id_at(wall_ms: int) -> str:
    """An id below those of all segments that are named at that time or later."""
    return f"{max(wall_ms, 0):0{SEGMENT_TIME_DIGITS}x}" + "0" * SEGMENT_RANDOM_DIGITS


def chunk_name_of(path: str) -> str:
    """The part of a rewritten chunk's name that distinguishes it; "" for an original chunk."""
    parts = path.rsplit("/", 1)[-1].removesuffix(".arrow").split("-")
    return parts[2] if len(parts) == 3 else ""


def segment_id_of(path: str) -> str:
    """The id in a segment's path, which is compared with the staging horizon: the digits of its
    name, with the time first."""
    name = path.rsplit("/", 1)[-1].removesuffix(".arrow")
    return name[-SEGMENT_TIME_DIGITS:] + name[:-SEGMENT_TIME_DIGITS]
