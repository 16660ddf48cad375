"""`txlog txn`: states and outcomes in Kafka's words, and an abort that is final."""

import pytest

from tests.processes.command_line import files, run
from tests.unit.cli.sample_log import SampleLog
from txlog.client.producer.producer import Producer
from txlog.engine.transaction_session import TransactionSession
from txlog.errors import TransactionAborted
from txlog.groups.state import PendingOffset
from txlog.model import TopicPartition, TransactionOutcome, TxId

HEADER = [
    "TransactionalId",
    "Coordinator",
    "ProducerId",
    "ProducerEpoch",
    "TransactionState",
    "OpenTransaction",
    "Duration",
]


def test_list_shows_every_id_with_its_state_and_its_open_transaction(log: SampleLog) -> None:
    rows = run("txn", "list", root=log.root).rows
    assert rows[0] == HEADER
    assert rows[1][0] == "billing-job"
    assert rows[1][4:] == ["CompleteCommit", "-", "-"]
    assert rows[2][0] == "late-job"
    assert rows[2][4:6] == ["Ongoing", str(log.opened)]


def test_list_open_omits_ids_without_an_open_transaction(log: SampleLog) -> None:
    (found,) = run("txn", "list", "--open", "-o", "json", root=log.root).json
    assert found["transactional_id"] == "late-job"
    (opened,) = found["open"]
    assert opened["transaction"] == str(log.opened)
    assert opened["transaction_timeout_ms"] == 900_000
    assert opened["partitions"] == [{"topic": "orders", "partition": 0}]
    assert opened["duration_ms"] >= 0


def staging(log: SampleLog) -> Producer:
    """A producer with an open, staged transaction."""
    producer = Producer(log.connection, transactional_id="copy-job")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("orders", b"staged", partition=0)
    producer.flush()
    return producer


def test_staged_transaction_is_listed_as_open_once_its_offsets_are_pending(
    own_log: SampleLog,
) -> None:
    producer = staging(own_log)
    arguments = ("txn", "list", "--open", "-o", "json")
    assert {each["transactional_id"] for each in run(*arguments, root=own_log.root).json} == {
        "late-job"
    }
    producer.send_offsets_to_transaction({TopicPartition("orders", 1): 1}, "copies")
    found = {each["transactional_id"]: each for each in run(*arguments, root=own_log.root).json}
    (pended,) = found["copy-job"]["pending"]
    assert (found["copy-job"]["open"], pended["groups"]) == ([], ["copies"])
    assert (pended["transaction_timeout_ms"], pended["duration_ms"] >= 0) == (60_000, True)
    assert found["late-job"]["pending"] == [], "its coordinator knows it"
    rows = run("txn", "list", "--open", root=own_log.root).rows
    assert rows[1][0] == "copy-job"
    assert rows[1][4:6] == ["Ongoing", pended["transaction"]]
    rows = run("txn", "describe", "copy-job", root=own_log.root).rows
    assert ["OpenTransaction", pended["transaction"]] in rows
    assert ["Groups", "copies"] in rows
    producer.commit_transaction()
    producer.close()
    assert len(run(*arguments, root=own_log.root).json) == 1


def test_abort_ends_a_staged_transaction_with_pending_offsets(
    own_log: SampleLog,
) -> None:
    producer = staging(own_log)
    producer.send_offsets_to_transaction({TopicPartition("orders", 1): 1}, "copies")
    listed = run("txn", "list", "-o", "json", root=own_log.root).json
    (pended,) = [one for each in listed for one in each["pending"]]
    done = run("txn", "abort", pended["transaction"], "--execute", root=own_log.root)
    assert (done.code, done.err) == (
        0,
        f"Transaction {pended['transaction']} of copy-job is aborted.\n",
    )
    assert [
        each["pending"] for each in run("txn", "list", "-o", "json", root=own_log.root).json
    ] == [
        [],
        [],
        [],
    ]
    with pytest.raises(TransactionAborted):
        producer.commit_transaction()
    producer.abort_transaction()


def test_describe_accepts_a_transactional_id(log: SampleLog) -> None:
    rows = run("txn", "describe", "late-job", root=log.root).rows
    assert ["TransactionState", "Ongoing"] in rows
    assert ["OpenTransaction", str(log.opened)] in rows
    assert ["TransactionTimeoutMs", "900000"] in rows
    assert ["orders", "0"] in rows


@pytest.mark.parametrize(
    ("which", "outcome"),
    [
        ("committed", TransactionOutcome.COMMITTED),
        ("aborted", TransactionOutcome.ABORTED),
        ("opened", TransactionOutcome.OPEN),
    ],
)
def test_describe_accepts_a_transaction_and_shows_its_outcome(
    which: str, outcome: TransactionOutcome, log: SampleLog
) -> None:
    tx_id: TxId = getattr(log, which)
    assert ["Outcome", outcome] in run("txn", "describe", tx_id, root=log.root).rows
    found = run("txn", "describe", tx_id, "-o", "json", root=log.root).json
    assert found["transaction"] == str(tx_id)
    assert found["outcome"] == outcome
    assert (found["open"] is None) == (which != "opened")
    assert found["pending_groups"] == (["billing"] if which == "opened" else [])


def test_transaction_with_only_pending_offsets_is_open(own_log: SampleLog) -> None:
    """A Spark run pends offsets before its coordinator hears of the transaction."""
    pended = pend_before_prepare(own_log).tx_id
    found = run("txn", "describe", pended, "-o", "json", root=own_log.root).json
    assert (found["outcome"], found["open"]) == ("OPEN", None)
    assert found["pending_groups"] == ["other"]


