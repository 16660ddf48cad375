"""`txlog import kafka` and `txlog export --bootstrap` with a real broker of Kafka, killed and begun
again: each committed record is copied once, as it is."""

import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka as librdkafka
import pytest
from confluent_kafka import admin as librdkafka_admin

import txlog
from tests.kafka.differential.broker import Broker
from tests.kafka.programs import MARKS
from tests.processes.command_line import command, environment
from tests.spark.drill import until

pytestmark = MARKS

WAIT_S = 30
PARTITIONS = 2
ROUNDS = 3
TRANSACTIONS = 30
"""Of a round; every third one is aborted."""
Headers = list[tuple[str, bytes | None]] | None
Row = tuple[bytes | None, bytes | None, Headers, int]
"""Key, value, headers, time."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    started = Broker(tmp_path_factory.mktemp("kafka"))
    yield started
    started.stop()


def created(broker: Broker, topic: str) -> None:
    admin = librdkafka_admin.AdminClient({"bootstrap.servers": broker.address})
    kept = librdkafka_admin.NewTopic(topic, PARTITIONS, config={"retention.ms": "-1"})
    (made,) = admin.create_topics([kept]).values()
    made.result(WAIT_S)


def rows(number: int) -> list[Row]:
    """The records of a transaction."""
    time_ms = 1_700_000_000_000 + number
    return [
        (b"k%d" % number, b"v%d" % number, None, time_ms),
        (None, b"no key", [("h", b"%d" % number), ("h", b""), ("null", None)], time_ms + 1),
        (b"k%d" % number, None, [], time_ms),
        (b"", b"", None, 1),
        (b"\xff\x00", bytes(range(256)), [("\u00e4", b"\xff")], time_ms),
    ]


def kafka_records(broker: Broker, topic: str) -> dict[int, list[Row]]:
    """The committed records, by partition."""
    consumer = librdkafka.Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "test",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([librdkafka.TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
    found: dict[int, list[Row]] = {p: [] for p in range(PARTITIONS)}
    left = set(found)
    while left:
        message: Any = consumer.poll(WAIT_S)
        assert message is not None  # Without a value it is false.
        if message.error() is not None:
            assert message.error().code() == librdkafka.KafkaError._PARTITION_EOF
            left.discard(message.partition())
            continue
        row = (message.key(), message.value(), message.headers(), message.timestamp()[1])
        found[message.partition()].append(row)
    consumer.close()
    return found


def log_records(root: Path, topic: str) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = {p: [] for p in range(PARTITIONS)}
    with txlog.Consumer(
        topic, root=str(root), auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        for one in consumer.read_to_end():
            found[one.partition].append(
                (one.key, one.value, list(one.headers) or None, one.timestamp)
            )
    return found


def with_equal_headers(found: dict[int, list[Row]]) -> dict[int, list[Row]]:
    """Without a difference between no headers and none of them, which Kafka does not store."""
    return {p: [(k, v, h or None, t) for k, v, h, t in found[p]] for p in found}


def killed_while(
    writes: Callable[[], None], words: list[str], has_copied: Callable[[], bool], log: Path
) -> None:
    """Copy while records are written, and kill the copy once it has copied some."""
    with log.open("ab") as printed:
        running = subprocess.Popen(words, env=environment(), stdout=printed, stderr=printed)

    def copies() -> bool:
        assert running.poll() is None, log.read_text()
        return has_copied()

    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(writes)
        until(copies, "copies")
        running.kill()
        running.wait()
        writing.result()


def to_its_end(words: list[str]) -> None:
    done = subprocess.run(words, env=environment(), capture_output=True, text=True)
    assert not done.returncode, done.stderr


def produced(broker: Broker, topic: str, turn: int) -> None:
    producer = librdkafka.Producer(
        {
            "bootstrap.servers": broker.address,
            "transactional.id": f"source-{topic}",
            "compression.type": ("zstd", "lz4", "gzip")[turn % 3],
            "linger.ms": 0,
        }
    )
    producer.init_transactions(WAIT_S)
    for number in range(turn * TRANSACTIONS, (turn + 1) * TRANSACTIONS):
        producer.begin_transaction()
        for key, value, headers, time_ms in rows(number):
            producer.produce(
                topic, value, key, number % PARTITIONS, headers=headers, timestamp=time_ms
            )
        if number % 3 == 2:
            assert producer.flush(WAIT_S) == 0
            producer.abort_transaction(WAIT_S)
        else:
            producer.commit_transaction(WAIT_S)


def test_import_of_a_broker_s_topic_has_each_committed_record_once(
    broker: Broker, tmp_path: Path
) -> None:
    root, topic = tmp_path / "log", "imported"
    created(broker, topic)
    bootstrap = ("--bootstrap", broker.address, "--topics", topic, "--groups", "billing")
    words = command("--root", root, "import", "kafka", *bootstrap, "-q")

    def count() -> int:
        try:
            return sum(map(len, log_records(root, topic).values()))
        except txlog.TxlogError:
            return 0

    for turn in range(ROUNDS):
        before = count() if root.exists() else 0
        killed_while(
            partial(produced, broker, topic, turn),
            [*words, "--follow"],
            lambda: count() > before,  # noqa: B023
            tmp_path / "import.log",
        )
    committed = kafka_records(broker, topic)
    # The group's offset: of the record in the middle of partition 0.
    middle = len(committed[0]) // 2
    at = nth_offset(broker, topic, middle)
    group = librdkafka.Consumer({"bootstrap.servers": broker.address, "group.id": "billing"})
    group.commit(offsets=[librdkafka.TopicPartition(topic, 0, at)], asynchronous=False)
    group.close()
    to_its_end(words)
    to_its_end(words)
    assert with_equal_headers(committed) == log_records(root, topic)
    assert sum(map(len, committed.values())) == ROUNDS * TRANSACTIONS * 2 // 3 * len(rows(0))
    group_here = txlog.Admin(str(root)).describe_group("billing")
    assert [one.current_offset for one in group_here.partitions] == [middle, None]
    assert txlog.Admin(str(root)).verify().findings == []


def nth_offset(broker: Broker, topic: str, index: int) -> int:
    """Kafka's offset of the committed record of partition 0 at the index."""
    consumer = librdkafka.Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "test",
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([librdkafka.TopicPartition(topic, 0, 0)])
    found = []
    while len(found) <= index:
        found += consumer.consume(index + 1 - len(found), WAIT_S) or pytest.fail("too few")
    consumer.close()
    return int(found[index].offset() or 0)


