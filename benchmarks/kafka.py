"""`txlog kafka` beside a broker of Kafka on the same machine and disk: librdkafka, one program.

It needs Kafka's jars, which `make kafka` fetches.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import confluent_kafka as librdkafka
import psutil

from benchmarks.figures import Figure, at_least, at_most, in_turn, latency, rate, ratio
from tests.kafka.differential.broker import Broker
from tests.processes.kafka_gateway import Gateway

RECORDS, RECORD = 300_000, b"x" * 100
TRANSACTIONS = 30
ROUNDS = 5
CONNECTIONS = 100
TIMEOUT_S = 120.0


def run(folder: Path) -> Sequence[Figure]:
    """Records a second in and out, a transaction over two topics, and a gateway's memory."""
    broker, gateway = Broker(folder / "kafka"), Gateway(str(folder / "log"))
    # It syncs what it acknowledges, as a log does; a broker alone does not.
    durable = Broker(folder / "durable", "log.flush.interval.messages=1\n")
    addresses = {
        "Kafka": broker.address,
        "Kafka that syncs": durable.address,
        "txlog": gateway.address,
    }
    try:
        taken = {
            work: in_turn({name: partial(work, at) for name, at in addresses.items()}, ROUNDS)
            for work in (_produced, _consumed, _committed)
        }
        made, read, committed = taken[_produced], taken[_consumed], taken[_committed]
        synced = "Kafka that syncs"
        return [
            rate("produce, Kafka", made["Kafka"], RECORDS),
            rate("produce, txlog", made["txlog"], RECORDS, at_least(200_000)),
            ratio("its rate / Kafka's", made["Kafka"], made["txlog"]),
            ratio("its rate / that of Kafka that syncs", made[synced], made["txlog"]),
            rate("consume, Kafka", read["Kafka"], RECORDS),
            rate("consume, txlog", read["txlog"], RECORDS, at_least(500_000)),
            ratio("its rate / Kafka's", read["Kafka"], read["txlog"]),
            latency("transaction over two topics, Kafka", committed["Kafka"]),
            latency(f"transaction over two topics, {synced}", committed[synced]),
            latency("transaction over two topics, txlog", committed["txlog"]),
            ratio("its time / Kafka's", committed["txlog"], committed["Kafka"], at_most(1.2)),
            ratio("its time / that of Kafka that syncs", committed["txlog"], committed[synced]),
            _memory(gateway),
        ]
    finally:
        gateway.stop()
        broker.stop()
        durable.stop()


def _produced(address: str) -> float:
    producer = librdkafka.Producer(
        {"bootstrap.servers": address, "linger.ms": 20, "queue.buffering.max.messages": 2 * RECORDS}
    )
    producer.list_topics(timeout=TIMEOUT_S)
    begin = time.monotonic()
    for _ in range(RECORDS):
        producer.produce("in", RECORD)
    assert producer.flush(TIMEOUT_S) == 0
    return time.monotonic() - begin


def _consumed(address: str) -> float:
    consumer = librdkafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "benchmark",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            # At fewer it stops for a second when it has so many.
            "queued.min.messages": RECORDS,
        }
    )
    # The last records: of others it would fetch more than it is asked for.
    _, end = consumer.get_watermark_offsets(librdkafka.TopicPartition("in", 0), TIMEOUT_S)
    consumer.assign([librdkafka.TopicPartition("in", 0, end - RECORDS)])
    left, begin = RECORDS, time.monotonic()
    while left:
        left -= len(consumer.consume(min(left, 10_000), TIMEOUT_S))
    taken = time.monotonic() - begin
    consumer.close()
    return taken


def _committed(address: str) -> float:
    producer = librdkafka.Producer(
        {"bootstrap.servers": address, "transactional.id": "benchmark", "linger.ms": 0}
    )
    producer.init_transactions(TIMEOUT_S)
    begin = 0.0
    for number in range(TRANSACTIONS + 5):
        if number == 5:  # The first ones learn where the topics are.
            begin = time.monotonic()
        producer.begin_transaction()
        for _ in range(10):
            producer.produce("one", RECORD)
            producer.produce("two", RECORD)
        producer.commit_transaction(TIMEOUT_S)
    return (time.monotonic() - begin) / TRANSACTIONS


def _memory(gateway: Gateway) -> Figure:
    """Resident memory of a gateway to which many clients are connected."""
    clients = [
        librdkafka.Consumer({"bootstrap.servers": gateway.address, "group.id": f"idle-{number}"})
        for number in range(CONNECTIONS)
    ]
    for client in clients:
        client.list_topics(timeout=TIMEOUT_S)
    used = psutil.Process(gateway.process.pid).memory_info().rss / 1e6
    for client in clients:
        client.close()
    return Figure(f"txlog gateway with {CONNECTIONS} clients", used, "MB", at_most(150))
