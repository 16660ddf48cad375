"""Income per minute so far: the state of a loop over orders. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from examples.income.orders import Order

TOTALS_SCHEMA = pa.schema(
    [
        pa.field("minute", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("orders", pa.int64(), nullable=False),
        pa.field("income_cents", pa.int64(), nullable=False),
        # The transaction that wrote the row; null without one.
        pa.field("written_by", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class Total:
    """The income of one minute so far."""

    orders: int = 0
    income_cents: int = 0


@dataclass(slots=True)
class Totals:
    """The income of every minute so far. The newest row of a minute contains its total."""

    of_minute: dict[dt.datetime, Total] = field(default_factory=dict)
    written_by: str | None = None
    """The transaction of the last row that was read back."""

    def add(self, orders: Iterable[Order]) -> list[dt.datetime]:
        """Add these orders. Returns the minutes that changed."""
        changed = set()
        for order in orders:
            before = self.of_minute.get(order.minute, Total())
            self.of_minute[order.minute] = Total(
                before.orders + 1, before.income_cents + order.amount_cents
            )
            changed.add(order.minute)
        return sorted(changed)

    def row(self, minute: dt.datetime, written_by: str | None = None) -> dict[str, Any]:
        """A minute's total, as a record of the topic."""
        total = self.of_minute[minute]
        return {
            "minute": minute,
            "orders": total.orders,
            "income_cents": total.income_cents,
            "written_by": written_by,
        }

    def read_back(self, row: Mapping[str, Any]) -> None:
        """Set a minute's total from a row of the topic."""
        self.of_minute[row["minute"]] = Total(row["orders"], row["income_cents"])
        self.written_by = row["written_by"]
