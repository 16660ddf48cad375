"""Options of s3fs work with obstore, or the error says which option to set instead."""

import json
import re
import ssl
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.source_tree import ROOT
from tests.unit.storage.scripted_s3 import ScriptedServer, scripted_server
from txlog.clock import Runtime
from txlog.errors import InvalidOption, OutcomeUnknown, StoreDenied, StoreUnavailable
from txlog.storage import Created, Store, open_store
from txlog.storage.s3 import s3_client, s3_options
from txlog.storage.s3.s3_bucket import bucket_settings, keys_of_environment
from txlog.storage.s3.s3_options import DEFAULT_REGION, origin_of, read_options

CERTIFICATES = ROOT / "tests/certificates"
"""Certificates of an authority whose key was deleted, and of 127.0.0.1; valid until 2126."""

KEYS = {"key": "AKIAOPTION", "secret": "hush-hush"}
REGION = {"client_kwargs": {"region_name": "eu-central-1"}}


@pytest.fixture(scope="module")
def behind_tls() -> Iterator[ScriptedServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / "server.pem")
    with scripted_server(context) as server:
        yield server


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Remove the settings of this machine's user."""
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "PROFILE", "REGION"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    for name in (
        "DEFAULT_REGION",
        "ENDPOINT_URL",
        "ENDPOINT_URL_S3",
        "CA_BUNDLE",
        "SECURITY_TOKEN",
    ):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def opened(server: ScriptedServer, **options: object) -> Store:
    given = {"client": "obstore", "endpoint_url": server.url, "attempts_max": 2, **options}
    return open_store(f"s3://{server.bucket}/log", Runtime(), {**given, "pause_min_ms": 1})


def headers_of_a_create(server: ScriptedServer, **options: object) -> dict[str, str]:
    assert opened(server, **options).create("a", b"x") == Created()
    return server.headers[-1]


def signer(headers: dict[str, str]) -> list[str]:
    """The key and the region in the signature."""
    credential = headers["Authorization"].partition("Credential=")[2].split("/")
    return [credential[0], credential[2]]


def test_every_option_of_s3fs_is_known() -> None:
    assert s3_client.options_of_s3fs() == s3_options.S3FS_OPTIONS


def test_keys_and_region_are_taken_from_the_options(server: ScriptedServer) -> None:
    headers = headers_of_a_create(server, **KEYS, token="session", **REGION)
    assert signer(headers) == ["AKIAOPTION", "eu-central-1"]
    assert headers["X-Amz-Security-Token"] == "session"


def test_keys_and_region_are_accepted_in_client_kwargs(server: ScriptedServer) -> None:
    names = {"aws_access_key_id": "AKIABOTO", "aws_secret_access_key": "hush-hush"}
    headers = headers_of_a_create(server, client_kwargs={**names, "region_name": "us-west-2"})
    assert signer(headers) == ["AKIABOTO", "us-west-2"]


def test_keys_and_region_are_taken_from_the_environment(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("ACCESS_KEY_ID", "AKIAENV"), ("SECRET_ACCESS_KEY", "hush-hush")):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_SESSION_TOKEN", "session")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    headers = headers_of_a_create(server)
    assert signer(headers) == ["AKIAENV", "eu-west-1"]
    assert headers["X-Amz-Security-Token"] == "session"


