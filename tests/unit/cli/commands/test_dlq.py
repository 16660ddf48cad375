"""`txlog dlq` and `txlog txn list --half`: half messages that wait or were given up."""

from typing import Any

import pytest

from tests.processes.command_line import files, run
from tests.unit.cli.sample_log import SampleLog
from tests.unit.client.half_messages.undecided_listener import Undecided
from txlog.client.half_messages.half_message import Message
from txlog.client.half_messages.transaction_mq_producer import TransactionMQProducer
from txlog.model import TransactionOutcome, TxId

CHECKS_MAX = 10_000
"""More checks than the test makes, so that the result does not depend on the machine's clock."""


def send(log: SampleLog, name: str, *messages: Message, **options: Any) -> TransactionMQProducer:
    producer = TransactionMQProducer("shop", log.connection, listener=Undecided(), **options)
    producer.start(check_in_background=False)
    producer.send_message_in_transaction(list(messages), None, transaction_id=name)
    return producer


def give_up(log: SampleLog, name: str, *messages: Message) -> None:
    """Send a half transaction that is given up after one check."""
    options = {"transaction_timeout_ms": 1, "transaction_check_interval_ms": 1}
    producer = send(log, name, *messages, **options, transaction_check_max=1)
    while log.admin.outcome(name) is not TransactionOutcome.DEAD_LETTERED:
        producer.check()
    producer.shutdown()


@pytest.fixture
def letters(own_log: SampleLog) -> SampleLog:
    """Two dead letters: an order, and a flight as a typed row."""
    headers = [("raw", b"\xff")]
    give_up(own_log, "order-1", Message("orders", b"a bicycle", b"bob", headers, 1))
    give_up(own_log, "flight-1", Message("flights", {"carrier": "UA", "delay": 5}))
    return own_log


def dlq(log: SampleLog, *arguments: object) -> Any:
    return run("dlq", *arguments, root=log.root)


def test_log_without_dead_letters_lists_and_replays_none(own_log: SampleLog) -> None:
    done = dlq(own_log, "list")
    assert (done.code, done.err) == (0, "No dead letters wait for a replay.\n")
    assert dlq(own_log, "replay", "--execute").code == 0
    assert dlq(own_log, "list", "--topic", "nope").code == 3


def test_list_shows_the_destination_of_each_dead_letter(letters: SampleLog) -> None:
    first, second = dlq(letters, "list", "-o", "json").json
    assert first | {"timestamp": ""} == {
        "offset": 0,
        "partition": 0,
        "transaction_id": "order-1",
        "producer_group": "shop",
        "checks": 1,
        "to_topic": "orders",
        "to_partition": 1,
        "timestamp": "",
        "key": "bob",
        "value": "a bicycle",
        "headers": [{"key": "raw", "value": {"base64": "/w=="}}],
    }
    assert second["value"] == {"carrier": "UA", "delay": 5, "at": None, "raw": None}
    table = dlq(letters, "list").rows
    assert table[1][:5] == ["0", "order-1", "shop", "1", "orders"]
    assert len(dlq(letters, "list", "-n", 1, "-o", "json").json) == 1


def test_show_prints_a_whole_dead_letter_even_after_its_replay(letters: SampleLog) -> None:
    dlq(letters, "replay", "--execute")
    assert dlq(letters, "show", 0).json["value"] == "a bicycle"
    table = dict(row for row in dlq(letters, "show", 1, "-o", "table").rows if len(row) == 2)
    assert (table["transaction_id"], table["to_topic"]) == ("flight-1", "flights")


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["show", 2], 2, "there is no dead letter at offset 2"),
        (["show", 99], 2, "no dead letter at offset 99"),
        (["show", -1], 2, "No such option"),
        (["show", 0, "-p", 1], 3, "partition"),
        (["show", "x"], 2, "OFFSET"),
        (["replay", "-n", 0], 2, "--limit"),
        (["list", "--topic", "orders"], 1, "is not a dead letter"),
    ],
)
def test_invalid_call_is_refused_with_the_reason(
    letters: SampleLog, arguments: list[Any], code: int, reason: str
) -> None:
    done = dlq(letters, *arguments)
    assert (done.code, done.out, done.err.count("\n")) == (code, "", 1)
    assert reason in done.err


