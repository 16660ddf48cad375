"""A process that commits small transactions one after the other: `python -m benchmarks.one_writer`.

It prints the time of every commit, by the clock that all processes of a machine share.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress

from txlog.client.producer.producer import Producer
from txlog.errors import PublishContention
from txlog.testing.worker_process import again, tell, told_to_end


def main() -> None:
    """OPTIONS is JSON: root, topic, transactional_id and storage_options."""
    options = json.loads(sys.argv[1])
    topic = options.pop("topic")
    producer = Producer(options.pop("root"), **options)
    again(producer.init_transactions)
    while not told_to_end():
        with suppress(PublishContention):  # Aborted: it lost its slot too often.
            with producer.transaction():
                producer.send(topic, b"x" * 100, key=b"k")
            tell(at=time.monotonic())


if __name__ == "__main__":
    main()
