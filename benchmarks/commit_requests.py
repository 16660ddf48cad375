"""`python -m benchmarks.commit_requests [--folder DIR]`: one transaction on a disk, call by call.

One line for each call that `commit.py`'s transaction makes to its store: start and end in
milliseconds, and a star if it is in the longest chain of calls that waited for each other. Between
the starred lines the client computes. The transaction shown is the one of median duration.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from benchmarks.commit import WARM_UP, Transactions
from txlog.clock import Runtime
from txlog.engine.connection import open_connection
from txlog.storage.disk.local import LocalStore
from txlog.storage.policy.store_wrapper import StoreWrapper
from txlog.storage.store import Body, ByteRange, Bytes, CreateResult
from txlog.testing.request_log import Request, chain, described

T = TypeVar("T")

TIMES = 101
"""Transactions that are measured."""


class TimedStore(StoreWrapper):
    """Records when each call to a folder began and ended."""

    def __init__(self, folder: Path) -> None:
        super().__init__(LocalStore(folder, Runtime()))
        self.requests: list[Request] = []

    def create(self, path: str, data: bytes) -> CreateResult:
        """See Store.create."""
        return self._timed("create", path, lambda: self._store.create(path, data))

    def get(self, path: str) -> bytes | None:
        """See Store.get."""
        return self._timed("get", path, lambda: self._store.get(path))

    def get_ranges(self, path: str, ranges: Sequence[ByteRange]) -> list[Bytes] | None:
        """See Store.get_ranges."""
        return self._timed("get_ranges", path, lambda: self._store.get_ranges(path, ranges))

    def put_new(self, path: str, data: Body) -> None:
        """See Store.put_new."""
        self._timed("put_new", path, lambda: self._store.put_new(path, data))

    def _timed(self, verb: str, path: str, call: Callable[[], T]) -> T:
        begun_ms = _now_ms()
        try:
            return call()
        finally:
            self.requests.append(Request(verb, path, begun_ms, _now_ms()))


def main() -> None:
    """Run the transactions, and print the calls of one."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.commit_requests")
    parser.add_argument("--folder", type=Path, help="its disk is measured (default: /tmp's)")
    with tempfile.TemporaryDirectory(dir=parser.parse_args().folder) as folder:
        store = TimedStore(Path(folder) / "log")
        transactions = Transactions(open_connection(store, Runtime(), create=True))
        for _ in range(WARM_UP):
            transactions.run()
            transactions.settle()
        taken = [_one(transactions, store) for _ in range(TIMES)]
    taken.sort(key=lambda found: found[0])
    duration_ms, requests = taken[TIMES // 2]
    writes = [r for r in requests if r.verb in ("create", "put_new")]
    print("\n".join(described(requests, 1.0)))
    waited_ms = sum(request.duration_ms for request in chain(requests))
    print(f"transaction: {duration_ms:.2f} ms, of which {waited_ms:.2f} ms are the starred calls")
    print(f"its {len(writes)} files by themselves: {sum(r.duration_ms for r in writes):.2f} ms")


def _one(transactions: Transactions, store: TimedStore) -> tuple[float, list[Request]]:
    """How long one transaction takes, and its calls until its commit returns."""
    store.requests.clear()
    begun_ms = _now_ms()
    transactions.run()
    ended_ms = _now_ms()
    requests = [request for request in store.requests if request.begun_ms < ended_ms]
    transactions.settle()
    return ended_ms - begun_ms, requests


def _now_ms() -> float:
    return time.perf_counter() * 1000


if __name__ == "__main__":
    main()