def test_export_into_a_broker_has_each_committed_record_once(
    broker: Broker, tmp_path: Path
) -> None:
    root, topic = tmp_path / "log", "exported"
    txlog.Admin(str(root), create=True).create_topics([txlog.NewTopic(topic, PARTITIONS)])
    words = command("--root", root, "export", topic, "--bootstrap", broker.address, "-q")
    for turn in range(ROUNDS):
        before = sum(map(len, kafka_records(broker, topic).values())) if turn else 0
        killed_while(
            partial(written, root, topic, turn),
            [*words, "--follow"],
            lambda: has_more(broker, topic, before),  # noqa: B023
            tmp_path / "export.log",
        )
    to_its_end(words)
    to_its_end(words)
    here = log_records(root, topic)
    assert with_equal_headers(kafka_records(broker, topic)) == here
    assert sum(map(len, here.values())) == ROUNDS * TRANSACTIONS * 2 // 3 * len(rows(0))

    resource = librdkafka_admin.ConfigResource(librdkafka_admin.ResourceType.TOPIC, topic)
    admin = librdkafka_admin.AdminClient({"bootstrap.servers": broker.address})
    (described,) = admin.describe_configs([resource]).values()
    assert described.result(WAIT_S)["retention.ms"].value == "-1"  # As here, not Kafka's week.


def has_more(broker: Broker, topic: str, count: int) -> bool:
    admin = librdkafka_admin.AdminClient({"bootstrap.servers": broker.address})
    if topic not in admin.list_topics(timeout=WAIT_S).topics:
        return False
    return sum(map(len, kafka_records(broker, topic).values())) > count


def written(root: Path, topic: str, turn: int) -> None:
    with txlog.Producer(
        str(root), transactional_id="source", transaction_records="in.log"
    ) as producer:
        producer.init_transactions()
        for number in range(turn * TRANSACTIONS, (turn + 1) * TRANSACTIONS):
            producer.begin_transaction()
            for key, value, headers, time_ms in rows(number):
                producer.send(topic, value, key, headers, number % PARTITIONS, time_ms)
            if number % 3 == 2:
                producer.flush()
                producer.abort_transaction()
            else:
                producer.commit_transaction()
