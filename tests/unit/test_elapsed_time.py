"""Elapsed time when a clock was ahead: transactions begun by its time still time out."""

from txlog.clock import elapsed_ms
from txlog.coordinator.transaction import Transaction, TransactionState
from txlog.model import TxId


def test_elapsed_ms_of_a_future_time_is_its_distance() -> None:
    assert elapsed_ms(1_000, 5_000) == elapsed_ms(5_000, 1_000) == 4_000


def test_transaction_begun_by_a_clock_a_year_ahead_is_late() -> None:
    year_ms = 365 * 86_400_000
    begun = Transaction(TxId(1, 0, 0), TransactionState.ONGOING, year_ms, 60_000)
    assert begun.is_late(0)
    assert not begun.is_late(year_ms - 1_000)
