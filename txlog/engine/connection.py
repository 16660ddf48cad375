"""An open log: its topics, coordinators and consumer groups, and where a log may be created.

It assembles the layers below and decides nothing of the protocol. Connections are cached for each
root and process (`connect`), because following an open journal is quick; correctness does not
depend on the cache.
"""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Callable, Container, Iterator, Mapping
from functools import partial
from typing import Any, NoReturn

from txlog.catalog.cluster import Cluster, open_cluster
from txlog.catalog.cluster_file import ClusterFile, read_cluster_file
from txlog.clock import Runtime
from txlog.coordinator.coordinator import Coordinator, coordinator_number_of
from txlog.coordinator.marker_carrier import MarkerCarriers
from txlog.coordinator.topic_deletion import CoordinatedDeletion
from txlog.coordinator.transaction import PREPARED
from txlog.engine.append.appender import ENTRY_BATCHES_MAX
from txlog.errors import (
    InvalidConfig,
    NotATxlog,
    StoreDenied,
    TxlogError,
    UnknownTransaction,
    UsageError,
)
from txlog.fan_out import OnError, unless_unread
from txlog.groups.machine import CoordinatorMachine
from txlog.groups.offsets import GroupOffsets
from txlog.journal.replication.replica import Replica
from txlog.layout import CLUSTER_FILE, PROBES, journal_root
from txlog.model import TransactionOutcome, TxId
from txlog.settings import ProcessSettings
from txlog.storage.open import open_store
from txlog.storage.root_url import roots_above
from txlog.storage.store import Store

CONNECTIONS_MAX = 64
"""Connections cached in a process; on a disk, each has two open files, so all of them have an
eighth of the usual 1,024 descriptors. A process that uses more logs in turn opens each anew."""

_HARMLESS = re.compile(r"\.[^/]*|(?:.*/)?(?:lost\+found(?:/.*)?|\.DS_Store|\.gitkeep|\.gitignore)")
"""Hidden files, and what file systems and file managers put into every folder."""


class InOneProcess:
    """A client, which cannot be copied or passed to another process."""

    def __reduce__(self) -> NoReturn:
        """Raises UsageError, in place of pickle's error about a lock within the client."""
        raise UsageError(
            f"this {type(self).__name__} cannot be copied or passed to another process, such as a "
            "task of Spark: pass the log's root, and open another one there."
        )


