"""The one client of stores on Google Cloud Storage and Azure: obstore.

A process that may not use obstore, because it was forked, gets an error before it makes a request.
It must not know a service.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from txlog.clock import Runtime
from txlog.errors import InvalidOption, UsageError
from txlog.storage.object_stores import obstore_client
from txlog.storage.object_stores.object_client import Service
from txlog.storage.object_stores.object_store import ObjectStore
from txlog.storage.object_stores.obstore_client import BucketSettings, ObstoreClient, shared_bucket
from txlog.storage.policy.retry import RetrySettings
from txlog.storage.store import check_root


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
    client = ObstoreClient(bucket, runtime.fan_out)
    return ObjectStore(service, prefix, runtime, limits, partial(_unless_forked, client))


def _unless_forked(client: ObstoreClient) -> ObstoreClient:
    if obstore_client.may_be_used():
        return client
    raise UsageError(
        "this process was forked from one that had used an object store, and obstore does not "
        "survive a fork. Start it by multiprocessing's 'spawn' or 'forkserver', or set storage "
        "option client=fsspec."
    )


def options_among(
    options: Mapping[str, object], known: frozenset[str], service: str, other_client: str
) -> tuple[RetrySettings, dict[str, object]]:
    """Split `options` into retry limits and the service's own options. Raises InvalidOption for an
    unknown one."""
    limits, rest = RetrySettings.take_from(options)
    for name in rest:
        if name not in known:
            raise InvalidOption(
                f"a store on {service} has no storage option {name!r}; it takes "
                f"{', '.join(sorted(known))}. Set client=fsspec for those of {other_client}.",
                name=name,
            )
    return limits, rest


def text(value: object) -> str:
    """An option's value as text; empty if it has none."""
    return "" if value is None else str(value)