def test_keys_from_options_ignore_session_token_from_environment(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of other keys")
    assert "X-Amz-Security-Token" not in headers_of_a_create(server, **KEYS)


def test_I1_obstore_environment_variables_do_not_change_requests(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"CONDITIONAL_PUT": "disabled", "SKIP_SIGNATURE": "true", "ENDPOINT": "http://h:1"}
    names |= {"VIRTUAL_HOSTED_STYLE_REQUEST": "true", "DISABLE_BULK_DELETE": "false"}
    names |= {"ACCESS_KEY_ID": "AKIAENV", "SECRET_ACCESS_KEY": "x", "SESSION_TOKEN": "x"}
    for name, value in names.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    headers = headers_of_a_create(server, **KEYS)
    assert headers["If-None-Match"] == "*"
    assert signer(headers)[0] == "AKIAOPTION"
    opened(server, **KEYS).delete("a")
    assert server.requests == ["PUT", "DELETE"]


def test_profile_provides_keys_region_and_endpoint(server: ScriptedServer, tmp_path: Path) -> None:
    (tmp_path / "config").write_text(
        f"[profile lake]\nregion = ap-south-1\nendpoint_url = {server.url}\n"
    )
    (tmp_path / "credentials").write_text(
        "[lake]\naws_access_key_id = AKIAPROFILE\naws_secret_access_key = hush-hush\n"
    )
    headers = headers_of_a_create(server, profile="lake", endpoint_url=None)
    assert signer(headers) == ["AKIAPROFILE", "ap-south-1"]


def test_services_section_overrides_endpoint_of_the_profile(
    server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "lake")
    (tmp_path / "config").write_text(
        "[profile lake]\nservices = here\nendpoint_url = http://127.0.0.1:9\n"
        f"[services here]\ns3 =\n  endpoint_url = {server.url}\n"
    )
    assert headers_of_a_create(server, **KEYS, endpoint_url=None)


def test_configured_endpoint_is_ignored_where_the_environment_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").write_text("[default]\nendpoint_url = http://127.0.0.1:9\n")
    for value, host in ((None, "127.0.0.1"), ("false", "127.0.0.1"), ("True", "amazonaws.com")):
        if value is not None:
            monkeypatch.setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", value)
        found = bucket_settings("lake", read_options({**KEYS})).origin
        assert host in found, value


def test_region_named_nowhere_is_the_default_one(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("[default]\noutput = json\n")
    found = bucket_settings("lake", read_options({**KEYS})).config
    assert found["region"] == DEFAULT_REGION


@pytest.mark.parametrize("name", ["AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN"])
def test_session_token_of_the_environment_has_two_names(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    assert keys_of_environment() is None
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAENV")
    assert keys_of_environment() is None
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush-hush")
    plain = {"access_key_id": "AKIAENV", "secret_access_key": "hush-hush", "expires_at": None}
    found = keys_of_environment()
    assert found is not None
    assert found() == plain
    monkeypatch.setenv(name, "hush")
    found = keys_of_environment()
    assert found is not None
    assert found() == {**plain, "token": "hush"}


@pytest.mark.parametrize(
    "given", [{"requester_pays": True}, {"s3_additional_kwargs": {"RequestPayer": "requester"}}]
)
def test_requester_pays_has_two_names(given: dict[str, object]) -> None:
    assert read_options({**KEYS, **given}).config["request_payer"] is True


def test_each_option_of_botocores_config_is_kept_beside_the_others() -> None:
    config = {
        "connect_timeout": 2.5,
        "user_agent": "mine",
        "proxies": {"http": "http://proxy:1", "https": "http://proxy:1"},
    }
    for names in (list(config), list(reversed(config))):
        found = read_options({**KEYS, "config_kwargs": {name: config[name] for name in names}})
        assert (
            found.client_options.items()
            >= {
                "connect_timeout": "2.5s",
                "user_agent": "mine",
                "proxy_url": "http://proxy:1",
            }.items()
        )


def test_slash_behind_the_endpoint_has_no_effect() -> None:
    found = bucket_settings("lake", read_options({**KEYS, "endpoint_url": "http://h:1/"}))
    assert (found.config["endpoint"], found.origin) == ("http://h:1", "http://h:1")


def test_an_unknown_profile_is_refused(server: ScriptedServer) -> None:
    with pytest.raises(StoreDenied, match=r"ProfileNotFound.*AWS_PROFILE"):
        opened(server, profile="nowhere").create("a", b"x")
    assert server.requests == []


def test_expiring_keys_are_renewed(server: ScriptedServer, tmp_path: Path) -> None:
    """The profile names a process that returns new keys each time, which expire at once."""
    program = tmp_path / "keys"
    answer = {"Version": 1, "AccessKeyId": "AKIA$n", "SecretAccessKey": "hush-hush"}
    answer |= {"Expiration": "$end"}
    program.write_text(
        f"#!/bin/sh\necho >> {tmp_path}/count\nn=$(wc -l < {tmp_path}/count)\n"
        "end=$(date -u -d '+60 seconds' +%Y-%m-%dT%H:%M:%SZ)\n"
        f"cat <<END\n{json.dumps(answer)}\nEND\n"
    )
    program.chmod(stat.S_IRWXU)
    (tmp_path / "config").write_text(f"[default]\ncredential_process = {program}\n")
    store = opened(server)
    used: set[str] = set()
    for number in range(1_000):  # obstore asks again after 100 ms at the earliest.
        store.put_new(f"a/{number}", b"x")
        used.add(signer(server.headers[-1])[0])
        if len(used) > 1:
            break
    assert len(used) == 2
    assert all(re.fullmatch(r"AKIA\d+", key) for key in used)


def test_failed_credential_process_is_refused_before_any_request(
    server: ScriptedServer, tmp_path: Path
) -> None:
    (tmp_path / "config").write_text("[default]\ncredential_process = false\n")
    with pytest.raises(StoreDenied, match="CredentialRetrievalError"):
        opened(server).create("a", b"x")
    assert server.requests == []


@pytest.mark.parametrize(
    "options", [{"anon": True}, {"config_kwargs": {"signature_version": "unsigned"}}]
)
def test_anonymous_requests_are_not_signed(
    server: ScriptedServer, options: dict[str, object]
) -> None:
    assert "Authorization" not in headers_of_a_create(server, **options)


def test_encryption_settings_are_sent_with_create(server: ScriptedServer) -> None:
    encryption = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "k-1", "BucketKeyEnabled": True}
    headers = headers_of_a_create(server, **KEYS, s3_additional_kwargs=encryption)
    name = "X-Amz-Server-Side-Encryption"
    assert headers[name] == "aws:kms"
    assert headers[f"{name}-Aws-Kms-Key-Id"] == "k-1"
    assert headers[f"{name}-Bucket-Key-Enabled"] == "true"


def test_customer_provided_key_is_sent_with_reads_too(server: ScriptedServer) -> None:
    given = {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": "k" * 32}
    store = opened(server, **KEYS, s3_additional_kwargs=given)
    store.create("a", b"x")
    store.get("a")
    algorithm = "X-Amz-Server-Side-Encryption-Customer-Algorithm"
    assert [headers[algorithm] for headers in server.headers] == ["AES256", "AES256"]


def test_private_certificate_authority_needs_a_bundle_or_verify_False(
    behind_tls: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind_tls.begin_anew()
    with pytest.raises((StoreUnavailable, OutcomeUnknown)):
        opened(behind_tls, **KEYS).create("a", b"x")
    bundle = str(CERTIFICATES / "authority.pem")
    verified: dict[str, object] = {"client_kwargs": {"verify": bundle}}
    unverified: dict[str, object] = {"client_kwargs": {"verify": False}}
    for options in (verified, unverified):
        assert headers_of_a_create(behind_tls, **KEYS, **options)
    for name in ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"):
        with monkeypatch.context() as environment:
            environment.setenv(name, bundle)
            assert headers_of_a_create(behind_tls, **KEYS)


def test_certificate_bundle_of_many_authorities_is_accepted(
    behind_tls: ScriptedServer, tmp_path: Path
) -> None:
    import certifi

    behind_tls.begin_anew()
    bundle = tmp_path / "bundle.pem"
    own = (CERTIFICATES / "authority.pem").read_text()
    bundle.write_text(Path(certifi.where()).read_text() + own)
    assert headers_of_a_create(behind_tls, **KEYS, client_kwargs={"verify": str(bundle)})


def test_invalid_certificate_bundle_is_refused_before_any_request(
    server: ScriptedServer, tmp_path: Path
) -> None:
    bundle = tmp_path / "bundle.pem"
    bundle.write_text("-----BEGIN CERTIFICATE-----\nhush\n-----END CERTIFICATE-----\n")
    with pytest.raises(InvalidOption, match="obstore cannot use.*certificates") as refused:
        opened(server, **KEYS, client_kwargs={"verify": str(bundle)}).create("a", b"x")
    assert "hush" not in str(refused.value)
    assert server.requests == []


def test_error_names_unreadable_certificate_bundle(server: ScriptedServer) -> None:
    with pytest.raises(InvalidOption, match=r"/no/such.pem cannot be read.*AWS_CA_BUNDLE"):
        opened(server, **KEYS, client_kwargs={"verify": "/no/such.pem"}).create("a", b"x")


def test_virtual_addressing_puts_the_bucket_in_the_host_name() -> None:
    style = {"config_kwargs": {"s3": {"addressing_style": "virtual"}}}
    given = {**KEYS, **style, "endpoint_url": "https://oss.example.org:8443/"}
    settings = bucket_settings("lake", read_options(given))
    assert settings.config["endpoint"] == "https://lake.oss.example.org:8443"
    assert settings.origin == "https://lake.oss.example.org:8443"
    assert settings.config["virtual_hosted_style_request"] is True


@pytest.mark.parametrize(
    ("region", "endpoint"),
    [
        ("", "https://s3.us-east-1.amazonaws.com"),
        ("eu-central-1", "https://s3.eu-central-1.amazonaws.com"),
        ("cn-north-1", "https://s3.cn-north-1.amazonaws.com.cn"),
    ],
)
def test_default_endpoint_depends_on_the_region(region: str, endpoint: str) -> None:
    given = {**KEYS, "client_kwargs": {"region_name": region}}
    assert bucket_settings("lake", read_options(given)).config["endpoint"] == endpoint


@pytest.mark.parametrize(
    ("endpoint", "origin"),
    [
        ("https://Host:443/minio", "https://host"),
        ("http://host:80", "http://host"),
        ("http://[::1]:9000", "http://[::1]:9000"),
    ],
)
def test_origin_drops_path_default_port_and_upper_case(endpoint: str, origin: str) -> None:
    assert origin_of(endpoint) == origin


def test_repr_of_settings_contains_no_secret() -> None:
    given = {**KEYS, "s3_additional_kwargs": {"SSECustomerKey": "hush" * 8}}
    assert "hush" not in repr(read_options(given)) + repr(
        bucket_settings("lake", read_options(given))
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"client": "boto3"}, "client is 'boto3'; give obstore or s3fs"),
        ({"cache_regions": True}, "region_name"),
        ({"client_kwargs": {"api_version": "x"}}, "client_kwargs.api_version.*client=s3fs"),
        ({"config_kwargs": {"read_timeout": 5}}, "attempt_timeout_ms"),
        ({"config_kwargs": {"connect_timeout": "soon"}}, "connect_timeout.*number of seconds"),
        ({"config_kwargs": {"s3": {"use_dualstack_endpoint": True}}}, "s3.use_dualstack_endpoint"),
        ({"config_kwargs": {"zzz": 1}}, "config_kwargs.zzz.*client=s3fs"),
        ({"s3_additional_kwargs": {"ACL": "private"}}, "s3_additional_kwargs.ACL.*client=s3fs"),
        ({"s3_additional_kwargs": {"ChecksumAlgorithm": "CRC32"}}, "ChecksumAlgorithm"),
        ({"client_kwargs": "no"}, "client_kwargs must contain named values"),
    ],
)
def test_options_unsupported_by_obstore_are_refused_with_a_remedy(
    options: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidOption, match=message):
        open_store("s3://bucket/log", Runtime(), {**KEYS, **options})
