"""A process that reads a topic's first records: `python -m benchmarks.far_reader OPTIONS`.

It prints the seconds from its imports to the records.
"""

from __future__ import annotations

import json
import sys
import time

import txlog.storage.object_stores.obstore_client
import txlog.storage.s3.s3  # noqa: F401 - imports do not count
from txlog.client.consumer.consumer import Consumer
from txlog.testing.worker_process import tell


def main() -> None:
    """OPTIONS is JSON: root, topic and storage_options."""
    options = json.loads(sys.argv[1])
    begun = time.perf_counter()
    consumer = Consumer(
        options["topic"],
        root=options["root"],
        storage_options=options["storage_options"],
        auto_offset_reset="earliest",
    )
    while not consumer.poll():
        pass
    tell(seconds=time.perf_counter() - begun)


if __name__ == "__main__":
    main()
