"""The Spark job of examples/income is killed after a decision, and writes each minute once."""

import datetime as dt
from collections import Counter
from pathlib import Path

import pytest

from examples.income.orders import Order, made_up_orders, produce
from spark_plugin.drill.points import DrillPoint, DrillStep
from tests.spark.drill import WAIT_S, Driver, start_driver, until
from txlog import Admin, Consumer
from txlog.verify.invariants import check_log

# test_kills.py kills a stateful query at this step, too; this test covers the example's own query.
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.extra, pytest.mark.timeout(400)]

GROUP, TOPIC = "income-job", "income-of-past-minutes"
DECIDED = DrillPoint(DrillStep.AFTER, "transactions/", ("commit_prepared", f'"{GROUP}"'), number=2)
"""The decision of the second micro-batch, whose output only its successor can complete."""


def started(folder: Path, root: str, number: int) -> Driver:
    """The job in a driver of its own."""
    place = folder / f"driver {number}"
    place.mkdir()
    checkpoint = str(folder / "checkpoint")
    arguments = ["--root", root, "--checkpoint", checkpoint, "--max-offsets", "150"]
    driver = start_driver("tests.spark.income_driver", arguments, place)
    if number == 0:
        driver.pauses.set("decided", DECIDED)
    return driver


def written(root: str) -> list[tuple[dt.datetime, int, int]]:
    """Minute, orders and income of every row."""
    reading = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    with Consumer(TOPIC, root=root, **reading) as consumer:
        found = [r.value for records in consumer.poll().values() for r in records]
    return [(row["minute"], row["orders"], row["income_cents"]) for row in found]


def expected(orders: list[Order]) -> list[tuple[dt.datetime, int, int]]:
    """The totals of the minutes that ended a minute before the newest order."""
    newest = max(order.ordered_at for order in orders)
    past = [o for o in orders if o.minute + dt.timedelta(minutes=2) <= newest]
    counts = Counter(order.minute for order in past)
    income = Counter[dt.datetime]()
    for order in past:
        income[order.minute] += order.amount_cents
    return [(minute, counts[minute], income[minute]) for minute in sorted(counts)]


def test_I5_I10_a_job_killed_after_its_decision_writes_every_minute_once(tmp_path: Path) -> None:
    root, orders = str(tmp_path / "log"), made_up_orders(400)
    produce(root, orders)
    first = started(tmp_path, root, 0)
    try:
        until(lambda: first.pauses.is_reached("decided") or first.process.poll() is not None, "it")
        first.check_alive()
        lag_before = Admin(root).describe_group(GROUP).lag
    finally:
        first.kill()
    second = started(tmp_path, root, 1)
    try:
        second.process.wait(WAIT_S)
    finally:
        second.kill()
    assert second.process.returncode == 0, (second.folder / "output").read_text()
    assert len(expected(orders)) >= 4
    assert sorted(written(root)) == expected(orders)
    group = Admin(root).describe_group(GROUP)
    assert (lag_before > 0, group.lag, group.pending) == (True, 0, ())
    assert check_log(Admin(root).connection) == []
