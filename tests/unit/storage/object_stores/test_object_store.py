"""How the store interprets a bucket's answers, and its requests; without a server or library."""

from collections import Counter
from collections.abc import Callable, Mapping

import pytest

from tests.unit.storage.object_stores.scripted_bucket import ScriptedBucket
from txlog.errors import (
    CorruptData,
    InternalError,
    OutcomeUnknown,
    StoreDenied,
    StoreUnavailable,
)
from txlog.layout import SMALL_BYTES_MAX, LogLayout
from txlog.storage.object_stores.object_client import Failure, Meaning, Page, Service, Unread
from txlog.storage.object_stores.object_store import GAP_BYTES_MAX, ObjectStore
from txlog.storage.policy.retry import RetrySettings
from txlog.storage.policy.store_wrapper import StoreWrapper
from txlog.storage.store import ByteRange, Created, Exists, StoredObject, requests_of
from txlog.testing.clock import manual_runtime

PLACE = "s3://lake/log/a"
FAR = 2 * GAP_BYTES_MAX
"""A distance at which two ranges become two requests."""

ABSENT = Failure(Meaning.ABSENT, "HTTP 404", answered=True)
BEYOND_END = Failure(Meaning.BEYOND_END, "HTTP 416", answered=True)
DENIED = Failure(Meaning.DENIED, "HTTP 403 AccessDenied", answered=True)
NOT_REACHED = Failure(Meaning.NOT_REACHED, "ConnectionRefusedError")
STRANGE_NAME = Failure(Meaning.STRANGE_NAME, "a//b")
TAKEN = Failure(Meaning.TAKEN, "HTTP 412", answered=True)
UNCLEAR = Failure(Meaning.UNCLEAR, "HTTP 503 SlowDown", answered=True)

CALLS: Mapping[str, Callable[[ObjectStore], object]] = {
    "create": lambda store: store.create("a", b"x"),
    "put_new": lambda store: store.put_new("a", b"x"),
    "get": lambda store: store.get("a"),
    "get_ranges": lambda store: store.get_ranges("a", [ByteRange(0, 1)]),
    "replace": lambda store: store.replace("a", b"x"),
    "delete": lambda store: store.delete("a"),
    "list": lambda store: list(store.list_after("a")),
}


def opened(bucket: ScriptedBucket) -> ObjectStore:
    service = Service("lake", "https://s3.example.org")
    limits = RetrySettings(attempts_max=3)
    return ObjectStore(service, "log", manual_runtime(), limits, bucket.first, bucket.second)


def listed(*names: str) -> list[StoredObject]:
    """Objects as a service lists them: by whole keys."""
    return [StoredObject(f"log/{name}", 7, 1_000) for name in names]


def names(store: ObjectStore, prefix: str, after: str = "") -> list[str]:
    return [found.path for found in store.list_after(prefix, after)]


# Errors name the object.


@pytest.mark.parametrize("call", CALLS)
def test_a_refusal_names_the_object(call: str) -> None:
    with pytest.raises(StoreDenied) as raised:
        CALLS[call](opened(ScriptedBucket([DENIED])))
    assert (raised.value.facts["place"], raised.value.facts["bucket"]) == (PLACE, "lake")


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        ("RequestTimeTooSkewed", "Set this machine's clock, then call again."),
        ("ExpiredToken", "Renew the credentials, then call again."),
    ],
)
def test_refusal_for_a_reason_that_its_code_names_says_what_to_do(code: str, remedy: str) -> None:
    with pytest.raises(StoreDenied) as raised:
        opened(ScriptedBucket([Failure(Meaning.DENIED, f"HTTP 403 {code}")])).get("a")
    assert raised.value.remedy == remedy


@pytest.mark.parametrize("call", CALLS)
def test_unreachable_bucket_raises_after_all_attempts_and_names_the_object(call: str) -> None:
    bucket = ScriptedBucket([NOT_REACHED])
    with pytest.raises(StoreUnavailable, match="3 attempts .* ConnectionRefusedError") as raised:
        CALLS[call](opened(bucket))
    assert raised.value.facts["place"] == PLACE
    assert len(bucket.asked) == 3


