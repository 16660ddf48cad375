"""Stores on Google Cloud Storage and Azure: their requests, limits, and the words of refusals."""

import pytest

from tests.unit.storage.scripted_s3 import ScriptedServer
from txlog.clock import Runtime
from txlog.errors import InvalidOption, StoreDenied, StoreUnavailable
from txlog.storage import Created, Store, open_store
from txlog.storage.object_stores import azure, gcs, obstore_client
from txlog.testing.clock import manual_runtime

ACCOUNT = {"account_name": "lake", "account_key": "aHVzaA=="}
QUICK = {"attempts_max": 2, "pause_min_ms": 1, "attempt_timeout_ms": 60_000}


@pytest.fixture(params=["gs", "az"])
def scheme(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(obstore_client, "_buckets", {})
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    for name in ("ACCOUNT_NAME", "ACCOUNT_KEY", "SAS_TOKEN", "CONNECTION_STRING"):
        monkeypatch.delenv(f"AZURE_STORAGE_{name}", raising=False)


def opened(server: ScriptedServer, scheme: str, prefix: str = "log/a", **options: object) -> Store:
    of_google = {"endpoint_url": server.url, "token": "anon"}
    of_azure = {**ACCOUNT, "endpoint": server.url}
    given = {**(of_google if scheme == "gs" else of_azure), **QUICK, **options}
    return open_store(f"{scheme}://{server.bucket}/{prefix}", Runtime(), given)


def test_objects_are_below_the_prefix(server: ScriptedServer, scheme: str) -> None:
    for prefix in ("log/a", "log/a/"):
        store = opened(server, scheme, prefix)
        assert store.url == f"{scheme}://{server.bucket}/log/a"
        assert store.create("x", b"1") == Created()
        assert server.keys[-1].endswith("log/a/x")
    assert opened(server, scheme, "Xx/a").url == f"{scheme}://{server.bucket}/Xx/a"
    root = opened(server, scheme, "")
    assert root.url == f"{scheme}://{server.bucket}"
    root.put_new("x", b"1")
    assert server.keys[-1].rpartition("/")[2] == "x"
    assert "log" not in server.keys[-1]


REFUSED = {
    "gs": (
        "Check GOOGLE_APPLICATION_CREDENTIALS or storage option token and the permissions on bucket"
        " '{}' (storage.objects.create, get, list, delete)."
    ),
    "az": (
        "Check AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY or the token and the "
        "permissions on container '{}' (read, add, create, write, delete, list)."
    ),
}
ABSENT = {
    "gs": "there is no bucket '{}' there). Create it, or correct its name and the endpoint "
    "(storage option endpoint_url).",
    "az": "there is no container '{}' there). Create it, or correct its name and the endpoint "
    "(AZURE_STORAGE_ACCOUNT_NAME).",
}


def test_refusal_names_what_to_check(server: ScriptedServer, scheme: str) -> None:
    host = server.url.removeprefix("http://")
    for status, words in ((403, REFUSED), (404, ABSENT)):
        server.script = {"PUT": [(status, "")]}
        with pytest.raises(StoreDenied) as refused:
            opened(server, scheme).create("x", b"1")
        assert words[scheme].format(server.bucket) in refused.value.message
        assert f"cannot create {scheme}://{server.bucket}/log/a/x at {host}: HTTP {status}" in str(
            refused.value
        )


def test_limits_of_retries_are_those_of_the_options(server: ScriptedServer, scheme: str) -> None:
    for attempts_max in (1, 3):
        server.begin_anew()
        server.script = {"GET": [(503, "")]}
        with pytest.raises(StoreUnavailable, match=f"{attempts_max} attempts"):
            opened(server, scheme, attempts_max=attempts_max).get("x")
        assert server.requests == ["GET"] * attempts_max


def test_stores_share_connections_only_with_equal_settings(
    server: ScriptedServer, scheme: str
) -> None:
    server.script = {"GET": [(404, "")]}

    def count(**options: object) -> int:
        opened(server, scheme, **options).get("x")
        return len(obstore_client._buckets)

    assert [count(), count(), count(attempts_max=5)] == [1, 1, 2]
    if scheme == "az":
        assert count(account_key="b3RoZXI=") == 3
    other = f"other-{server.bucket}"[:63]
    server.begin_anew_in(other)
    opened(server, scheme).get("x")
    assert sum(key[0][1] == other for key in obstore_client._buckets) == 1  # type: ignore[index]


@pytest.mark.parametrize(
    ("url", "options", "words"),
    [
        ("gs://lake/a", {"x": 1}, "a store on Google Cloud Storage has no storage option 'x'; it "),
        ("gs://lake/a", {"x": 1}, "takes endpoint_url, project, token. Set client=fsspec for tho"),
        ("gs://lake/a", {"x": 1}, "those of gcsfs"),
        ("az://lake/a", {"x": 1, **ACCOUNT}, "a store on Azure has no storage option 'x'; it tak"),
        ("az://lake/a", {"x": 1, **ACCOUNT}, "account_key, account_name, anon, client_id, client"),
        ("az://lake/a", {"x": 1, **ACCOUNT}, "those of adlfs"),
    ],
)
def test_unknown_option_is_refused_with_those_that_are_known(
    url: str, options: dict[str, object], words: str
) -> None:
    with pytest.raises(InvalidOption) as refused:
        open_store(url, manual_runtime(), options)
    assert words in refused.value.message
    assert refused.value.facts["name"] == "x"


def test_names_of_buckets_and_accounts_have_borders() -> None:
    for name, is_valid in (
        ("abc", True),
        ("ab", False),
        ("a" * 223, True),
        ("a" * 224, False),
        ("a.b_c-1", True),
        ("-ab", False),
        ("ab-", False),
        ("Abc", False),
    ):
        assert _opens(f"gs://{name}/log", {}) is is_valid, name
    for name, is_valid in (
        ("abc", True),
        ("ab", False),
        ("a" * 63, True),
        ("a" * 64, False),
        ("$root", True),
        ("a_b", False),
        ("a.b", False),
    ):
        assert _opens(f"az://{name}/log", ACCOUNT) is is_valid, name
    for account, is_valid in (("abc", True), ("ab", False), ("a" * 24, True), ("a" * 25, False)):
        given = {**ACCOUNT, "account_name": account}
        assert _opens("az://lake/log", given) is is_valid, account


def _opens(url: str, options: dict[str, str]) -> bool:
    try:
        open_store(url, manual_runtime(), options)
    except Exception:  # noqa: BLE001 - each is a refusal
        return False
    return True


def test_project_is_accepted_and_emulator_comes_after_the_option(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = {"project": "mine", "token": "cloud"}
    plain = gcs.bucket_settings("lake", given)
    assert (plain.kind, plain.bucket, plain.origin) == ("GCSStore", "lake", gcs.ENDPOINT)
    assert (plain.client_options, plain.credentials) == ({}, None)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://emulator:1")
    assert gcs.bucket_settings("lake", given).config["base_url"] == "http://emulator:1"
    chosen = gcs.bucket_settings("lake", {**given, "endpoint_url": "http://option:2/"})
    assert chosen.config["base_url"] == "http://option:2"


def test_azure_options_come_before_the_connection_string_and_that_before_variables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "variable")
    string = "AccountName=string;BlobEndpoint=http://string:1"

    def account(**options: str) -> tuple[object, object]:
        config = azure.bucket_settings("log", options).config
        return config["account_name"], config["endpoint"]

    assert account() == ("variable", "https://variable.blob.core.windows.net")
    assert account(connection_string=string) == ("string", "http://string:1")
    assert account(connection_string=string, account_name="option") == ("option", "http://string:1")
    assert account(account_name="option", endpoint="")[1] == "https://option.blob.core.windows.net"
    settings = azure.bucket_settings("log", {"account_name": "option", "anon": "TRUE"})
    assert (settings.kind, settings.bucket, settings.client_options) == ("AzureStore", "log", {})
    assert settings.config["skip_signature"] is True
