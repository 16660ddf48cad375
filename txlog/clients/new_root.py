"""May a log be created here? Looks at what lies at the place and above it, before anything is
written.

A log among other files is one that somebody deletes with them, or that vacuum would have to tell
from them; a log within another log is garbage to that one. It must not decide anything of a log
that is there already.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial

from txlog.clock import Runtime
from txlog.errors import StoreDenied, TxlogError, UsageError
from txlog.layout import CLUSTER_FILE, PROBES, journal_root
from txlog.log.cluster import read_cluster_file
from txlog.storage.open import open_store
from txlog.storage.root_url import roots_above
from txlog.storage.store import Store

_HARMLESS = re.compile(r"\.[^/]*|(?:.*/)?(?:lost\+found(?:/.*)?|\.DS_Store|\.gitkeep|\.gitignore)")
"""What file systems and file managers put into every folder, and hidden files beside."""


def require_own_place(
    root: str, store: Store, runtime: Runtime, storage_options: Mapping[str, object] | None
) -> None:
    """Raises UsageError if there is no log and one may not be created there; says why.

    Costs one GET where a log is, else, at once, a LIST and a GET for each folder above. What this
    process may not look at does not stop it.
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
                f"{store.url} lies within the log at {place}, which would take its files for "
                "garbage. Give a place outside of it.",
                url=store.url,
            )
    if foreign := foreign_here():
        raise UsageError(
            f"{store.url} holds files that are no log's, such as {foreign!r:.120}, and a log is "
            "not created among them. Give a folder of its own, such as a new one within it.",
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
