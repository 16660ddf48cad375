"""A process with a transactional producer that writes numbered records until it is stopped.

`python -m tests.soak.producing OPTIONS` (JSON, see ProducerOptions). Its records all go to
one partition, so that readers can tell from the numbers alone whether one is missing, duplicated or
out of order. Every second producer stages the records of its transactions; the others write them
into the log.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from functools import partial

from tests.system_test.topics import INPUT
from txlog.client.producer.producer import Producer
from txlog.engine.connection import connect
from txlog.engine.producer_config import TRANSACTION_RECORDS
from txlog.errors import AbortableError
from txlog.testing.worker_process import again, tell, told_to_end

TELL_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """The options of one producer."""

    root: str
    number: int
    partition: int
    transaction_records: int
    value_bytes: int
    pause_ms: float
    """The pause between two transactions."""


def value_of(producer: int, number: int, size: int) -> bytes:
    """The record `number` of a producer: both numbers, padded to `size` bytes."""
    return (b"%d %d " % (producer, number)).ljust(size, b".")


def numbers_in(value: bytes) -> tuple[int, int]:
    """The producer and the number in a record."""
    producer, number, _ = value.split(b" ")
    return int(producer), int(number)


class _RunningProducer:
    """A running producer."""

    def __init__(self, options: ProducerOptions) -> None:
        self._options = options
        self._producer = Producer(
            again(lambda: connect(options.root)),
            transactional_id=f"producer-{options.number}",
            transaction_records=TRANSACTION_RECORDS[options.number % 2],
        )
        again(self._producer.init_transactions)
        self._committed = 0
        """The number of records whose commit the log has acknowledged."""
        self._commits_ms: list[float] = []

    def run(self) -> None:
        """Run transaction after transaction."""
        self._tell()
        told_s = time.monotonic()
        while not told_to_end():
            try:
                self._commits_ms.append(self._commit())
            except AbortableError:
                again(self._producer.abort_transaction)
                continue
            self._committed += self._options.transaction_records
            if time.monotonic() - told_s >= TELL_S:
                told_s = time.monotonic()
                self._tell()
            time.sleep(self._options.pause_ms / 1e3)
        again(self._producer.close)
        self._tell()

    def _commit(self) -> float:
        """Run one transaction; returns the milliseconds of its commit, with everything it had to
        write."""
        options = self._options
        again(self._producer.begin_transaction)
        for number in range(self._committed, self._committed + options.transaction_records):
            value = value_of(options.number, number, options.value_bytes)
            again(partial(self._producer.send, INPUT, value, partition=options.partition))
        begun = time.monotonic()
        again(self._producer.commit_transaction)
        return (time.monotonic() - begun) * 1e3

    def _tell(self) -> None:
        commits_ms, self._commits_ms = self._commits_ms, []
        tell(committed=self._committed, commits_ms=[round(each, 2) for each in commits_ms])


def main() -> None:
    """Run one producer."""
    _RunningProducer(ProducerOptions(**json.loads(sys.argv[1]))).run()


if __name__ == "__main__":
    main()
