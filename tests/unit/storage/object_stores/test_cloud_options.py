"""Options of Google Cloud Storage and Azure, by the names of gcsfs and adlfs."""

import json
from pathlib import Path

import pytest

from txlog.clock import Runtime
from txlog.errors import InvalidOption, TxlogError, UsageError
from txlog.storage import ObjectStore, open_store
from txlog.storage.object_stores import azure, gcs

ACCOUNT = {"account_name": "lake", "account_key": "aHVzaA=="}


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    for name in ("ACCOUNT_NAME", "CONNECTION_STRING", "ENDPOINT", "ANON", *AZURE_NAMES):
        monkeypatch.delenv(f"AZURE_STORAGE_{name}", raising=False)


def test_gcs_and_azure_url_variants_have_one_canonical_form() -> None:
    for url in ("gs://bucket/a/b", "gcs://bucket/a/b/"):
        assert open_store(url, Runtime()).url == "gs://bucket/a/b"
    for url in ("az://lake/a/b", "abfs://lake/a/b/"):
        assert open_store(url, Runtime(), ACCOUNT).url == "az://lake/a/b"


def test_service_account_key_is_distinguished_from_other_credentials(tmp_path: Path) -> None:
    key = {"type": "service_account", "client_email": "me", "private_key": "hush"}
    of_account, from_user = tmp_path / "key.json", tmp_path / "user.json"
    of_account.write_text(json.dumps(key))
    from_user.write_text('{"type": "authorized_user", "refresh_token": "hush"}')
    for token in (str(of_account), key):
        settings = gcs.bucket_settings("lake", {"token": token})
        given = json.loads(str(settings.config["service_account_key"]))
        assert given == {**key, "private_key_id": ""}
        assert "hush" not in repr(settings)
    assert gcs.bucket_settings("lake", {"token": str(from_user)}).config == {
        "application_credentials": str(from_user),
        "base_url": gcs.ENDPOINT,
    }
    for of_the_machine in (None, "google_default", "cloud"):
        found = gcs.bucket_settings("lake", {"token": of_the_machine}).config
        assert found == {"base_url": gcs.ENDPOINT}


@pytest.mark.parametrize("content", ["", "[]", "hush-hush", "{"])
def test_invalid_key_file_is_refused_without_revealing_its_content(
    tmp_path: Path, content: str
) -> None:
    file = tmp_path / "key.json"
    file.write_text(content)
    with pytest.raises(InvalidOption, match="does not contain a JSON object") as refused:
        open_store("gs://lake/log", Runtime(), {"token": str(file)})
    assert "hush" not in str(refused.value)


def test_azure_account_comes_from_option_environment_or_connection_string(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    string = "DefaultEndpointsProtocol=https;AccountName=lake;AccountKey=aHVzaA==;EndpointSuffix=x"
    by_option = azure.bucket_settings("log", ACCOUNT)
    by_string = azure.bucket_settings("log", {"connection_string": string})
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "lake")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "aHVzaA==")
    assert by_option == by_string == azure.bucket_settings("log", {})
    assert by_option.config == {
        **ACCOUNT,
        "endpoint": "https://lake.blob.core.windows.net",
        "skip_signature": False,
    }
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "of another")
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "of another")
    assert by_option == azure.bucket_settings("log", ACCOUNT)
    assert by_option.origin == "https://lake.blob.core.windows.net"


AZURE_NAMES = ("ACCOUNT_KEY", "SAS_TOKEN", "CLIENT_ID", "CLIENT_SECRET", "TENANT_ID")


@pytest.mark.parametrize("name", AZURE_NAMES)
def test_each_variable_of_adlfs_is_an_option_unless_options_sign(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "lake")
    plain = azure.bucket_settings("log", {}).config
    monkeypatch.setenv(f"AZURE_STORAGE_{name}", "hush")
    stored = "sas_key" if name == "SAS_TOKEN" else name.lower()
    assert azure.bucket_settings("log", {}).config == {**plain, stored: "hush"}
    anonymous = azure.bucket_settings("log", {"anon": True}).config
    assert anonymous == {**plain, "skip_signature": True}


