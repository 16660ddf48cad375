"""The only import of `txlog.testing.invariants` in the product: proof for a log at rest.

The tests' checker reads the stored bytes and counts everything again, so that users may run it on
their logs, too. Only the commands that prove a log may import it (setup.cfg).
"""

from __future__ import annotations

from txlog.engine.connection import Connection
from txlog.journal.audit import Finding
from txlog.storage.policy.read_ahead import ReadAheadStore
from txlog.storage.store import Store
from txlog.testing.invariants import check_log

READS_MAX = 3


def proven(connection: Connection) -> list[Finding]:
    """Contradictions between the journals of a log; empty if there are none.

    The journals are read one after the other, so a finding counts only if it appears in each of
    several looks: what other processes write meanwhile differs from look to look.
    """
    found = set(check_log(_readable(connection)))
    for _ in range(READS_MAX - 1):
        if not found:
            break
        found &= set(check_log(_readable(connection)))
    return sorted(found)


def _readable(connection: Connection) -> Store:
    """On a distant store, reads ahead along a listing made now."""
    cluster = connection.cluster
    if cluster.is_near:
        return cluster.store
    listed = list(cluster.store.list_after(""))
    return ReadAheadStore(cluster.store, cluster.fan_out, listed)
