"""At most once, at least once and exactly once side by side, killed at the same points.

    python -m examples.income.delivery

Each kind of loop runs as a process that is killed with SIGKILL at each step of a batch in turn, and
started again. Then every order is looked up in the topics: in the receipts by its number, in the
totals by the count of its minute. The exit status is 0 only if each kind kept its guarantee.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from examples.income.loop import BATCH_ORDERS, Job, Step
from examples.income.mortal_loop import DYING_BATCH, LOOPS, job_of
from examples.income.orders import COUNT, Order, made_up_orders, produce
from txlog import Consumer, TxlogError
from txlog.cli.spark_environment import python_path

WAIT_S = 60
COUNT_MIN = len(Step) * DYING_BATCH * BATCH_ORDERS
KEPT, BROKEN = 0, 1


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference between expected and stored orders."""

    lost: int
    doubled: int


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one kind of delivery."""

    delivery: str
    kills: int
    receipts: Difference
    totals: Difference
    """Number of orders, by the counts of their minutes."""
    income_off_by_cents: int
    """The income of all minutes minus the expected income."""

    @property
    def has_kept_its_promise(self) -> bool:
        """Whether the guarantee held, and the weaker kinds showed the fault that they allow."""
        lost = self.receipts.lost + self.totals.lost
        doubled = self.receipts.doubled + self.totals.doubled
        match self.delivery:
            case "at most once":
                return lost > 0 and doubled == 0
            case "at least once":
                return lost == 0 and doubled > 0
            case _:
                return (lost, doubled, self.income_off_by_cents) == (0, 0, 0)


def drill(root: str, delivery: str, orders: Sequence[Order]) -> Finding:
    """Kill the loop at every step, let it end, and count. Raises RuntimeError if it fails."""
    for step in Step:
        _run(root, delivery, ["--die-at", step.name], -signal.SIGKILL)
    _run(root, delivery, [], 0)
    return counted(job_of(root, delivery), delivery, orders)


def _run(root: str, delivery: str, more: Sequence[str], status: int) -> None:
    command = [sys.executable, "-m", "examples.income.mortal_loop", delivery, "--root", root, *more]
    environment = {**os.environ, "PYTHONPATH": python_path()}
    done = subprocess.run(
        command, env=environment, timeout=WAIT_S, capture_output=True, text=True, check=False
    )
    if done.returncode != status:
        raise RuntimeError(
            f"{delivery} {' '.join(more)} ended with status {done.returncode}, not {status}:\n"
            f"{done.stderr}"
        )


def counted(job: Job, delivery: str, orders: Sequence[Order]) -> Finding:
    """The contents of the two topics, compared with the orders."""
    totals = job.read_totals().of_minute
    income = sum(total.income_cents for total in totals.values())
    return Finding(
        delivery,
        len(Step),
        difference(Counter(order.order_id for order in orders), _receipts(job)),
        difference(
            Counter(order.minute for order in orders),
            Counter({minute: total.orders for minute, total in totals.items()}),
        ),
        income - sum(order.amount_cents for order in orders),
    )


def _receipts(job: Job) -> Counter[int]:
    """Order -> number of its receipts."""
    found: Counter[int] = Counter()
    reading = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    with Consumer(job.receipts, root=job.root, **reading) as consumer:
        found.update(record.value["order_id"] for record in consumer.read_to_end())
    return found


def difference(expected: Counter[Hashable], found: Counter[Hashable]) -> Difference:
    """Compare multisets: the surplus of the first is lost, that of the second is doubled."""
    return Difference((expected - found).total(), (found - expected).total())


def table(findings: Sequence[Finding], orders: int) -> Table:
    """One row for each kind of delivery."""
    shown = Table(box=None, pad_edge=False, title=f"{orders:,} orders", title_justify="left")
    for name in ("", "kills"):
        shown.add_column(name, justify="right" if name else "left")
    for name in ("receipts\nlost", "receipts\ndoubled", "in totals\nlost", "in totals\ndoubled"):
        shown.add_column(name, justify="right")
    shown.add_column("income\noff by", justify="right")
    for found in findings:
        counts = (found.receipts.lost, found.receipts.doubled, *_pair(found.totals))
        cells = [f"{count:,}" for count in (found.kills, *counts)]
        shown.add_row(found.delivery, *cells, f"{found.income_off_by_cents / 100:,.2f}")
    return shown


def _pair(found: Difference) -> tuple[int, int]:
    return found.lost, found.doubled


def main(arguments: Sequence[str] | None = None) -> int:
    """KEPT or BROKEN."""
    parser = argparse.ArgumentParser(prog="python -m examples.income.delivery")
    parser.add_argument("--root", help="where to make the log; default: a folder that is removed")
    parser.add_argument("--count", type=int, default=COUNT, help="how many orders")
    options = parser.parse_args(arguments)
    if options.count < COUNT_MIN:
        parser.error(f"--count is at least {COUNT_MIN}: every process needs orders to die over.")
    orders = made_up_orders(options.count)
    with tempfile.TemporaryDirectory(prefix="txlog-income-") as folder:
        root = options.root or f"{folder}/log"
        try:
            produce(root, orders)
        except TxlogError as error:
            sys.exit(str(error))
        findings = [drill(root, delivery, orders) for delivery in LOOPS]
    console = Console(width=100)
    console.print(table(findings, len(orders)))
    broken = [found.delivery for found in findings if not found.has_kept_its_promise]
    if broken:
        console.print(f"did not do what its name says: {', '.join(broken)}")
    return BROKEN if broken else KEPT


if __name__ == "__main__":
    sys.exit(main())
