"""Maintenance is killed at every step, on a real disk: no readable record is lost (I12)."""

import shutil
import signal
from pathlib import Path

import pytest

from tests.integration import maintenance_worker as worker
from tests.logs.empty_log import empty_log
from tests.processes.forked_process import run_forked
from txlog.client.admin import Admin
from txlog.client.consumer.consumer import Consumer
from txlog.client.producer.producer import Producer
from txlog.clock import Runtime
from txlog.engine.connection import Connection, open_connection
from txlog.settings import LogSettings
from txlog.storage import open_store
from txlog.verify.invariants import check_log

pytestmark = pytest.mark.slow

COUNT = 30
KEYS = 3


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Topics to merge, to compact and to truncate, and a deleted one."""
    folder = tmp_path_factory.mktemp("sound") / "log"
    root = empty_log(folder, LogSettings(journal_snapshot_entries=4))
    admin = Admin(_process(root))
    admin.create_topic("merged")
    admin.create_topic("compacted", config={"cleanup.policy": "compact"})
    admin.create_topic("cut", config={"retention.bytes": 1})
    admin.create_topic("deleted")
    with Producer(admin.connection) as producer:
        for number in range(COUNT):
            _send(producer, number)
        producer.send("deleted", value=b"gone").get()
    admin.delete_topics(["deleted"])
    return root


@pytest.fixture
def root(sound: str, tmp_path: Path) -> str:
    """A copy of that log."""
    return str(shutil.copytree(sound, tmp_path / "log"))


def _process(root: str) -> Connection:
    runtime = Runtime()
    return open_connection(open_store(root, runtime), runtime)


def _send(producer: Producer, number: int) -> None:
    value = b"%d" % number
    producer.send("merged", value=value)
    producer.send("compacted", key=b"%d" % (number % KEYS), value=value)
    producer.send("cut", value=value)
    producer.flush()


def _values(root: str, topic: str) -> list[bytes]:
    consumer = Consumer(topic, root=_process(root), auto_offset_reset="earliest")
    return [r.value for found in consumer.poll(max_records=1_000).values() for r in found]


def _maintain(root: str, *step: str) -> int | None:
    return run_forked(worker.main, root, *step).status


@pytest.mark.parametrize("step", worker.STEPS)
def test_I12_killed_maintenance_pass_leaves_intact_log_and_next_pass_completes(
    root: str, step: str
) -> None:
    opened = Producer(
        _process(root),
        transactional_id="open",
        transaction_timeout_ms=900_000,
        transaction_records="in.log",
    )
    opened.init_transactions()
    opened.begin_transaction()
    opened.send("merged", b"%d" % COUNT)
    opened.flush()
    assert _maintain(root, step) == -signal.SIGKILL
    _check_readers(root)
    opened.commit_transaction()
    with Producer(_process(root)) as producer:
        _send(producer, COUNT + 1)
    assert _maintain(root) == 0
    assert _values(root, "merged") == [b"%d" % number for number in range(COUNT + 2)]
    compacted = _values(root, "compacted")
    assert compacted[-1:] == [b"%d" % (COUNT + 1)]
    assert len(compacted) <= KEYS + 1, "one new record alone is not worth a pass"
    assert len(list(Path(root).glob("topics/deleted/*/*/*"))) <= 2
    assert len(list(Path(root).glob("topics/merged/*/segments/*"))) < COUNT / 2
    assert check_log(_process(root)) == []


def _check_readers(root: str) -> None:
    """Check the readers after the kill, with a transaction still open."""
    merged = _values(root, "merged")
    assert merged == [b"%d" % number for number in range(COUNT + 1)], "read_uncommitted"
    compacted = _values(root, "compacted")
    assert compacted[-KEYS:] == [b"%d" % number for number in range(COUNT - KEYS, COUNT)]
    assert _values(root, "cut")[-1:] == [b"%d" % (COUNT - 1)]
    assert check_log(_process(root)) == []
