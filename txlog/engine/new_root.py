"""Whether a log may be created here: checks the place and those above it before anything is
written.

A log among other files may be deleted with them, or vacuum would have to distinguish them; a log
within another log is garbage to the outer one. It must not decide anything about an existing log.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial

from txlog.catalog.cluster_file import read_cluster_file
from txlog.clock import Runtime
from txlog.errors import StoreDenied, TxlogError, UsageError
from txlog.layout import CLUSTER_FILE, PROBES, journal_root
from txlog.storage.open import open_store
from txlog.storage.root_url import roots_above
from txlog.storage.store import Store

_HARMLESS = re.compile(r"\.[^/]*|(?:.*/)?(?:lost\+found(?:/.*)?|\.DS_Store|\.gitkeep|\.gitignore)")
"""What file systems and file managers put into every folder, besides hidden files."""


def require_own_place(
    root: str, store: Store, runtime: Runtime, storage_options: Mapping[str, object] | None
) -> None:
    """Raises UsageError if there is no log and one may not be created there; says why.

    Costs one GET where a log exists, else, in parallel, a LIST and a GET for each folder above. A
    place that this process may not read does not stop it.
    """
    if read_cluster_file(store) is not None:
        return
    foreign_here = runtime.fan_out.start(partial(_first_foreign, store))
    above = roots_above(root)
    are_logs = runtime.fan_out.run_all(
        [partial(_is_log, place, runtime, storage_options) for place in above]
    )
    for place, is_log in zip(above, are_logs, strict=True):
        if is_log:
            raise UsageError(
                f"{store.url} is within the log at {place}, which would take its files for "
                "garbage. Give a place outside of it.",
                url=store.url,
            )
    if foreign := foreign_here():
        raise UsageError(
            f"{store.url} contains files that are not a log's, such as {foreign!r:.120}, and a log "
            "is not created among them. Give a folder of its own, such as a new one within it.",
            url=store.url,
        )


def _first_foreign(store: Store) -> str:
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