class Connection(InOneProcess):
    """One open log. Safe to use from threads."""

    entry_batches_max = ENTRY_BATCHES_MAX
    """Stored batches that a decision names one by one; a larger transaction has manifests."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.runtime = cluster.runtime
        self.offsets = GroupOffsets(cluster, self.coordinator)
        self._coordinators: dict[int, Coordinator] = {}
        self._lock = threading.Lock()
        # Topics are opened by a layer that knows no coordinators, so what carries is handed to it.
        cluster.carry = MarkerCarriers(cluster.runtime, self.coordinators).begin
        cluster.deletions = CoordinatedDeletion(cluster, self.coordinators)

    def coordinator(self, number: int) -> Coordinator:
        """The coordinator with that number."""
        cluster = self.cluster
        with self._lock:
            if number not in self._coordinators:
                journal = Replica(
                    cluster.store,
                    cluster.layout.transactions(number),
                    CoordinatorMachine(cluster.file.settings.transaction_state_log_num_partitions),
                    cluster.runtime,
                    cluster.options,
                )
                self._coordinators[number] = Coordinator(cluster, number, self.offsets, journal)
            return self._coordinators[number]

    def coordinator_of(self, transaction_group: str) -> Coordinator:
        """The coordinator of a transaction group, which by default is the transactional id."""
        count = self.cluster.file.settings.transaction_state_log_num_partitions
        return self.coordinator(coordinator_number_of(transaction_group, count))

    def coordinators(self) -> list[Coordinator]:
        """All coordinators of the log."""
        count = self.cluster.file.settings.transaction_state_log_num_partitions
        return [self.coordinator(number) for number in range(count)]

    def caught_up(self, on_error: OnError | None = None) -> Iterator[Coordinator]:
        """All coordinators in order, each after it has caught up with its journal. Those that
        cannot be read are left out if `on_error` is given, which is told of them."""
        coordinators = self.coordinators()
        reads = [
            unless_unread(on_error, "coordinator", str(each.number), each.catch_up)
            for each in coordinators
        ]
        for coordinator, state in zip(coordinators, self.cluster.answers(reads), strict=True):
            if state is not None:
                yield coordinator

    def finish_decided(self, topics: Container[str] | None = None) -> None:
        """Complete decided transactions, of any process, which otherwise happens in the background:
        all, or those that write to one of `topics`. Raises the first error, after the others are
        complete."""
        errors: list[TxlogError] = []
        for coordinator in self.caught_up():
            for name, transaction in list(coordinator.state.open_transactions()):
                written = [participant.topic for participant in transaction.participants]
                is_meant = topics is None or any(topic in topics for topic in written)
                if transaction.state in PREPARED and is_meant:
                    try:
                        coordinator.finish(name, transaction.tx_id)
                    except TxlogError as error:
                        errors.append(error)
        for first in errors:
            raise first

    def outcome(self, tx_id: TxId) -> TransactionOutcome:
        """How a transaction ended; UNKNOWN_ID if no coordinator knows it, or its coordinator has
        forgotten its outcome (rule R39). One that cannot be read raises only if no other knows
        it."""
        errors: list[TxlogError] = []
        asked = [
            unless_unread(
                lambda *told: errors.append(told[2]), "", "", partial(coordinator.outcome, tx_id)
            )
            for coordinator in self.coordinators()
        ]
        for answer in self.cluster.answers(asked):
            if answer not in (None, TransactionOutcome.UNKNOWN_ID):
                return answer
        for error in errors:
            raise error
        return TransactionOutcome.UNKNOWN_ID

    def coordinator_with(self, tx_id: TxId) -> tuple[Coordinator, str]:
        """The coordinator and the transactional id of a transaction. Raises UnknownTransaction, or
        the error of a coordinator that may know it."""
        errors: list[TxlogError] = []
        for coordinator in self.caught_up(lambda *told: errors.append(told[2])):
            found = coordinator.state.find(tx_id)
            if found is not None:
                return coordinator, found[0]
        for error in errors:
            raise error
        raise UnknownTransaction(
            f"no coordinator knows transaction {tx_id}; 'txlog txn list' shows the open ones.",
            tx_id=str(tx_id),
        )


def writer_name() -> str:
    """This process's name in journal entries, which only people read."""
    return f"{socket.gethostname()}/{os.getpid()}"


_connections: dict[str, Connection] = {}
_connections_lock = threading.Lock()


def connect(
    root: str | Connection,
    *,
    create: bool = False,
    storage_options: Mapping[str, object] | None = None,
    process: ProcessSettings | None = None,
    log_config: Mapping[str, object] | None = None,
    cluster_file: ClusterFile | None = None,
) -> Connection:
    """The log at `root`, which may be a connection. It is opened once in a process, and again if
    another log is there now.

    With `create` a missing log is created with the settings in `log_config`, also if it was removed
    since this process opened it. With `cluster_file`, which another process has read, no request
    is sent. Raises NotATxlog (there is no log, and `create` is false), UsageError (a log may not
    be created there), InvalidConfig (the log there has other settings), StoreNotAtomic,
    StoreDenied.
    """
    if isinstance(root, Connection):
        return root
    root = _checked_root(root, storage_options)
    options = sorted((storage_options or {}).items())
    # With the process id: a forked child opens the log itself and makes its own checks (R31).
    key = f"{os.getpid()} {root} {options!r} {process!r} {log_config!r}"
    with _connections_lock:
        known = _connections.get(key)
    is_same = known is not None and (cluster_file is None or known.cluster.file == cluster_file)
    if known is not None and is_same and _is_still_there(known, fresh=create):
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
        # Opening takes requests, so the lock was free meanwhile: the first thread to open the log
        # wins, and all threads share its connection. Or there were so many that none is left.
        if _connections.get(key) in (known, None):
            # Removed and stored again, so that the first items of the dict are the oldest.
            _connections.pop(key, None)
            for oldest in list(_connections)[: max(0, len(_connections) - CONNECTIONS_MAX + 1)]:
                del _connections[oldest]
            _connections[key] = connection
        return _connections[key]


