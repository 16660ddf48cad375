"""Which client a process uses: by option, by installed packages, and after a fork."""

import multiprocessing
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection

import pytest

from tests.unit.storage.scripted_s3 import ScriptedServer
from txlog.clock import Runtime
from txlog.errors import StoreDenied, TxlogError, UsageError
from txlog.storage import Created, Store, open_store

OPTIONS = {"key": "AKIAEXAMPLE", "secret": "hush-hush"}
REGION = {"client_kwargs": {"region_name": "us-east-1"}}


def opened(server: ScriptedServer, **options: object) -> Store:
    given = {**OPTIONS, **REGION, "endpoint_url": server.url, **options}
    return open_store(f"s3://{server.bucket}/log", Runtime(), given)


def lacks(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    """Make the packages appear not installed."""
    for package in packages:
        monkeypatch.setitem(sys.modules, package, None)


def agent(server: ScriptedServer) -> str:
    """The library that made the last request."""
    sent = server.headers[-1]["User-Agent"]
    return "obstore" if "object_store" in sent else "s3fs" if "Botocore" in sent else sent


def test_obstore_is_the_default_and_s3fs_an_option(server: ScriptedServer) -> None:
    for options, client in (({}, "obstore"), ({"client": "s3fs"}, "s3fs")):
        opened(server, **options).put_new("a", client.encode())
        assert agent(server) == client


def test_s3fs_is_used_if_obstore_is_not_installed(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacks(monkeypatch, "obstore")
    opened(server).put_new("a", b"x")
    assert agent(server) == "s3fs"


@pytest.mark.parametrize(
    ("missing", "url", "client", "needed"),
    [
        (("obstore", "s3fs"), "s3://bucket/log", None, "obstore.*txlog-spark.s3.'"),
        (("obstore",), "s3://bucket/log", "obstore", "obstore.*txlog-spark.s3.'"),
        (("s3fs",), "s3://bucket/log", "s3fs", "s3fs.*txlog-spark.s3.'"),
        (("obstore",), "gs://bucket/log", None, "obstore.*txlog-spark.gcs.'"),
        (("obstore",), "az://bucket/log", None, "obstore.*txlog-spark.azure.'"),
    ],
)
def test_error_for_missing_package_names_the_install_command(
    monkeypatch: pytest.MonkeyPatch,
    missing: tuple[str, ...],
    url: str,
    client: str | None,
    needed: str,
) -> None:
    lacks(monkeypatch, *missing)
    with pytest.raises(UsageError, match=needed):
        open_store(url, Runtime(), {"client": client} if client else {})


def in_a_forked_process(store: Store) -> str:
    """The result of a create in a forked process."""
    receive, send = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_create, args=(store, send))
    process.start()
    try:
        assert receive.poll(60), "the forked process hangs"
        answer: str = receive.recv()
        return answer
    finally:
        process.kill()
        process.join()


def _create(store: Store, send: Connection) -> None:
    try:
        send.send(repr(store.create("child", b"x")))
    except TxlogError as error:
        send.send(error.message)


forks = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")


@forks
def test_forked_process_uses_s3fs_while_parent_keeps_obstore(server: ScriptedServer) -> None:
    store, another = opened(server), opened(server, attempts_max=7)
    for path, used in (("a", store), ("b", another)):
        assert used.create(path, b"x") == Created()
        assert agent(server) == "obstore"
    for used in (store, another):
        assert in_a_forked_process(used) == "Created()"
        assert agent(server) == "s3fs"
    assert store.create("c", b"x") == Created()
    assert agent(server) == "obstore"


@forks
def test_forked_process_has_an_s3fs_of_its_own(server: ScriptedServer) -> None:
    """The thread that makes the parent's requests does not survive a fork."""
    store = opened(server, client="s3fs")
    assert store.create("a", b"x") == Created()
    assert in_a_forked_process(store) == "Created()"
    assert store.create("b", b"x") == Created()


@forks
def test_forked_process_without_s3fs_is_refused_with_remedies(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(server)
    store.put_new("a", b"x")
    lacks(monkeypatch, "s3fs")
    said = in_a_forked_process(store)
    assert "forked" in said
    assert "pip install 'txlog-spark[s3]'" in said
    assert "spawn" in said


@forks
def test_forked_process_on_gcs_is_refused_with_advice_to_use_fsspec(server: ScriptedServer) -> None:
    """The parent's first request may have gone to any store."""
    opened(server).put_new("a", b"x")
    options = {"endpoint_url": server.url, "token": "anon"}
    store = open_store(f"gs://{server.bucket}/log", Runtime(), options)
    assert "client=fsspec" in in_a_forked_process(store)


def without_botocore(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, **environment: str
) -> Callable[[], object]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    lacks(monkeypatch, "botocore", "s3fs")
    options = {**REGION, "endpoint_url": server.url, "attempts_max": 1}
    store = open_store(f"s3://{server.bucket}/log", Runtime(), options)
    return lambda: store.get("a")


def test_missing_credentials_are_refused_if_metadata_service_is_disabled(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """obstore itself does not support AWS_EC2_METADATA_DISABLED."""
    read = without_botocore(server, monkeypatch, AWS_EC2_METADATA_DISABLED="true")
    with pytest.raises(StoreDenied, match="NoCredentialsError"):
        read()
    assert server.requests == []


def test_a_profile_needs_botocore(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    read = without_botocore(server, monkeypatch, AWS_PROFILE="lake")
    with pytest.raises(UsageError, match=r"profile.*botocore.*txlog-spark.s3.'"):
        read()
    assert server.requests == []


@pytest.mark.parametrize("client", ["obstore", "s3fs"])
def test_name_that_obstore_cannot_represent_is_listed_by_s3fs(
    server: ScriptedServer, client: str
) -> None:
    server.listed = ["log/a", "log/b//c", "log/d"]
    store = opened(server, client=client)
    assert [stored.path for stored in store.list_after("")] == ["a", "b//c", "d"]
    assert agent(server) == "s3fs"


def test_name_that_obstore_cannot_represent_is_refused_without_s3fs(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.listed = ["log/a", "log/b//c", "log/d"]
    store = opened(server)
    lacks(monkeypatch, "s3fs")
    with pytest.raises(StoreDenied, match="an object below it has a name with an empty part"):
        list(store.list_after(""))


def test_client_that_the_options_name_is_used_whatever_is_installed(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacks(monkeypatch, "s3fs")
    opened(server, client="obstore").put_new("a", b"x")
    assert agent(server) == "obstore"
    opened(server).put_new("b", b"x")
    assert agent(server) == "obstore"


def test_bucket_of_an_s3_url_has_borders() -> None:
    for bucket, is_valid in (("ab", True), ("a", False), ("a" * 255, True), ("a" * 256, False)):
        if is_valid:
            assert open_store(f"s3://{bucket}/x", Runtime(), OPTIONS).url == f"s3://{bucket}/x"
            continue
        with pytest.raises(UsageError, match="A bucket's name has two letters or more"):
            open_store(f"s3://{bucket}/x", Runtime(), OPTIONS)
