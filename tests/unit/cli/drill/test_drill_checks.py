"""What a drill proves about a log: each kind of error is found by the check made for it."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from spark_plugin.checkpoints.checkpoint import Checkpoint, open_checkpoint
from spark_plugin.source.offsets import encode
from tests.unit.spark_plugin.offset_lines import offset_of
from txlog.cli.drill.drill_checks import drill_checks
from txlog.cli.drill.drill_log import PARTITIONS, PORTION, DrillLog
from txlog.client.admin import Admin
from txlog.client.producer.producer import Producer
from txlog.clock import Runtime
from txlog.coordinator.events import InitProducer, ReplayMark
from txlog.engine.connection import Connection, open_connection
from txlog.model import TopicPartition, TxId
from txlog.storage.disk.local import LocalStore
from txlog.testing.clock import ManualClock

QUERY = "spark.query"
"""Transactional id of the query that the checkpoint names."""


class SmallDrill:
    """The log of a drill whose job has copied all numbers; tests then damage it."""

    def __init__(self, folder: Path, runtime: Runtime | None = None) -> None:
        runtime = runtime or Runtime()
        store = LocalStore(folder / "log", runtime, durable=False)
        segments = {"entry.records.max.bytes": 0}
        self.connection = open_connection(store, runtime, create=True, log_config=segments)
        self.data = DrillLog(self.connection, "drill-1")
        self.data.create()
        self.data.feed()
        self.data.close()
        self.folder = folder / "checkpoint"
        (self.folder / "offsets").mkdir(parents=True)
        (self.folder / "commits").mkdir()
        (self.folder / "metadata").write_text('{"id":"query"}')
        cluster, ends = self.connection.cluster, self.ends()
        ranges = {p: (0, end) for p, end in ends.items()}
        name, topic_id = self.data.numbers, self.topic().topic_id  # type: ignore[attr-defined]
        line = encode(offset_of(ranges, name, topic_id, name, cluster.log_id))
        (self.folder / "offsets" / "0").write_text(f'v1\n{{"batchWatermarkMs":0}}\n{line}')
        (self.folder / "commits" / "0").write_text("v1\n{}")

    def topic(self) -> object:
        return self.connection.cluster.topic(self.data.numbers)

    def ends(self) -> dict[int, int]:
        state = self.topic().catch_up()  # type: ignore[attr-defined]
        return {p: state.end_offset(p) for p in range(PARTITIONS)}

    def copy(self, numbers: list[int], behind: int = 0) -> None:
        """Copy numbers in one transaction with the group's offsets."""
        producer = Producer(self.connection, transactional_id="copier")
        producer.init_transactions()
        even, odd = self.data.outputs
        with producer.transaction():
            for number in numbers:
                producer.send(odd if number % 2 else even, {"n": number})
            ends = self.ends()
            ends[0] -= behind
            offsets = {TopicPartition(self.data.numbers, p): end for p, end in ends.items()}
            producer.send_offsets_to_transaction(offsets, self.data.numbers)
        producer.close()
        self.note_batch()

    def note_batch(self) -> None:
        """Write what the sink writes for a query's batch 0, except its records."""
        coordinator = self.connection.coordinator_of(QUERY)
        run = coordinator.init_producer(InitProducer(QUERY, "run", 60_000, is_run=True))
        tx_id = TxId(run.pid, run.epoch, 0)
        mark = ReplayMark("query", 0, fingerprint=self.checkpoint.offsets(0).fingerprint)
        coordinator.prepare_commit(QUERY, tx_id, (), (), mark)
        coordinator.finish(QUERY, tx_id)

    def reopened_data(self) -> DrillLog:
        """The drill's data, as a newly started process sees it."""
        return replace(self.data, connection=self.fresh())

    def fresh(self) -> Connection:
        """A new connection that has read nothing of the log yet."""
        return open_connection(self.connection.cluster.store, Runtime())

    @property
    def checkpoint(self) -> Checkpoint:
        return open_checkpoint(str(self.folder), Runtime())

    def failed(self) -> dict[str, str]:
        """The failed checks by name, with what each found."""
        return self._failed(self.data)

    def failed_without_data(self) -> dict[str, str]:
        """The failed checks of a job whose output is unknown."""
        return self._failed(None)

    def _failed(self, data: DrillLog | None) -> dict[str, str]:
        checks = drill_checks(self.connection, self.checkpoint, data)
        return {check.name: check.found for check in checks if not check.is_well}


@pytest.fixture
def small(tmp_path: Path) -> SmallDrill:
    return SmallDrill(tmp_path)


