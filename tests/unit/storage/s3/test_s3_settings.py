"""Options of S3 as values: what each gives to obstore and to s3fs, and what comes first."""

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from botocore.session import Session

from txlog.errors import InvalidOption, StoreDenied
from txlog.storage.object_stores.object_client import Failure, Meaning
from txlog.storage.policy.retry import RetrySettings
from txlog.storage.s3 import s3_client, s3_options
from txlog.storage.s3.s3 import S3Store
from txlog.storage.s3.s3_bucket import (
    BotocoreKeys,
    GivenKeys,
    NoCredentials,
    bucket_settings,
    credentials_without_botocore,
    has_config_file,
)
from txlog.storage.s3.s3_options import S3Options, endpoint_name, read_options
from txlog.testing.clock import manual_runtime

KEYS = {"key": "AKIAOPTION", "secret": "hush-hush"}
OWN = ("conditional_put", "disable_bulk_delete", "skip_signature", "virtual_hosted_style_request")


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Remove the settings of this machine's user."""
    for name in (
        *("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "SECURITY_TOKEN", "PROFILE"),
        *("REGION", "DEFAULT_REGION", "ENDPOINT_URL", "ENDPOINT_URL_S3", "CA_BUNDLE"),
        *("WEB_IDENTITY_TOKEN_FILE", "CONTAINER_CREDENTIALS_RELATIVE_URI"),
        *("CONTAINER_CREDENTIALS_FULL_URI", "EC2_METADATA_DISABLED"),
    ):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


# Options as a user writes them.


def test_no_options_are_the_defaults() -> None:
    assert read_options({}) == S3Options()


def test_every_option_has_its_place() -> None:
    found = read_options(
        {
            "key": "k",
            "secret": "s",
            "token": "t",
            "profile": "p",
            "anon": True,
            "endpoint_url": "http://h:1",
            "use_ssl": False,
            "requester_pays": True,
            "client_kwargs": {"region_name": "r", "verify": "/ca.pem"},
            "config_kwargs": {"s3": {"addressing_style": "virtual"}, "connect_timeout": 3},
            "s3_additional_kwargs": {"ServerSideEncryption": "aws:kms"},
        }
    )
    assert found == S3Options(
        key="k",
        secret="s",
        token="t",
        profile="p",
        anonymous=True,
        endpoint_url="http://h:1",
        region_name="r",
        verify="/ca.pem",
        virtual_hosts=True,
        config={"server_side_encryption": "aws:kms", "request_payer": True},
        client_options={"connect_timeout": "3s"},
    )


def test_names_of_a_user_are_those_of_keys() -> None:
    found = read_options({"username": "k", "password": "s"})
    assert (found.key, found.secret) == ("k", "s")
    both = read_options({"username": "k", "password": "s", "key": "first", "secret": "one"})
    assert (both.key, both.secret) == ("first", "one")


def test_client_kwargs_come_before_options_unless_they_are_none() -> None:
    given = {"endpoint_url": "http://a:1", "client_kwargs": {"endpoint_url": "http://b:2"}}
    assert read_options(given).endpoint_url == "http://b:2"
    given["client_kwargs"] = {"endpoint_url": None}
    assert read_options(given).endpoint_url == "http://a:1"


@pytest.mark.parametrize("off", [None, False, 0, "", "false", "False", "0"])
def test_switch_is_off_for_each_way_to_say_so(off: object) -> None:
    found = read_options({"anon": off, "requester_pays": off, "cache_regions": off})
    assert (found.anonymous, found.config) == (False, {})
    if off is not None:
        with pytest.raises(InvalidOption, match=r"use_ssl has no effect.* write http://"):
            read_options({"use_ssl": off, "endpoint_url": "https://h:1"})
    assert read_options({"use_ssl": off, "endpoint_url": "http://h:1"}).endpoint_url


@pytest.mark.parametrize("on", [True, 1, "true", "yes"])
def test_switch_is_on_for_everything_else(on: object) -> None:
    assert read_options({"anon": on}).anonymous
    assert read_options({"use_ssl": on}) == S3Options()
    with pytest.raises(InvalidOption, match="region_name"):
        read_options({"cache_regions": on})


def test_region_of_client_kwargs_comes_before_that_of_config_kwargs() -> None:
    config = {"config_kwargs": {"region_name": "second"}}
    assert read_options(config).region_name == "second"
    client = {"client_kwargs": {"region_name": "first"}}
    assert read_options({**config, **client}).region_name == "first"


def test_signature_version_makes_anonymous_only_if_it_is_unsigned() -> None:
    for version, anonymous in (("s3v4", False), ("UNSIGNED", True), ("s3-unsigned", True)):
        given = {"config_kwargs": {"signature_version": version}}
        assert read_options(given).anonymous is anonymous
    given = {"anon": True, "config_kwargs": {"signature_version": "s3v4"}}
    assert read_options(given).anonymous


def test_settings_that_obstore_does_not_need_are_accepted() -> None:
    names = ("max_pool_connections", "retries", "tcp_keepalive")
    checksums = ("request_checksum_calculation", "response_checksum_validation")
    config = dict.fromkeys((*names, *checksums), 1)
    assert read_options({"config_kwargs": config}) == S3Options()
    extra = read_options({"config_kwargs": {"user_agent_extra": "x"}})
    assert extra.client_options == {"user_agent": "x"}
    style = {"s3": {"addressing_style": "path", "payload_signing_enabled": True}}
    assert not read_options({"config_kwargs": style}).virtual_hosts


@pytest.mark.parametrize(
    "proxies", [{}, "http://p:1", {"http": "http://p:1", "https": "http://q:1"}]
)
def test_proxies_must_be_one(proxies: object) -> None:
    with pytest.raises(InvalidOption, match=r"config_kwargs\.proxies.*give one proxy"):
        read_options({"config_kwargs": {"proxies": proxies}})


@pytest.mark.parametrize("key", ["k" * 32, b"k" * 32])
def test_additional_headers_have_obstores_names(key: str | bytes) -> None:
    given = {
        "SSECustomerKey": key,
        "SSECustomerAlgorithm": "AES256",
        "RequestPayer": "requester",
        "ChecksumAlgorithm": "CRC64NVME",
        "SSEKMSKeyId": "id",
        "BucketKeyEnabled": False,
    }
    assert read_options({"s3_additional_kwargs": given}).config == {
        "server_side_encryption": "sse-c",
        "sse_customer_key_base64": "a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s=",
        "request_payer": True,
        "checksum_algorithm": "CRC64NVME",
        "sse_kms_key_id": "id",
        "sse_bucket_key_enabled": False,
    }
    checked = {"s3_additional_kwargs": {"ChecksumAlgorithm": "SHA256"}}
    assert read_options(checked).config == {"checksum_algorithm": "SHA256"}


# Endpoints, regions and certificates.


def test_first_variable_that_is_set_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    for names, read in (
        (("ENDPOINT_URL", "ENDPOINT_URL_S3"), s3_options.environment_endpoint),
        (("REGION", "DEFAULT_REGION"), s3_options.environment_region),
    ):
        assert read() == ""
        for name in names:
            monkeypatch.setenv(f"AWS_{name}", name)
            assert read() == name


def test_endpoint_is_named_by_its_host_and_port() -> None:
    assert endpoint_name("") == endpoint_name(None) == "AWS S3"
    assert endpoint_name("https://Host:9000/path") == "Host:9000"
    for wrong in ("host:9000", "ftp://host", "http://", "http://user@host", "s3://b"):
        with pytest.raises(InvalidOption, match="https://host:port"):
            endpoint_name(wrong)


@pytest.mark.parametrize("region", ["", "US", "a" * 65, "a.b", "a/b"])
def test_region_that_no_host_name_can_have_is_refused(region: str) -> None:
    with pytest.raises(InvalidOption, match="the region is invalid"):
        s3_options.regional_endpoint(region)
    longest = "a" * 64
    assert s3_options.regional_endpoint(longest) == f"https://s3.{longest}.amazonaws.com"


def test_certificates_come_from_the_option_then_the_bundle_then_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("option", "bundle", "environment"):
        (tmp_path / name).write_text(f"of the {name}")
    path = {name: str(tmp_path / name) for name in ("option", "bundle", "environment")}
    trust = s3_options.trust
    assert trust(None, "") == trust(True, "") == {}
    assert trust(False, path["bundle"]) == {"allow_invalid_certificates": True}
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", path["environment"])
    assert trust(None, "") == {"root_certificate": "of the environment"}
    assert trust(True, path["bundle"]) == {"root_certificate": "of the bundle"}
    assert trust(path["option"], path["bundle"]) == {"root_certificate": "of the option"}
    monkeypatch.setenv("HOME", str(tmp_path))
    assert trust("~/option", "") == {"root_certificate": "of the option"}
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for unreadable in ("~/binary", "~/none"):
        with pytest.raises(InvalidOption, match=rf"{unreadable} cannot be read"):
            trust(unreadable, "")


def test_endpoint_of_a_message_is_that_of_client_kwargs_options_or_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def endpoint(**options: object) -> str:
        given = {"client": "s3fs", **KEYS, **options}
        return S3Store("lake", "", manual_runtime(), given)._service.endpoint

    assert endpoint() == "AWS S3"
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://variable:1")
    assert endpoint() == "variable:1"
    assert endpoint(endpoint_url="http://option:2") == "option:2"
    client = {"endpoint_url": "http://client:3"}
    assert endpoint(endpoint_url="http://option:2", client_kwargs=client) == "client:3"


# A bucket's settings.


def test_settings_of_a_bucket_are_complete() -> None:
    found = bucket_settings("lake", read_options({**KEYS, "endpoint_url": "https://h:1/"}))
    assert (found.kind, found.bucket, found.origin) == ("S3Store", "lake", "https://h:1")
    assert found.config == {
        "endpoint": "https://h:1",
        "region": "us-east-1",
        "conditional_put": "etag",
        "disable_bulk_delete": True,
        "skip_signature": False,
        "virtual_hosted_style_request": False,
    }
    assert found.client_options == {}
    assert found.credentials is not None
    assert found.credentials.refusal() is None
    anonymous = bucket_settings("lake", read_options({"anon": True}))
    assert (anonymous.credentials, anonymous.config["skip_signature"]) == (None, True)


def test_options_come_before_the_environment_and_that_before_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config"
    ca = {name: tmp_path / name for name in ("a.pem", "b.pem")}
    for name, path in ca.items():
        path.write_text(name)
    lines = ("region = of-file", "endpoint_url = http://file:1", f"ca_bundle = {ca['a.pem']}")
    config.write_text("\n".join(["[default]", *lines]))

    def found(**options: object) -> tuple[object, object, object]:
        settings = bucket_settings("lake", read_options({**KEYS, **options}))
        given = settings.config
        return given["region"], given["endpoint"], settings.client_options["root_certificate"]

    assert found() == ("of-file", "http://file:1", "a.pem")
    monkeypatch.setenv("AWS_CA_BUNDLE", str(ca["b.pem"]))
    monkeypatch.setenv("AWS_DEFAULT_REGION", "of-variable")
    assert found() == ("of-variable", "http://file:1", "b.pem")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://variable:1")
    assert found() == ("of-variable", "http://variable:1", "b.pem")
    client = {"region_name": "of-option"}
    chosen = found(client_kwargs=client, endpoint_url="http://option:1")
    assert chosen == ("of-option", "http://option:1", "b.pem")


def test_unreadable_configuration_is_denied_by_its_kind(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("no section\n")
    with pytest.raises(StoreDenied, match=r"AWS configuration cannot be used \(ConfigParseError\)"):
        bucket_settings("lake", read_options(KEYS))


def test_keys_of_a_chosen_profile_come_before_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAENV")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    (tmp_path / "credentials").write_text(
        "[lake]\naws_access_key_id = AKIAPROFILE\naws_secret_access_key = hush\n"
        "aws_session_token = session\n"
    )

    def key(**options: object) -> Any:
        credentials = bucket_settings("lake", read_options(options)).credentials
        assert credentials is not None
        return credentials()

    assert key()["access_key_id"] == "AKIAENV"
    assert key(profile="lake") == {
        "access_key_id": "AKIAPROFILE",
        "secret_access_key": "hush",
        "expires_at": None,
        "token": "session",
    }
    assert key(profile="lake", **KEYS)["access_key_id"] == "AKIAOPTION"
    assert key(key="half")["access_key_id"] == "AKIAENV"


def test_given_keys_are_a_copy_and_always_sign() -> None:
    keys = GivenKeys("k", "s", "t")
    expected = {
        "access_key_id": "k",
        "secret_access_key": "s",
        "expires_at": None,
        "token": "t",
    }
    keys().clear()
    assert (keys(), keys.refusal()) == (expected, None)
    assert GivenKeys("k", "s", "")().keys() == expected.keys() - {"token"}


def test_keys_that_expire_say_when_in_utc(tmp_path: Path) -> None:
    program = tmp_path / "keys"
    end = "2126-01-31T12:00:00+02:00"
    program.write_text(
        '#!/bin/sh\necho \'{"Version": 1, "AccessKeyId": "AKIA", "SecretAccessKey": "hush", '
        f'"SessionToken": "session", "Expiration": "{end}"}}\'\n'
    )
    program.chmod(0o700)
    (tmp_path / "config").write_text(f"[default]\ncredential_process = {program}\n")
    keys = BotocoreKeys(Session())
    assert keys.refusal() is None
    assert keys() == {
        "access_key_id": "AKIA",
        "secret_access_key": "hush",
        "token": "session",
        "expires_at": dt.datetime(2126, 1, 31, 10, tzinfo=dt.UTC),
    }
    assert keys()["expires_at"].tzinfo is dt.UTC


def test_without_any_credentials_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    refused = Failure(Meaning.DENIED, "NoCredentialsError")
    assert BotocoreKeys(Session()).refusal() == NoCredentials().refusal() == refused
    with pytest.raises(LookupError):
        NoCredentials()()


ROLES = ("WEB_IDENTITY_TOKEN_FILE", "CONTAINER_CREDENTIALS_RELATIVE_URI")


@pytest.mark.parametrize("role", [*ROLES, "CONTAINER_CREDENTIALS_FULL_URI"])
def test_obstore_looks_up_roles_unless_there_is_none(
    monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    assert credentials_without_botocore() is None
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "True")
    assert isinstance(credentials_without_botocore(), NoCredentials)
    monkeypatch.setenv(f"AWS_{role}", "x")
    assert credentials_without_botocore() is None


def test_configuration_file_is_found_by_its_variable_or_in_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not has_config_file()
    (tmp_path / "config").touch()
    assert has_config_file()
    monkeypatch.setenv("AWS_CONFIG_FILE", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert not has_config_file()
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "config").touch()
    assert has_config_file()


# s3fs.


def test_s3fs_gets_the_users_options_and_the_limits_of_time_and_repeats(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = RetrySettings(attempt_timeout_ms=1_500)
    ours = {"connect_timeout": 3, "read_timeout": 1.5, "max_pool_connections": 64}
    once = {"retries": {"mode": "standard", "max_attempts": 0}}
    assert s3_client.client_options({}, limits) == {
        "config_kwargs": {**ours, **once},
        "endpoint_url": None,
    }
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://variable:1")
    theirs = {"connect_timeout": 7, "retries": {"max_attempts": 9}, "user_agent": "x"}
    given = {"key": "k", "config_kwargs": theirs}
    found = s3_client.client_options(given, limits)
    assert found == {
        "key": "k",
        "config_kwargs": {**ours, "connect_timeout": 7, "user_agent": "x", **once},
        "endpoint_url": "http://variable:1",
    }
    assert theirs["retries"] == {"max_attempts": 9}, "the user's own options stay as they are"
    other = s3_client.client_options({"endpoint_url": "http://option:2"}, limits)
    assert other["endpoint_url"] == "http://option:2"
    with pytest.raises(InvalidOption, match="no storage option 'zzz'"):
        s3_client.client_options({"zzz": 1}, limits)


def test_s3fs_makes_one_attempt_with_no_cache_and_the_chosen_profile(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("[profile lake]\nregion = eu-west-1\n")
    options = s3_client.client_options({"profile": "lake"}, RetrySettings())
    first, second = s3_client.S3Client(options), s3_client.S3Client(options)
    files = first._files
    assert files is not second._files
    assert (files.retries, files.dircache.use_listings_cache) == (1, False)
    assert files.session.get_config_variable("region") == "eu-west-1"
    assert files.session.get_config_variable("profile") == "lake"
