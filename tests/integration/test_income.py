"""Orders -> income per minute: after a kill at any step each order counts once; the weaker loops
lose or duplicate orders as documented."""

import shutil
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from examples.income import delivery, mortal_loop
from examples.income.delivery import Difference, Finding, counted, drill, main
from examples.income.loop import BATCH_ORDERS, Job, Step, run
from examples.income.loop import main as loop_main
from examples.income.orders import Order, made_up_orders, produce
from tests.integration import income_worker
from tests.integration.exactly_once_worker import STAGED_STEPS
from tests.logs.empty_log import empty_log
from tests.processes.forked_process import run_forked
from txlog import Admin, Consumer, Producer, TopicPartition
from txlog.engine.connection import connect
from txlog.errors import FencedError
from txlog.settings import ProcessSettings
from txlog.verify.invariants import check_log

pytestmark = pytest.mark.slow

NONE = Difference(0, 0)


@pytest.fixture(scope="module")
def orders() -> list[Order]:
    """Six batches, the last of them not full."""
    return made_up_orders(6 * BATCH_ORDERS - 10)


@pytest.fixture(scope="module")
def with_orders(tmp_path_factory: pytest.TempPathFactory, orders: list[Order]) -> str:
    """A log with the orders, and an aborted attempt to send them."""
    root = empty_log(tmp_path_factory.mktemp("orders") / "log")
    produce(root, orders)
    return root


@pytest.fixture
def root(with_orders: str, tmp_path: Path) -> str:
    """A copy of that log."""
    return str(shutil.copytree(with_orders, tmp_path / "log"))


def killed_at(root: str, step: str) -> None:
    """Run the loop in a process that is really killed."""
    done = run_forked(income_worker.main, root, step)
    assert done.status == -signal.SIGKILL, done.err


def check_whole(root: str, orders: Sequence[Order]) -> None:
    """Each order has one receipt and is in its minute's total once, and no input is left."""
    job = Job(root)
    assert counted(job, "exactly once", orders) == Finding("exactly once", len(Step), NONE, NONE, 0)
    group = Admin(root).describe_group(job.group)
    assert (group.lag, group.pending) == (0, ())
    assert str(group.last_commit) == job.read_totals().written_by
    assert check_log(Admin(root).connection) == []


def test_generated_orders_are_deterministic() -> None:
    orders = made_up_orders()
    assert len(orders) == 1_200
    assert sum(order.amount_cents for order in orders) == 6_097_228
    assert orders == sorted(orders, key=lambda order: order.ordered_at)
    assert {order.customer for order in orders} == {"bob", "erin", "frank", "heidi", "ivan"}


@pytest.mark.parametrize("step", STAGED_STEPS)
def test_I5_loop_killed_at_any_step_counts_every_order_once(
    root: str, orders: list[Order], step: str
) -> None:
    killed_at(root, step)
    run(Job(root))
    check_whole(root, orders)


def test_state_and_offsets_are_restored_from_the_last_commit_after_repeated_kills(
    root: str, orders: list[Order]
) -> None:
    for step in ("between the markers", "before PREPARE", "after PREPARE"):
        killed_at(root, step)
        job = Job(root)
        with Producer(root, transactional_id=job.group) as successor:
            successor.init_transactions()
            totals = job.read_totals()
            with job.consumer() as consumer:
                done = {w: consumer.committed(w) for w in consumer.assignment()}
        last = Admin(root).describe_group(job.group).last_commit
        assert totals.written_by == str(last)
        below = {where: offset or 0 for where, offset in done.items()}
        assert counted_orders(totals_of=job) == orders_below(root, below)
    run(Job(root))
    check_whole(root, orders)


def counted_orders(totals_of: Job) -> Counter[object]:
    """The number of orders in each minute's total."""
    totals = totals_of.read_totals().of_minute
    return Counter({minute: total.orders for minute, total in totals.items()})


def orders_below(root: str, ends: dict[TopicPartition, int]) -> Counter[object]:
    """The same, from the committed orders below these offsets."""
    reading = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    with Consumer("orders", root=root, **reading) as consumer:
        return Counter(
            Order(**record.value).minute
            for where, records in consumer.poll(max_records=10_000).items()
            for record in records
            if record.offset < ends[where]
        )


