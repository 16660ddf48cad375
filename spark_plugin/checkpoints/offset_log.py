"""The files `offsets/<batch>` of a Spark checkpoint, and the ranges of a micro-batch. Pure values.

Keeps R21 (several sources in one query), R23 (a source advances only if its line differs from its
line in the batch before) and R25 (lines are positional in version 1 of the file, keyed by source in
version 2). It reads no file: `checkpoint.py` does. Tested with PySpark 4.2.0:

    v1                          v2
    {"batchWatermarkMs": ...}   {"batchWatermarkMs": ..., "sourceMetadataInfo": {}}
    -                           1:{"type": "txlog", ...}
    {"type": "txlog", ...}

In version 1 a source without an offset is '-'; in version 2 it is left out, and the order of lines
has no meaning. The key of a named source is its name.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from spark_plugin.source.offsets import (
    NEW_CHECKPOINT,
    Json,
    PartitionRange,
    SourceOffset,
    decode,
    is_txlog,
    require_successor,
)
from txlog.errors import CheckpointConflict, CorruptData, UnsupportedFormat
from txlog.model import TopicPartition

NO_OFFSET = "-"
"""In version 1, the line of a source that has no offset yet."""

_HEADER = re.compile(r"v([0-9]{1,9})")
_KEYED = re.compile(r"([A-Za-z0-9_]+):(.*)", re.DOTALL)


class GroupTopicPartition(NamedTuple):
    """A partition that a consumer group reads."""

    group: str
    topic: str
    partition: int

    @property
    def where(self) -> TopicPartition:
        """The partition without the group."""
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} of group {self.group}"


@dataclass(frozen=True, slots=True)
class OffsetFile:
    """One file `offsets/<batch id>`."""

    batch_id: int
    version: int
    watermark_ms: int
    lines: Mapping[str, str]
    """Source key -> line. The key is the position in version 1, the source's id or name in
    version 2."""
    digest: str
    """SHA-256 of the file's bytes, by which a changed file is noticed (rule R1)."""
    own: tuple[str, ...] = ()
    """Keys of the lines that are txlog's, by their type."""

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the batch: its sources' lines and its watermark (rule R2).

        It does not contain the plan's time, so unlike `digest` it stays the same when Spark plans
        the same batch again because the file was lost. The log keeps it as long as the query
        exists, and later versions of txlog compare with it: the computation must not change.
        """
        parts = [str(self.watermark_ms)]
        # Sorted: in version 2 the order of the lines has no meaning.
        parts += [f"{key}:{text}" for key, text in sorted(self.lines.items())]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class BatchRange:
    """The offsets that one micro-batch reads of one log."""

    batch_id: int
    ranges: Mapping[GroupTopicPartition, PartitionRange]
    """The partitions that it advances, in the groups of this log; empty for a watermark-only
    batch."""
    idle: Mapping[GroupTopicPartition, PartitionRange] = field(default_factory=dict)
    """The partitions that it reads and does not advance: empty ranges at their positions."""
    joined: frozenset[GroupTopicPartition] = frozenset()
    """The partitions in `idle` that the batch before did not have."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """Topic -> id, of the topics in `ranges` and `idle` (rule R11)."""
    others: tuple[str, ...] = ()
    """Keys of lines of other kinds of source, or without an offset yet."""
    foreign: tuple[str, ...] = ()
    """Keys of lines of other logs."""
    ungrouped: tuple[str, ...] = ()
    """Keys of this log's lines without a `group.id`: their offsets are in no transaction (R29)."""
    groups: tuple[str, ...] = ()
    """Every group of this log that the query reads with, even if the batch does not advance it."""
    first_groups: tuple[str, ...] = ()
    """The same, but for each source its first one: they stay when a group is given up."""
    fingerprint: str = ""
    previous_fingerprint: str = ""
    """Of the batch before, as the checkpoint has it now; empty for batch 0."""
    digest: str = ""

    @property
    def joining(self) -> dict[GroupTopicPartition, PartitionRange]:
        """The empty ranges of `joined`. The batch gives the group these positions."""
        return {key: moved for key, moved in self.idle.items() if key in self.joined}

    def by_group(self) -> dict[str, dict[GroupTopicPartition, PartitionRange]]:
        """group -> the ranges of all partitions that the batch reads in it, advanced or not."""
        found: dict[str, dict[GroupTopicPartition, PartitionRange]] = {}
        for key, moved in sorted({**self.idle, **self.ranges}.items()):
            found.setdefault(key.group, {})[key] = moved
        return found


