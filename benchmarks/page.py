"""The page of a log with 5,000 topics and 1,000,000 transactions: how long each view takes to open,
and the memory of the page's process: `python -m benchmarks.page FOLDER`.

The log is made in that folder if there is none. Its transactions are committed by the coordinators'
own rules, a hundred in an entry, without records: to a coordinator's journal they are the same.
That takes ten minutes, so `make bench` leaves this out.
"""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from benchmarks.figures import Figure, at_most, table
from txlog.client.admin import Admin
from txlog.coordinator.events import (
    CommitPrepared,
    InitProducer,
    Participant,
    Registration,
    TransactionCompleted,
)
from txlog.model import TxId

TOPICS = 5_000
TRANSACTIONS = 1_000_000
PRODUCERS = 200
AT_ONCE = 100
"""Transactions of an entry, as many producers would commit in one."""
SECONDS_MAX = 2
MEGABYTES_MAX = 200
VIEWS = (
    "overview",
    "transactions?since=1d",
    "transactions?since=1d&q=producer-7",
    "queries?since=1d",
    "topics",
    "groups",
    "storage",
)


def fill(root: str, topics: int, transactions: int) -> None:
    """Topics, and transactions of many producers."""
    admin = Admin(root, create=True)
    for number in range(topics):
        admin.create_topic(f"topic-{number}")
    topic = admin.connection.cluster.topic("topic-0")
    participants = (Participant(topic.topic_id, topic.name, (0,)),)
    producers: dict[int, list[tuple[str, Registration]]] = {}
    for number in range(PRODUCERS):
        name = f"producer-{number}"
        coordinator = admin.connection.coordinator_of(name)
        found = coordinator.init_producer(InitProducer(name, "run", 60_000))
        producers.setdefault(coordinator.number, []).append((name, found))
    begun: Counter[str] = Counter()
    while begun.total() < transactions:
        for partition, known in producers.items():
            commands: list[object] = []
            for place in range(AT_ONCE):
                name, found = known[place % len(known)]
                tx_id, begun[name] = TxId(found.pid, found.epoch, begun[name]), begun[name] + 1
                at_ms = admin.connection.runtime.clock.wall_ms()
                commands.append(CommitPrepared(name, tx_id, at_ms, participants))
                commands.append(TransactionCompleted(name, tx_id, at_ms))
            admin.connection.coordinator(partition).journal.execute_each(commands)


def measured(root: str) -> Iterator[Figure]:
    """The figures of a log that is filled."""
    with _page(root) as (process, url):
        for first in (True, False):
            for view in VIEWS:
                if not first:  # Until then an answer is kept.
                    time.sleep(2.1)
                taken = _seconds(url, view)
                name = f"page: {view}, {'first' if first else 'again'}"
                yield Figure(name, taken, "s", at_most(SECONDS_MAX))
        megabytes = psutil.Process(process.pid).memory_info().rss / 1e6
        yield Figure("page: memory of its process", megabytes, "MB", at_most(MEGABYTES_MAX))


@contextmanager
def _page(root: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The page's process, and its URL with the token."""
    code = "from txlog.cli.start import main; main()"
    words = [sys.executable, "-c", code, "--root", root, "ui", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as page:
        assert page.stdout is not None
        url = next(line for line in page.stdout if "token=" in line).split()[-1]
        try:
            yield page, url
        finally:
            page.terminate()


def _seconds(url: str, view: str) -> float:
    address, _, token = url.partition("/?token=")
    request = urllib.request.Request(f"{address}/api/{view}")
    request.add_header("Authorization", f"Bearer {token}")
    began = time.perf_counter()
    with urllib.request.urlopen(request, timeout=300) as answer:
        answer.read()
    return time.perf_counter() - began


def main(folder: str) -> None:
    """Print the figures."""
    root = Path(folder) / "log"
    if not root.exists():
        fill(str(root), TOPICS, TRANSACTIONS)
    print("\n".join(table("page", list(measured(str(root))))))


if __name__ == "__main__":
    main(*sys.argv[1:])
