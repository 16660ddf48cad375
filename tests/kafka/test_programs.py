"""Kafka's own programs, unchanged, on `txlog kafka`."""

import json
from pathlib import Path

import txlog
from tests.kafka.programs import MARKS, ran
from tests.processes.kafka_gateway import Gateway

pytestmark = MARKS


def values(gateway: Gateway, topic: str) -> list[bytes]:
    with txlog.Consumer(topic, root=gateway.root, auto_offset_reset="earliest") as consumer:
        return [record.value for record in consumer.read_to_end()]


def to(gateway: Gateway) -> tuple[str, str]:
    return "--bootstrap-server", gateway.address


def test_console_producer_and_consumer(gateway: Gateway) -> None:
    lines = [f"line {number}" for number in range(100)]
    ran("ConsoleProducer", *to(gateway), "--topic", "console", stdin="\n".join(lines))
    assert values(gateway, "console") == [line.encode() for line in lines]
    arguments = ("--topic", "console", "--from-beginning", "--max-messages", 100, "--group", "c")
    printed = ran("consumer.ConsoleConsumer", *to(gateway), *arguments)
    assert printed.split("\n")[:100] == lines


def test_verifiable_producer_and_consumer(gateway: Gateway) -> None:
    ran("VerifiableProducer", *to(gateway), "--topic", "verifiable", "--max-messages", 500)
    assert values(gateway, "verifiable") == [b"%d" % number for number in range(500)]
    printed = ran(
        "VerifiableConsumer",
        *to(gateway),
        *("--topic", "verifiable", "--group-id", "verifiable", "--reset-policy", "earliest"),
        *("--max-messages", 500, "--verbose"),
    )
    events = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    read = [event["value"] for event in events if event["name"] == "record_data"]
    assert read == [str(number) for number in range(500)]
    [at] = txlog.Admin(gateway.root).describe_group("verifiable").partitions
    assert at.current_offset == 500


def test_performance_test_writes_each_record_once(gateway: Gateway, tmp_path: Path) -> None:
    printed = ran(
        "ProducerPerformance",
        *("--topic", "performance", "--num-records", 20_000, "--record-size", 100),
        *("--throughput", -1, "--bootstrap-server", gateway.address),
    )
    assert "20000 records sent" in printed
    assert len(values(gateway, "performance")) == 20_000
