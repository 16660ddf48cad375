"""Kafka's system test for transactions: its copier moves records between topics in transactions
with the offsets of its group, while gateways and copiers are killed. None is lost or doubled."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

import txlog
from tests.kafka.programs import MARKS, TOOLS, java
from tests.processes.kafka_gateway import Gateway
from tests.spark.drill import until

pytestmark = MARKS

RECORDS = 3_000
RECORDS_OF_TRANSACTION = 100
KILLS = 4


def copier(bootstrap: str, number: int, log: Path) -> "subprocess.Popen[bytes]":
    arguments = (
        *("--broker-list", bootstrap, "--transactional-id", f"copier-{number}"),
        *("--input-topic", "input", "--input-partition", number, "--output-topic", "output"),
        *("--max-messages", -1, "--transaction-size", RECORDS_OF_TRANSACTION),
        *("--consumer-group", f"copier-{number}", "--enable-random-aborts"),
    )
    command = java(TOOLS + "TransactionalMessageCopier", *arguments)
    with log.open("ab") as printed:
        return subprocess.Popen(command, stdout=printed, stderr=printed)


@pytest.mark.timeout(600)
def test_copies_are_whole_while_gateways_are_killed(tmp_path: Path) -> None:
    root = str(tmp_path / "log")
    gateways = [Gateway(root), Gateway(root)]
    bootstrap = ",".join(gateway.address for gateway in gateways)
    txlog.Admin(root).create_topics([txlog.NewTopic("input", 2), txlog.NewTopic("output", 2)])
    with txlog.Producer(root) as producer:
        for number in range(RECORDS):
            producer.send("input", b"%d" % number, partition=number % 2)
    copiers = [copier(bootstrap, number, tmp_path / f"{number}.log") for number in range(2)]
    admin = txlog.Admin(root)

    def copied() -> int:
        return sum(at.current_offset or 0 for n in range(2) for at in positions(admin, n))

    def has_copied(count: int) -> bool:
        for number, one in enumerate(copiers):
            if one.poll() is not None:  # As Kafka's test does.
                copiers[number] = copier(bootstrap, number, tmp_path / f"{number}.log")
        return copied() >= count

    for killed in range(1, KILLS + 1):
        until(lambda: has_copied(killed * RECORDS // (KILLS + 2)), "more copies")  # noqa: B023
        victim = gateways.pop(0)
        victim.kill()
        gateways.append(Gateway(root, listen=victim.address))
    copiers[0].kill()
    until(lambda: has_copied(RECORDS), "all copies")
    for one in copiers:
        one.kill()
        one.wait()
    for gateway in gateways:  # They finish what they have decided.
        gateway.stop()
    with txlog.Consumer(
        "output", root=root, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        found = [int(record.value) for record in consumer.read_to_end()]
    assert sorted(found) == list(range(RECORDS))


def positions(admin: txlog.Admin, number: int) -> tuple[Any, ...]:
    try:
        return admin.describe_group(f"copier-{number}").partitions
    except txlog.UnknownGroup:
        return ()
