"""`python -m benchmarks.far_requests [ROW]`: the requests of one operation on a far store.

One line for each request: its start and end in round trips, and a star if it is in the longest
chain of requests that waited for each other. ROW is the start of a row name in `far_clients.py`.
"""

from __future__ import annotations

import argparse
from urllib.parse import unquote, urlsplit

from benchmarks.far_clients import FarClients
from benchmarks.far_store import ROUND_TRIP_MS, far_store
from txlog.testing.request_log import described

TIMES = 3
"""Number of runs; the last one is shown."""


def main() -> None:
    """Run the operation, and print its requests."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.far_requests", description=__doc__)
    parser.add_argument("row", nargs="?", default="transaction")
    row = parser.parse_args().row
    with far_store() as store:
        clients = FarClients(store)
        sides = {**clients.sides(), **clients.openings()}
        found = [name for name in sides if name.startswith(row)]
        if not found:
            parser.error(f"no row begins with {row!r}; there are: {'; '.join(sides)}")
        store.far()
        for _ in range(TIMES):
            store.line.logged()
            sides[found[0]]()
        requests = store.line.logged()
    for request in requests:
        request.path = unquote(urlsplit(request.path).path)
    print(found[0])
    print("\n".join(described(requests, ROUND_TRIP_MS)))


if __name__ == "__main__":
    main()
