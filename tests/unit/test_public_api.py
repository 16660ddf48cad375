"""The public names of the package are the promised ones, and each exists."""

import txlog


def test_public_names_are_exactly_those_in_all_and_exist() -> None:
    assert sorted(txlog._HOMES) == sorted(txlog.__all__)
    assert all(getattr(txlog, name).__name__ == name for name in txlog.__all__)
