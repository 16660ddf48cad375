"""How obstore reaches a bucket of S3: options first, then the environment, then the user's files.

obstore finds what s3fs finds: the same keys, region, endpoint and certificates. botocore, which
comes with s3fs, reads the files, and only if they may add something. It supports profiles, SSO,
assumed roles, processes and machines' roles, with the expiry of each; obstore by itself supports
only the last. A request that cannot be signed is refused before anything is sent, so that it is
never mistaken for one that may have been executed. No secret is printed, and none is kept beyond
the process.
"""

from __future__ import annotations

import datetime as dt
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from txlog.distribution import install_command
from txlog.errors import StoreDenied, UsageError
from txlog.storage.object_stores.object_client import Failure, Meaning
from txlog.storage.object_stores.obstore_client import BucketSettings, Credentials
from txlog.storage.s3 import s3_options
from txlog.storage.s3.s3_options import S3Options

NO_CREDENTIALS = Failure(Meaning.DENIED, "NoCredentialsError")


@dataclass(frozen=True, slots=True)
class _Place:
    """The known settings of the service; empty ones are unknown."""

    region: str
    endpoint: str
    bundle: str
    """A file of certificates."""

    @property
    def may_be_completed(self) -> bool:
        """Whether the user's files may add something."""
        return not (self.region and self.endpoint) and has_config_file()


def bucket_settings(bucket: str, wanted: S3Options) -> BucketSettings:
    """The settings for obstore. Raises UsageError, StoreDenied, InvalidOption."""
    credentials = _given_credentials(wanted)
    place = _given_place(wanted)
    is_signed = wanted.anonymous or credentials is not None
    if not is_signed or place.may_be_completed:
        session = new_session(wanted.profile)
        place = place if session is None else _completed(place, session)
        credentials = credentials if is_signed else _found_credentials(session, wanted.profile)
    return _settings(bucket, wanted, place, credentials)


def _settings(
    bucket: str, wanted: S3Options, place: _Place, credentials: Credentials | None
) -> BucketSettings:
    region = place.region or s3_options.DEFAULT_REGION
    endpoint = (place.endpoint or s3_options.regional_endpoint(region)).rstrip("/")
    s3_options.endpoint_name(endpoint)  # Refuses credentials, which the origin leaves out.
    if wanted.virtual_hosts:
        endpoint = s3_options.with_bucket(endpoint, bucket)
    config = {
        **wanted.config,
        "endpoint": endpoint,
        "region": region,
        # All of these are set, so that no AWS_* variable that obstore reads decides (I1).
        "conditional_put": "etag",
        "disable_bulk_delete": True,
        "skip_signature": wanted.anonymous,
        "virtual_hosted_style_request": wanted.virtual_hosts,
    }
    trusted = s3_options.trust(wanted.verify, place.bundle)
    options = {**wanted.client_options, **trusted}
    origin = s3_options.origin_of(endpoint)
    return BucketSettings("S3Store", bucket, origin, config, options, credentials)


def _given_place(wanted: S3Options) -> _Place:
    return _Place(
        wanted.region_name or s3_options.environment_region(),
        wanted.endpoint_url or s3_options.environment_endpoint(),
        os.environ.get("AWS_CA_BUNDLE", ""),
    )


def _completed(place: _Place, session: Any) -> _Place:
    """The place, completed from the user's files."""
    try:
        return _Place(
            place.region or session.get_config_variable("region") or "",
            place.endpoint or endpoint_of(session),
            place.bundle or session.get_config_variable("ca_bundle") or "",
        )
    except Exception as error:  # noqa: BLE001 - botocore raises any kind
        raise StoreDenied(
            f"the AWS configuration cannot be used ({type(error).__name__}). Check AWS_PROFILE or "
            "storage option profile, AWS_CONFIG_FILE and AWS_SHARED_CREDENTIALS_FILE."
        ) from None


def _given_credentials(wanted: S3Options) -> Credentials | None:
    if wanted.anonymous:
        return None
    if wanted.key and wanted.secret:
        return GivenKeys(wanted.key, wanted.secret, wanted.token)
    if wanted.profile:  # Chosen by an option, so it comes before the environment.
        return None
    return keys_of_environment()


