"""A process with a `read_committed` reader that reads the output while faults are injected.

`python -m tests.system_test.reader OPTIONS` (JSON, see ReaderProcessOptions) writes every
record to a file in the order received: a line with partition, offset and value. It ends once its
input is closed and no records are left.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from txlog.client.consumer.consumer import Consumer
from txlog.client.consumer.consumer_record import ConsumerRecord
from txlog.engine.connection import connect
from txlog.testing.worker_process import again, tell, told_to_end

POLL_MS = 100
POLL_RECORDS = 5_000
EMPTY_POLLS = 3
"""After this many empty polls in a row, once its input is closed, no records are left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderProcessOptions:
    """The options of the reader."""

    root: str
    topic: str
    seen_file: str


def records_until_told(root: str, topic: str) -> Iterator[list[ConsumerRecord]]:
    """All records at `read_committed` from the beginning, poll by poll, as they arrive."""
    connection = again(lambda: connect(root))
    consumer = again(
        lambda: Consumer(
            topic,
            root=connection,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        )
    )
    empty_polls = 0
    while empty_polls < EMPTY_POLLS:
        is_last = told_to_end()
        polled = again(partial(consumer.poll, POLL_MS, POLL_RECORDS))
        yield [record for records in polled.values() for record in records]
        empty_polls = empty_polls + 1 if is_last and not polled else 0


def main() -> None:
    """Run the reader."""
    options = ReaderProcessOptions(**json.loads(sys.argv[1]))
    count = 0
    with open(options.seen_file, "w", encoding="ascii") as seen:
        for records in records_until_told(options.root, options.topic):
            count += len(records)
            seen.writelines(f"{r.partition} {r.offset} {r.value.decode()}\n" for r in records)
            if records:
                tell(seen=count)


if __name__ == "__main__":
    main()
