"""Offsets of the Spark source: one line of a checkpoint's `offsets/<batch>`. Pure values.

Keeps R20 (each partition has its own start, so that a replay reads the planned range even if the
start has moved since) and R25 (a line names its log, group and topics, so that no other source
accepts it). One line is

    {"type": "txlog", "version": 1, "log": <log id>, "group": <group or null>, "topics":
     {<name>: {"id": <topic id>, "partitions": {"0": {"from": 5, "to": 9}, ...}}, ...}}

A topic that was deleted, or that is no longer subscribed to, stays in the lines with the offsets
that were read; the first line of the next topic of its name contains the old one's id ("replaced").
After a change of the group ("group") all lines name the query's first one, too ("first").

Spark compares offsets as strings, so equal offsets must encode to equal strings: everything below
the first level is in order of name or number. It must not read a log or a file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

from txlog.errors import CheckpointConflict, CorruptData, InvalidName, UnsupportedFormat
from txlog.journal.codec import parsed
from txlog.journal.entry import newer_release
from txlog.model import TopicPartition, validate_group_id, validate_topic_name

OFFSET_TYPE = "txlog"
OFFSET_VERSION = 1
OFFSET_MAX = (1 << 63) - 1
"""Kafka's and Arrow's offsets are signed 64-bit numbers."""

Json: TypeAlias = Any
"""A value that the json module reads and writes."""

_FIELDS = ("type", "version", "log", "group", "topics")
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
# Without leading zeros, so that equal offsets have equal strings.
_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}")

NEW_CHECKPOINT = (
    "treat the checkpoint as lost: a stateless query whose sources and sink are in one log "
    "continues with a new checkpointLocation, startingOffsets=committed and, until a batch is "
    "committed, group.takeover=true in the sink"
)
"""The remedy that loses and repeats nothing for such a query: it begins at the group's offsets. It
is no remedy for a query whose group has changed."""


class PartitionRange(NamedTuple):
    """Offsets [start, end) of one partition; empty if they are equal."""

    start: int
    end: int

    def __str__(self) -> str:
        return f"[{self.start}, {self.end})"


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """The range of a micro-batch in every partition that the source reads.

    A partition that the batch does not advance has an empty range. The next batch begins where
    this one ends.
    """

    log_id: str
    group: str | None
    ranges: Mapping[TopicPartition, PartitionRange] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """Topic -> the id of its incarnation (rule R11). A topic may have no partition."""
    replaced: Mapping[str, str] = field(default_factory=dict)
    """Topic -> in the first batch of an incarnation, the id of the deleted one that the source read
    before. Without it the line belongs to another source (rule R25)."""
    first_group: str = ""
    """The query's first group, if it has another one now. It still chooses the coordinator, which
    has the query's batches (R2)."""

    @property
    def origin(self) -> str | None:
        """The query's first group; None if it never had one."""
        return self.first_group or self.group

    @property
    def advanced(self) -> dict[TopicPartition, PartitionRange]:
        """The ranges of the partitions that the batch advances."""
        return {tp: r for tp, r in self.ranges.items() if r.end > r.start}

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """Where the next batch begins in each partition."""
        return {tp: r.end for tp, r in self.ranges.items()}

    def present_positions(self, topic_ids: Mapping[str, str]) -> dict[TopicPartition, int]:
        """The same, in the topics that still have these ids."""
        ids = self.topic_ids
        return {
            tp: r.end for tp, r in self.ranges.items() if topic_ids.get(tp.topic) == ids[tp.topic]
        }


def initial(
    log_id: str,
    group: str | None,
    starts: Mapping[TopicPartition, int],
    topic_ids: Mapping[str, str],
) -> SourceOffset:
    """The offset before the first batch: an empty range at the start of every partition."""
    ranges = {tp: PartitionRange(at, at) for tp, at in sorted(starts.items())}
    return SourceOffset(log_id, group, ranges, dict(sorted(topic_ids.items())))


