"""obstore's handles and listings: which time limit a call gets, what two stores share."""

import pytest

from tests.unit.storage.scripted_s3 import OK, ScriptedServer
from txlog.clock import Runtime
from txlog.errors import InvalidOption
from txlog.storage.object_stores import gcs, obstore_client
from txlog.storage.object_stores.object_client import FOREIGN, Failure, Meaning, Page
from txlog.storage.object_stores.obstore_client import (
    BucketSettings,
    ObstoreBucket,
    ObstoreClient,
    shared_bucket,
)
from txlog.storage.policy.retry import Attempts, RetrySettings
from txlog.storage.s3.s3_bucket import GivenKeys, NoCredentials
from txlog.storage.store import ByteRange
from txlog.testing.clock import ManualClock, manual_runtime

LIMITS = RetrySettings(attempt_timeout_ms=1_000, throughput_min_bytes_per_s=1 << 20)
KB, MB = 1 << 10, 1 << 20


def settings_for(
    url: str, bucket: str = "bucket", credentials: object = None, **changes: object
) -> BucketSettings:
    config = {"endpoint": url, "region": "us-east-1", "conditional_put": "etag", **changes}
    keys = credentials or GivenKeys("AKIAEXAMPLE", "hush-hush", "")
    return BucketSettings("S3Store", bucket, url, config, {}, keys)  # type: ignore[arg-type]


def client_of(server: ScriptedServer) -> ObstoreClient:
    opened = ObstoreBucket(settings_for(server.url, server.bucket), LIMITS)
    return ObstoreClient(lambda: opened, Runtime().fan_out)


def attempts(size_bytes: int = 0) -> Attempts:
    return Attempts(RetrySettings(), Runtime(), size_bytes)


@pytest.mark.parametrize(
    ("size_bytes", "timeout_ms"),
    [
        (0, 1_250),
        (256 * KB, 1_250),
        (256 * KB + 1, 5_000),
        (4 * MB, 5_000),
        (4 * MB + 1, 65_000),
        (64 * MB, 65_000),
        (64 * MB + 1, 1_025_000),
    ],
)
def test_handle_has_the_time_limit_of_its_class_of_sizes(size_bytes: int, timeout_ms: int) -> None:
    bucket = ObstoreBucket(settings_for("http://127.0.0.1:9"), LIMITS)
    call = Attempts(RetrySettings(deadline_ms=10_000_000), manual_runtime(), size_bytes)
    handle = bucket.handle(call)
    assert bucket._handles == {timeout_ms: handle}
    assert bucket.handle(call) is handle


@pytest.mark.parametrize(
    ("left_ms", "timeout_ms"),
    [(1_250, 1_250), (1_249, 625), (625, 625), (624, 312), (312, 312), (311, 156), (1, 156)],
)
def test_handle_near_the_deadline_has_a_limit_that_is_halved(left_ms: int, timeout_ms: int) -> None:
    clock = ManualClock()
    bucket = ObstoreBucket(settings_for("http://127.0.0.1:9"), LIMITS)
    call = Attempts(RetrySettings(deadline_ms=10_000), manual_runtime(clock=clock))
    clock.advance(10_000 - left_ms)
    bucket.handle(call)
    assert list(bucket._handles) == [timeout_ms]


def test_settings_that_obstore_refuses_name_the_bucket_and_no_value() -> None:
    bucket = ObstoreBucket(settings_for("http://127.0.0.1:9", "lake", region=object()), LIMITS)
    with pytest.raises(InvalidOption, match="cannot use the settings of 'lake'") as refused:
        bucket.handle(attempts())
    assert refused.value.facts["bucket"] == "lake"


def test_plain_http_is_used_only_if_the_endpoint_says_so(server: ScriptedServer) -> None:
    client = client_of(server)
    assert client.put(attempts(), "a", b"x", if_absent=True) is None
    given = settings_for(server.url, server.bucket)
    encrypted = BucketSettings(
        *("S3Store", server.bucket, "https://127.0.0.1"), given.config, {}, given.credentials
    )
    opened = ObstoreBucket(encrypted, LIMITS)
    failure = ObstoreClient(lambda: opened, Runtime().fan_out).get(attempts(), "a", None)
    assert isinstance(failure, Failure)
    assert len(server.requests) == 1