def parse(batch_id: int, data: bytes, where: str) -> OffsetFile:
    """Read the bytes of `offsets/<batch_id>`.

    Raises CorruptData if it is empty, truncated or garbled, UnsupportedFormat for a version that is
    neither 1 nor 2.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise _damaged(where, "is not text") from error
    rows = text.removesuffix("\n").split("\n")
    version = _version(rows[0], where)
    if len(rows) < 3:
        raise _damaged(where, "ends before its first source")
    if version == 1:
        lines = {str(position): row for position, row in enumerate(rows[2:])}
    else:
        lines = _keyed(rows[2:], where)
    values = {key: _whole(line, f"source {key} in {where}") for key, line in lines.items()}
    own = tuple(key for key, value in values.items() if is_txlog(value))
    return OffsetFile(batch_id, version, _watermark(rows[1], where), lines, digest_of(data), own)


def digest_of(data: bytes) -> str:
    """The digest of a file's bytes."""
    return hashlib.sha256(data).hexdigest()


def batch_range(
    current: OffsetFile, previous: OffsetFile | None, log_id: str, where: str
) -> BatchRange:
    """The ranges of the batch `current` in the log `log_id`. `previous`: the batch before.

    Raises CheckpointConflict if a line does not follow its line in `previous`, or if two lines of
    one group differ; CorruptData for a malformed line.
    """
    before = txlog_lines(previous) if previous is not None else {}
    here = txlog_lines(current)
    if previous is not None:
        _require_same_sources(current, previous, here, before, where)
    own = {key: offset for key, offset in here.items() if offset.log_id == log_id}
    grouped = {key: _moved(offset, before.get(key)) for key, offset in own.items() if offset.group}
    merged = _merged(((own[key], moved) for key, moved in grouped.items()), where)
    advanced = {key: moved for key, moved in sorted(merged.items()) if moved.end > moved.start}
    idle = {key: moved for key, moved in sorted(merged.items()) if key not in advanced}
    ids = _topic_ids(own.values(), merged)
    known = _incarnations(before.values())
    return BatchRange(
        batch_id=current.batch_id,
        ranges=advanced,
        idle=idle,
        # By the topic's id: in a topic that was created again every partition joins (R11).
        joined=frozenset(key for key in idle if (key, ids[key.topic]) not in known),
        topic_ids=ids,
        others=tuple(key for key in current.lines if key not in here),
        foreign=tuple(key for key in here if key not in own),
        ungrouped=tuple(key for key, offset in own.items() if not offset.group),
        groups=tuple(sorted({offset.group for offset in own.values() if offset.group})),
        first_groups=tuple(sorted({o.origin for o in own.values() if o.origin})),
        fingerprint=current.fingerprint,
        previous_fingerprint=previous.fingerprint if previous is not None else "",
        digest=current.digest,
    )


def _damaged(where: str, what: str) -> CorruptData:
    return CorruptData(
        f"{where} {what}; the checkpoint is damaged. Restore it, or {NEW_CHECKPOINT}.", where=where
    )


def _version(header: str, where: str) -> int:
    match = _HEADER.fullmatch(header)
    if match is None:
        raise _damaged(where, f"begins with {header[:40]!r}, not with its version")
    version = int(match.group(1))
    if version not in (1, 2):
        raise UnsupportedFormat(
            f"{where} is of version {version} of Spark's offset log; this txlog reads 1 and 2. "
            "Set spark.sql.streaming.offsetLog.formatVersion to 2 and use a new checkpoint.",
            where=where,
            version=version,
        )
    return version


