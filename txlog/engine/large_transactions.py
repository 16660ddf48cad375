"""Transactions whose stored batches one entry cannot name: each topic's are in a manifest.

Manifests are written before the decision, all at once, and the decision names them
(docs/design/0039). Keeps R67: whatever could be refused about them is refused here, because nothing
is refused after a decision (R46). A crash leaves manifests without a reference, for the vacuum.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby

from txlog.coordinator.events import Participant, ReplayMark
from txlog.engine.append.appender import STORED_BATCH_BYTES, entry_weight
from txlog.engine.connection import Connection
from txlog.errors import InvalidRecord
from txlog.fan_out import WIDE
from txlog.journal.codec import encode
from txlog.layout import STATE_BYTES_MAX, is_segment
from txlog.storage.store import ENTRY_BYTES_MAX
from txlog.topic.records.batch import Segment
from txlog.topic.topic_log import TopicLog

RANGE_BYTES = 60
"""The largest size of a range in a mark, without the names of its group and topic: two offsets of
19 digits, a partition of 4, quotes, commas and brackets. A smaller value would let a decision with
many partitions exceed its entry."""

DECISION_BYTES_MAX = ENTRY_BYTES_MAX - 120_000
"""The names of all topics, segments and manifests in a decision, and its mark. The rest of its
entry is for small records (64 KB) and the entry's own fields. With more, a decision could exceed
its entry, and be refused as it is sent."""

MARKER_BYTES_MAX = ENTRY_BYTES_MAX - 120_000
"""A marker with the parts of a manifest: a topic of 10,000 partitions fits. The rest of its entry
is for small records (64 KB) and the entry's own fields. With more, a transaction could be decided
whose marker fits no entry, so that it would never end."""

_MANIFEST_WEIGHT = 3
"""What naming a manifest takes, in stored batches. One that would list fewer saves nothing."""

_BASE_OFFSET_BYTES = 30
"""A partition and an offset of 19 digits, with their punctuation."""

_TOPIC_ID_BYTES = 19
"""A topic's id, which each marker repeats for every topic of the transaction."""


def weight(participants: Sequence[Participant], mark: ReplayMark | None = None) -> int:
    """The space in an entry that naming all of this takes, in stored batches: the name of a topic,
    of up to 249 characters, takes as much as two."""
    ranges = mark.ranges if mark is not None else ()
    mark_bytes = sum(len(r.group.encode()) + len(r.topic) + RANGE_BYTES for r in ranges)
    # As `entry_weight` counts them; here without a call for each topic.
    named = [2 + len(one.batches) for part in participants for one in part.segments]
    return 2 * len(participants) + sum(named) + mark_bytes // STORED_BATCH_BYTES


def decidable(
    connection: Connection, participants: tuple[Participant, ...], mark: ReplayMark | None = None
) -> tuple[Participant, ...]:
    """The participants as one entry can name them: unchanged, or with manifests, which are durable
    on return. May be repeated.

    Raises InvalidRecord if they are too many topics or partitions, and the store's errors.
    """
    if weight(participants, mark) <= connection.entry_batches_max:
        return participants
    least = min(_MANIFEST_WEIGHT, connection.entry_batches_max)
    folded: list[Participant] = []
    writes: list[Callable[[], None]] = []
    for participant in participants:
        topic = connection.cluster.topic_of_id(participant.topic, participant.topic_id)
        part, its_writes = _folded(topic, participant, topics=len(participants), least=least)
        folded.append(part)
        writes += its_writes
    size_bytes = sum(map(_stored_bytes, folded)) + (0 if mark is None else _stored_bytes(mark))
    if size_bytes > DECISION_BYTES_MAX:
        raise InvalidRecord(
            f"the transaction writes to {len(folded)} topics, whose names exceed the entry that "
            "would commit it; nothing was committed. Write to fewer topics in one transaction.",
            topics=len(folded),
        )
    fan_out = connection.runtime.fan_out
    (fan_out.run_together if len(writes) in WIDE else fan_out.run_all)(writes)
    return tuple(folded)


def _folded(
    topic: TopicLog, participant: Participant, *, topics: int, least: int
) -> tuple[Participant, list[Callable[[], None]]]:
    """The participant with a manifest in place of its stored segments, and what writes it. Records
    that ride in the entry stay where they are among them, with a manifest for each run of others:
    the order of a partition's records is that of sending. Raises InvalidRecord."""
    segments: list[Segment] = []
    in_marker: list[Segment] = []
    writes = []
    longest_bytes = 0
    for is_stored, run in groupby(participant.segments, key=lambda one: is_segment(one.path)):
        named = parts = tuple(run)
        if is_stored and entry_weight(named) > least:
            manifest, write = topic.encode_manifest(named)
            named, parts = (manifest.whole,), (manifest.parts,)
            longest_bytes = max(longest_bytes, manifest.length)
            writes.append(write)
        segments += named
        in_marker += parts
    partitions = len({batch.partition for one in in_marker for batch in one.batches})
    marker_bytes = _stored_bytes(replace(participant, segments=tuple(in_marker)))
    marker_bytes += _BASE_OFFSET_BYTES * partitions + _TOPIC_ID_BYTES * topics
    if marker_bytes > MARKER_BYTES_MAX or longest_bytes > STATE_BYTES_MAX:
        raise InvalidRecord(
            f"the transaction writes {len(in_marker)} lists of batches to {partitions} partitions "
            f"of topic {topic.name!r}, more than one marker can name; nothing was committed. "
            "Divide it into several transactions.",
            topic=topic.name,
            partitions=partitions,
        )
    return replace(participant, segments=tuple(segments)), writes


def _stored_bytes(value: Participant | ReplayMark) -> int:
    return len(json.dumps(encode(value), separators=(",", ":")))