@pytest.mark.parametrize("call", CALLS)
def test_every_request_is_counted_by_its_operation_also_repeated_ones(call: str) -> None:
    bucket = ScriptedBucket([NOT_REACHED])
    store = opened(bucket)
    with pytest.raises(StoreUnavailable):
        CALLS[call](store)
    found = requests_of(StoreWrapper(store))
    assert found is not None
    assert +Counter(found.counts) == Counter(str(verb).upper() for verb, *_ in bucket.asked)


def test_each_range_that_is_asked_for_by_itself_is_a_request() -> None:
    store = opened(ScriptedBucket([b"12", b"34"]))
    store.get_ranges("a", [ByteRange(0, 2), ByteRange(FAR, 2), ByteRange(1, 1)])
    assert store.requests.counts["GET"] == 2


def test_an_unknown_outcome_names_the_object() -> None:
    with pytest.raises(OutcomeUnknown) as raised:
        opened(ScriptedBucket([UNCLEAR])).create("a", b"x")
    assert raised.value.facts["place"] == PLACE


def test_empty_entry_body_is_refused_before_any_request() -> None:
    bucket = ScriptedBucket([None])
    with pytest.raises(InternalError, match="the body of a has 0 bytes") as raised:
        opened(bucket).create("a", b"")
    assert raised.value.facts["path"] == "a"
    assert bucket.asked == []


def test_put_new_refuses_name_with_other_content() -> None:
    with pytest.raises(InternalError, match="exists already with other content") as raised:
        opened(ScriptedBucket([TAKEN, b"another"])).put_new("a", b"x")
    assert raised.value.facts["path"] == "a"


@pytest.mark.parametrize("part", [b"", b"ab"])
def test_part_of_an_object_that_a_store_kept_after_a_broken_upload_is_the_stores_error(
    part: bytes,
) -> None:
    bucket = ScriptedBucket([UNCLEAR, part])
    with pytest.raises(StoreUnavailable, match=f"the first {len(part)} of 4 bytes") as raised:
        opened(bucket).put_new("a", b"abcd")
    assert raised.value.facts["place"] == PLACE
    # Not a repeat of this name: what is there stays.
    assert [request[0] for request in bucket.asked] == ["put", "get"]


def test_unread_oversized_object_is_corrupt_data() -> None:
    entry = LogLayout("10" * 16).transactions(3).entry(7)
    bucket = ScriptedBucket([Unread(SMALL_BYTES_MAX + 1)])
    with pytest.raises(CorruptData, match=f"{SMALL_BYTES_MAX + 1} bytes") as raised:
        opened(bucket).get(entry)
    assert raised.value.facts["path"] == f"s3://lake/log/{entry}"


# Writes.


@pytest.mark.parametrize(
    ("call", "request_"),
    [
        ("create", ("put", "log/a", b"x", True)),
        ("put_new", ("put", "log/a", b"x", True)),
        ("replace", ("put", "log/a", b"x", False)),
        ("delete", ("delete", "log/a")),
    ],
)
def test_I1_write_is_one_request_and_conditional_unless_it_replaces(
    call: str, request_: tuple[object, ...]
) -> None:
    bucket = ScriptedBucket([None])
    CALLS[call](opened(bucket))
    assert bucket.asked == [request_]


def test_I13_create_that_never_reached_bucket_is_resent_without_readback() -> None:
    bucket = ScriptedBucket([NOT_REACHED, None])
    assert opened(bucket).create("a", b"x") == Created()
    assert bucket.asked == [("put", "log/a", b"x", True)] * 2