def test_request_that_cannot_be_signed_is_not_sent(server: ScriptedServer) -> None:
    given = settings_for(server.url, server.bucket, NoCredentials())
    opened = ObstoreBucket(given, LIMITS)
    client = ObstoreClient(lambda: opened, Runtime().fan_out)
    refused = Failure(Meaning.DENIED, "NoCredentialsError")
    assert client.put(attempts(), "a", b"x", if_absent=True) == refused
    assert client.get(attempts(), "a", None) == refused
    assert client.pages("", "").next(attempts()) == refused
    assert server.requests == []


def test_bucket_is_opened_once_and_at_the_first_request(server: ScriptedServer) -> None:
    opened: list[int] = []

    def bucket() -> ObstoreBucket:
        opened.append(1)
        return ObstoreBucket(settings_for(server.url, server.bucket), LIMITS)

    client = ObstoreClient(bucket, Runtime().fan_out)
    client.pages("a", "")
    assert opened == []
    for _ in range(2):
        client.get(attempts(), "a", None)
    assert opened == [1]


VARIABLES = ("AWS_X", "AZURE_X", "GOOGLE_X", "REQUESTS_CA_BUNDLE")


@pytest.mark.parametrize("name", VARIABLES)
def test_buckets_are_shared_only_with_equal_options_limits_and_variables(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(obstore_client, "_buckets", {})
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    settings = gcs.bucket_settings("lake", {})

    def opened(options: str = "", limits: RetrySettings = LIMITS) -> ObstoreBucket:
        return shared_bucket((options,), lambda: settings, limits)

    first = opened()
    assert opened() is first
    assert opened("others") is not first
    assert opened(limits=RetrySettings()) is not first
    monkeypatch.setenv("OF_NO_INTEREST", "x")
    assert opened() is first
    monkeypatch.setenv(name, "1")
    second = opened()
    assert second is not first
    monkeypatch.setenv(name, "2")
    assert opened() not in (first, second)
    monkeypatch.delenv(name)
    assert opened() is first


# Listings.


def pages(server: ScriptedServer, prefix: str, after: str = "") -> list[Page]:
    listing = client_of(server).pages(prefix, after)
    found: list[Page] = []
    while not found or not found[-1].is_last:
        page = listing.next(attempts())
        assert isinstance(page, Page)
        found.append(page)
    return found


def names(found: list[Page]) -> list[str]:
    return [stored.path for page in found for stored in page.objects]


def test_listing_has_the_names_that_begin_with_the_prefix(server: ScriptedServer) -> None:
    server.listed = ["a/1", "a/2", "a/20", "a/3", "a/4", "a/5", "a/6"]
    assert names(pages(server, "a/2")) == ["a/2", "a/20"]
    assert names(pages(server, "a/2", "a/2")) == ["a/20"]
    assert names(pages(server, "a/")) == server.listed
    (first, *_) = pages(server, "a/1")
    (stored,) = first.objects
    assert (stored.path, stored.size_bytes, stored.modified_ms) == ("a/1", 1, 1_795_521_600_000)


def test_listing_ends_behind_the_prefix_without_reading_the_rest(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(obstore_client, "PAGE_OBJECTS", 2)
    server.listed = [f"a/{number}" for number in range(1, 10)]
    pages(server, "a/1")
    assert len(server.requests) == 1
    server.requests.clear()
    assert names(pages(server, "a/3")) == ["a/3"]
    assert len(server.requests) == 2
    server.requests.clear()
    assert names(pages(server, "a/")) == server.listed
    assert len(server.requests) == 5


def test_listing_that_failed_goes_on_behind_its_last_name(server: ScriptedServer) -> None:
    server.listed = [f"a/{number}" for number in range(6)]
    server.script["GET"] = [OK, (500, "InternalError"), OK]
    listing = client_of(server).pages("a/", "")
    found: list[str] = []
    failures = 0
    while True:
        page = listing.next(attempts())
        if isinstance(page, Failure):
            failures += 1
            continue
        found += [stored.path for stored in page.objects]
        if page.is_last:
            break
    assert (found, failures) == (server.listed, 1)


def test_answer_without_an_etag_is_not_of_the_service(server: ScriptedServer) -> None:
    server.body = b"stored"
    server.script["GET"] = [(200, "<html>Log in.</html>")]
    client = client_of(server)
    assert client.get(attempts(), "a", None) == FOREIGN
    assert client.get(attempts(), "a", 1) == FOREIGN
    assert client.get_ranges(attempts(), "a", [ByteRange(0, 1)] * 2) == [FOREIGN] * 2


def test_object_without_a_limit_is_read_whole(server: ScriptedServer) -> None:
    server.body = b"x" * 100
    data = client_of(server).get(attempts(), "a", None)
    assert (data, type(data)) == (server.body, bytes)
