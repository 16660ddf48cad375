"""Storage options of S3, by s3fs's names, in obstore's terms; and those from the environment.

No option is silently ignored: one that obstore cannot honour is refused with what to set instead.
No value is printed. It must not make requests.
"""

from __future__ import annotations

import base64
import difflib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from txlog.errors import InvalidOption
from txlog.storage.policy.retry import RetrySettings

DEFAULT_REGION = "us-east-1"

S3FS_OPTIONS = frozenset(
    """
    anon endpoint_url key secret token username password profile use_ssl client_kwargs
    config_kwargs s3_additional_kwargs requester_pays cache_regions version_aware
    default_block_size default_fill_cache default_cache_type max_concurrency
    fixed_upload_size local_expiry_check
    """.split()  # noqa: SIM905 - a list of words is read more easily.
)
"""The options that users of s3fs may have set; a test compares them with s3fs's signature."""

_FOR_S3FS = "set storage option client=s3fs, which takes it, or remove it."
_OF_CLIENT = {
    "region_name": "region_name",
    "endpoint_url": "endpoint_url",
    "verify": "verify",
    "use_ssl": "use_ssl",
    "aws_access_key_id": "key",
    "aws_secret_access_key": "secret",
    "aws_session_token": "token",
}
_IRRELEVANT = frozenset(
    (
        "max_pool_connections",
        "retries",
        "tcp_keepalive",
        "request_checksum_calculation",
        "response_checksum_validation",
    )
)
"""In config_kwargs: settings that obstore does not need, or that are its defaults."""

_ENCRYPTION = {
    "ServerSideEncryption": "server_side_encryption",
    "SSEKMSKeyId": "sse_kms_key_id",
    "BucketKeyEnabled": "sse_bucket_key_enabled",
}
_CHECKSUMS = ("SHA256", "CRC64NVME")


@dataclass(slots=True)
class S3Options:
    """The user's options, and those from the environment that s3fs reads, too."""

    key: str = ""
    secret: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    profile: str = ""
    anonymous: bool = False
    endpoint_url: str = ""
    region_name: str = ""
    verify: object = None
    """False, or the path of a file of certificates."""
    virtual_hosts: bool = False
    config: dict[str, object] = field(default_factory=dict, repr=False)
    client_options: dict[str, object] = field(default_factory=dict, repr=False)


def read_options(options: Mapping[str, object]) -> S3Options:
    """The user's options, whose names were checked before. Raises InvalidOption for an option that
    obstore cannot honour."""
    flat = {**options, **_of_client(_mapping(options, "client_kwargs"))}
    if _is_on(options.get("cache_regions")):
        raise _refusal("cache_regions", "set client_kwargs={'region_name': ...}.")
    endpoint = _text(flat.get("endpoint_url"))
    # The URL decides for obstore, so use_ssl is refused only where it contradicts the URL.
    if not _is_on(flat.get("use_ssl", True)) and not endpoint.startswith("http://"):
        raise _refusal("use_ssl", "write http:// in endpoint_url.")
    found = S3Options(
        key=_text(flat.get("key") or flat.get("username")),
        secret=_text(flat.get("secret") or flat.get("password")),
        token=_text(flat.get("token")),
        profile=_text(flat.get("profile")),
        anonymous=_is_on(flat.get("anon")),
        endpoint_url=endpoint,
        region_name=_text(flat.get("region_name")),
        verify=flat.get("verify"),
    )
    _read_client_config(found, _mapping(options, "config_kwargs"))
    found.config |= dict(_headers(_mapping(options, "s3_additional_kwargs")))
    if _is_on(options.get("requester_pays")):
        found.config["request_payer"] = True
    return found


def _of_client(given: Mapping[str, object]) -> dict[str, object]:
    for name in given:
        if name not in _OF_CLIENT:
            raise _refusal(f"client_kwargs.{name}")
    return {_OF_CLIENT[name]: value for name, value in given.items() if value is not None}


def _read_client_config(found: S3Options, given: Mapping[str, object]) -> None:
    """The options that s3fs's users pass to botocore's Config."""
    for name, value in given.items():
        match name:
            case "connect_timeout":
                found.client_options["connect_timeout"] = _seconds(value)
            case "read_timeout":
                raise _refusal("config_kwargs.read_timeout", "set attempt_timeout_ms.")
            case "region_name":
                found.region_name = found.region_name or _text(value)
            case "signature_version":
                found.anonymous = found.anonymous or "UNSIGNED" in _text(value).upper()
            case "user_agent" | "user_agent_extra":
                found.client_options["user_agent"] = _text(value)
            case "proxies":
                found.client_options |= _proxy(value)
            case "s3":
                found.virtual_hosts = _virtual_hosts(_mapping(given, "s3"))
            case _ if name not in _IRRELEVANT:
                raise _refusal(f"config_kwargs.{name}")


def _seconds(value: object) -> str:
    try:
        return f"{float(_text(value)):g}s"
    except ValueError:
        raise _refusal("config_kwargs.connect_timeout", "give a number of seconds.") from None


