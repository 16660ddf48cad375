"""The connections of one process to an S3 service: one request in, an answer or a Failure out.

s3fs makes the requests; its listing cache, its shared instances and its own repeats are turned off,
so that `retry.py` alone decides how often anything is sent. When a kept connection breaks, aiohttp
still sends the request again, and that cannot be turned off: `readback.py` makes it harmless. It
must not know what the objects are.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import fsspec
from fsspec.asyn import sync

from txlog.distribution import install_command
from txlog.errors import UsageError
from txlog.storage.object_stores.object_client import Failure
from txlog.storage.policy.retry import Attempts, RetrySettings
from txlog.storage.s3.s3_failure import read_failure
from txlog.storage.s3.s3_options import environment_endpoint, unknown_option

T = TypeVar("T")

CONNECTIONS_MAX = 64
"""Connections of one process to the store: twice its threads, so that none waits for a
connection."""

CLIENTS_MAX = 16
"""Clients that a process keeps; a new one costs 150 ms, most of it for botocore's models."""

CONNECT_TIMEOUT_S = 3
"""Wait for a connection; part of the time that one attempt may take."""

_SESSION_OPTIONS = frozenset(("profile",))
_NOT_OPTIONS = frozenset(("self", "kwargs", "asynchronous", "loop", "session"))


class S3Client:
    """An s3fs file system of its own. Any thread may use it; a forked process may not."""

    def __init__(self, options: Mapping[str, object]) -> None:
        kind = _file_system_class()
        self._files = kind(
            skip_instance_cache=True,
            use_listings_cache=False,
            session=_session(options.get("profile")),
            **options,
        )
        self._files.retries = 1  # One attempt: s3fs counts the first, botocore (below) does not.
        self._answered = False

    def ask(self, attempts: Attempts, call: Callable[[Any], Awaitable[T]]) -> T | Failure:
        timeout_s = attempts.timeout_ms() / 1000
        try:
            answer: T = sync(self._files.loop, call, self._files, timeout=timeout_s)
        except Exception as error:  # noqa: BLE001 - every kind is classified.
            return self._failure(error)
        self._answered = True
        return answer

    def ask_all(
        self, attempts: Attempts, calls: Sequence[Callable[[Any], Awaitable[T]]]
    ) -> list[T | Failure]:

        async def gather(files: Any) -> list[T | BaseException]:
            # Exceptions are results here: one that is raised would hide the other answers.
            return await asyncio.gather(*(call(files) for call in calls), return_exceptions=True)

        answers = self.ask(attempts, gather)
        if isinstance(answers, Failure):
            return [answers for _ in calls]
        return [
            self._failure(answer) if isinstance(answer, BaseException) else answer
            for answer in answers
        ]

    def _failure(self, error: BaseException) -> Failure:
        failure = read_failure(error, answered_before=self._answered)
        self._answered = self._answered or failure.answered
        return failure


# A documented cache: stores of one process with equal options share connections.
_clients: dict[tuple[object, ...], S3Client] = {}


def shared_client(options: Mapping[str, object]) -> S3Client:
    """This process's client for these options and the current AWS_* variables.

    A forked process gets its own: connections and s3fs's thread do not survive a fork.
    """
    environment = tuple(item for item in sorted(os.environ.items()) if item[0].startswith("AWS_"))
    key = (os.getpid(), repr(sorted(options.items())), environment)
    client = _clients.get(key)
    if client is None:
        for oldest in list(_clients)[: max(0, len(_clients) - CLIENTS_MAX + 1)]:
            _clients.pop(oldest, None)  # Not closed: stores that were opened with it keep it.
        client = _clients.setdefault(key, S3Client(options))
    return client


def client_options(options: Mapping[str, object], settings: RetrySettings) -> dict[str, object]:
    """The arguments of s3fs: the user's options, and ours for time and repeats.

    Raises UsageError if s3fs is not installed, InvalidOption for an option that it does not take.
    """
    known = options_of_s3fs()
    for name in options:
        if name not in known:
            raise unknown_option(name, known)
    ours = {
        "connect_timeout": CONNECT_TIMEOUT_S,
        "read_timeout": settings.attempt_timeout_ms / 1000,
        "max_pool_connections": CONNECTIONS_MAX,
    }
    theirs = options.get("config_kwargs")
    merged = {**ours, **(theirs if isinstance(theirs, dict) else {})}
    merged["retries"] = {"mode": "standard", "max_attempts": 0}
    endpoint = options.get("endpoint_url") or environment_endpoint() or None
    return {**options, "config_kwargs": merged, "endpoint_url": endpoint}


def options_of_s3fs() -> frozenset[str]:
    """The option names of the installed s3fs. Raises UsageError if it is not installed."""
    taken = frozenset(inspect.signature(_file_system_class().__init__).parameters)
    return (taken - _NOT_OPTIONS) | _SESSION_OPTIONS


def _session(profile: object) -> Any:
    """A session as s3fs would create it, but a PUT sends its body at once.

    botocore announces each body with `Expect: 100-continue` and waits for the answer, which costs
    a round trip; without the header a PUT of 400 bytes takes one.
    """
    from aiobotocore.session import AioSession
    from botocore.handlers import add_expect_header

    session = AioSession(profile=profile)
    session.unregister("before-call.s3", add_expect_header)
    return session


def _file_system_class() -> Any:
    try:
        return fsspec.get_filesystem_class("s3")
    except ImportError as error:
        raise UsageError(
            f"S3 needs the package s3fs, which is not installed: {install_command('s3')}."
        ) from error