def test_variables_that_adlfs_does_not_read_have_no_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "lake")
    plain = azure.bucket_settings("log", {})
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", "http://elsewhere")
    monkeypatch.setenv("AZURE_STORAGE_ANON", "true")
    assert azure.bucket_settings("log", {}) == plain


def test_azure_connection_string_in_the_environment_names_account_key_and_endpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(
        "AZURE_STORAGE_CONNECTION_STRING",
        " AccountName = lake; AccountKey=aHVzaA==;BlobEndpoint=http://h:1/lake/;"
        "SharedAccessSignature=sv=1&sig=hush;strange",
    )
    settings = azure.bucket_settings("log", {})
    assert settings.config == {
        **ACCOUNT,
        "sas_key": "sv=1&sig=hush",
        "endpoint": "http://h:1/lake",
        "skip_signature": False,
    }
    assert settings.origin == "http://h:1"


def test_anonymous_gcs_client_asks_for_no_token_and_uses_the_endpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    by_option = gcs.bucket_settings("lake", {"token": "anon", "endpoint_url": "http://h:1/"})
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "h:1")
    assert by_option == gcs.bucket_settings("lake", {})
    assert by_option.config.keys() == {"service_account_key", "skip_signature", "base_url"}
    assert by_option.config["skip_signature"] is True
    assert (by_option.config["base_url"], by_option.origin) == ("http://h:1", "http://h:1")
    key = json.loads(str(by_option.config["service_account_key"]))
    assert (key.pop("gcs_base_url"), key.pop("disable_oauth")) == ("http://h:1", True)
    assert key == {"client_email": "", "private_key": "", "private_key_id": ""}
    assert gcs.bucket_settings("lake", {"token": "cloud"}).config == {"base_url": "http://h:1"}


def test_azure_accepts_sas_token_and_custom_endpoint() -> None:
    given = {"account_name": "lake", "sas_token": "sv=1&sig=hush", "endpoint": "http://h:1/lake"}
    settings = azure.bucket_settings("log", given)
    assert settings.config["sas_key"] == "sv=1&sig=hush"
    assert settings.origin == "http://h:1"


@pytest.mark.parametrize(
    ("url", "options", "error", "message"),
    [
        ("gs://", {}, UsageError, "gs://bucket/prefix"),
        ("gs://bucket/a//b", {}, UsageError, "cannot be the prefix"),
        ("gs://bucket/a", {"consistency": "md5"}, InvalidOption, "client=fsspec"),
        ("gs://bucket/a", {"token": "browser"}, InvalidOption, "token is neither"),
        ("gs://bucket/a", {"token": {"type": "hush"}}, InvalidOption, "the key of a service"),
        ("gs://bucket/a", {"client": "s3fs"}, InvalidOption, "give obstore or fsspec"),
        ("gs://bucket/a", {"endpoint_url": "http://me:hush@h"}, InvalidOption, "credentials in it"),
        ("az://", {}, UsageError, "az://container/prefix"),
        ("az://lake@account.dfs.core.windows.net/a", {}, UsageError, "az://container/prefix"),
        ("az://lake/a", {}, UsageError, "AZURE_STORAGE_ACCOUNT_NAME"),
        ("az://lake/a", {"account_name": "x.y/hush"}, UsageError, "no Azure account"),
        ("az://lake/a", {**ACCOUNT, "credential": 1}, InvalidOption, "client=fsspec"),
    ],
)
def test_invalid_url_or_option_is_refused_with_a_remedy(
    url: str, options: dict[str, object], error: type[TxlogError], message: str
) -> None:
    with pytest.raises(error, match=message) as refused:
        open_store(url, Runtime(), options)
    assert "hush" not in str(refused.value)


def test_retry_limits_are_accepted_as_storage_options() -> None:
    assert isinstance(open_store("gs://lake/log", Runtime(), {"attempts_max": 2}), ObjectStore)


def test_client_fsspec_selects_gcsfs() -> None:
    """gcsfs is not installed here, and the error says so."""
    with pytest.raises(UsageError, match=r"gs:// cannot be opened .*gcsfs"):
        open_store("gs://lake/log", Runtime(), {"client": "fsspec"})
