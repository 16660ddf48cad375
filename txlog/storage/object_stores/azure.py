"""Azure Blob Storage: how obstore reaches its containers.

No option is silently ignored: names are adlfs's, and what obstore cannot honour is refused with
what to set instead. `object_store.py` uses the client.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from txlog.clock import Runtime
from txlog.errors import UsageError
from txlog.storage.object_stores.cloud_clients import open_cloud_store, options_among, text
from txlog.storage.object_stores.object_client import Service
from txlog.storage.object_stores.object_store import ObjectStore
from txlog.storage.object_stores.obstore_client import BucketSettings
from txlog.storage.s3.s3_options import endpoint_name, origin_of

_CONTAINER = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]|\$root")
_ACCOUNT = re.compile(r"[a-z0-9]{3,24}")
_OPTIONS = frozenset(
    """
    account_name account_key sas_token connection_string client_id client_secret tenant_id
    anon endpoint
    """.split()  # noqa: SIM905 - a list of words is read more easily.
)
_SIGNING = frozenset(
    ("account_key", "sas_token", "client_id", "client_secret", "tenant_id", "anon")
)
_OF_OBSTORE = {"sas_token": "sas_key"}
_OF_CONNECTION_STRING = {
    "accountname": "account_name",
    "accountkey": "account_key",
    "sharedaccesssignature": "sas_token",
    "blobendpoint": "endpoint",
}


def open_azure_store(place: str, runtime: Runtime, options: Mapping[str, object]) -> ObjectStore:
    """The store at `container/prefix`. `options` are adlfs's, and RetrySettings' by their names.

    Raises UsageError if the container's name is invalid or no account is named, InvalidOption for
    an option that is unknown or has no effect here. Makes no request.
    """
    container, _, prefix = place.partition("/")
    if not _CONTAINER.fullmatch(container):
        raise UsageError(
            "the URL of a log on Azure is az://container/prefix; name the account in "
            "AZURE_STORAGE_ACCOUNT_NAME."
        )
    limits, rest = options_among(options, _OPTIONS, "Azure", "adlfs")
    settings = bucket_settings(container, rest)
    service = Service(
        container,
        endpoint_name(settings.origin),
        "az",
        bucket_word="container",
        endpoint_settings="AZURE_STORAGE_ACCOUNT_NAME",
        credential_settings="AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY or the token",
        permissions="read, add, create, write, delete, list",
    )
    return open_cloud_store(service, prefix, runtime, limits, settings)


def bucket_settings(container: str, options: Mapping[str, object]) -> BucketSettings:
    """The settings for obstore. Raises UsageError if no account is named."""
    chosen = {
        **_connection(text(options.get("connection_string"))),
        **{name: text(value) for name, value in options.items() if value},
    }
    given = {**_environment(is_signed=not _SIGNING.isdisjoint(chosen)), **chosen}
    account, endpoint = given.get("account_name", ""), given.get("endpoint", "")
    if not _ACCOUNT.fullmatch(account):
        raise UsageError(
            "no Azure account is named, or its name is invalid: set AZURE_STORAGE_ACCOUNT_NAME or "
            "storage option account_name."
        )
    endpoint = (endpoint or f"https://{account}.blob.core.windows.net").rstrip("/")
    endpoint_name(endpoint)  # Refuses credentials in the URL, which the origin leaves out.
    config: dict[str, object] = {
        _OF_OBSTORE.get(name, name): value
        for name, value in given.items()
        if name not in ("anon", "connection_string")
    }
    config |= {"endpoint": endpoint, "skip_signature": given.get("anon", "").lower() == "true"}
    return BucketSettings("AzureStore", container, origin_of(endpoint), config, {})


def _environment(*, is_signed: bool) -> dict[str, str]:
    """The environment variables that adlfs reads; without credentials if options name some, because
    kinds of credentials do not mix. obstore reads more, for the identity of a machine or workload.
    """
    names = _OPTIONS - {"anon", "endpoint", "connection_string"}
    found = {name: os.environ.get(f"AZURE_STORAGE_{name.upper()}", "") for name in names}
    found |= _connection(os.environ.get("AZURE_STORAGE_CONNECTION_STRING", ""))
    left_out = _SIGNING if is_signed else frozenset()
    return {name: value for name, value in found.items() if value and name not in left_out}


def _connection(string: str) -> dict[str, str]:
    parts = [part.partition("=") for part in string.split(";") if "=" in part]
    return {
        _OF_CONNECTION_STRING[name.strip().lower()]: value.strip()
        for name, _, value in parts
        if name.strip().lower() in _OF_CONNECTION_STRING
    }
