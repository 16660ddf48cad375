"""Google Cloud Storage: how obstore reaches its buckets.

No option is silently ignored: names are gcsfs's, and what obstore cannot honour is refused with
what to set instead. `object_store.py` uses the client.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping

from txlog.clock import Runtime
from txlog.errors import InvalidOption, UsageError
from txlog.storage.object_stores.cloud_clients import open_cloud_store, options_among, text
from txlog.storage.object_stores.object_client import Service
from txlog.storage.object_stores.object_store import ObjectStore
from txlog.storage.object_stores.obstore_client import BucketSettings
from txlog.storage.s3.s3_options import endpoint_name, origin_of

ENDPOINT = "https://storage.googleapis.com"

_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,221}[a-z0-9]")
_OPTIONS = frozenset(("token", "project", "endpoint_url"))
_OF_THE_MACHINE = ("", "google_default", "cloud")


def open_gcs_store(place: str, runtime: Runtime, options: Mapping[str, object]) -> ObjectStore:
    """The store at `bucket/prefix`. `options` are gcsfs's, and RetrySettings' by their names.

    Raises UsageError if the bucket's name is invalid, InvalidOption for an option that is unknown
    or has no effect here. Makes no request.
    """
    bucket, _, prefix = place.partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise UsageError("the URL of a log on Google Cloud Storage is gs://bucket/prefix.")
    limits, rest = options_among(options, _OPTIONS, "Google Cloud Storage", "gcsfs")
    settings = bucket_settings(bucket, rest)
    service = Service(
        bucket,
        endpoint_name(settings.origin),
        "gs",
        endpoint_settings="storage option endpoint_url",
        credential_settings="GOOGLE_APPLICATION_CREDENTIALS or storage option token",
        permissions="storage.objects.create, get, list, delete",
    )
    return open_cloud_store(service, prefix, runtime, limits, settings)


def bucket_settings(bucket: str, options: Mapping[str, object]) -> BucketSettings:
    """The settings for obstore. Raises InvalidOption."""
    emulator = os.environ.get("STORAGE_EMULATOR_HOST", "")
    if emulator and "://" not in emulator:
        emulator = f"http://{emulator}"
    endpoint = (text(options.get("endpoint_url")) or emulator or ENDPOINT).rstrip("/")
    endpoint_name(endpoint)  # Refuses credentials in the URL, which the origin leaves out.
    token = options.get("token") or ("anon" if emulator else None)
    config = {**_credentials(token, endpoint), "base_url": endpoint}
    return BucketSettings("GCSStore", bucket, origin_of(endpoint), config, {})


def _credentials(token: object, endpoint: str) -> dict[str, object]:
    """gcsfs's `token` as obstore's options. obstore finds a machine's credentials by itself."""
    if isinstance(token, Mapping):
        return _of_content(dict(token))
    name = text(token)
    if name == "anon":  # obstore's skip_signature still requires a token for writes.
        none = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
        key = {**none, "gcs_base_url": endpoint, "disable_oauth": True}
        return {"service_account_key": json.dumps(key), "skip_signature": True}
    if name in _OF_THE_MACHINE:
        return {}
    if os.path.isfile(os.path.expanduser(name)):
        return _of_file(os.path.expanduser(name))
    raise InvalidOption(
        "storage option token is neither anon, google_default, cloud, the content of a key file "
        "nor the path of one that exists; correct it, or set client=fsspec."
    )


def _of_file(path: str) -> dict[str, object]:
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):  # Its message could show the content.
        found = None
    if not isinstance(found, dict):
        raise InvalidOption(
            f"storage option token names {path}, which does not contain a JSON object."
        )
    return _of_content(found) if found.get("private_key") else {"application_credentials": path}


def _of_content(found: dict[str, object]) -> dict[str, object]:
    if "private_key" not in found:
        raise InvalidOption(
            "storage option token does not contain the key of a service account; give the path of "
            "its file."
        )
    # obstore refuses a key without an id; one that is given as an option may have none.
    return {"service_account_key": json.dumps({"private_key_id": "", **found})}
