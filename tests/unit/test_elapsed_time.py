"""Elapsed time when a clock was ahead: transactions begun by its time still time out."""

from txlog.clock import elapsed_ms
from txlog.coordinator.transaction import Transaction, TransactionState
from txlog.model import TxId


def test_a_moment_in_the_future_is_as_long_ago_as_it_is_ahead() -> None:
    assert elapsed_ms(1_000, 5_000) == elapsed_ms(5_000, 1_000) == 4_000


def test_a_transaction_that_a_clock_a_year_ahead_began_is_late() -> None:
    year_ms = 365 * 86_400_000
    begun = Transaction(TxId(1, 0, 0), TransactionState.ONGOING, year_ms, 60_000)
    assert begun.is_late(0)
    assert not begun.is_late(year_ms - 1_000)
