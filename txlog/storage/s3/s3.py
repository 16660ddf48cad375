"""S3 and compatible services: which client a process uses, and how it reaches the bucket.

obstore makes the requests; s3fs does if it is chosen (`client=s3fs`), if obstore is not installed,
in a process that was forked after its parent had used obstore, and for a listing that obstore
cannot read. Both get the same settings: options by s3fs's names, credentials and endpoint also from
the usual AWS_* variables. `object_store.py` uses the client.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from txlog.clock import Runtime
from txlog.distribution import install_command
from txlog.errors import InvalidOption, UsageError
from txlog.storage.object_stores import obstore_client
from txlog.storage.object_stores.object_client import ObjectClient, Service
from txlog.storage.object_stores.object_store import ObjectStore
from txlog.storage.object_stores.obstore_client import ObstoreClient, shared_bucket
from txlog.storage.object_stores.s3fs_client import S3fsClient, S3Requests
from txlog.storage.policy.retry import RetrySettings
from txlog.storage.s3 import s3_options
from txlog.storage.s3.s3_bucket import bucket_settings
from txlog.storage.s3.s3_options import endpoint_name, unknown_option
from txlog.storage.store import check_root

OBSTORE, S3FS = "obstore", "s3fs"

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")


def open_s3_store(place: str, runtime: Runtime, options: Mapping[str, object]) -> S3Store:
    """The store at `bucket/prefix`. `options` are s3fs's, RetrySettings' by their names, `client`.

    Raises UsageError if the client is not installed or the bucket's name is invalid, InvalidOption
    for an unknown option. Makes no request.
    """
    bucket, _, prefix = place.partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise UsageError(
            "the URL of an S3 log is s3://bucket/prefix, with no credentials in it; put those into "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. A bucket's name has two letters or more.",
        )
    prefix = prefix.strip("/")
    if prefix:
        check_root(prefix)
    settings, rest = RetrySettings.take_from(options)
    return S3Store(bucket, prefix, runtime, rest, settings)


class S3Store(ObjectStore):
    """See ObjectStore."""

    def __init__(
        self,
        bucket: str,
        prefix: str,
        runtime: Runtime,
        options: Mapping[str, object] | None = None,
        settings: RetrySettings | None = None,
        requests: S3Requests | None = None,
    ) -> None:
        """`requests` replaces the clients and their options: for the simulation."""
        limits = settings or RetrySettings()
        given = dict(options or {})
        endpoint = endpoint_name(_endpoint_url(given))
        service = Service(bucket, endpoint)
        if requests is not None:
            only = S3fsClient(bucket, lambda: requests)
            super().__init__(service, prefix, runtime, limits, lambda: only)
        else:
            clients = S3Clients(bucket, runtime, given, limits)
            super().__init__(service, prefix, runtime, limits, clients.first, clients.second)


class S3Clients:
    """The clients obstore and s3fs, if they are installed and this process may use them."""

    def __init__(
        self, bucket: str, runtime: Runtime, options: Mapping[str, object], limits: RetrySettings
    ) -> None:
        for name in options:
            if name not in s3_options.S3FS_OPTIONS and name != "client":
                raise unknown_option(name, s3_options.S3FS_OPTIONS | {"client"})
        given = {name: value for name, value in options.items() if name != "client"}
        self._uses_obstore = _client_of(options.get("client")) == OBSTORE
        if self._uses_obstore:
            wanted = s3_options.read_options(given)
            opened_as = ("s3", bucket, repr(sorted(given.items())))
            # Called at the first request: it reads the user's files, and opening reads nothing.
            settings = partial(bucket_settings, bucket, wanted)
            self._obstore = ObstoreClient(
                partial(shared_bucket, opened_as, settings, limits), runtime.fan_out
            )
        self._s3fs = S3fsClient(bucket, S3fsOfThisProcess(given, limits))
        if not self._uses_obstore:
            _s3fs().client_options(given, limits)  # Raises on invalid options now.

    def first(self) -> ObjectClient:
        """The client for all requests. Raises UsageError if this process may not use any."""
        if not self._uses_obstore:
            return self._s3fs
        if obstore_client.may_be_used():
            return self._obstore
        if is_s3fs_installed():
            return self._s3fs
        raise UsageError(
            "this process was forked from one that had used an object store, and obstore does not "
            f"survive a fork. Install s3fs, which is used then ({install_command('s3')}), or start "
            "the process by multiprocessing's 'spawn' or 'forkserver'."
        )

    def second(self) -> ObjectClient | None:
        """The client for a listing that obstore cannot read."""
        return self._s3fs if self._uses_obstore and is_s3fs_installed() else None


class S3fsOfThisProcess:
    """This process's s3fs for these options; looked up again after a fork."""

    def __init__(self, options: Mapping[str, object], limits: RetrySettings) -> None:
        self._options = options
        self._limits = limits
        self._opened: tuple[int, S3Requests] | None = None

    def __call__(self) -> S3Requests:
        opened = self._opened
        if opened is None or opened[0] != os.getpid():
            options = _s3fs().client_options(self._options, self._limits)
            self._opened = opened = (os.getpid(), _s3fs().shared_client(options))
        return opened[1]


def is_s3fs_installed() -> bool:
    """Whether s3fs is installed."""
    return find_spec("s3fs") is not None


def _s3fs() -> Any:
    """Imported when it is used, because that takes half a second."""
    return import_module("txlog.storage.s3.s3_client")


def _endpoint_url(options: Mapping[str, object]) -> object:
    client = options.get("client_kwargs")
    of_client = client.get("endpoint_url") if isinstance(client, Mapping) else None
    return of_client or options.get("endpoint_url") or s3_options.environment_endpoint()


def _client_of(asked_for: object) -> str:
    """obstore, s3fs, or the one that is installed. Raises InvalidOption, UsageError."""
    if asked_for not in (None, OBSTORE, S3FS):
        raise InvalidOption(f"storage option client is {asked_for!r}; give {OBSTORE} or {S3FS}.")
    if asked_for != S3FS and obstore_client.is_installed():
        return OBSTORE
    if asked_for != OBSTORE and is_s3fs_installed():
        return S3FS
    needed = asked_for or OBSTORE
    raise UsageError(
        f"S3 needs the package {needed}, which is not installed: {install_command('s3')}."
    )