def _watermark(row: str, where: str) -> int:
    try:
        metadata = json.loads(row)
        watermark_ms = metadata["batchWatermarkMs"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(where, "has no metadata in its second line") from error
    if type(watermark_ms) is not int:
        raise _damaged(where, f"has the watermark {watermark_ms!r}")
    return watermark_ms


def _keyed(rows: list[str], where: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for row in rows:
        match = _KEYED.fullmatch(row)
        if match is None or match.group(1) in found:
            raise _damaged(where, f"has the line {row[:80]!r}, which does not name a new source")
        found[match.group(1)] = match.group(2)
    return found


def _whole(line: str, where: str) -> Json:
    """The value of a line, if it is JSON; other kinds of source need not write any. Refuses a
    truncated line, which would pass for one of another kind (I15)."""
    if not line:
        raise _damaged(where, "is empty")
    if not line.startswith("{"):
        return None
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _damaged(where, f"is not complete JSON ({error})") from error


def txlog_lines(file: OffsetFile) -> dict[str, SourceOffset]:
    """Source key -> offset, of the sources that are txlog's. Raises CorruptData."""
    return {
        key: decode(file.lines[key], f"source {key} in offsets/{file.batch_id}") for key in file.own
    }


def _require_same_sources(
    current: OffsetFile,
    previous: OffsetFile,
    here: Mapping[str, SourceOffset],
    before: Mapping[str, SourceOffset],
    where: str,
) -> None:
    """Refuse a line that changed its kind or owner. In version 2 sources may come and go."""
    is_positional = current.version == previous.version == 1
    if is_positional and len(current.lines) != len(previous.lines):
        raise _changed(where, f"{len(previous.lines)} sources before, {len(current.lines)} now")
    for key in sorted(current.lines.keys() & previous.lines.keys()):
        # A source may get its first offset late: a line without one says nothing of its kind.
        if (key in here) != (key in before) and previous.lines[key] != NO_OFFSET:
            raise _changed(where, f"source {key} is a txlog source in only one of them")
        if key in here and key in before:
            require_successor(before[key], here[key], f"source {key} in {where}")


def _changed(where: str, what: str) -> CheckpointConflict:
    return CheckpointConflict(
        f"{where} is of another query than the batch before it: {what}. Put back the query as it "
        f"was, or {NEW_CHECKPOINT}.",
        where=where,
    )


def _moved(
    offset: SourceOffset, previous: SourceOffset | None
) -> Mapping[TopicPartition, PartitionRange]:
    """The ranges of a line: empty ones if it repeats the line of the batch before (rule R23)."""
    if offset == previous:
        return {tp: PartitionRange(at, at) for tp, at in offset.positions.items()}
    return offset.ranges


def _merged(
    lines: Iterable[tuple[SourceOffset, Mapping[TopicPartition, PartitionRange]]], where: str
) -> dict[GroupTopicPartition, PartitionRange]:
    """The ranges of all lines. Lines of one group must have equal ranges in a topic (R21).

    A line that lags would later read rows at offsets that the group has already passed, and its
    batch would count as committed.
    """
    merged: dict[GroupTopicPartition, PartitionRange] = {}
    seen: dict[tuple[str, str], Mapping[int, PartitionRange]] = {}
    for offset, moved in lines:
        group = offset.group or ""
        for topic in offset.topic_ids:
            here = {tp.partition: r for tp, r in moved.items() if tp.topic == topic}
            first = seen.setdefault((group, topic), here)
            if first != here:
                raise _unequal(group, topic, first, here, where)
            merged |= {GroupTopicPartition(group, topic, number): r for number, r in here.items()}
    return merged


def _unequal(
    group: str,
    topic: str,
    first: Mapping[int, PartitionRange],
    second: Mapping[int, PartitionRange],
    where: str,
) -> CheckpointConflict:
    differing = [
        f"{topic}-{number}: {first.get(number, 'absent')} and {second.get(number, 'absent')}"
        for number in sorted(first.keys() | second.keys())
        if first.get(number) != second.get(number)
    ]
    return CheckpointConflict(
        f"in {where} two sources of group {group} read different ranges of {topic} "
        f"({'; '.join(differing)}), so no offset is true for both. Read the topic once and use "
        f"that DataFrame twice, and {NEW_CHECKPOINT}.",
        group=group,
        topic=topic,
    )


def _incarnations(offsets: Iterable[SourceOffset]) -> set[tuple[GroupTopicPartition, str]]:
    """The partitions that these lines read in a group, each with its topic's id."""
    return {
        (GroupTopicPartition(offset.group, *where), offset.topic_ids[where.topic])
        for offset in offsets
        if offset.group
        for where in offset.ranges
    }


def _topic_ids(
    offsets: Iterable[SourceOffset], advanced: Mapping[GroupTopicPartition, PartitionRange]
) -> dict[str, str]:
    wanted = {key.topic for key in advanced}
    found: dict[str, str] = {}
    for offset in offsets:
        for name, topic_id in offset.topic_ids.items():
            if name in wanted and found.setdefault(name, topic_id) != topic_id:
                raise CheckpointConflict(
                    f"two sources of the query read topic {name} under different ids "
                    f"({found[name]} and {topic_id}): it was deleted and created again in "
                    f"between. Restart the query, and {NEW_CHECKPOINT}.",
                    topic=name,
                )
    return dict(sorted(found.items()))
