"""Names and bodies of objects at their limits: the last that is taken, the first that is not."""

import pytest

from txlog.clock import Runtime
from txlog.errors import CorruptData, InternalError, StoreUnavailable, UsageError
from txlog.layout import SMALL_BYTES_MAX, LogLayout
from txlog.storage import MemoryStore
from txlog.storage.store import (
    ENTRY_BYTES_MAX,
    ByteRange,
    check_entry_body,
    check_path,
    check_prefix,
    check_root,
    kept_in_part,
    name_in_use,
    require_size,
    whole,
)


def refuses(path: str) -> bool:
    try:
        check_path(path)
    except InternalError:
        return True
    return False


@pytest.mark.parametrize("letter", ["n", "ä", "漢"])
def test_part_of_a_path_has_255_bytes_and_a_path_800(letter: str) -> None:
    size = len(letter.encode())
    fill = "n" * (255 % size)
    part = letter * (255 // size) + fill
    assert len(part.encode()) == 255
    assert not refuses(part)
    assert refuses(part + "n")
    assert not refuses(f"a/{part}/b")
    assert refuses(f"a/{part}n/b")
    longest = "/".join([part, part, part, "n" * 32])
    assert len(longest.encode()) == 800
    assert not refuses(longest)
    assert refuses(longest + "n")


def test_temporary_names_are_the_stores_own_in_every_part() -> None:
    for path in (".tmp-x", "a/.tmp-", ".tmp-x/b"):
        assert refuses(path)
    for path in ("a.tmp-x", "x/a.tmp-b", ".tmp", "a/.tm-p"):
        assert not refuses(path)


def test_refusal_names_the_path() -> None:
    with pytest.raises(InternalError, match=r"'a//b' is not a name for an object") as refused:
        check_path("a//b")
    assert refused.value.facts["path"] == "a//b"


def test_prefix_may_end_within_a_name_or_at_a_folder() -> None:
    for prefix in ("", "a", "a/", "a/b", "...", ".a", "a/.b", "a/.tmp-"):
        check_prefix(prefix)
    for prefix in ("/", "/a", "a//", "a//b", "a/../b", ".", "a/..", "a\n"):
        with pytest.raises(InternalError):
            check_prefix(prefix)


def test_prefix_of_a_log_in_a_bucket_is_refused_as_the_users_mistake() -> None:
    check_root("a/b c")
    for prefix in ("a//b", "a/.tmp-x", "n" * 801):
        with pytest.raises(UsageError, match="cannot be the prefix of a log") as refused:
            check_root(prefix)
        assert refused.value.facts["prefix"] == prefix


def test_entry_has_at_least_a_byte_and_at_most_the_limit() -> None:
    for size in (1, ENTRY_BYTES_MAX):
        check_entry_body("a", bytes(size))
    for size in (0, ENTRY_BYTES_MAX + 1):
        with pytest.raises(InternalError) as refused:
            check_entry_body("a", bytes(size))
        assert refused.value.facts == {"path": "a", "size_bytes": size}


def test_object_at_the_limit_of_its_kind_counts_as_the_logs() -> None:
    entry = LogLayout("10" * 16).transactions(3).entry(7)
    require_size(entry, SMALL_BYTES_MAX, "the place")
    with pytest.raises(CorruptData) as refused:
        require_size(entry, SMALL_BYTES_MAX + 1, "the place")
    assert refused.value.facts == {"path": "the place", "size_bytes": SMALL_BYTES_MAX + 1}
    require_size("segments/any", 1 << 40, "the place")


def test_body_in_pieces_is_joined_in_order() -> None:
    view = memoryview(b"cd")
    assert whole((b"ab", view, b"")) == b"abcd"
    assert whole(view) == whole(b"cd") == b"cd"
    assert type(whole(view)) is bytes


def test_range_ends_behind_its_last_byte_and_asks_for_one_at_least() -> None:
    assert (ByteRange(3, 4).end, ByteRange(3, 4).last) == (7, 6)
    assert (ByteRange(3, 1).last, ByteRange(3, 0).last, ByteRange(0, 0).last) == (3, 3, 0)


def test_errors_about_unique_names_have_their_facts() -> None:
    assert name_in_use("s3://b/x", "x").facts["path"] == "x"
    error = kept_in_part("s3://b/x", 3, 7)
    assert isinstance(error, StoreUnavailable)
    assert error.facts == {"place": "s3://b/x", "size_bytes": 3}
    assert "the first 3 of 7 bytes" in error.message


def test_memory_store_gives_parts_of_the_stored_bytes_without_a_copy() -> None:
    store = MemoryStore(Runtime(), "name")
    store.put_new("a", b"0123456789")
    ranges = [ByteRange(2, 3), ByteRange(8, 5), ByteRange(10, 1), ByteRange(4, 0)]
    found = store.get_ranges("a", ranges)
    assert found is not None
    assert [bytes(part) for part in found] == [b"234", b"89", b"", b""]
    assert all(isinstance(part, memoryview) for part in found)
    assert store.url == "memory://name"
