"""Which release of txlog wrote an object, and the errors for what a newer one wrote.

An old release cannot know what a newer one added, so each entry, boundary, snapshot and the log's
own file names the release that wrote it. It guards nothing: the name is information for errors.
"""

from __future__ import annotations

import re

from txlog.distribution import VERSION
from txlog.errors import UnsupportedFormat

_RELEASE = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,6}){1,3}[a-z0-9.+-]{0,20}")


def unsupported(path: str, version: object, read: int, txlog: object) -> UnsupportedFormat:
    """The error for an object of another format version than this program reads; `txlog` is the
    release that it says wrote it."""
    if type(version) is int and 0 < version < read:
        remedy = "It is from before the first release, and no release reads it: create the log anew"
    else:
        remedy = newer_release(txlog)
    return UnsupportedFormat(
        f"{path} has format version {version!r:.20}; this txlog reads version {read}. {remedy}.",
        path=path,
        version=version,
        txlog=release(txlog),
    )


def not_understood(path: str, what: str, why: str, txlog: object) -> UnsupportedFormat:
    """The error for an object of this version that says what this program does not know."""
    return UnsupportedFormat(
        f"{path} contains {what} that this txlog cannot read: {why}. {newer_release(txlog)}.",
        path=path,
        txlog=release(txlog),
    )


def newer_release(txlog: object) -> str:
    """What to do about what a newer release wrote: that very one reads it, and so do later ones."""
    if (found := release(txlog)) and found != VERSION:
        return f"txlog {found} wrote it, and this is {VERSION}: use {found} or a newer txlog"
    return f"A newer txlog than {VERSION} wrote it: use a newer txlog"


def release(txlog: object) -> str:
    """The release that an object says wrote it, or nothing if it says none."""
    return txlog if isinstance(txlog, str) and _RELEASE.fullmatch(txlog) else ""
