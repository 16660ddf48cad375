"""The public names of the package are the promised ones, and each exists."""

import txlog


def test_every_promised_name_is_there_and_no_other() -> None:
    assert sorted(txlog._HOMES) == sorted(txlog.__all__)
    assert all(getattr(txlog, name).__name__ == name for name in txlog.__all__)
