"""The cluster file: a log's id, format and settings, written once when the log is created.

A root on a store that is not atomic is refused before a log is written there, and a root without a
log, a newer format and damage are different errors.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from txlog.clock import Runtime
from txlog.errors import (
    CorruptData,
    NotATxlog,
    StoreDenied,
    StoreUnavailable,
    TxlogError,
    UnsupportedFormat,
)
from txlog.fan_out import SerialFanOut, in_background
from txlog.journal.beginning import first_entry
from txlog.journal.codec import decode, encode, parsed
from txlog.journal.entry import (
    FORMAT_VERSION,
    checked_body,
    not_understood,
    seal,
    unsupported,
    written_by,
)
from txlog.layout import (
    CLUSTER_FILE,
    CLUSTER_JOURNAL,
    LogLayout,
    is_log_id,
    journal_root,
    parse_number,
)
from txlog.model import WallMs
from txlog.settings import (
    BOUNDARY_GRACE_MS,
    BOUNDARY_TRUST_MS,
    FAR_COORDINATORS,
    LogSettings,
)
from txlog.storage.policy.probe import ProbeResult, probe
from txlog.storage.store import Exists, Store, is_near
from txlog.stored import stored


@stored(
    "cluster_file",
    format_version="format_version",
    log_id="log_id",
    created_ms="created_ms",
    settings="settings",
    probe="probe",
)
@dataclass(frozen=True, slots=True)
class ClusterFile:
    """Content of the cluster file."""

    format_version: int
    log_id: str
    created_ms: WallMs
    settings: LogSettings
    probe: str
    """Result of the probe of the store, as JSON text. For information."""


def decode_cluster_file(data: bytes, url: str) -> ClusterFile:
    """Decode a cluster file. Raises NotATxlog if it has another format, CorruptData if it is
    damaged, StoreUnavailable if a web server has answered in place of the store."""
    path = f"{url}/{CLUSTER_FILE}"
    if data.lstrip().startswith(b"<"):
        raise StoreUnavailable(
            f"{path}: a web page came instead of an object. Check that the endpoint is that of an "
            "object store, and whether a proxy between it and this machine has answered.",
            place=path,
        )
    try:
        body, _ = checked_body(data, path)
        value = parsed(body)
        # Before the fields are decoded, as those of another format may differ.
        if (version := value["format_version"]) != FORMAT_VERSION:
            raise unsupported(path, version, FORMAT_VERSION, written_by(data))
    except UnsupportedFormat as error:
        raise NotATxlog(
            f"{url} contains a log of another format: {error.message}", path=path
        ) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptData(
            f"{path} is not a cluster file; restore it from a backup.", path=path
        ) from error
    try:
        file: ClusterFile = decode(ClusterFile, value)
        if not is_log_id(file.log_id):
            raise CorruptData(f"its log id is {file.log_id!r:.50}")
    except UnsupportedFormat as error:
        newer = not_understood(path, "a setting", error.message, written_by(data))
        raise NotATxlog(newer.message, **newer.facts) from error
    except CorruptData as error:
        raise CorruptData(
            f"{path} is not a cluster file ({error.message}); restore it from a backup.", path=path
        ) from error
    return file


def create_cluster(
    store: Store,
    runtime: Runtime,
    settings: LogSettings | None = None,
    require_place: Callable[[], object] = lambda: None,
) -> ClusterFile:
    """Create a log: probe the store, then write the cluster file. An existing log stays as it is.

    The journals' first entries are stored before the file (R63). A process that dies in between
    leaves them in folders whose id no log will have; otherwise they are removed if the file is not
    written.

    Raises StoreNotAtomic if the store fails the probe, CorruptData if a log has lost its cluster
    file, what `require_place` raises if there is no log, and what `read_cluster_file` raises.
    """
    fan_out = SerialFanOut() if is_near(store) else runtime.fan_out
    # All answers that a new log needs are requested at once: far away they cost one round trip. For
    # an existing log the last two are not used, and their errors do not matter.
    listed = in_background(fan_out, partial(_first_of_log, store))
    allowed = in_background(fan_out, require_place)
    existing = read_cluster_file(store) or _created_meanwhile(store, listed())
    if existing is not None:
        return existing
    allowed()
    log_id, created_ms = runtime.entropy.token(), runtime.clock.wall_ms()
    file = ClusterFile(
        FORMAT_VERSION, log_id, created_ms, settings or default_log_settings(store), ""
    )
    firsts = first_entries(file, runtime)
    # Far away they take no round trip of their own beside those of the probe.
    stored = [in_background(fan_out, partial(store.create, path, firsts[path])) for path in firsts]
    try:
        result: ProbeResult = probe(store, runtime)
        for each in stored:
            each()
    except TxlogError:
        _remove(store, firsts)
        raise
    file = replace(file, probe=json.dumps(result.as_json()))
    answer = store.create(CLUSTER_FILE, encode_cluster_file(file))
    if not isinstance(answer, Exists):
        return file
    # Of two processes that create a log, the second takes the settings of the first.
    _remove(store, firsts)
    return decode_cluster_file(answer.data, store.url)


def encode_cluster_file(file: ClusterFile) -> bytes:
    """The bytes of a cluster file."""
    return seal(json.dumps(encode(file), separators=(",", ":")).encode())


def first_entries(file: ClusterFile, runtime: Runtime) -> dict[str, bytes]:
    """What is stored before the file of a log: the first entry of each of its journals (R63)."""
    layout = LogLayout(file.log_id)
    count = file.settings.transaction_state_log_num_partitions
    journals = [layout.cluster(), *map(layout.transactions, range(count))]
    return {journal.entry(0): first_entry(journal, runtime, "txlog") for journal in journals}


def _remove(store: Store, paths: Iterable[str]) -> None:
    """Remove objects with a log's id that no file names, as far as the store allows it."""
    with suppress(TxlogError):
        for path in paths:
            store.delete(path)


