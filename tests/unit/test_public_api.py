"""The public names of the package are the promised ones, and each exists."""

import txlog
from txlog import errors


def test_public_names_are_exactly_those_in_all_and_exist() -> None:
    assert sorted(txlog._HOMES) == sorted(txlog.__all__)
    assert all(getattr(txlog, name).__name__ == name for name in txlog.__all__)


def test_every_error_is_a_public_name() -> None:
    tree = {errors.TxlogError}
    while more := {below for error in tree for below in error.__subclasses__()} - tree:
        tree |= more
    assert {error.__name__ for error in tree if error.__module__ == errors.__name__} == {
        name for name in txlog.__all__ if txlog._HOMES[name] == errors.__name__
    }


def test_dir_of_the_package_shows_only_public_names() -> None:
    assert dir(txlog) == sorted([*txlog.__all__, "__version__"])
