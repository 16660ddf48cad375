"""S3, and what speaks its protocol: which client a process uses, and how the bucket is reached.

obstore makes the requests, s3fs where it is asked for (`client=s3fs`), where obstore is not
installed, in a process that was forked after its parent had used obstore, and for a listing that
obstore cannot read. It guards that both are given the same: options by s3fs's names, credentials
and endpoint also from the usual AWS_* variables. What is done with a client is `object_store.py`'s.
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
from txlog.errors import InvalidOption, StoreDenied, UsageError
from txlog.storage import obstore_client, s3_credentials, s3_options
from txlog.storage.object_client import Clients, ObjectClient
from txlog.storage.object_failure import Service
from txlog.storage.object_path import check_root
from txlog.storage.object_store import ObjectStore
from txlog.storage.obstore_client import BucketSettings, Credentials, ObstoreBucket, ObstoreClient
from txlog.storage.retry import RetrySettings
from txlog.storage.s3_options import endpoint_name, unknown_option
from txlog.storage.s3fs_client import S3fsClient, S3Requests

OBSTORE, S3FS = "obstore", "s3fs"

BUCKETS_MAX = 16
"""Buckets that a process keeps open; each has connections."""

_VARIABLES = ("AWS_", "REQUESTS_CA_BUNDLE")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")

# A documented cache: stores of one process that are opened alike share their connections.
_buckets: dict[tuple[object, ...], ObstoreBucket] = {}


def open_s3_store(place: str, runtime: Runtime, options: Mapping[str, object]) -> S3Store:
    """The store at `bucket/prefix`. `options` are s3fs's, RetrySettings' by their names, `client`.

    Raises UsageError if the client is not installed or the bucket's name is no such, InvalidOption
    for an unknown option. Makes no request.
    """
    bucket, _, prefix = place.partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise UsageError(
            "the URL of an S3 log is s3://bucket/prefix, with no credentials in it; put those into "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
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
        """`requests` takes the place of the clients and their options: for the simulation."""
        limits = settings or RetrySettings()
        given = dict(options or {})
        endpoint = endpoint_name(_endpoint_url(given))
        clients: Clients
        if requests is not None:
            clients = OnlyClient(S3fsClient(bucket, lambda: requests))
        else:
            clients = S3Clients(bucket, runtime, given, limits)
        super().__init__(Service(bucket, endpoint), prefix, runtime, limits, clients)


class OnlyClient:
    """See Clients."""

    def __init__(self, client: ObjectClient) -> None:
        self._client = client

    def first(self) -> ObjectClient:
        """See Clients.first."""
        return self._client

    def second(self) -> ObjectClient | None:
        """See Clients.second."""
        return None


class S3Clients:
    """See Clients."""

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
            settings = partial(bucket_settings, bucket, wanted)
            self._obstore = ObstoreClient(
                partial(_shared_bucket, (bucket, repr(sorted(given.items()))), settings, limits),
                runtime.fan_out,
            )
        self._s3fs = S3fsClient(bucket, S3fsOfThisProcess(given, limits))
        if not self._uses_obstore:
            _s3fs().client_options(given, limits)  # What is wrong with them is said now.

    def first(self) -> ObjectClient:
        """See Clients.first."""
        if not self._uses_obstore:
            return self._s3fs
        if obstore_client.may_be_used():
            return self._obstore
        if is_s3fs_installed():
            return self._s3fs
        raise UsageError(
            "this process was forked from one that had used an object store, and obstore survives "
            f"no fork. Install s3fs, which is used then ({install_command('s3')}), or start the "
            "process by multiprocessing's 'spawn' or 'forkserver'."
        )

    def second(self) -> ObjectClient | None:
        """See Clients.second."""
        return self._s3fs if self._uses_obstore and is_s3fs_installed() else None


class S3fsOfThisProcess:
    """This process's s3fs for these options; looked for again after a fork."""

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


