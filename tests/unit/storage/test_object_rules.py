"""No path and no prefix leaves the root."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlog.clock import Runtime, segment_id
from txlog.errors import InternalError
from txlog.layout import LogLayout
from txlog.storage.store import check_path, check_prefix


@pytest.mark.parametrize(
    "path",
    [
        "../x", "a/../b", "a/..", "..", ".", "a/.", "./a", "/etc/passwd", "a//b", "a/", "",
        "a\x00b", "a\nb", ".tmp-x", "a/.tmp-x/b", "a/" + "n" * 256, "ä" * 128,
        "/".join(["n" * 200] * 4 + ["m"]), "\ud800",
    ],
)  # fmt: skip
def test_unsafe_or_invalid_path_is_refused(path: str) -> None:
    with pytest.raises(InternalError, match="Nothing was written"):
        check_path(path)


@pytest.mark.parametrize("prefix", ["/", "/a", "../", "a/../", "a//", ".", "..", "a/..", "a\x00"])
def test_unsafe_or_invalid_prefix_is_refused(prefix: str) -> None:
    with pytest.raises(InternalError):
        check_prefix(prefix)


def test_every_path_of_the_layout_is_accepted() -> None:
    names = LogLayout("0" * 32)
    journals = [
        names.cluster(),
        names.topic("n" * 249, "0" * 32),
        names.transactions(49),
    ]
    for journal in journals:
        for name in (journal.entry(7), journal.chunk(0, 9), journal.boundary(1), journal.hint):
            check_path(name)
        check_path(journal.segment(segment_id(Runtime())))
        check_prefix(journal.entries)
        check_prefix(journal.entry(7)[:-9])
    check_prefix("")


@given(st.text(max_size=40))
def test_accepted_paths_stay_below_the_root(path: str) -> None:
    try:
        check_path(path)
    except InternalError:
        return
    parts = path.split("/")
    assert all(part not in ("", ".", "..") for part in parts)
    assert "\x00" not in path
