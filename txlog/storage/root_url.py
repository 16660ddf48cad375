"""Parses the root of a log, a path or a URL, and lists the places above it.

A mistyped URL is not taken for the path of a folder, where a log would be created by mistake.
"""

from __future__ import annotations

import os
import re
from importlib import import_module

from txlog.errors import UsageError
from txlog.redaction import redact_url

LOCAL_SCHEMES = frozenset(("file", "local"))

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")


def split_root(url: str) -> tuple[str, str]:
    """Scheme, in lower case, and rest; the scheme is empty for a path. Nothing is URL-decoded.

    Raises UsageError for a malformed URL.
    """
    scheme, mark, place = url.partition("://")
    # With a slash before the mark it is a path, such as ./a://b.
    if mark and "/" not in scheme:
        scheme = scheme.lower()
        return scheme, _without_host(url, place) if scheme in LOCAL_SCHEMES else place
    if url.lower().startswith("file:/"):  # The form that Java and Hadoop print.
        return "file", url[len("file:") :]
    _refuse_half_url(url)
    return "", url


def absolute_root(url: str) -> str:
    """The same root for a process with another working folder. Raises UsageError for a malformed
    URL."""
    if os.path.isabs(url):
        return url
    scheme, place = split_root(url)
    if scheme and scheme not in LOCAL_SCHEMES:
        return url
    path = os.path.expanduser(place)
    return url if scheme and os.path.isabs(path) else os.path.abspath(path)


def _without_host(url: str, place: str) -> str:
    host, slash, path = place.partition("/")
    if host in ("", "localhost"):
        return slash + path
    if host in (".", "..", "~"):
        return place
    # A part of a URL without its scheme: `redact` would not recognise a password in it.
    *users, host = host.split("@")
    place = place.removeprefix("@".join([*users, ""]))
    raise UsageError(
        f"{redact_url(url)!r} names the host {host!r}; for a folder of this machine write three "
        f"slashes, as in file:///{place}, or its path alone."
    )


def _refuse_half_url(url: str) -> None:
    """`s3:/bucket` and `s3:bucket`. A folder with a colon in its name may begin with './'."""
    found = _SCHEME.match(url)
    if found is None:  # Most paths; fsspec, which takes 0.1 s, is imported for the others only.
        return
    scheme = found[1].lower()
    if scheme in import_module("fsspec").available_protocols():
        rest = url[found.end() :].lstrip("/")
        raise UsageError(
            f"{redact_url(url)!r} is not a URL; write {redact_url(f'{scheme}://{rest}')}, or "
            f"./{redact_url(url)} for a folder of that name."
        )


def roots_above(url: str) -> list[str]:
    """The places above a root, nearest first: a log in one of them would contain this one.

    Empty for a store in memory, where each name is a store of its own.
    """
    scheme, place = split_root(url)
    if scheme == "memory":
        return []
    if not scheme or scheme in LOCAL_SCHEMES:
        # Resolved: a link to a folder inside another log has that log above it, too.
        path = os.path.realpath(os.path.expanduser(place))
        above = []
        while (parent := os.path.dirname(path)) != path:
            above.append(path := parent)
        return above
    host, *parts = place.strip("/").split("/")
    return [f"{scheme}://{'/'.join([host, *parts[:end]])}" for end in reversed(range(len(parts)))]
