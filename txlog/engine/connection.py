"""An open log with everything on it: topics, coordinators, consumer groups.

The place where the layers are put together; it decides nothing. Connections are cached for each
root and process (`connect`), because journals that are open already are quick to follow; nothing
depends on that cache for its correctness.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from txlog.catalog.cluster import Cluster, open_cluster
from txlog.catalog.cluster_file import ClusterFile
from txlog.clock import Runtime
from txlog.coordinator.carrier import Carriers
from txlog.coordinator.coordinator import Coordinator, journal_of
from txlog.engine.given_arguments import given_root
from txlog.engine.new_root import require_own_place
from txlog.errors import InvalidConfig, NotATxlog, UnknownTransaction
from txlog.groups.offsets import GroupOffsets
from txlog.groups.shared_journal import SharedMachine, SharedState, offsets_of, transactions_of
from txlog.groups.state import OffsetsState
from txlog.journal.part import JournalPart
from txlog.journal.replication.replica import Replica
from txlog.model import TransactionOutcome, TxId
from txlog.settings import ProcessSettings
from txlog.storage.open import open_store
from txlog.storage.store import Store


class Connection:
    """One log, open in this process. Safe to use from threads."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.offsets = GroupOffsets(cluster, self.coordinator, self._groups)
        self._coordinators: dict[int, Coordinator] = {}
        self._journals: dict[int, Replica[SharedState]] = {}
        self._lock = threading.RLock()
        cluster.carry = Carriers(cluster.runtime, self.coordinators).begin

    @property
    def runtime(self) -> Runtime:
        """Clock, entropy and parallel work."""
        return self.cluster.runtime

    def coordinator(self, partition: int) -> Coordinator:
        """The coordinator of that partition of the transaction log."""
        with self._lock:
            if partition not in self._coordinators:
                part = JournalPart(self._journal(partition), transactions_of)
                self._coordinators[partition] = Coordinator(
                    self.cluster, partition, self.offsets, part
                )
            return self._coordinators[partition]

    def _groups(self, partition: int) -> JournalPart[OffsetsState]:
        return JournalPart(self._journal(partition), offsets_of)

    def _journal(self, partition: int) -> Replica[SharedState]:
        """Of that coordinator and its groups."""
        with self._lock:
            if partition not in self._journals:
                self._journals[partition] = Replica(
                    self.cluster.store,
                    self.cluster.layout.transactions(partition),
                    SharedMachine(),
                    self.cluster.runtime,
                    self.cluster.options,
                )
            return self._journals[partition]

    def coordinator_of(self, transaction_group: str) -> Coordinator:
        """The coordinator that serves a transaction group; by default a transactional id."""
        count = self.cluster.file.settings.transaction_state_log_num_partitions
        return self.coordinator(journal_of(transaction_group, count))

    def coordinators(self) -> list[Coordinator]:
        """All of them."""
        count = self.cluster.file.settings.transaction_state_log_num_partitions
        return [self.coordinator(partition) for partition in range(count)]

    def caught_up(self) -> Iterator[Coordinator]:
        """All of them, in order; the `state` of each is as of now."""
        coordinators = self.coordinators()
        states = self.cluster.answers([coordinator.catch_up for coordinator in coordinators])
        for coordinator, _ in zip(coordinators, states, strict=True):
            yield coordinator

    def outcome(self, tx_id: TxId) -> TransactionOutcome:
        """How a transaction ended; UNKNOWN_ID if no coordinator knows, or any more (rule R39)."""
        asked = [partial(coordinator.outcome, tx_id) for coordinator in self.coordinators()]
        for answer in self.cluster.answers(asked):
            if answer is not TransactionOutcome.UNKNOWN_ID:
                return answer
        return TransactionOutcome.UNKNOWN_ID

    def coordinator_with(self, tx_id: TxId) -> tuple[Coordinator, str]:
        """The coordinator and the transactional id of a transaction. Raises UnknownTransaction."""
        for coordinator in self.caught_up():
            found = coordinator.state.find(tx_id)
            if found is not None:
                return coordinator, found[0]
        raise UnknownTransaction(
            f"no coordinator knows transaction {tx_id}; 'txlog txn list' shows the open ones.",
            tx_id=str(tx_id),
        )


def writer_name() -> str:
    """Names this process in journal entries: information for people only."""
    return f"{socket.gethostname()}/{os.getpid()}"


CONNECTIONS_MAX = 64
"""Logs that a process keeps open for later callers; on a disk, each has two open files."""

_connections: dict[str, Connection] = {}
_connections_lock = threading.Lock()


def connect(
    root: str,
    *,
    create: bool = False,
    storage_options: Mapping[str, object] | None = None,
    process: ProcessSettings | None = None,
    log_config: Mapping[str, object] | None = None,
    cluster_file: ClusterFile | None = None,
) -> Connection:
    """The log at `root`, opened once a process, and again if another log is there now.

    With `create`, a log that was removed since this process opened it is created again, with the
    log settings in `log_config`. `cluster_file` is as another process has read it: the log is
    opened by that, without a request. Raises NotATxlog (there is none, and `create` is
    false), UsageError (one may not be created there), InvalidConfig (there is one, with other
    settings), StoreNotAtomic, StoreDenied.
    """
    root = given_root(root, storage_options)
    options = sorted((storage_options or {}).items())
    key = f"{os.getpid()} {root} {options!r} {process!r} {log_config!r}"
    with _connections_lock:
        known = _connections.get(key)
    is_meant = known is not None and (cluster_file is None or known.cluster.file == cluster_file)
    if known is not None and is_meant and _is_there_still(known, fresh=create):
        return known
    runtime = Runtime()
    store = open_store(root, runtime, storage_options)
    connection = open_connection(
        store,
        runtime,
        create=create,
        process=process,
        log_config=log_config,
        require_place=partial(require_own_place, root, store, runtime, storage_options),
        cluster_file=cluster_file,
    )
    with _connections_lock:
        if _connections.get(key) is known:
            _connections.pop(key, None)
            for oldest in list(_connections)[: max(0, len(_connections) - CONNECTIONS_MAX + 1)]:
                del _connections[oldest]
            _connections[key] = connection
        return _connections[key]


def _is_there_still(connection: Connection, *, fresh: bool) -> bool:
    """False if the folder was emptied: what was read there says nothing about a new log."""
    try:
        connection.cluster.require_present(fresh=fresh)
    except NotATxlog:
        return False
    return True


def open_connection(
    store: Store,
    runtime: Runtime,
    *,
    create: bool = False,
    process: ProcessSettings | None = None,
    log_config: Mapping[str, object] | None = None,
    require_place: Callable[[], object] = lambda: None,
    cluster_file: ClusterFile | None = None,
) -> Connection:
    """The log in `store`, with components of the caller's: for tests and the simulation.

    `require_place` raises what keeps a log from being created there."""
    cluster = open_cluster(
        store,
        runtime,
        process,
        create=create,
        writer=writer_name(),
        log_config=log_config,
        require_place=require_place,
        cluster_file=cluster_file,
    )
    return Connection(cluster)


def given_configuration(config: object) -> tuple[str | Connection, dict[str, Any]]:
    """The log's root, and the other dotted names. Raises InvalidConfig."""
    if not isinstance(config, Mapping):
        raise InvalidConfig(f"a configuration is a dict of names and values, not {config!r:.40}.")
    values = dict(config)
    root = values.pop("root", None)
    if not isinstance(root, str | Connection):
        raise InvalidConfig("the configuration needs 'root': the log's folder or URL.")
    return root, values