def _virtual_hosts(given: Mapping[str, object]) -> bool:
    for name in given:
        if name not in ("addressing_style", "payload_signing_enabled"):
            raise _refusal(f"config_kwargs.s3.{name}")
    return given.get("addressing_style") == "virtual"


def _proxy(value: object) -> dict[str, object]:
    urls = {str(url) for url in value.values()} if isinstance(value, dict) else set()
    if len(urls) != 1:
        raise _refusal("config_kwargs.proxies", "give one proxy, or set HTTPS_PROXY.")
    return {"proxy_url": urls.pop()}


def _headers(given: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """s3_additional_kwargs, which s3fs sends with each request that takes them."""
    for name, value in given.items():
        if name in _ENCRYPTION:
            yield _ENCRYPTION[name], value
        elif name == "SSECustomerKey":
            key = value if isinstance(value, bytes) else _text(value).encode()
            yield "server_side_encryption", "sse-c"
            yield "sse_customer_key_base64", base64.b64encode(key).decode()
        elif name == "RequestPayer":
            yield "request_payer", True
        elif name == "ChecksumAlgorithm" and value in _CHECKSUMS:
            yield "checksum_algorithm", value
        elif name != "SSECustomerAlgorithm":  # obstore itself sends AES256, the only one.
            raise _refusal(f"s3_additional_kwargs.{name}")


def environment_endpoint() -> str:
    """The endpoint from the environment, as botocore reads it."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""


def environment_region() -> str:
    """botocore's variable, then that of the other libraries."""
    return os.environ.get("AWS_DEFAULT_REGION") or os.environ.get("AWS_REGION") or ""


def endpoint_name(endpoint: object) -> str:
    """Host and port of an endpoint's URL, for messages. Raises InvalidOption if it is invalid."""
    if not endpoint:
        return "AWS S3"
    parts = urlsplit(str(endpoint))
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise InvalidOption(
            "the S3 endpoint must look like https://host:port, without credentials in it; correct "
            "endpoint_url or AWS_ENDPOINT_URL."
        )
    return parts.netloc


def regional_endpoint(region: str) -> str:
    """AWS's own endpoint for the region."""
    if not re.fullmatch(r"[a-z0-9-]{1,64}", region):
        raise InvalidOption("the region is invalid; correct AWS_DEFAULT_REGION or region_name.")
    suffix = ".cn" if region.startswith("cn-") else ""
    return f"https://s3.{region}.amazonaws.com{suffix}"


def with_bucket(endpoint: str, bucket: str) -> str:
    """The endpoint of a bucket with its own host name."""
    parts = urlsplit(endpoint)
    return f"{parts.scheme}://{bucket}.{parts.netloc}"


def origin_of(endpoint: str) -> str:
    """Scheme and host, as in the URL of a request."""
    # obstore's errors show URLs in this form: host in lower case, no usual port. A status counts
    # only if its URL begins with this (I13).
    parts = urlsplit(endpoint)
    usual = {"http": 80, "https": 443}.get(parts.scheme)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    port = "" if parts.port in (None, usual) else f":{parts.port}"
    return f"{parts.scheme}://{host}{port}"


def trust(verify: object, bundle: str) -> dict[str, object]:
    """The certificates to trust besides the usual ones. Raises InvalidOption.

    `verify` as botocore takes it, then `bundle`, a path from the environment or a profile.
    """
    if verify is False:
        return {"allow_invalid_certificates": True}
    path = verify if isinstance(verify, str) else bundle or os.environ.get("REQUESTS_CA_BUNDLE")
    if not path:
        return {}
    try:
        with open(os.path.expanduser(path), encoding="utf-8") as file:
            return {"root_certificate": file.read()}
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidOption(
            f"the file of certificates {path} cannot be read ({type(error).__name__}); correct "
            "client_kwargs.verify, AWS_CA_BUNDLE or REQUESTS_CA_BUNDLE."
        ) from None


def _mapping(options: Mapping[str, object], name: str) -> Mapping[str, object]:
    found = options.get(name) or {}
    if not isinstance(found, Mapping):
        raise InvalidOption(
            f"storage option {name} must contain named values; correct it.", name=name
        )
    return found


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _is_on(value: object) -> bool:
    return value not in (None, False, 0, "", "false", "False", "0")


def _refusal(name: str, remedy: str = _FOR_S3FS) -> InvalidOption:
    return InvalidOption(f"storage option {name} has no effect with obstore: {remedy}", name=name)


def unknown_option(name: str, known: frozenset[str]) -> InvalidOption:
    """The error for an option that no client takes, with the one that was probably meant."""
    near = difflib.get_close_matches(name, [*known, *RetrySettings.names()], n=1)
    hint = f"did you mean {near[0]!r}?" if near else "s3fs's documentation lists what it takes."
    return InvalidOption(f"an S3 store has no storage option {name!r}; {hint}", name=name)