@pytest.mark.parametrize("failure", [TAKEN, UNCLEAR])
@pytest.mark.parametrize(("found", "result"), [(b"x", Created()), (b"y", Exists(b"y"))])
def test_I13_taken_or_unclear_create_is_read_back(
    failure: Failure, found: bytes, result: Created | Exists
) -> None:
    bucket = ScriptedBucket([failure, found])
    assert opened(bucket).create("a", b"x") == result
    assert bucket.asked == [("put", "log/a", b"x", True), ("get", "log/a")]


def test_deleting_absent_object_succeeds() -> None:
    bucket = ScriptedBucket([ABSENT])
    opened(bucket).delete("a")
    assert bucket.asked == [("delete", "log/a")]


@pytest.mark.parametrize(
    ("call", "size_bytes"),
    [
        ("create", 1),
        ("put_new", 1),
        ("replace", 1),
        ("get_ranges", 1),
        ("delete", 0),
        ("list", 0),
        ("get", 0),
    ],
)
def test_each_request_passes_its_size_for_the_timeout(call: str, size_bytes: int) -> None:
    bucket = ScriptedBucket([DENIED])
    with pytest.raises(StoreDenied):
        CALLS[call](opened(bucket))
    assert bucket.sizes == [size_bytes]


# Reads.


def test_only_failed_ranges_are_requested_again() -> None:
    bucket = ScriptedBucket([b"12", UNCLEAR, b"89"])
    found = opened(bucket).get_ranges("a", [ByteRange(FAR, 2), ByteRange(0, 2)])
    assert found == [b"89", b"12"]
    first, second = ("get", "log/a", 0, 2), ("get", "log/a", FAR, 2)
    assert bucket.asked == [first, second, second]
    assert bucket.sizes == [4, 4, 4]


def test_a_range_beyond_the_end_is_empty() -> None:
    bucket = ScriptedBucket([b"12", BEYOND_END])
    assert opened(bucket).get_ranges("a", [ByteRange(0, 9), ByteRange(FAR, 2)]) == [b"12", b""]


def test_get_ranges_of_absent_object_returns_None() -> None:
    bucket = ScriptedBucket([b"12", ABSENT])
    assert opened(bucket).get_ranges("a", [ByteRange(0, 2), ByteRange(FAR, 2)]) is None


# Listings.


def test_listing_request_starts_after_the_given_name() -> None:
    for after, begun in (("", ""), ("a/3", "log/a/3")):
        bucket = ScriptedBucket([Page(listed("a/4"), is_last=True)])
        assert names(opened(bucket), "a/", after) == ["a/4"]
        assert bucket.asked == [("list", "log/a/", begun)]


def test_listing_drops_repeats_if_service_ignores_start_after() -> None:
    pages = [Page(listed("a/2", "a/3", "a/4"), False), Page(listed("a/4", "a/5"), True)]
    assert names(opened(ScriptedBucket([*pages])), "a/", "a/3") == ["a/4", "a/5"]


def test_second_client_resumes_listing_at_name_the_first_cannot_represent() -> None:
    other = ScriptedBucket([Page(listed("a/1", "a/2"), False), Page(listed("a/3"), True)])
    bucket = ScriptedBucket([Page(listed("a/1"), False), STRANGE_NAME], other=other)
    assert names(opened(bucket), "a/", "a/0") == ["a/1", "a/2", "a/3"]
    assert bucket.asked == [("list", "log/a/", "log/a/0")] * 2
    assert other.asked == [("list", "log/a/", "log/a/1")] * 2


def test_name_that_no_client_can_represent_is_refused_with_deletion_advice() -> None:
    with pytest.raises(StoreDenied, match="delete it from bucket 'lake'") as raised:
        names(opened(ScriptedBucket([STRANGE_NAME])), "a/")
    assert raised.value.facts["place"] == "s3://lake/log/a/"
    assert raised.value.facts["reason"] == "a name that the client cannot represent"


def test_failed_listing_page_is_requested_again() -> None:
    bucket = ScriptedBucket([UNCLEAR, Page(listed("a/1"), True)])
    assert names(opened(bucket), "a/") == ["a/1"]
