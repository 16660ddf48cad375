"""What a drill proves about a log: each kind of error is found by the check made for it."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from spark_plugin.checkpoints.checkpoint import Checkpoint, open_checkpoint
from spark_plugin.source.offsets import PartitionRange, SourceOffset, TopicOffsets, encode
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
        self.connection = open_connection(store, runtime, create=True)
        self.data = DrillLog(self.connection, "drill-1")
        self.data.create()
        self.data.feed()
        self.data.close()
        self.folder = folder / "checkpoint"
        (self.folder / "offsets").mkdir(parents=True)
        (self.folder / "commits").mkdir()
        (self.folder / "metadata").write_text('{"id":"query"}')
        cluster, ends = self.connection.cluster, self.ends()
        ranges = {p: PartitionRange(0, end) for p, end in ends.items()}
        topics = {self.data.numbers: TopicOffsets(self.topic().topic_id, ranges)}
        line = encode(SourceOffset(cluster.log_id, self.data.numbers, topics))
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
        coordinator.prepare_commit(QUERY, tx_id, (), (), ReplayMark("query", 0))
        coordinator.finish(QUERY, tx_id)

    def seen_anew(self) -> DrillLog:
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

    def proven(self) -> dict[str, str]:
        """The same, for the checks of an unknown job."""
        return self._failed(None)

    def _failed(self, data: DrillLog | None) -> dict[str, str]:
        checks = drill_checks(self.connection, self.checkpoint, data)
        return {check.name: check.found for check in checks if not check.is_well}


@pytest.fixture
def small(tmp_path: Path) -> SmallDrill:
    return SmallDrill(tmp_path)


def test_a_drill_after_which_everything_is_there_once_is_proven(small: SmallDrill) -> None:
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
def test_one_number_that_is_not_right_is_seen(
    small: SmallDrill, numbers: list[int], found: str
) -> None:
    small.copy(numbers)
    assert list(small.failed()) == ["input = output"]
    assert found in small.failed()["input = output"]


def test_a_group_that_is_behind_is_seen(small: SmallDrill) -> None:
    small.copy(list(range(PORTION)), behind=3)
    failed = small.failed()
    assert list(failed) == ["group at the end", "checkpoint and log"]
    assert failed["group at the end"] == "3 records behind"


@pytest.mark.parametrize("name", ["spark.query", "spark.query.a-label"])
def test_a_transaction_that_is_left_open_is_seen_though_the_query_reads_no_group(
    tmp_path: Path, name: str
) -> None:
    """The query's source is not txlog, so no line of the checkpoint names a group and its owner."""
    small = SmallDrill(tmp_path, Runtime(ManualClock()))
    (small.folder / "offsets" / "0").write_text('v1\n{"batchWatermarkMs":0}\n{"n":3}')
    small.note_batch()
    assert small.proven() == {}
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
    failed = small.proven()
    assert list(failed) == ["open transactions"]
    assert f"of {name} is Ongoing" in failed["open transactions"]


def test_a_job_that_never_wrote_to_this_log_is_not_proven(small: SmallDrill) -> None:
    assert list(small.proven()) == ["batches in the log"]
    assert "the log has no batch of query query:" in small.proven()["batches in the log"]
    small.note_batch()
    assert "batches in the log" not in small.proven()
    (small.folder / "metadata").write_text('{"id":"another"}')
    assert "no batch of query another" in small.proven()["batches in the log"]


def test_a_drill_that_is_over_leaves_neither_topics_nor_a_group(small: SmallDrill) -> None:
    small.copy(list(range(PORTION)))
    small.data.delete()
    admin = Admin(small.connection)
    assert (admin.list_topics(), admin.list_groups()) == ([], [])


def test_damage_is_seen_by_every_check_that_meets_it(small: SmallDrill) -> None:
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


def test_a_proof_that_damage_stands_in_the_way_of_is_not_called_well(small: SmallDrill) -> None:
    """The check did not read past the damaged entry, so it cannot judge the rest."""
    small.copy(list(range(PORTION)))
    damage(small, "transactions/*/*/entries/*.json")
    failed = small.failed()
    assert "is damaged" in failed["every stored byte"]
    assert failed["offsets of groups"] == "not proven: bytes are damaged"
    assert "invariants" in failed


@pytest.mark.parametrize("pattern", ["transactions/*/*/entries/*.json", "topics/*.odd/*/entries/*"])
def test_damage_that_one_check_meets_leaves_the_others_to_be_made(
    small: SmallDrill, pattern: str
) -> None:
    small.copy(list(range(PORTION)))
    damage(small, pattern)
    checks = list(drill_checks(small.fresh(), small.checkpoint, small.seen_anew()))
    assert len(checks) == 8
    assert not next(check for check in checks if check.name == "every stored byte").is_well


def damage(small: SmallDrill, pattern: str) -> None:
    """Change one byte in the middle of the last object that matches."""
    victim = sorted(Path(small.connection.cluster.store.url).glob(pattern))[-1]
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 0xFF
    victim.write_bytes(data)