def advance(
    offset: SourceOffset,
    ends: Mapping[TopicPartition, int],
    topic_ids: Mapping[str, str] | None = None,
    *,
    begins: Mapping[TopicPartition, int] | None = None,
) -> SourceOffset:
    """The offset of the next batch: each partition from the end of `offset` to its new end.

    A partition that is not in `ends` keeps its position. A new partition begins at 0, or at its
    offset in `begins`, and joins with the next batch that has records in any partition, so that its
    group has a position in it. `topic_ids`: name -> id. A topic with another id than in `offset`
    was created again, and all its partitions are new. Without new records the result is `offset`
    itself, because any other result would make Spark run empty batches for ever (rule R20). Raises
    CheckpointConflict if an end is below the end of `offset`.
    """
    ids = {**offset.topic_ids, **(topic_ids or {})}
    gone = {name: known for name, known in offset.topic_ids.items() if ids[name] != known}
    kept = offset.present_positions(ids)
    require_reached(kept, ends)
    # The checkpoint's positions win: `begins` is for partitions that it does not have.
    reached = {**(begins or {}), **kept}
    grown = {tp: PartitionRange(reached.get(tp, 0), end) for tp, end in ends.items()}
    if not any(new.end > new.start for new in grown.values()):
        return offset
    ranges = {tp: PartitionRange(at, at) for tp, at in kept.items()} | grown
    names = {*offset.topic_ids, *(tp.topic for tp in grown)}
    # Only the first line of a new topic names the old one, which the line before it has.
    begun = {tp.topic for tp in kept}
    waiting = {name: known for name, known in offset.replaced.items() if name not in begun}
    return replace(
        offset,
        ranges=dict(sorted(ranges.items())),
        topic_ids={name: ids[name] for name in sorted(names)},
        replaced=waiting | gone,
    )


def handed_over(offset: SourceOffset, group: str | None) -> SourceOffset:
    """The same offset in that group, which may be another one than so far (`abandonedGroup`)."""
    if offset.group == group:
        return offset
    first = offset.origin or ""
    return replace(offset, group=group, first_group="" if first == group else first)


