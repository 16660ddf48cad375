"""A full disk, a permission error and a temporary fault are told apart."""

import errno
import os

import pytest

from txlog.errors import StoreDenied, StoreFull, StoreUnavailable, TxlogError
from txlog.storage.disk.os_error import store_error


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, StoreFull),
        (errno.EDQUOT, StoreFull),
        (errno.EFBIG, StoreFull),
        (errno.EACCES, StoreDenied),
        (errno.EPERM, StoreDenied),
        (errno.EROFS, StoreDenied),
        (errno.ENOTDIR, StoreDenied),
        (errno.EIO, StoreUnavailable),
        (errno.ESTALE, StoreUnavailable),
        (errno.EMFILE, StoreUnavailable),
    ],
)
def test_errno_maps_to_store_error_that_names_the_place(
    number: int, kind: type[TxlogError]
) -> None:
    error = store_error(OSError(number, "text of the system's"), "create", "/data/log/a")
    assert type(error) is kind
    assert "cannot create /data/log/a" in error.message
    assert os.strerror(number) in error.message
    name = errno.errorcode[number]
    assert error.facts == {"action": "create", "place": "/data/log/a", "errno": name}


def test_refused_permission_names_the_umask_of_other_users() -> None:
    for number, is_refused in ((errno.EACCES, True), (errno.EPERM, True), (errno.EROFS, False)):
        error = store_error(OSError(number, ""), "read", "/data/log/a")
        assert ("umask" in error.message) is is_refused


def test_os_error_without_errno_is_store_unavailable() -> None:
    error = store_error(TimeoutError(), "read", "/x")
    assert type(error) is StoreUnavailable
    assert "cannot read /x: TimeoutError." in error.message
    assert error.facts["errno"] == "0"


def test_number_unknown_to_the_system_is_kept_as_a_number() -> None:
    assert store_error(OSError(9_999, ""), "read", "/x").facts["errno"] == "9999"
