"""One coordinator that cannot be read hides no group and no transaction of another one."""

from pathlib import Path

import pytest

from tests.logs.damaged_coordinator import DamagedLog, damaged_log
from tests.processes.command_line import run
from txlog import Admin, TransactionOutcome
from txlog.errors import CorruptData


@pytest.fixture
def damaged(tmp_path: Path) -> DamagedLog:
    return damaged_log(str(tmp_path / "log"))


def test_group_and_transactions_of_others_are_described_and_it_is_named(
    damaged: DamagedLog,
) -> None:
    good, other, transactions = damaged.good, damaged.other, damaged.transactions
    for words, shown in (
        (("group", "describe", good), ["Group", good]),
        (("txn", "describe", good), ["TransactionalId", good]),
        (("txn", "describe", transactions[good]), ["Outcome", "COMMITTED"]),
        (("txn", "find-hanging"), ["t", "0", transactions[f"{good}-hung"], f"{good}-hung"]),
        (("txn", "abort", transactions[f"{good}-hung"], "--execute"), ["Outcome", "ABORTED"]),
    ):
        done = run(*words, root=damaged.root)
        assert (done.code, damaged.entry.name in done.err) == (1, True), words
        assert any(row[: len(shown)] == shown for row in done.rows), (words, done.rows)
    for words in (
        ("group", "describe", other),
        ("group", "reset", other, "--topic", "t", "--to-latest", "--execute"),
        ("txn", "describe", transactions[other]),
        ("txn", "outcome", transactions[other]),
        ("txn", "outcome", other),
    ):
        done = run(*words, root=damaged.root)
        assert (done.code, done.out, damaged.entry.name in done.err) == (1, "", True), words
    for words in (("txn", "describe", "an-unknown-id"), ("txn", "outcome", "an-unknown-tag")):
        done = run(*words, root=damaged.root)
        assert (done.code, damaged.entry.name in done.err) == (1, True), "it may know that id"


def test_transaction_whose_coordinator_cannot_be_read_is_not_said_to_hang(
    damaged: DamagedLog,
) -> None:
    done = run("txn", "find-hanging", root=damaged.root)
    assert damaged.transactions[f"{damaged.other}-hung"] not in done.out


def test_outcome_of_a_tag_that_is_known_needs_no_other_coordinator(damaged: DamagedLog) -> None:
    # What looks like a transaction may be a tag that the other one knows.
    for name, code in ((damaged.good, 0), (damaged.transactions[damaged.good], 1)):
        done = run("txn", "outcome", name, root=damaged.root)
        assert (done.code, done.out.split()) == (code, ["OUTCOME", "COMMITTED"])
        assert (damaged.entry.name in done.err) == bool(code)
    told: list[tuple[str, str, Exception]] = []
    admin = Admin(damaged.root)
    found = admin.outcome(damaged.other, on_error=lambda *error: told.append(error))
    assert found is TransactionOutcome.UNKNOWN_ID
    assert [kind for kind, _, _ in told] == ["coordinator"]
    # A program that asks whether it has to do its work again must not be told that it has.
    with pytest.raises(CorruptData):
        admin.outcome(damaged.other)


def test_group_of_another_coordinator_is_moved_and_deleted(damaged: DamagedLog) -> None:
    group, where = damaged.good, ("--topic", "t", "--execute")
    for words in (
        ("group", "reset", group, "--to-earliest", *where),
        ("group", "reset", group, "--to-latest", "--topic", "t"),
        ("group", "delete-offsets", group, *where[:2]),
    ):
        assert run(*words, root=damaged.root).code == 0, words
    # An owner at the coordinator that cannot be read would stay.
    done = run("group", "delete", group, "--execute", root=damaged.root)
    assert (done.code, damaged.entry.name in done.err) == (1, True)
    assert group not in Admin(damaged.root).list_groups(on_error=lambda *_: None)
