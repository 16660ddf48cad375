"""A small log with every kind of object, and what a user can read from it."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from tests.logs.memory_log import MemoryLog
from txlog.engine.append.appender import ENTRY_BATCHES_MAX
from txlog.model import TopicPartition
from txlog.settings import LogSettings

KINDS = {
    "cluster file": r"txlog\.json",
    "entry": r".*/entries/\d+\.json",
    "snapshot": r".*/snapshots/\d+\.arrow",
    "chunk": r".*/chunks/[\d-]+\.arrow",
    "boundary": r".*/boundaries/\d+\.json",
    "hint": r".*/hint\.json",
    "segment": r".*/segments/\w+\.arrow",
    "manifest": r".*/manifests/\w+\.arrow",
}
"""Kind -> a pattern of its paths."""

COUNT = 13
LIMIT = 2_000
"""Small records of two topics together ride in an entry."""
LARGE = (4, 12)
"""Staged transactions with manifests: of the one the index is sealed, of the other it is not."""
U0 = TopicPartition("u", 0)


@cache
def stages() -> tuple[dict[str, bytes], dict[str, bytes]]:
    """The log before and after its topics' old entries are pruned.

    Topics `u`, two partitions, and `v`: transactions over both, alternately staged and in the log,
    one aborted, with a group's offsets; records of half of them ride in entries, others are too
    large; two have manifests; a snapshot every four entries, so that chunks are sealed.
    """
    log = MemoryLog(LogSettings(journal_snapshot_entries=4, entry_records_max_bytes=LIMIT))
    log.admin.create_topic("u", 2)
    log.admin.create_topic("v", 1, config={"compression.type": "zstd"})
    in_log, staging = log.producer("a", transaction_records="in.log"), log.producer("b")
    for number in range(COUNT):
        producer = in_log if number % 2 else staging
        log.connection.entry_batches_max = 0 if number in LARGE else ENTRY_BATCHES_MAX
        producer.begin_transaction()
        large = [("large", random.Random(number).randbytes(LIMIT))] if number % 4 < 2 else []
        producer.send("u", b"u%d" % number, partition=number % 2, headers=large)
        producer.send("v", b"v%d" % number, headers=[("h", b"x" * 50), *large])
        if number == 3:
            producer.flush()
            producer.abort_transaction()
        else:
            producer.send_offsets_to_transaction({U0: number // 2}, "g")
            producer.commit_transaction()
    for producer in (in_log, staging):
        producer.close()
    before = log.objects()
    log.process().cluster.topic("v").journal.prune(keep_entries=5)
    log.process().cluster.topic("u").journal.prune(keep_entries=14)
    log.check()
    return before, log.objects()


def objects() -> dict[str, bytes]:
    """The log, whose old entries are pruned."""
    return stages()[1]


def unpruned() -> dict[str, bytes]:
    """The same log before that."""
    return stages()[0]


def copy(changed: Mapping[str, bytes], gone: Iterable[str] = ()) -> MemoryLog:
    """The log with some objects replaced, and others removed."""
    log = MemoryLog(objects=objects())
    for path in gone:
        log.memory.delete(path)
    for path, data in changed.items():
        log.memory.replace(path, data)
    return log


def opened(data: bytes) -> tuple[bytes, bytes]:
    """The body of a sealed object, and the records before it if it is an entry with records."""
    header, content = data.split(b"\n", 1)
    count = json.loads(header).get("records", 0)
    return content[count:-1], content[:count]


def paths(kind: str) -> list[str]:
    """The paths of objects of that kind."""
    return [path for path in sorted(objects()) if re.fullmatch(KINDS[kind], path)]


def everything(log: MemoryLog) -> tuple[Any, ...]:
    """Read all records at both levels and the group, and run a new transaction in another
    process."""
    seen = (
        log.values("u"),
        log.values("v"),
        log.values("u", isolation="read_uncommitted"),
        log.consumer("u", group_id="g").committed(U0),
    )
    with log.elsewhere("a").transaction():
        pass
    return seen


@cache
def expected() -> tuple[Any, ...]:
    """The result for a sound log."""
    return everything(copy({}))
