"""`txlog import kafka`: from a gateway on another log, in processes that are killed."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import confluent_kafka as librdkafka
import pytest

import txlog
from tests.processes.command_line import command, environment, run_process
from tests.processes.kafka_gateway import WAIT_S, Gateway
from txlog.kafka.copying.importing import Place


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    started = Gateway(str(tmp_path_factory.mktemp("source") / "log"))
    try:
        yield started
    finally:
        started.stop()


def produce(source: Gateway, topic: str, first: int, count: int) -> None:
    producer = librdkafka.Producer(source.config(linger_ms=5))
    for number in range(first, first + count):
        headers = [("h", b"%d" % number)] if number % 2 else None
        producer.produce(topic, b"%d" % number, b"k", number % 2, headers=headers, timestamp=number)
    assert producer.flush(WAIT_S) == 0


def import_command(source: Gateway, target: Path, topic: str, *more: str) -> list[str]:
    bootstrap = ("--bootstrap", source.address, "--topics", topic)
    return command("--root", target, "import", "kafka", *bootstrap, "-o", "json", *more)


def imported(source: Gateway, target: Path, topic: str, *more: str) -> None:
    done = subprocess.run(
        import_command(source, target, topic, *more), env=environment(), capture_output=True
    )
    assert not done.returncode, done.stderr
    assert json.loads(done.stdout)["name"].startswith("kafka-import.")


def records(root: object, topic: str) -> list[tuple[object, ...]]:
    with txlog.Consumer(topic, root=str(root), auto_offset_reset="earliest") as consumer:
        found = [
            (r.partition, r.offset, r.key, r.value, r.headers, r.timestamp)
            for r in consumer.read_to_end()
        ]
    return sorted(found, key=lambda one: (one[0], one[1]))


def test_import_copies_records_as_they_are_and_goes_on_where_it_was(
    source: Gateway, tmp_path: Path
) -> None:
    txlog.Admin(source.root).create_topics([txlog.NewTopic("plain", 2)])
    target = tmp_path / "log"
    produce(source, "plain", 0, 50)
    imported(source, target, "plain")
    produce(source, "plain", 50, 50)
    imported(source, target, "plain")
    imported(source, target, "plain")
    assert records(target, "plain") == records(source.root, "plain")
    assert len(records(target, "plain")) == 100


def test_import_that_is_killed_copies_each_record_once(source: Gateway, tmp_path: Path) -> None:
    txlog.Admin(source.root).create_topics([txlog.NewTopic("killed", 2)])
    target = tmp_path / "log"
    for number in range(3):
        produce(source, "killed", 1_000 * number, 1_000)
        running = subprocess.Popen(
            import_command(source, target, "killed", "--follow"),
            env=environment(),
            stdout=subprocess.DEVNULL,
        )
        wanted = 1_000 * number + 1
        while not target.exists() or count(target, "killed") < wanted:
            assert runs_on(running)
        running.kill()
        running.wait()
    imported(source, target, "killed")
    assert records(target, "killed") == records(source.root, "killed")


def count(root: Path, topic: str) -> int:
    try:
        return sum(
            one.end_offset for one in txlog.Admin(str(root)).describe_topic(topic).partitions
        )
    except txlog.TxlogError:
        return 0


def runs_on(process: subprocess.Popen[bytes]) -> bool:
    """Leave the processor to it for a moment."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(0.01)
    return process.poll() is None


def test_group_is_at_the_same_record_and_one_that_moved_here_is_left_alone(
    source: Gateway, tmp_path: Path
) -> None:
    txlog.Admin(source.root).create_topics([txlog.NewTopic("grouped", 2)])
    target = tmp_path / "log"
    produce(source, "grouped", 0, 20)
    # Offsets here then differ from those there.
    where = txlog.TopicPartition("grouped", 0)
    txlog.Admin(source.root).delete_records({where: 4})
    with txlog.Consumer(root=source.root, group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign([where])
        consumer.commit({where: 7})
    imported(source, target, "grouped", "--groups", "g")
    assert committed(target, where) == 3
    with txlog.Consumer(root=str(target), group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign([where])
        consumer.commit({where: 5})
    with txlog.Consumer(root=source.root, group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign([where])
        consumer.commit({where: 8})
    imported(source, target, "grouped", "--groups", "g")
    assert committed(target, where) == 5


def committed(root: Path, where: txlog.TopicPartition) -> int | None:
    group = txlog.Admin(str(root)).describe_group("g")
    return {one.where: one.current_offset for one in group.partitions}.get(where)


def test_topic_with_another_writer_is_refused(source: Gateway, tmp_path: Path) -> None:
    txlog.Admin(source.root).create_topics([txlog.NewTopic("other", 2)])
    target = tmp_path / "log"
    produce(source, "other", 0, 2)
    imported(source, target, "other")
    with txlog.Producer(str(target)) as producer:
        producer.send("other", b"mine", partition=0)
    bootstrap = ("--bootstrap", source.address, "--topics", "other")
    done = run_process("--root", target, "import", "kafka", *bootstrap)
    assert done.code == 2
    assert "another program wrote" in done.err


def test_offset_is_translated_by_the_runs_of_its_partition() -> None:
    place = Place(10, 100)
    assert place.add([10, 11, 14, 20]) == [(10, 2, 100), (14, 1, 102), (20, 1, 103)]
    assert [place.translated(at) for at in (3, 10, 11, 12, 13, 14, 15, 20, 21)] == [
        *(100, 100, 101, 102, 102, 102, 103, 103, 104)
    ]
    assert place.translated(22) is None


def test_export_copies_what_import_brings_back_and_goes_on_where_it_was(tmp_path: Path) -> None:
    root = str(tmp_path / "log")
    admin = txlog.Admin(root, create=True)
    admin.create_topics([txlog.NewTopic("out", 2)])
    with Gateway(str(tmp_path / "kafka")) as target:
        for first in (0, 40):
            with txlog.Producer(root) as producer:
                for number in range(first, first + 40):
                    headers = [("h", b"1")] if number % 2 else None
                    producer.send("out", b"%d" % number, b"k", headers, number % 2, number + 1)
            exported(root, target)
        exported(root, target)
        assert records(target.root, "out") == records(root, "out")
        assert len(records(root, "out")) == 80


def test_export_that_is_killed_copies_each_record_once(tmp_path: Path) -> None:
    root = str(tmp_path / "log")
    txlog.Admin(root, create=True).create_topics([txlog.NewTopic("out", 2)])
    with Gateway(str(tmp_path / "kafka")) as target:
        for turn in range(2):
            with txlog.Producer(root) as producer:
                for number in range(1_000):
                    producer.send("out", b"%d" % number, partition=number % 2)
            running = subprocess.Popen(
                export_command(root, target, "--follow"),
                env=environment(),
                stdout=subprocess.DEVNULL,
            )
            while count(Path(target.root), "out") <= 1_000 * turn:
                assert runs_on(running)
            running.kill()
            running.wait()
        exported(root, target)
        assert records(target.root, "out") == records(root, "out")


def export_command(root: str, target: Gateway, *more: str) -> list[str]:
    return command("--root", root, "export", "out", "--bootstrap", target.address, "-q", *more)


def exported(root: str, target: Gateway) -> None:
    done = subprocess.run(export_command(root, target), env=environment(), capture_output=True)
    assert not done.returncode, done.stderr