def test_exactly_once_copy_passes_every_check(small: SmallDrill) -> None:
    small.copy(list(range(PORTION)))
    assert small.failed() == {}
    assert small.data.aborted == PORTION // 2


@pytest.mark.parametrize(
    ("numbers", "found"),
    [
        ([*range(1, PORTION)], "1 lost, 0 duplicated, 0 wrong"),
        ([*range(PORTION), 8], "0 lost, 1 duplicated, 0 wrong"),
        ([*range(PORTION), -2], "0 lost, 0 duplicated, 1 wrong"),
    ],
)
def test_lost_duplicated_or_wrong_number_fails_the_output_check(
    small: SmallDrill, numbers: list[int], found: str
) -> None:
    small.copy(numbers)
    assert list(small.failed()) == ["input = output"]
    assert found in small.failed()["input = output"]


def test_group_behind_the_end_fails_the_group_and_checkpoint_checks(small: SmallDrill) -> None:
    small.copy(list(range(PORTION)), behind=3)
    failed = small.failed()
    assert list(failed) == ["group at the end", "checkpoint and log"]
    assert failed["group at the end"] == "3 records behind"


@pytest.mark.parametrize("name", ["spark.query", "spark.query.a-label"])
def test_open_transaction_of_a_query_without_a_group_fails_its_check(
    tmp_path: Path, name: str
) -> None:
    """The query's source is not txlog, so no line of the checkpoint names a group and its owner."""
    small = SmallDrill(tmp_path, Runtime(ManualClock()))
    (small.folder / "offsets" / "0").write_text('v1\n{"batchWatermarkMs":0}\n{"n":3}')
    small.note_batch()
    assert small.failed_without_data() == {}
    producer = Producer(
        small.connection,
        transactional_id=name,
        transaction_timeout_ms=600_000,
        transaction_records="in.log",
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(small.data.outputs[0], {"n": 2})
    producer.flush()
    failed = small.failed_without_data()
    assert list(failed) == ["open transactions"]
    assert f"of {name} is Ongoing" in failed["open transactions"]


def test_job_without_a_batch_in_the_log_fails_the_batch_check(small: SmallDrill) -> None:
    assert list(small.failed_without_data()) == ["batches in the log"]
    assert (
        "the log has no batch of query query:" in small.failed_without_data()["batches in the log"]
    )
    small.note_batch()
    assert "batches in the log" not in small.failed_without_data()
    (small.folder / "metadata").write_text('{"id":"another"}')
    assert "no batch of query another" in small.failed_without_data()["batches in the log"]


def test_delete_removes_the_topics_and_the_group_of_the_drill(small: SmallDrill) -> None:
    small.copy(list(range(PORTION)))
    small.data.delete()
    admin = Admin(small.connection)
    assert (admin.list_topics(), admin.list_groups()) == ([], [])


def test_damaged_segment_fails_every_check_that_reads_it(small: SmallDrill) -> None:
    small.copy(list(range(PORTION)))
    root = Path(small.connection.cluster.store.url)
    segment = next((root / "topics" / small.data.outputs[0]).rglob("segments/*.arrow"))
    data = bytearray(segment.read_bytes())
    data[data.index(pa.array([2, 4, 6]).buffers()[1].to_pybytes())] ^= 1
    segment.write_bytes(data)
    failed = small.failed()
    assert failed.pop("offsets of groups") == "not proven: bytes are damaged"
    assert list(failed) == ["input = output", "every stored byte", "invariants"]
    assert all(segment.name in found for found in failed.values())


def test_check_blocked_by_damage_is_reported_as_not_proven(small: SmallDrill) -> None:
    """The check did not read past the damaged entry, so it cannot judge the rest."""
    small.copy(list(range(PORTION)))
    damage(small, "transactions/*/*/entries/*.json")
    failed = small.failed()
    assert "is damaged" in failed["every stored byte"]
    assert failed["offsets of groups"] == "not proven: bytes are damaged"
    assert "invariants" in failed


@pytest.mark.parametrize("pattern", ["transactions/*/*/entries/*.json", "topics/*.odd/*/entries/*"])
def test_damage_does_not_prevent_the_remaining_checks(small: SmallDrill, pattern: str) -> None:
    small.copy(list(range(PORTION)))
    damage(small, pattern)
    checks = list(drill_checks(small.fresh(), small.checkpoint, small.reopened_data()))
    assert len(checks) == 8
    assert not next(check for check in checks if check.name == "every stored byte").is_well


def damage(small: SmallDrill, pattern: str) -> None:
    """Change one byte in the middle of the last object that matches."""
    victim = sorted(Path(small.connection.cluster.store.url).glob(pattern))[-1]
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 0xFF
    victim.write_bytes(data)