def require_reached(
    reached: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> None:
    """Raises CheckpointConflict if a partition ends below the position that is reached in it."""
    for tp, end in sorted(ends.items()):
        start = reached.get(tp, 0)
        if end < start:
            raise ends_below(tp, end, start)


def ends_below(where: TopicPartition, end: int, reached: int) -> CheckpointConflict:
    """The error for a log that ends at `end`, below what a checkpoint has read of it."""
    return CheckpointConflict(
        f"{where} ends at {end}, but the checkpoint has read up to {reached}: the log was restored "
        f"from an older copy, or truncated. Restore it, or {NEW_CHECKPOINT}.",
        partition=str(where),
        checkpoint_offset=reached,
        end_offset=end,
    )


# The owner of an offset.


def require_own(
    offset: SourceOffset,
    log_id: str,
    group: str | None,
    subscribes: Callable[[str], bool],
    abandoned_group: str | None = None,
) -> None:
    """Refuse an offset of another source (rule R25). `subscribes`: to a topic of that name.
    `abandoned_group`: the group that the query had before, if it is given up.

    Spark silently passes source B's offset to source A if `b.union(a)` is restarted as
    `a.union(b)`. Raises CheckpointConflict, which names the differences.
    """
    is_abandoned = offset.group is not None and offset.group == abandoned_group
    differences = _different_owner(offset, log_id, offset.group if is_abandoned else group)
    topics = sorted(offset.topic_ids)
    if topics and not any(map(subscribes, topics)):
        differences.append(f"topics {', '.join(topics)} there, none of them here")
    if differences:
        raise CheckpointConflict(
            f"the checkpoint's offset belongs to another source: {'; '.join(differences)}. "
            f"{_owner_remedy(offset, log_id, group)}",
            differences=differences,
        )


def _owner_remedy(offset: SourceOffset, log_id: str, group: str | None) -> str:
    reordered = "If the query's sources were reordered or replaced, restore the old query"
    if offset.group != group:
        if offset.group is None:
            return f"{reordered}. Otherwise leave group.id out again."
        return (
            f"{reordered}. Otherwise set group.id={offset.group}; or, to leave that group where it "
            f"is, abandonedGroup={offset.group}."
        )
    if offset.log_id != log_id:
        return (
            f"{reordered}. Otherwise give the root of that log; or, if this one was restored from "
            f"a backup of it, {NEW_CHECKPOINT}."
        )
    return f"{reordered}, or {NEW_CHECKPOINT}."


def require_successor(previous: SourceOffset, current: SourceOffset, where: str) -> None:
    """Refuse `current` unless it is the batch after `previous`, or the same line (R23, R25).

    Raises CheckpointConflict, which names the differences.
    """
    # The source has made this line, and only `abandonedGroup` makes it name another group.
    is_handed_over = current.origin == previous.origin
    group = previous.group if is_handed_over else current.group
    differences = _different_owner(previous, current.log_id, group)
    there = previous.topic_ids
    replaced = {name for name, known in current.replaced.items() if there.get(name) == known}
    there = {name: known for name, known in there.items() if name not in replaced}
    differences += _different_topics(there, current.topic_ids)
    # A repeated line (R23) has the ranges of its own batch, which do not begin where they end.
    if not differences and current != previous:
        differences = _gaps(previous, current, replaced)
    if differences:
        lost = f", or {NEW_CHECKPOINT}" if previous.group == current.group else ""
        raise CheckpointConflict(
            f"{where} does not follow the batch before it: {'; '.join(differences)}. The "
            f"checkpoint was changed by hand or is of another query: restore it{lost}.",
            where=where,
            differences=differences,
        )


def _different_owner(offset: SourceOffset, log_id: str, group: str | None) -> list[str]:
    found = []
    if offset.log_id != log_id:
        found.append(f"log {offset.log_id} there, {log_id} here")
    if offset.group != group:
        found.append(f"group {offset.group or 'none'} there, {group or 'none'} here")
    return found


def _different_topics(there: Mapping[str, str], here: Mapping[str, str]) -> list[str]:
    found = [f"topic {name} there, not here" for name in sorted(there.keys() - here.keys())]
    found += [
        f"topic {name} was deleted and created again (id {there[name]} there, {here[name]} here)"
        for name in sorted(there.keys() & here.keys())
        if there[name] != here[name]
    ]
    return found


def _gaps(previous: SourceOffset, current: SourceOffset, replaced: Collection[str]) -> list[str]:
    here = current.ranges
    found = []
    for tp, reached in previous.positions.items():
        if tp.topic in replaced:
            continue
        if tp not in here:
            found.append(f"{tp} is missing")
        elif here[tp].start != reached:
            found.append(f"{tp} ended at {reached} and continues at {here[tp].start}")
    return found


# JSON. Anything malformed is CorruptData (I15).


def to_json(offset: SourceOffset) -> dict[str, Json]:
    """The value that the source passes to Spark, which writes it with `json.dumps`."""
    topics: dict[str, dict[str, Json]] = {}
    for name, topic_id in sorted(offset.topic_ids.items()):
        replaced = offset.replaced.get(name)
        more = {"replaced": replaced} if replaced else {}
        topics[name] = {"id": topic_id, **more, "partitions": {}}
    for where, found in sorted(offset.ranges.items()):
        bounds = {"from": found.start, "to": found.end}
        topics[where.topic]["partitions"][str(where.partition)] = bounds
    return {
        "type": OFFSET_TYPE,
        "version": OFFSET_VERSION,
        "log": offset.log_id,
        "group": offset.group,
        **({"first": offset.first_group} if offset.first_group else {}),
        "topics": topics,
    }


def encode(offset: SourceOffset) -> str:
    """The line as Spark writes it."""
    return json.dumps(to_json(offset))


def is_txlog(value: Json) -> bool:
    """Whether a source's line is txlog's, by its "type" alone (rule R25)."""
    return isinstance(value, dict) and value.get("type") == OFFSET_TYPE


def decode(line: str, where: str) -> SourceOffset:
    """Read a line. `where` names it in errors. Raises CorruptData, UnsupportedFormat."""
    try:
        # Deeply nested JSON raises RecursionError (I15).
        value = parsed(line)
    except (ValueError, RecursionError) as error:
        raise CorruptData(f"{where} is not JSON ({error}); {_RESTORE}", where=where) from error
    return from_json(value, where)


def from_json(value: Json, where: str) -> SourceOffset:
    """Read the value that Spark passes back. Raises CorruptData, UnsupportedFormat."""
    if not is_txlog(value):
        raise _malformed(where, 'has no "type" of a txlog offset')
    if type(value.get("version")) is not int or value["version"] < 1:
        raise _malformed(where, f"has version {value.get('version')!r}")
    # Before the fields, which may be others in a later version.
    if value["version"] != OFFSET_VERSION:
        raise UnsupportedFormat(
            f"{where} is of offset version {value['version']}; this txlog reads {OFFSET_VERSION}. "
            f"{newer_release(value.get('txlog'))}.",
            where=where,
        )
    extra = ("first",) if "first" in value else ()
    _require_keys(value, (*_FIELDS, *extra), where, "the offset")
    ids, replaced = {}, {}
    ranges: dict[TopicPartition, PartitionRange] = {}
    for name, known in sorted(_mapping(value["topics"], where, "topics").items()):
        _require_topic(name, known, where)
        ids[name] = known["id"]
        if "replaced" in known:
            replaced[name] = known["replaced"]
        for number, bounds in known["partitions"].items():
            ranges[TopicPartition(name, int(number))] = PartitionRange(bounds["from"], bounds["to"])
    return SourceOffset(
        _identifier(value["log"], where, "log"),
        _group(value["group"], where),
        dict(sorted(ranges.items())),
        ids,
        replaced,
        (_group(value["first"], where) or "") if extra else "",
    )


_RESTORE = f"restore the checkpoint, or {NEW_CHECKPOINT}."


def _malformed(where: str, what: str) -> CorruptData:
    return CorruptData(f"{where} {what}; {_RESTORE}", where=where)


def _require_keys(value: Mapping[str, Json], names: tuple[str, ...], where: str, what: str) -> None:
    if set(value) != set(names):
        raise _other_fields(value, names, where, what)


def _other_fields(
    value: Mapping[str, Json], names: tuple[str, ...], where: str, what: str
) -> CorruptData:
    return _malformed(where, f"has fields {sorted(value)} in {what}, not {sorted(names)}")


def _mapping(value: Json, where: str, what: str) -> Mapping[str, Json]:
    if not isinstance(value, dict):
        raise _malformed(where, f"has {value!r} as {what}")
    return value


def _identifier(value: Json, where: str, what: str) -> str:
    # A topic id becomes part of a path, so it must be a plain name.
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise _malformed(where, f"has {value!r} as id of the {what}")
    return value


def _group(value: Json, where: str) -> str | None:
    try:
        return None if value is None else validate_group_id(value)
    except InvalidName as error:
        raise _malformed(where, f"has {value!r} as group") from error


def _require_topic(name: str, known: Json, where: str) -> None:
    try:
        validate_topic_name(name, internal=True)
    except InvalidName as error:
        raise _malformed(where, f"has {name!r} as a topic") from error
    extra = ("replaced",) if "replaced" in _mapping(known, where, f"topic {name}") else ()
    _require_keys(known, ("id", *extra, "partitions"), where, f"topic {name}")
    _identifier(known["id"], where, f"topic {name}")
    if extra:
        _identifier(known["replaced"], where, f"earlier topic {name}")
    for number, bounds in _mapping(known["partitions"], where, f"partitions of {name}").items():
        if not _NUMBER.fullmatch(number):
            raise _malformed(where, f"has {number!r} as a partition of {name}")
        if not isinstance(bounds, dict):
            raise _malformed(where, f"has {bounds!r} as {name}-{number}")
        if bounds.keys() != {"from", "to"}:
            raise _other_fields(bounds, ("from", "to"), where, f"{name}-{number}")
        start, end = bounds["from"], bounds["to"]
        if type(start) is not int or type(end) is not int or not 0 <= start <= end <= OFFSET_MAX:
            raise _malformed(where, f"has the range {start!r} to {end!r} in {name}-{number}")
