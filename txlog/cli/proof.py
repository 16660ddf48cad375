"""The one door from the product to `txlog.testing.invariants`: proof for a log at rest.

The checker of the tests reads what is stored and counts everything anew, so that users may run it
on their logs, too. Nothing but the commands that prove a log may import it (setup.cfg).
"""

from __future__ import annotations

from txlog.clients.connection import Connection
from txlog.journal.audit import Finding
from txlog.storage.read_ahead import ReadAheadStore
from txlog.storage.store import Store
from txlog.testing.invariants import check_log

LOOKS_MAX = 3


def proven(connection: Connection) -> list[Finding]:
    """What is wrong between the journals of a log; empty if nothing is.

    The journals are read one after the other, so a finding counts only if it is there in each of
    several looks: what others wrote meanwhile differs from look to look.
    """
    found = set(check_log(_readable(connection)))
    for _ in range(LOOKS_MAX - 1):
        if not found:
            break
        found &= set(check_log(_readable(connection)))
    return sorted(found)


def _readable(connection: Connection) -> Store:
    """Far away it reads ahead along a listing of now."""
    cluster = connection.cluster
    if cluster.is_near:
        return cluster.store
    listed = list(cluster.store.list_after(""))
    return ReadAheadStore(cluster.store, cluster.fan_out, listed)