def test_second_run_continues_with_new_orders(tmp_path: Path, orders: list[Order]) -> None:
    root = empty_log(tmp_path / "log")
    produce(root, orders[:100])
    run(Job(root))
    with Producer(root) as producer:
        for order in orders[100:]:
            row = {name: getattr(order, name) for name in Order.__slots__}
            producer.send("orders", row)
    run(Job(root))
    check_whole(root, orders)


@pytest.mark.parametrize("step", Step)
def test_I8_overtaken_loop_is_fenced_and_every_order_counts_once(
    root: str, orders: list[Order], step: Step
) -> None:
    """A second loop starts, as in another process, while the first is in its second batch."""
    turns = 0

    def overtake(now: Step) -> None:
        nonlocal turns
        turns += now is step
        if turns == 2:
            turns += 1
            run(Job(connect(root, process=ProcessSettings())))

    with pytest.raises(FencedError):
        run(Job(root, on_step=overtake))
    check_whole(root, orders)


def test_loop_without_a_log_exits_with_not_a_txlog(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="NotATxlog: .*"):
        loop_main(["--root", str(tmp_path)])


def test_group_moved_by_hand_is_refused(root: str) -> None:
    job = Job(root)
    run(job)
    with job.consumer() as consumer:
        consumer.commit(dict.fromkeys(consumer.assignment(), 0))
    with pytest.raises(ValueError, match="or moved the group"):
        run(job)


def test_totals_written_by_another_transaction_are_refused(root: str) -> None:
    job = Job(root)
    run(job)
    row = job.read_totals().row(made_up_orders(1)[0].minute, "7-7-7")
    with Producer(root) as producer:
        producer.send(job.totals, row)
    with pytest.raises(ValueError, match="the newest total in 'income' is of transaction 7-7-7"):
        run(job)


# The three loops compared.


def forked_loop(root: str, kind: str, more: Sequence[str], status: int) -> None:
    """A real process, as the drill starts it, but forked, so that it need not import everything
    again."""
    done = run_forked(mortal_loop.main, [kind, "--root", root, *more])
    assert done.status == status, done.err


def test_at_most_once_loses_at_least_once_duplicates_exactly_once_does_neither(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command as shown in docs/example-income.md: three kinds of loop, each killed at the same
    steps."""
    monkeypatch.setattr(delivery, "_run", forked_loop)
    assert main(["--root", str(tmp_path / "log")]) == delivery.KEPT
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if " once " in line]
    assert [row[:4] for row in rows] == [
        ["at", "most", "once", "5"],
        ["at", "least", "once", "5"],
        ["exactly", "once", "5", "0"],
    ]
    assert rows[0][4:8] == ["50", "0", "100", "0"], "lost receipts, and more in the totals"
    assert rows[1][4:8] == ["0", "100", "0", "50"], "doubled receipts, and fewer in the totals"
    assert rows[2][3:] == ["0", "0", "0", "0", "0.00"]


def test_broken_delivery_guarantee_is_detected(root: str, orders: list[Order]) -> None:
    job = Job(root)
    run(job)
    with Producer(root) as producer:
        producer.send(job.receipts, {"order_id": 0})
    found = counted(job, "exactly once", orders)
    assert found.receipts == Difference(0, 1)
    assert not found.has_kept_its_promise
    assert counted(job, "exactly once", orders[1:]).receipts == Difference(0, 2)
    more = made_up_orders(len(orders) + 3)
    assert counted(job, "exactly once", more).receipts == Difference(3, 1)
    assert not Finding("at least once", 5, NONE, NONE, 0).has_kept_its_promise
    assert not Finding("at most once", 5, NONE, NONE, 0).has_kept_its_promise


def test_drill_raises_if_a_process_fails_unexpectedly(tmp_path: Path, orders: list[Order]) -> None:
    with pytest.raises(RuntimeError, match="NotATxlog"):
        drill(str(tmp_path / "nothing"), "exactly once", orders)
