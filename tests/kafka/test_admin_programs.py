"""Kafka's own programs for operators, and what admin UIs call, on `txlog kafka`."""

import subprocess
from pathlib import Path

import txlog
from tests.kafka.programs import MARKS, TIMEOUT_S, java, ran
from tests.processes.kafka_gateway import Gateway

pytestmark = MARKS

UI_CALLS = Path(__file__).with_name("AdminCalls.java")
UNSUPPORTED = {
    *("describeAcls", "createAcls", "deleteAcls", "describeClientQuotas", "alterClientQuotas"),
    *("describeUserScramCredentials", "alterPartitionReassignments", "alterReplicaLogDirs"),
    *("electLeaders", "describeMetadataQuorum", "abortTransaction"),
}
"""The last one sends WriteTxnMarkers."""


def to(gateway: Gateway) -> tuple[str, str]:
    return "--bootstrap-server", gateway.address


def test_topics_are_created_described_and_deleted(gateway: Gateway) -> None:
    ran("TopicCommand", *to(gateway), "--create", "--topic", "made", "--partitions", 3)
    assert "made" in ran("TopicCommand", *to(gateway), "--list").split()
    described = ran("TopicCommand", *to(gateway), "--describe", "--topic", "made")
    assert "PartitionCount: 3" in described
    ran("TopicCommand", *to(gateway), "--delete", "--topic", "made")
    assert "made" not in txlog.Admin(gateway.root).list_topics()


def test_group_is_described_and_reset(gateway: Gateway) -> None:
    txlog.Admin(gateway.root).create_topics([txlog.NewTopic("grouped", 1)])
    with txlog.Producer(gateway.root) as producer:
        for number in range(10):
            producer.send("grouped", b"%d" % number)
    program = "consumer.group.ConsumerGroupCommand"
    reset = ("--reset-offsets", "--group", "g", "--topic", "grouped", "--to-offset", 7)
    ran(program, *to(gateway), *reset, "--execute")
    [at] = txlog.Admin(gateway.root).describe_group("g").partitions
    assert at.current_offset == 7
    described = ran(program, *to(gateway), "--describe", "--group", "g")
    row = next(line.split() for line in described.splitlines() if line.startswith("g "))
    assert row[:6] == ["g", "grouped", "0", "7", "10", "3"]
    assert "g" in ran(program, *to(gateway), "--list").split()


def test_open_transaction_is_listed_and_described(gateway: Gateway) -> None:
    txlog.Admin(gateway.root).create_topics([txlog.NewTopic("transactions", 1)])
    producer = txlog.Producer(gateway.root, transactional_id="open", transaction_records="in.log")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("transactions", b"1")
    producer.flush()
    program = "TransactionsCommand"
    listed = ran(program, *to(gateway), "list")
    row = next(line.split() for line in listed.splitlines() if line.startswith("open"))
    assert row[-1] == "Ongoing"
    described = ran(program, *to(gateway), "describe", "--transactional-id", "open")
    assert "transactions-0" in described
    producer.abort_transaction()
    producer.close()


def test_each_call_of_an_admin_ui_is_answered_or_not_offered(gateway: Gateway) -> None:
    done = subprocess.run(
        java(str(UI_CALLS), gateway.address), capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert not done.returncode, done.stderr
    found = dict(line.split(": ") for line in done.stdout.splitlines())
    assert len(found) == 35
    assert found == {
        call: "UnsupportedVersionException" if call in UNSUPPORTED else "ok" for call in found
    }
    assert found.keys() >= UNSUPPORTED
    assert gateway.messages == []
