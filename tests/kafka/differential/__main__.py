"""`python -m tests.kafka.differential`: histories on both servers, and where they differ."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.kafka.differential.broker import Broker
from tests.kafka.differential.compare import compared
from tests.processes.kafka_gateway import Gateway


def main() -> int:
    """Returns the exit code: 1 if a history differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=2_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--length", type=int, default=40, help="steps of a history")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--broker", help="the address of a running broker")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="differential-"))
    broker = None if options.broker else Broker(folder / "kafka")
    gateway = Gateway(str(folder / "log"))
    address = options.broker or (broker.address if broker else "")
    shown: Counter[str] = Counter()
    differing, begun = 0, time.monotonic()
    played = 0
    try:
        for seed in range(options.first, options.first + options.histories):
            if time.monotonic() - begun > options.minutes * 60:
                break
            played += 1
            found = compared(seed, options.length, address, gateway.address, shown)
            if found:
                differing += 1
                print(f"seed {seed}:\n{found}", flush=True)
    finally:
        gateway.stop()
        if broker is not None:
            broker.stop()
    print(f"{played} histories, {sum(shown.values())} steps in {time.monotonic() - begun:.0f} s")
    print("\n".join(f"{count:7} {what}" for what, count in sorted(shown.items())))
    print(f"{differing} histories differ")
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main())
