"""What a commit is about, as a number that its repeats share. Pure.

It guards R35: a repeated PREPARE_COMMIT is answered as done only if it names the same staged
segments and groups. Two processes that use one registration, after a copy of a running process or
of its machine, give out the same transaction ids for different records. It must not know who asks.
"""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32

from txlog.coordinator.events import Participant, PrepareCommit
from txlog.errors import ProducerFenced

UNKNOWN = 0
"""Of a decision that names nothing itself: any process may repeat it, as of a half transaction."""


def content_of(participants: Iterable[Participant], groups: Iterable[str]) -> int:
    """A checksum of what is named; the path of a segment is unique."""
    named = [f"group {group}" for group in groups]
    for participant in participants:
        named.append(f"topic {participant.topic_id} {participant.partitions}")
        named += [segment.path for segment in participant.segments]
    return crc32("\n".join(named).encode()) if named else UNKNOWN


def require_same_content(command: PrepareCommit, committed: int) -> None:
    """The commit that was decided is the one that is asked for. Raises ProducerFenced (R35)."""
    asked = content_of(command.participants, command.groups)
    if UNKNOWN not in (asked, committed) and asked != committed:
        raise ProducerFenced(
            f"transaction {command.tx_id} of {command.transactional_id!r} was committed with "
            "other records than these, so two processes use one registration: a running producer "
            "was copied, perhaps with its machine. Nothing of these records was committed. Close "
            "this producer, open a new one, and send them again.",
            transactional_id=command.transactional_id,
            tx_id=str(command.tx_id),
        )
