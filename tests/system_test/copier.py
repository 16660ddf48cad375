"""A process with one transactional copier: consume, transform, produce, with its offsets.

`python -m tests.system_test.copier OPTIONS` (JSON, see CopierOptions) copies its partitions
from one topic to the same partitions of another, and ends when all input has arrived and is copied.
It is the program that a user would write: after an abortable error it aborts and restarts at the
committed offsets; after a fencing error it ends, with status 3. Because of a pause of random length
after each step, a kill is equally likely after any step.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from tests.system_test.topics import GROUP, INPUT, OUTPUT
from txlog.client.consumer.consumer import Consumer
from txlog.client.consumer.consumer_record import ConsumerRecord
from txlog.client.producer.producer import Producer
from txlog.engine.connection import Connection, connect
from txlog.engine.producer_config import TRANSACTION_RECORDS
from txlog.errors import AbortableError, FencedError, OutcomeUnknown, RetriableError
from txlog.model import TopicPartition
from txlog.testing.worker_process import FENCED_STATUS, again, tell, told_to_end

POLL_MS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class CopierOptions:
    """The options of one copier."""

    root: str
    number: int
    """Names its transactional id, and selects whether records are staged or written into the
    log."""
    partitions: tuple[int, ...]
    transaction_records: int
    transaction_timeout_ms: int
    pause_ms: float = 0
    """The longest pause after a step."""
    seed: str = ""


class CopierProcess:
    """Copies until no input is left."""

    def __init__(self, connection: Connection, options: CopierOptions) -> None:
        self._options = options
        self._random = random.Random(options.seed)
        self._where = [TopicPartition(INPUT, partition) for partition in options.partitions]
        self._producer = Producer(
            connection,
            transactional_id=f"copier-{options.number}",
            transaction_timeout_ms=options.transaction_timeout_ms,
            transaction_records=TRANSACTION_RECORDS[options.number % 2],
        )
        again(self._producer.init_transactions)
        self._consumer = again(lambda: self._assigned(connection))
        self._ends: dict[TopicPartition, int] | None = None

    def _assigned(self, connection: Connection) -> Consumer:
        consumer = Consumer(
            root=connection,
            group_id=GROUP,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        consumer.assign(self._where)
        return consumer

    def run(self) -> None:
        """Run transaction after transaction; reports after each its position and its duration."""
        self._tell(0, 0.0)
        while records := self._batch():
            try:
                commit_ms = self._copy(records)
            except AbortableError:
                again(self._producer.abort_transaction)
                self._rewind()
                continue
            self._tell(len(records), commit_ms)
            self._pause()
        again(self._producer.close)

    def _batch(self) -> list[ConsumerRecord]:
        """The next transaction's records; empty if all are copied and no more come."""
        limit = self._options.transaction_records
        records: list[ConsumerRecord] = []
        while len(records) < limit:
            wanted = limit - len(records)
            polled = again(partial(self._consumer.poll, POLL_MS, wanted))
            records += [record for found in polled.values() for record in found]
            if not polled and (records or self._is_at_end()):
                break
        self._pause()
        return records

    def _is_at_end(self) -> bool:
        if self._ends is None and told_to_end():
            self._ends = again(lambda: self._consumer.end_offsets(self._where))
        ends = self._ends
        return ends is not None and all(
            self._consumer.position(where) >= end for where, end in ends.items()
        )

    def _copy(self, records: list[ConsumerRecord]) -> float:
        """Run one transaction; returns the milliseconds of its commit."""
        again(self._producer.begin_transaction)
        self._pause()
        for half in _halves(records):
            for record in half:
                again(
                    partial(self._producer.send, OUTPUT, record.value, partition=record.partition)
                )
            again(self._producer.flush)
            self._pause()
        positions = {where: self._consumer.position(where) for where in self._where}
        with suppress(RetriableError, OutcomeUnknown):  # The commit sends these offsets again.
            self._producer.send_offsets_to_transaction(positions, self._consumer.group_metadata())
        self._pause()
        begun = time.monotonic()
        again(self._producer.commit_transaction)
        return (time.monotonic() - begun) * 1e3

    def _rewind(self) -> None:
        """Seek to the group's position: records read since then were not copied."""
        for where in self._where:
            at = again(partial(self._consumer.committed, where))
            self._consumer.seek(where, at or 0)

    def _tell(self, copied: int, commit_ms: float) -> None:
        done = sum(self._consumer.position(where) for where in self._where)
        tell(done=done, copied=copied, commit_ms=round(commit_ms, 3))

    def _pause(self) -> None:
        if self._options.pause_ms:
            time.sleep(self._random.uniform(0, self._options.pause_ms) / 1e3)


def _halves(records: list[ConsumerRecord]) -> Iterator[list[ConsumerRecord]]:
    """Two halves, so that a transaction takes more than one append."""
    middle = (len(records) + 1) // 2
    yield from (half for half in (records[:middle], records[middle:]) if half)


def main() -> int:
    """Exit status 0 when all is copied, 3 when another instance has taken over."""
    options = CopierOptions(**json.loads(sys.argv[1]))
    try:
        CopierProcess(again(lambda: connect(options.root)), options).run()
    except FencedError:
        return FENCED_STATUS
    return 0


if __name__ == "__main__":
    sys.exit(main())
