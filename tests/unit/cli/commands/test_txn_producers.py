"""`txlog txn describe-producers | find-hanging | outcome`, and abort by start offset."""

import pytest

from tests.processes.command_line import run
from tests.unit.cli.sample_log import FIRST_MS, SampleLog


def test_describe_producers_shows_the_start_offset_of_open_transactions(log: SampleLog) -> None:
    done = run("txn", "describe-producers", "orders", "0", "-o", "json", root=log.root)
    found = {entry["producer_id"]: entry for entry in done.json}
    late = found[log.opened.pid]
    assert late["current_transaction_start_offset"] == 11
    assert late["transaction"] == str(log.opened)
    assert (late["producer_epoch"], late["last_sequence"]) == (log.opened.epoch, 0)
    assert late["last_timestamp"].endswith("Z")
    ended = found[log.committed.pid]
    assert (ended["current_transaction_start_offset"], ended["transaction"]) == (None, None)


def test_describe_producers_has_kafkas_columns(log: SampleLog) -> None:
    done = run("txn", "describe-producers", "orders", "1", root=log.root)
    assert done.rows[0] == [
        "ProducerId",
        "ProducerEpoch",
        "LastSequence",
        "LastTimestamp",
        "CurrentTransactionStartOffset",
        "Transaction",
    ]
    assert done.rows[1][-2:] == ["-", "-"]


def test_describe_producers_of_an_unwritten_partition_shows_none(own_log: SampleLog) -> None:
    own_log.admin.create_topic("empty")
    done = run("txn", "describe-producers", "empty", "0", root=own_log.root)
    assert (done.code, "No producer id has written to empty-0." in done.err) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["describe-producers", "ordres", "0"], 3, "did you mean 'orders'"),
        (["describe-producers", "orders", "9"], 3, "has partitions 0 to 1, not 9"),
        (["find-hanging", "--topic", "nope"], 3, "there is no topic 'nope'"),
        (["find-hanging", "--max-transaction-timeout", "soon"], 2, "is not a duration"),
        (["outcome", "never-heard-of"], 3, "no transaction, and no tag, 'never-heard-of'"),
        (["outcome", "999-0-0"], 3, "no transaction, and no tag, '999-0-0'"),
        (["abort"], 2, "say which transaction: "),
        (["abort", "1-0-0", "--topic", "orders"], 2, "say which transaction: "),
        (["abort", "--topic", "orders", "--partition", "0"], 2, "say which transaction: "),
        (
            ["abort", "--topic", "orders", "--partition", "0", "--start-offset", "3"],
            3,
            "no open transaction begins at offset 3 of orders-0",
        ),
    ],
)
def test_unknown_or_incomplete_arguments_are_refused(
    log: SampleLog, arguments: list[str], code: int, said: str
) -> None:
    done = run("txn", *arguments, root=log.root)
    assert (done.code, said in done.err) == (code, True), done.err


def test_find_hanging_omits_a_transaction_within_its_timeout(log: SampleLog) -> None:
    done = run("txn", "find-hanging", root=log.root)
    assert (done.code, "No transaction hangs." in done.err) == (0, True)


def test_find_hanging_lists_overdue_transactions_and_exits_1(log: SampleLog) -> None:
    arguments = ["txn", "find-hanging", "--max-transaction-timeout", "PT0S"]
    done = run(*arguments, root=log.root)
    assert (done.code, "1 transaction hangs." in done.err) == (1, True)
    row = done.rows[1]
    assert row[:6] == ["orders", "0", str(log.opened), "late-job", "Ongoing", "11"]
    (found,) = run(*arguments, "--topic", "orders", "-o", "json", root=log.root).json
    assert found["transaction_timeout_ms"] == 900_000
    assert run(*arguments, "--topic", "flights", root=log.root).code == 0


@pytest.mark.parametrize(
    ("which", "answer"), [("committed", "COMMITTED"), ("aborted", "ABORTED"), ("opened", "OPEN")]
)
def test_outcome_prints_one_word(log: SampleLog, which: str, answer: str) -> None:
    tx_id = str(getattr(log, which))
    assert run("txn", "outcome", tx_id, root=log.root).rows[1] == [answer]
    found = run("txn", "outcome", tx_id, "-o", "json", root=log.root).json
    assert found == {"id": tx_id, "outcome": answer}


def test_outcome_accepts_a_transaction_tag(own_log: SampleLog) -> None:
    producer = own_log.open_producer
    producer.abort_transaction()
    with producer.transaction(tag="order 17"):
        producer.send("orders", b"tagged", timestamp_ms=FIRST_MS)
    assert run("txn", "outcome", "order 17", root=own_log.root).rows[1] == ["COMMITTED"]


def test_abort_accepts_topic_partition_and_start_offset(own_log: SampleLog) -> None:
    command = ["txn", "abort", "--topic", "orders", "--partition", "0", "--start-offset", "11"]
    shown = run(*command, root=own_log.root)
    assert f"Would abort transaction {own_log.opened}" in shown.err
    assert run(*command, "--execute", root=own_log.root).code == 0
    outcome = run("txn", "outcome", str(own_log.opened), root=own_log.root)
    assert outcome.rows[1] == ["ABORTED"]