def _found_credentials(session: Any | None, profile: str) -> Credentials | None:
    """botocore's credentials. Without botocore, None lets obstore find them. Raises UsageError."""
    if session is not None:
        return BotocoreKeys(session)
    if profile or os.environ.get("AWS_PROFILE"):
        raise UsageError(
            "a profile is read by botocore, which is not installed: "
            f"{install_command('s3')}, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        )
    return credentials_without_botocore()


# Credentials: given keys, or what botocore finds.


class GivenKeys:
    """See Credentials. Keys from an option or the environment, which never change."""

    def __init__(self, key: str, secret: str, token: str) -> None:
        self._found = {"access_key_id": key, "secret_access_key": secret, "expires_at": None}
        if token:
            self._found["token"] = token

    def refusal(self) -> Failure | None:
        return None

    def __call__(self) -> dict[str, object]:
        return dict(self._found)


class NoCredentials:
    """See Credentials. There are none, and none are searched for."""

    def refusal(self) -> Failure | None:
        return NO_CREDENTIALS

    def __call__(self) -> dict[str, object]:
        raise LookupError("no credentials")


class BotocoreKeys:
    """See Credentials. botocore finds them, and renews them before they expire."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._lock = threading.Lock()

    def refusal(self) -> Failure | None:
        """See Credentials.refusal. Credentials are found at the first call, and renewed in time."""
        try:
            # The first use may start a program or ask a service: once, not in each thread.
            with self._lock:
                found = self._found
            if found is None:
                return NO_CREDENTIALS
            found.get_frozen_credentials()
        except Exception as error:  # noqa: BLE001 - botocore's, and those of the code it calls
            return Failure(Meaning.DENIED, type(error).__name__)
        return None

    def __call__(self) -> dict[str, object]:
        keys = self._found.get_frozen_credentials()
        # botocore has no public name for it; without it obstore would never renew them.
        end: dt.datetime | None = getattr(self._found, "_expiry_time", None)
        found = {
            "access_key_id": keys.access_key,
            "secret_access_key": keys.secret_key,
            "expires_at": None if end is None else end.astimezone(dt.UTC),
        }
        return {**found, "token": keys.token} if keys.token else found

    @cached_property
    def _found(self) -> Any:
        return self._session.get_credentials()


def new_session(profile: str) -> Any | None:
    """botocore's view of the user's files, or None if botocore is not installed."""
    if find_spec("botocore") is None:
        return None
    from botocore.session import Session

    return Session(profile=profile or None)


def keys_of_environment() -> GivenKeys | None:
    """AWS_ACCESS_KEY_ID and its companions."""
    key = os.environ.get("AWS_ACCESS_KEY_ID")
    secret = os.environ.get("AWS_SECRET_ACCESS_KEY")
    token = os.environ.get("AWS_SESSION_TOKEN") or os.environ.get("AWS_SECURITY_TOKEN") or ""
    return GivenKeys(key, secret, token) if key and secret else None


def has_config_file() -> bool:
    """Whether there is a configuration file that may complete the environment."""
    return Path(os.environ.get("AWS_CONFIG_FILE") or "~/.aws/config").expanduser().exists()


def credentials_without_botocore() -> NoCredentials | None:
    """None if obstore itself may look up the role of the machine, a container or a web identity;
    otherwise there are no credentials."""
    roles = ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
    others = ("AWS_CONTAINER_CREDENTIALS_FULL_URI",)
    if any(os.environ.get(name) for name in (*roles, *others)):
        return None
    # obstore does not read this variable: it would try the metadata service all the same.
    disabled = os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true"
    return NoCredentials() if disabled else None


def endpoint_of(session: Any) -> str:
    """`endpoint_url` of the profile, or of its service section for S3."""
    if os.environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() == "true":
        return ""
    profile: Mapping[str, Any] = session.get_scoped_config()
    services = session.full_config.get("services", {}).get(profile.get("services"), {})
    of_s3 = services.get("s3", {}).get("endpoint_url") if isinstance(services, Mapping) else None
    return str(of_s3 or profile.get("endpoint_url") or "")
