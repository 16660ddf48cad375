"""The client of Azure fulfils the contract of a store, on Microsoft's emulator."""

from collections.abc import Iterator, Mapping
from itertools import count

import pytest

from spark_plugin.checkpoints.checkpoint import open_checkpoint
from tests.conformance.azurite import ACCOUNT, Azurite, azurite
from txlog.clock import Runtime
from txlog.errors import StoreDenied
from txlog.storage import Store, open_store
from txlog.testing.conformance import LostAnswerConformance, SharedStoreConformance
from txlog.testing.tcp_proxy import TcpProxy

pytestmark = [pytest.mark.extra, pytest.mark.slow]

CONTAINER = "txlog-test"
_prefixes = count()


@pytest.fixture(scope="module")
def azure() -> Iterator[Azurite]:
    with azurite(CONTAINER) as server:
        yield server


@pytest.fixture
def proxy(azure: Azurite) -> Iterator[TcpProxy]:
    with TcpProxy(f"http://127.0.0.1:{azure.port}") as proxy:
        yield proxy


@pytest.fixture
def url() -> str:
    return f"az://{CONTAINER}/log-{next(_prefixes)}"


def through(proxy: TcpProxy, azure: Azurite, **limits: object) -> dict[str, object]:
    path = str(azure.storage_options["endpoint"]).rpartition("/")[2]
    endpoint = f"{proxy.endpoint_url}/{path}"
    return {**azure.storage_options, "endpoint": endpoint, **limits}


class TestAzure(SharedStoreConformance):
    @pytest.fixture
    def store_url(self, url: str) -> str:
        return url

    @pytest.fixture
    def storage_options(self, azure: Azurite) -> Mapping[str, object]:
        return azure.storage_options


class TestAzureOverABreakingLine(LostAnswerConformance):
    """A proxy loses answers to requests that the server has carried out."""

    @pytest.fixture
    def losing_store(self, url: str, azure: Azurite, proxy: TcpProxy) -> Store:
        proxy.lose_answers("PUT")
        return open_store(url, Runtime(), through(proxy, azure))

    @pytest.fixture
    def cut_off_store(self, url: str, azure: Azurite, proxy: TcpProxy) -> Store:
        proxy.lose_answers("PUT", then_refuse=True)
        limits = {"deadline_ms": 4_000, "attempt_timeout_ms": 3_000}
        return open_store(url, Runtime(), through(proxy, azure, **limits))


def test_R24_checkpoint_of_a_query_is_read_by_its_url_of_hadoop(azure: Azurite) -> None:
    written = open_store(f"az://{CONTAINER}/cp 1", Runtime(), azure.storage_options)
    for name in ("offsets/9", "offsets/10", "offsets/11.tmp"):
        written.create(name, b"v1")
    written.create("metadata", b'{"id": "query"}')
    location = f"abfss://{CONTAINER}@{ACCOUNT}.dfs.core.windows.net/cp 1"
    checkpoint = open_checkpoint(location, Runtime(), storage_options=azure.storage_options)
    assert (checkpoint.query_id(), checkpoint.newest_batch()) == ("query", 10)
    assert (checkpoint.newest_commit(), checkpoint.url) == (None, location)


def test_missing_container_is_named_in_the_error(azure: Azurite) -> None:
    store = open_store("az://no-such/log", Runtime(), azure.storage_options)
    for call in (
        lambda: store.create("a", b"x"),
        lambda: store.get("a"),
        lambda: list(store.list_after("")),
    ):
        with pytest.raises(StoreDenied, match="no container 'no-such'"):
            call()


def test_wrong_key_is_denied_without_leaking_it(url: str, azure: Azurite) -> None:
    options = {**azure.storage_options, "account_key": "aHVzaC1odXNo"}
    with pytest.raises(StoreDenied, match="AZURE_STORAGE_ACCOUNT_KEY") as refused:
        open_store(url, Runtime(), options).create("a", b"x")
    assert "aHVzaC1odXNo" not in str(refused.value)
