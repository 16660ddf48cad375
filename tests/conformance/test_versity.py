"""S3 fulfils the contract of a store on a server that checks signatures, with each client."""

from collections.abc import Iterator, Mapping
from itertools import count

import pytest

from tests.conformance.raw_objects import put_half
from tests.conformance.versity import BUCKET, signed_put, storage_options, versity
from txlog.clock import Runtime
from txlog.errors import StoreDenied
from txlog.storage import Created, open_store
from txlog.testing.conformance import SharedStoreConformance

pytestmark = [pytest.mark.extra, pytest.mark.slow, pytest.mark.s3]

_prefixes = count()


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with versity() as port:
        yield port


@pytest.fixture(params=["obstore", "s3fs"])
def options(port: int, request: pytest.FixtureRequest) -> Mapping[str, object]:
    return {**storage_options(port), "client": request.param}


@pytest.fixture
def url() -> str:
    return f"s3://{BUCKET}/log-{next(_prefixes)}"


class TestVersity(SharedStoreConformance):
    @pytest.fixture
    def store_url(self, url: str) -> str:
        return url

    @pytest.fixture
    def storage_options(self, options: Mapping[str, object]) -> Mapping[str, object]:
        return options


def test_body_that_ends_early_is_not_stored(
    port: int, url: str, options: Mapping[str, object]
) -> None:
    put_half(signed_put(port, f"{url.removeprefix(f's3://{BUCKET}/')}/a"), bytes(100_000))
    assert open_store(url, Runtime(), options).get("a") is None


def test_wrong_secret_is_denied_without_leaking_it(url: str, options: Mapping[str, object]) -> None:
    assert open_store(url, Runtime(), options).create("a", b"x") == Created()
    store = open_store(url, Runtime(), {**options, "secret": "hush-hush"})
    for call in (
        lambda: store.create("b", b"x"),
        lambda: store.get("a"),
        lambda: store.delete("a"),
    ):
        with pytest.raises(StoreDenied, match=r"403 SignatureDoesNotMatch") as refused:
            call()
        assert "hush" not in str(refused.value)


def test_unsigned_request_is_denied(url: str, options: Mapping[str, object]) -> None:
    anonymous = {name: options[name] for name in ("endpoint_url", "client_kwargs", "client")}
    with pytest.raises(StoreDenied, match="403"):
        open_store(url, Runtime(), {**anonymous, "anon": True}).create("a", b"x")
