"""`python -m benchmarks.far_batch_requests`: the requests of one micro-batch on a far store.

One line for each request: its start and end in round trips, a star if it is in the longest chain of
requests that waited for each other, and Spark's Python process that made it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import unquote, urlsplit

from benchmarks import far_micro_batch
from benchmarks.far_store import ROUND_TRIP_MS, FarStore, far_store
from benchmarks.processes import owners
from benchmarks.spark_session import Pipeline, spark_session, use_manager
from txlog.testing.request_log import Request, chain, described

BATCHES = 6
"""Micro-batches on the far store; the benchmark shows the requests of the last complete one."""


def main() -> None:
    """Run the query of `far_micro_batch.py`, and print its requests."""
    with far_store() as store, TemporaryDirectory() as folder:
        os.environ.update(store.env)
        session = spark_session()
        try:
            use_manager(session, quick=True)
            side = far_micro_batch.txlog_side(session, store, Path(folder))
            side.run(far_micro_batch.WARM_UP)
            requests, names = _observed(side, store)
        finally:
            session.stop()
    one = _last_batch(requests)
    lines = list(described(one, ROUND_TRIP_MS))
    for line, request in zip(lines, sorted(one, key=_order), strict=False):
        print(f"{names.get(request.port, 'unknown'):15} {line}")
    print(lines[-1])
    print(f"{len(chain(one))} waits")


def _observed(side: Pipeline, store: FarStore) -> tuple[list[Request], dict[int, str]]:
    """The requests of a few micro-batches, with the processes that made them."""
    store.far()
    store.line.logged()
    query = side.writer().start()
    last = side.next_batch + BATCHES
    while query.lastProgress is None or query.lastProgress["batchId"] < last:
        time.sleep(0.05)
    requests = store.line.logged()
    for request in requests:
        request.path = unquote(urlsplit(request.path).path)
    names = owners(request.port for request in requests)
    query.stop()
    return requests, names


def _last_batch(requests: Sequence[Request]) -> list[Request]:
    """The requests after the commit of one batch, until the end of the next commit."""
    decided = [n for n, request in enumerate(requests) if _is_decision(request)]
    begins = list(_starts_after(requests, decided))
    return list(requests[begins[-2] : begins[-1]])


def _starts_after(requests: Sequence[Request], decided: Sequence[int]) -> Iterator[int]:
    """The source's first request after each decision, which reads the source topic."""
    for number in decided:
        for at in range(number, len(requests)):
            if requests[at].verb == "GET" and _is_entry_of("in", requests[at]):
                yield at
                break


def _is_decision(request: Request) -> bool:
    return request.verb == "PUT" and _is_entry_of("out", request)


def _is_entry_of(topic: str, request: Request) -> bool:
    return f"/topics/{topic}/" in request.path and "/entries/" in request.path


def _order(request: Request) -> tuple[float, float]:
    return request.begun_ms, request.ended_ms


if __name__ == "__main__":
    main()