def pend_before_prepare(log: SampleLog) -> TransactionSession:
    """Pend offsets for a registered instance, as the Spark sink does before PREPARE_COMMIT."""
    session = TransactionSession(log.connection, "spark-job")
    session.register("run-1")
    session.begin()
    topic_id = log.admin.describe_topic("orders").topic_id
    session.pend_staged("other", (PendingOffset("orders", topic_id, 0, 0, 3),))
    return session


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nope", "no transactional id 'nope'; 'txlog txn list' shows them."),
        ("9-9-9", "no coordinator knows transaction 9-9-9"),
        ("0-0-999", "no coordinator knows transaction 0-0-999"),
    ],
)
def test_unknown_id_or_transaction_exits_3(name: str, why: str, log: SampleLog) -> None:
    done = run("txn", "describe", name, root=log.root)
    assert (done.code, done.out) == (3, "")
    assert why in done.err


def test_abort_is_a_dry_run_without_execute(own_log: SampleLog) -> None:
    before = files(own_log.root)
    done = run("txn", "abort", own_log.opened, root=own_log.root)
    assert done.code == 0
    assert ["Outcome", "OPEN"] in done.rows
    assert ["PendingGroups", "billing"] in done.rows
    assert done.err == (
        f"Would abort transaction {own_log.opened}. Nothing was done; add --execute to do it.\n"
    )
    assert files(own_log.root) == before


def test_abort_ends_the_transaction_raises_the_epoch_and_releases_offsets(
    own_log: SampleLog,
) -> None:
    done = run("txn", "abort", own_log.opened, "--execute", root=own_log.root)
    assert done.code == 0
    assert ["Outcome", "ABORTED"] in done.rows
    assert done.err == f"Transaction {own_log.opened} of late-job is aborted.\n"
    assert own_log.connection.offsets.group("billing").pending == {}
    topic = own_log.admin.describe_topic("orders")
    assert topic.partitions[0].last_stable_offset == topic.partitions[0].end_offset == 12
    with pytest.raises(TransactionAborted):
        own_log.open_producer.commit_transaction()
    own_log.open_producer.abort_transaction()
    with own_log.open_producer.transaction() as following:
        own_log.open_producer.send("orders", b"after")
    assert following.epoch > own_log.opened.epoch
    assert own_log.connection.outcome(own_log.opened) is TransactionOutcome.ABORTED


def test_R3_abort_of_only_pending_offsets_releases_them_and_bars_the_commit(
    own_log: SampleLog,
) -> None:
    session = pend_before_prepare(own_log)
    done = run("txn", "abort", session.tx_id, "--execute", root=own_log.root)
    assert done.code == 0
    assert own_log.connection.offsets.group("other").pending == {}
    assert own_log.connection.outcome(session.tx_id) is TransactionOutcome.ABORTED
    with pytest.raises(TransactionAborted):
        session.commit()
    assert own_log.connection.offsets.group("other").committed == {}
    assert own_log.connection.outcome(session.tx_id) is TransactionOutcome.ABORTED


def test_abort_of_an_aborted_transaction_succeeds(own_log: SampleLog) -> None:
    done = run("txn", "abort", own_log.aborted, root=own_log.root)
    assert (done.code, done.err) == (0, f"Transaction {own_log.aborted} is aborted already.\n")
    assert run("txn", "abort", own_log.aborted, "--execute", root=own_log.root).code == 0


def test_abort_of_a_committed_transaction_exits_4(own_log: SampleLog) -> None:
    before = files(own_log.root)
    for arguments in ([], ["--execute"]):
        done = run("txn", "abort", own_log.committed, *arguments, root=own_log.root)
        assert (done.code, done.out) == (4, "")
        assert "is committed and can no longer be aborted" in done.err
    assert files(own_log.root) == before


@pytest.mark.parametrize(
    ("name", "code"), [("late-job", 2), ("1-2", 2), ("9-9-9", 3), ("-1-0-0", 2)]
)
def test_abort_of_an_unknown_or_invalid_transaction_writes_nothing(
    name: str, code: int, own_log: SampleLog
) -> None:
    before = files(own_log.root)
    done = run("txn", "abort", "--execute", "--", name, root=own_log.root)
    assert (done.code, done.out) == (code, "")
    assert done.err.count("\n") == 1
    assert files(own_log.root) == before


def test_abort_of_a_mistyped_number_does_not_bar_later_transactions(own_log: SampleLog) -> None:
    """Aborting an unknown transaction writes a bar (R3); an operator's typing error must not."""
    mistyped = TxId(own_log.opened.pid, own_log.opened.epoch, own_log.opened.number + 99)
    assert run("txn", "abort", mistyped, "--execute", root=own_log.root).code == 3
    own_log.open_producer.commit_transaction()
    with own_log.open_producer.transaction() as following:
        own_log.open_producer.send("orders", b"after")
    assert own_log.connection.outcome(following) is TransactionOutcome.COMMITTED


def test_describe_finds_a_transactional_id_that_looks_like_a_transaction(
    own_log: SampleLog,
) -> None:
    producer = Producer(own_log.connection, transactional_id="0-0-0")
    producer.init_transactions()
    rows = run("txn", "describe", "0-0-0", root=own_log.root).rows
    assert ["TransactionalId", "0-0-0"] in rows