def default_log_settings(store: Store) -> LogSettings:
    """The settings of a log that is created there. On a distant store a boundary check is trusted
    for a time, because it takes a round trip, and there are more coordinators."""
    if is_near(store):
        return LogSettings()
    return LogSettings(
        transaction_state_log_num_partitions=FAR_COORDINATORS,
        boundary_trust_ms=BOUNDARY_TRUST_MS,
        boundary_grace_ms=BOUNDARY_GRACE_MS,
    )


def _first_of_log(store: Store) -> str:
    """The first object of a cluster's journal that is written after the log's file; "" if there is
    none, or the process may not list."""
    try:
        paths = (stored.path for stored in store.list_after(f"{CLUSTER_JOURNAL}/"))
        return next((path for path in paths if journal_root(path) and not _is_first(path)), "")
    except StoreDenied:
        return ""


def _is_first(path: str) -> bool:
    """Whether it is the first entry of a journal, which is stored before the log's file (R63)."""
    return path.endswith("/entries/" + path.rpartition("/")[2]) and parse_number(path) == 0


def _created_meanwhile(store: Store, first: str) -> ClusterFile | None:
    """None if no other process has created a log there: `first` is empty. The file comes before all
    entries but the first, and has the number of coordinators: with another number a transactional
    id could change its coordinator (I4)."""
    if not first:
        return None
    file = read_cluster_file(store)
    if file is None:
        path = f"{store.url}/{CLUSTER_FILE}"
        raise CorruptData(
            f"{path} is lost: an object that is only written after it exists ({first}). Restore it "
            "from a backup.",
            path=path,
        )
    return file


def read_cluster_file(store: Store) -> ClusterFile | None:
    """The cluster file, or None if there is no log. Raises NotATxlog, CorruptData."""
    data = store.get(CLUSTER_FILE)
    return None if data is None else decode_cluster_file(data, store.url)
