"""The one client of stores on Google Cloud Storage and Azure: obstore.

It guards that a process which obstore cannot serve gets an error before it makes a request. It must
not know a service.
"""

from __future__ import annotations

from functools import partial

from txlog.clock import Runtime
from txlog.errors import UsageError
from txlog.storage.object_path import check_root
from txlog.storage.object_stores import obstore_client
from txlog.storage.object_stores.object_client import ObjectClient
from txlog.storage.object_stores.object_failure import Service
from txlog.storage.object_stores.object_store import ObjectStore
from txlog.storage.object_stores.obstore_client import BucketSettings, ObstoreClient, shared_bucket
from txlog.storage.policy.retry import RetrySettings


class ObstoreOnly:
    """See Clients."""

    def __init__(self, client: ObjectClient) -> None:
        self._client = client

    def first(self) -> ObjectClient:
        """See Clients.first."""
        if obstore_client.may_be_used():
            return self._client
        raise UsageError(
            "this process was forked from one that had used an object store, and obstore does not "
            "survive a fork. Start it by multiprocessing's 'spawn' or 'forkserver', or set "
            "storage option client=fsspec."
        )

    def second(self) -> ObjectClient | None:
        """See Clients.second."""
        return None


def open_cloud_store(
    service: Service,
    prefix: str,
    runtime: Runtime,
    limits: RetrySettings,
    settings: BucketSettings,
) -> ObjectStore:
    """The store below a prefix of a bucket. Raises UsageError for an invalid prefix."""
    prefix = prefix.strip("/")
    if prefix:
        check_root(prefix)
    opened_as = (service.scheme, settings.bucket, repr(sorted(settings.config.items())))
    bucket = partial(shared_bucket, opened_as, lambda: settings, limits)
    clients = ObstoreOnly(ObstoreClient(bucket, runtime.fan_out))
    return ObjectStore(service, prefix, runtime, limits, clients)


def text(value: object) -> str:
    """An option's value as text; empty if it has none."""
    return "" if value is None else str(value)
