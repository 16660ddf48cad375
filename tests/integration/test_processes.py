"""Real processes that are killed at every step of the protocol, and that race."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration import exactly_once_worker as worker
from tests.integration.exactly_once_worker import (
    GROUP,
    NAME,
    RESULTS,
    SOURCE,
    STEPS,
    STEPS_OF,
)
from tests.logs.empty_log import empty_log
from tests.processes.forked_process import run_forked
from tests.source_tree import ROOT
from txlog.client.admin import Admin
from txlog.client.consumer.consumer import Consumer
from txlog.client.producer.producer import Producer
from txlog.clock import Runtime
from txlog.engine.connection import Connection, open_connection
from txlog.engine.producer_config import IN_LOG, TRANSACTION_RECORDS
from txlog.model import TopicPartition, TransactionOutcome, TxId
from txlog.storage import open_store
from txlog.verify.invariants import check_log

pytestmark = pytest.mark.slow

COUNT = 6
WAIT_S = 100
S0 = TopicPartition(SOURCE, 0)

DECIDED = list(STEPS).index("after PREPARE")


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A log with six records to work on."""
    root = empty_log(tmp_path / "log")
    admin = Admin(_process(root))
    for name in (SOURCE, *RESULTS):
        admin.create_topic(name)
    with Producer(admin.connection) as producer:
        for number in range(COUNT):
            producer.send(SOURCE, b"%d" % number)
    return root


def _process(root: str) -> Connection:
    runtime = Runtime()
    return open_connection(open_store(root, runtime), runtime)


def _start_race(root: str, name: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", worker.__name__, "race", root, name],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _values(root: str, topic: str) -> list[bytes]:
    consumer = Consumer(
        topic,
        root=_process(root),
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    )
    values: list[bytes] = []
    while polled := consumer.poll(timeout_ms=100, max_records=10_000):
        values += [record.value for records in polled.values() for record in records]
    return values


def results(numbers: range) -> list[bytes]:
    return [b"result %d" % number for number in numbers]


def killed(root: str, step: str, transaction_records: str) -> TxId:
    """A worker dies at that step of its second transaction; returns the transaction's id."""
    done = run_forked(worker.main, transaction_records, root, step)
    assert done.status == -signal.SIGKILL, done.err
    first, doomed = (TxId.parse(line) for line in done.out.split())
    assert first.number + 1 == doomed.number
    return doomed


@pytest.mark.parametrize("successors", TRANSACTION_RECORDS)
@pytest.mark.parametrize(
    ("transaction_records", "step"),
    [(records, step) for records, steps in STEPS_OF.items() for step in steps],
)
def test_successor_of_a_killed_worker_loses_and_repeats_nothing(
    root: str, transaction_records: str, step: str, successors: str
) -> None:
    """The successor uses the same way of keeping records, or the other. Pending offsets are free at
    once, because a later epoch began."""
    doomed = killed(root, step, transaction_records)
    is_decided = list(STEPS).index(step) >= DECIDED
    successor = _process(root)
    worker.work(successor, transaction_records=successors)
    expected = TransactionOutcome.COMMITTED if is_decided else TransactionOutcome.ABORTED
    if step != "before BEGIN":
        assert successor.outcome(doomed) is expected
    for topic in RESULTS:
        assert _values(root, topic) == results(range(COUNT))
    assert Admin(successor).describe_group(GROUP).lag == 0
    assert check_log(_process(root)) == []


@pytest.mark.parametrize("step", ["after the last append", "after the pend", "after PREPARE"])
def test_readers_end_the_transaction_of_a_dead_worker_without_successor(
    root: str, step: str
) -> None:
    """The transactions time out after a millisecond, and any process finishes the decided ones."""
    doomed = killed(root, step, IN_LOG)
    is_decided = list(STEPS).index(step) >= DECIDED
    seen = 4 if is_decided else 2
    for topic in RESULTS:
        assert _values(root, topic) == results(range(seen))
    reader = Consumer(SOURCE, root=_process(root), group_id=GROUP, enable_auto_commit=False)
    assert reader.committed(S0) == seen
    expected = TransactionOutcome.COMMITTED if is_decided else TransactionOutcome.ABORTED
    assert _process(root).outcome(doomed) is expected
    assert check_log(_process(root)) == []


def test_two_processes_racing_under_one_id_lose_and_duplicate_nothing(root: str) -> None:
    children = [_start_race(root, name) for name in ("a", "b")]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    outputs = [child.communicate(timeout=WAIT_S) for child in children]
    assert [child.returncode for child in children] == [0, 0], outputs
    attempts = [json.loads(line) for output, _ in outputs for line in output.splitlines()]
    committed = {each["value"].encode() for each in attempts if each["ending"] == "committed"}
    assert len(committed) >= 12
    assert len(attempts) > len(committed), "they have met"
    connection = _process(root)
    connection.coordinator_of(NAME).maintain()
    for topic in RESULTS:
        values = _values(root, topic)
        assert len(values) == len(set(values)), "nothing twice"
        assert set(values) == committed, "nothing lost, and nothing of a fenced transaction"
    for each in attempts:
        outcome = connection.outcome(TxId.parse(each["tx_id"]))
        assert (outcome is TransactionOutcome.COMMITTED) == (each["ending"] == "committed")
    assert check_log(connection) == []