def _checked_root(root: object, storage_options: object) -> str:
    """The root of a log, as text. Raises UsageError."""
    if storage_options is not None and not isinstance(storage_options, Mapping):
        raise UsageError(
            f"storage_options are {storage_options!r:.40}; give a dict of names and values."
        )
    text = os.fspath(root) if isinstance(root, str | os.PathLike) else None
    why = ""
    try:
        if isinstance(text, str):
            # Every path and URL needs a UTF-8 form, which half a surrogate pair does not have.
            text.encode()
            return text
    except UnicodeEncodeError:
        why = ", which is not UTF-8"
    raise UsageError(
        f"the log's root is {root!r:.80}{why}; give a folder or a URL such as s3://bucket/log."
    )


def _is_still_there(connection: Connection, *, fresh: bool) -> bool:
    """False if the folder was emptied: the state of the old log does not apply to a new one."""
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
    """The log in `store`, with the caller's own store and runtime. `require_place` is called
    before a log is created, and raises if it may not be."""
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


def given_configuration(config: object) -> dict[str, Any]:
    """The arguments of a client's constructor. Raises InvalidConfig."""
    if not isinstance(config, Mapping) or not all(isinstance(name, str) for name in config):
        raise InvalidConfig(f"a configuration is a dict of names and values, not {config!r:.40}.")
    if not isinstance(config.get("root"), str | os.PathLike | Connection):
        raise InvalidConfig("the configuration needs 'root': the log's folder or URL.")
    return dict(config)


def require_own_place(
    root: str, store: Store, runtime: Runtime, storage_options: Mapping[str, object] | None
) -> None:
    """Raises UsageError if there is no log at `root` and one may not be created there.

    A log among other files could be deleted with them, and vacuum would have to tell its own files
    from the others; a log within another log is garbage to the outer one. Costs one GET if the log
    exists, else, in parallel, a LIST and a GET for each folder above. Places that this process may
    not read are skipped.
    """
    if read_cluster_file(store) is not None:
        return
    foreign_file = runtime.fan_out.start(partial(_first_foreign, store))
    above = roots_above(root)
    are_logs = runtime.fan_out.run_all(
        [partial(_is_log, place, runtime, storage_options) for place in above]
    )
    for place, is_log in zip(above, are_logs, strict=True):
        if is_log:
            raise UsageError(
                f"{store.url} is within the log at {place}, which would take its files for "
                "garbage. Give a place outside of that log.",
                url=store.url,
            )
    if foreign := foreign_file():
        raise UsageError(
            f"{store.url} contains files that belong to no log, such as {foreign!r:.120}, "
            "and a log is not created among them. Give an empty folder, such as a new one in it.",
            url=store.url,
        )


def _first_foreign(store: Store) -> str:
    """The first file that belongs to no log; empty if there is none, or LIST is denied."""
    try:
        for stored in store.list_after(""):
            path = stored.path
            is_ours = path == CLUSTER_FILE or journal_root(path) or path.startswith(f"{PROBES}/")
            if not (is_ours or _HARMLESS.fullmatch(path)):
                return path
    except StoreDenied:
        pass
    return ""


def _is_log(url: str, runtime: Runtime, storage_options: Mapping[str, object] | None) -> bool:
    try:
        return open_store(url, runtime, storage_options).get(CLUSTER_FILE) is not None
    except TxlogError:
        return False
