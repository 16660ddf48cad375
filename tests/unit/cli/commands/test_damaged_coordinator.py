"""One coordinator that cannot be read hides no group and no transaction of another one."""

from pathlib import Path

import pytest

from tests.processes.command_line import run
from txlog import Admin, Consumer, Producer, TopicPartition


@pytest.fixture
def damaged(tmp_path: Path) -> tuple[str, dict[str, str], Path]:
    """The log, a transaction of each of two transactional ids, and what is not an entry in the
    journal of the second one's coordinator."""
    root = str(tmp_path / "log")
    admin = Admin(root, create=True)
    admin.create_topic("t")
    number_of = admin.connection.coordinator_of
    other = next(name for name in map(str, range(99)) if number_of(name).number != 0)
    good = next(name for name in map(str, range(99)) if number_of(name).number == 0)
    found = {}
    for name in (good, other):
        with Producer(root, transactional_id=name) as producer:
            producer.init_transactions()
            found[name] = str(producer.begin_transaction())
            producer.send("t", b"x")
            producer.commit_transaction()
        with Consumer(root=root, group_id=name, enable_auto_commit=False) as consumer:
            consumer.commit({TopicPartition("t", 0): 1})
    journal = number_of(other).journal
    entry = Path(root, journal.layout.entry(journal.next_slot))
    while entry.exists():
        entry = entry.with_name(f"{int(entry.stem) + 1:020}.json")
    entry.write_bytes(b"not JSON")
    return root, found, entry


def test_group_and_transactions_of_others_are_described_and_it_is_named(
    damaged: tuple[str, dict[str, str], Path],
) -> None:
    root, transactions, entry = damaged
    good, other = transactions
    for words, shown in (
        (("group", "describe", good), ["Group", good]),
        (("txn", "describe", good), ["TransactionalId", good]),
        (("txn", "describe", transactions[good]), ["Outcome", "COMMITTED"]),
    ):
        done = run(*words, root=root)
        assert (done.code, entry.name in done.err) == (1, True), words
        assert shown in done.rows, words
    for words in (("group", "describe", other), ("txn", "describe", transactions[other])):
        done = run(*words, root=root)
        assert (done.code, done.out, entry.name in done.err) == (1, "", True), words
    done = run("txn", "describe", "an-unknown-id", root=root)
    assert (done.code, entry.name in done.err) == (1, True), "it may know that id"
