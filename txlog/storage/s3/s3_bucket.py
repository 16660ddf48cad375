"""How obstore reaches a bucket of S3: options first, then the environment, then the user's files.

It guards that obstore finds what s3fs finds: the same keys, region, endpoint and certificates.
botocore reads the files, and only if they may add something.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from txlog.distribution import install_command
from txlog.errors import StoreDenied, UsageError
from txlog.storage.object_stores.obstore_client import BucketSettings, Credentials
from txlog.storage.s3 import s3_credentials, s3_options
from txlog.storage.s3.s3_options import S3Options


@dataclass(frozen=True, slots=True)
class _Place:
    """The service, as far as it is known."""

    region: str
    endpoint: str
    bundle: str
    """A file of certificates."""

    @property
    def may_be_completed(self) -> bool:
        """Whether the user's files may add something."""
        return not (self.region and self.endpoint) and s3_credentials.has_config_file()


def bucket_settings(bucket: str, wanted: S3Options) -> BucketSettings:
    """The settings for obstore. Raises UsageError, StoreDenied, InvalidOption."""
    credentials = _given_credentials(wanted)
    place = _given_place(wanted)
    is_signed = wanted.anonymous or credentials is not None
    if not is_signed or place.may_be_completed:
        session = s3_credentials.new_session(wanted.profile)
        place = place if session is None else _completed(place, session)
        credentials = credentials if is_signed else _found_credentials(session, wanted.profile)
    return _settings(bucket, wanted, place, credentials)


def _settings(
    bucket: str, wanted: S3Options, place: _Place, credentials: Credentials | None
) -> BucketSettings:
    region = place.region or s3_options.DEFAULT_REGION
    endpoint = (place.endpoint or s3_options.regional_endpoint(region)).rstrip("/")
    s3_options.endpoint_name(endpoint)
    if wanted.virtual_hosts:
        endpoint = s3_options.with_bucket(endpoint, bucket)
    config = {
        **wanted.config,
        "endpoint": endpoint,
        "region": region,
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
            place.endpoint or s3_credentials.endpoint_of(session),
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
        return s3_credentials.GivenKeys(wanted.key, wanted.secret, wanted.token)
    if wanted.profile:
        return None
    return s3_credentials.keys_of_environment()


def _found_credentials(session: Any | None, profile: str) -> Credentials | None:
    """botocore's; without botocore, None leaves it to obstore. Raises UsageError."""
    if session is not None:
        return s3_credentials.BotocoreKeys(session)
    if profile or os.environ.get("AWS_PROFILE"):
        raise UsageError(
            "a profile is read by botocore, which is not installed: "
            f"{install_command('s3')}, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        )
    return s3_credentials.own_of_obstore()
