"""Parameters of a replica, which a log and its process give to all of its journals."""

from __future__ import annotations

from dataclasses import dataclass, field

from txlog.journal.log_presence import Presence
from txlog.journal.replication.recent_records import RecentRecords
from txlog.settings import ProcessSettings


@dataclass(frozen=True, slots=True)
class ReplicaOptions:
    """Parameters of a replica; from LogSettings and ProcessSettings."""

    snapshot_entries: int = 64
    process: ProcessSettings = field(default_factory=ProcessSettings)
    writer: str = "txlog"
    """Names this process in the entries it writes: information only."""
    presence: Presence = field(default_factory=Presence)
    """Checks whether the log still exists."""
    log_id: str = ""
    """The log whose journals these are."""
    is_begun: bool = False
    """Every journal has a first entry, so that one without it is lost (R63)."""
    is_far: bool = False
    """A request takes a round trip. A near store answers faster than a thread starts, so entries
    are read one by one, and what must be proved is asked at each use."""
    trust_ms: int = 0
    """How long a boundary check is trusted (R15); 0: each answer has its own, after it."""
    grace_ms: int = 0
    """Entries are deleted only below a boundary older than this (R14); 0: below any."""
    recent: RecentRecords = field(default_factory=RecentRecords)
    """Keeps the records of the entries that this process reads and writes."""
    records_bytes_max: int = 0
    """Records that the commands of one entry may bring along together."""