def bucket_settings(bucket: str, wanted: s3_options.S3Options) -> BucketSettings:
    """What obstore is told. Looks at the user's files, if there may be something in them."""
    credentials = _given_credentials(wanted)
    region = wanted.region_name or s3_options.environment_region()
    endpoint = wanted.endpoint_url or s3_options.environment_endpoint()
    bundle = os.environ.get("AWS_CA_BUNDLE", "")
    is_said = wanted.anonymous or credentials is not None
    is_whole = is_said and ((region and endpoint) or not s3_credentials.has_config_file())
    session = None if is_whole else s3_credentials.new_session(wanted.profile)
    if session is not None:
        try:
            region = region or session.get_config_variable("region") or ""
            endpoint = endpoint or s3_credentials.endpoint_of(session)
            bundle = bundle or session.get_config_variable("ca_bundle") or ""
        except Exception as error:  # noqa: BLE001 - botocore's, of any kind
            raise _unreadable(error) from None
    if credentials is None and not wanted.anonymous:
        own = s3_credentials.own_of_obstore
        credentials = s3_credentials.BotocoreKeys(session) if session is not None else own()
    region = region or s3_options.DEFAULT_REGION
    endpoint = (endpoint or s3_options.regional_endpoint(region)).rstrip("/")
    endpoint_name(endpoint)
    if wanted.virtual_hosts:
        endpoint = s3_options.with_bucket(endpoint, bucket)
    return BucketSettings(
        "S3Store",
        bucket,
        s3_options.origin_of(endpoint),
        {
            **wanted.config,
            "endpoint": endpoint,
            "region": region,
            "conditional_put": "etag",
            "disable_bulk_delete": True,
            "skip_signature": wanted.anonymous,
            "virtual_hosted_style_request": wanted.virtual_hosts,
        },
        {**wanted.client_options, **s3_options.trust(wanted.verify, bundle)},
        credentials,
    )


def is_s3fs_installed() -> bool:
    """Whether there is an s3fs to import."""
    return find_spec("s3fs") is not None


def _s3fs() -> Any:
    """Imported when it is used: it takes half a second."""
    return import_module("txlog.storage.s3_client")


def _given_credentials(wanted: s3_options.S3Options) -> Credentials | None:
    if wanted.anonymous:
        return None
    if wanted.key and wanted.secret:
        return s3_credentials.GivenKeys(wanted.key, wanted.secret, wanted.token)
    if wanted.profile:
        return None
    return s3_credentials.keys_of_environment()


def _unreadable(error: Exception) -> StoreDenied:
    return StoreDenied(
        f"the AWS configuration cannot be used ({type(error).__name__}). Check AWS_PROFILE or "
        "storage option profile, AWS_CONFIG_FILE and AWS_SHARED_CREDENTIALS_FILE."
    )


def _endpoint_url(options: Mapping[str, object]) -> object:
    client = options.get("client_kwargs")
    of_client = client.get("endpoint_url") if isinstance(client, Mapping) else None
    return of_client or options.get("endpoint_url") or s3_options.environment_endpoint()


def _client_of(asked_for: object) -> str:
    """obstore, s3fs, or whichever is installed. Raises InvalidOption, UsageError."""
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


def _shared_bucket(
    opened_as: tuple[object, ...], settings: partial[BucketSettings], limits: RetrySettings
) -> ObstoreBucket:
    """This process's handles for these options, limits and variables as they are now."""
    environment = tuple(i for i in sorted(os.environ.items()) if i[0].startswith(_VARIABLES))
    key = (opened_as, limits, environment)
    bucket = _buckets.get(key)
    if bucket is None:
        for oldest in list(_buckets)[: max(0, len(_buckets) - BUCKETS_MAX + 1)]:
            _buckets.pop(oldest, None)
        bucket = _buckets.setdefault(key, ObstoreBucket(settings(), limits))
    return bucket
