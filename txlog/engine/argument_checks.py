"""Checks of arguments that callers pass: a wrong type gets a clear error, and not an arbitrary
Python exception. Values only."""

from __future__ import annotations

from numbers import Real

from txlog.errors import InvalidConfig, UsageError
from txlog.model import TxId, as_whole_number
from txlog.settings import LONG_MAX


def checked_timeout(value: object) -> float:
    """A time to wait, in ms. Raises UsageError."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if is_number and 0 <= value <= LONG_MAX:  # type: ignore[operator]
        return float(value)  # type: ignore[arg-type]
    raise UsageError(f"timeout_ms is {value!r:.40}; give milliseconds from 0 to {LONG_MAX}.")


def checked_limit(what: str, value: object) -> int:
    """A number of records of 1 or more. Raises InvalidConfig."""
    number = as_whole_number(value)
    if number is not None and number >= 1:
        return number
    raise InvalidConfig(f"{what} is {value!r:.40}; it must be at least 1, and whole.")


def checked_function(what: str, value: object) -> None:
    """Raises InvalidConfig unless the value is callable or None."""
    if value is not None and not callable(value):
        raise InvalidConfig(f"{what} is {value!r:.40}; give a function, or leave it out.")


def checked_transaction(tx_id: object) -> TxId:
    """A transaction id, given as such or as text. Raises InvalidName, UsageError."""
    if isinstance(tx_id, str):
        return TxId.parse(tx_id)
    if isinstance(tx_id, TxId):
        parts = (tx_id.pid, tx_id.epoch, tx_id.number)
        if all(type(part) is int and 0 <= part <= LONG_MAX for part in parts):
            return tx_id
    raise UsageError(f"{tx_id!r:.80} is not a transaction; give a TxId, as from list_transactions.")