def test_replay_is_a_dry_run_without_execute(letters: SampleLog) -> None:
    before = files(letters.root)
    done = dlq(letters, "replay")
    assert done.err == "Would replay 2 dead letters. Nothing was done; add --execute to do it.\n"
    assert files(letters.root) == before


def test_replay_sends_each_dead_letter_once_oldest_first(letters: SampleLog) -> None:
    done = dlq(letters, "replay", "-n", 1, "--execute", "-o", "json")
    assert ([letter["transaction_id"] for letter in done.json], done.err) == (
        ["order-1"],
        "Replayed 1 dead letter.\n",
    )
    assert [each["offset"] for each in dlq(letters, "list", "-o", "json").json] == [1]
    dlq(letters, "replay", "--execute")
    again = dlq(letters, "replay", "--execute")
    assert again.err == "No dead letters wait for a replay.\n"
    orders = run("consume", "orders", "-p", 1, root=letters.root).json_lines
    assert [record["value"] for record in orders][1:] == ["a bicycle"]
    assert run("consume", "flights", root=letters.root).json_lines[-1]["value"]["delay"] == 5


# Half transactions that wait for a decision.


def test_half_transactions_are_listed_with_their_checks(own_log: SampleLog) -> None:
    assert run("txn", "list", "--half", root=own_log.root).err == "No half transaction is open.\n"
    messages = (Message("orders", b"a"), Message("flights", {"carrier": "UA"}))
    options = {"transaction_timeout_ms": 1, "transaction_check_interval_ms": 3_600_000}
    producer = send(own_log, "order-1", *messages, **options, transaction_check_max=CHECKS_MAX)
    (before,) = run("txn", "list", "--half", "-o", "json", root=own_log.root).json
    assert (before["transaction_id"], before["producer_group"]) == ("order-1", "shop")
    assert (before["messages"], before["topics"]) == (2, ["flights", "orders"])
    assert (before["checks"], before["checks_max"]) == (0, CHECKS_MAX)
    while not (after := run("txn", "list", "--half", "-o", "json", root=own_log.root).json)[0][
        "checks"
    ]:
        producer.check()
    assert after[0]["next_check_at"] > before["next_check_at"]
    row = run("txn", "list", "--half", root=own_log.root).rows[1]
    assert (row[0], row[3], row[7]) == ("order-1", "Ongoing", f"1/{CHECKS_MAX}")
    assert row[8].startswith("in 59 min")
    producer.shutdown()


def test_txn_describe_shows_a_half_transaction(own_log: SampleLog) -> None:
    producer = send(own_log, "order-1", Message("orders", b"a"))
    (listed,) = run("txn", "list", "--half", "-o", "json", root=own_log.root).json
    described = run("txn", "describe", listed["transaction"], "-o", "json", root=own_log.root).json
    assert described["open"]["half"]["transaction_id"] == "order-1"
    assert described["open"]["transaction_timeout_ms"] is None
    table = run("txn", "describe", listed["transaction"], root=own_log.root).out
    assert "ProducerGroup" in table
    assert "Checks" in table
    late = run("txn", "describe", "late-job", "-o", "json", root=own_log.root).json
    assert late["open"][0]["half"] is None
    producer.shutdown()


def test_decided_half_transaction_has_no_next_check_and_is_not_listed_as_undecided(
    own_log: SampleLog,
) -> None:
    producer = send(own_log, "order-1", Message("orders", b"a"))
    (half,) = run("txn", "list", "--half", "-o", "json", root=own_log.root).json
    described = run("txn", "describe", half["transaction"], "-o", "json", root=own_log.root).json
    tx_id = TxId.parse(half["transaction"])
    # Its process dies between the decision and the markers.
    own_log.connection.coordinator_of("shop").prepare_commit(described["transactional_id"], tx_id)
    assert run("txn", "list", "--half", "-o", "json", root=own_log.root).json == []
    after = run("txn", "describe", half["transaction"], "-o", "json", root=own_log.root).json
    assert (after["outcome"], after["open"]["transaction_state"]) == ("COMMITTED", "PrepareCommit")
    assert after["open"]["half"]["next_check_at"] is None
    producer.shutdown()
