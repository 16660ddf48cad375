"""A log one of whose coordinators cannot be read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from txlog import Admin, Consumer, Producer, TopicPartition


@dataclass(frozen=True, slots=True)
class DamagedLog:
    """The names are those of a transactional id, of its consumer group and of its tag."""

    root: str
    good: str
    other: str
    """Of the coordinator that cannot be read."""
    transactions: dict[str, str]
    entry: Path
    """What is not an entry in its journal."""


def damaged_log(root: str) -> DamagedLog:
    """Two transactional ids of two coordinators, each with a committed transaction, a group, and a
    transaction that is open in topic `t` and late."""
    admin = Admin(root, create=True)
    admin.create_topic("t")
    number_of = admin.connection.coordinator_of
    other = next(name for name in map(str, range(99)) if number_of(name).number != 0)
    good = next(name for name in map(str, range(99)) if number_of(name).number == 0)
    found = {}
    for name in (good, other):
        with Producer(root, transactional_id=name) as producer:
            producer.init_transactions()
            found[name] = str(producer.begin_transaction(tag=name))
            producer.send("t", b"x")
            producer.commit_transaction()
        with Consumer(root=root, group_id=name, enable_auto_commit=False) as consumer:
            consumer.commit({TopicPartition("t", 0): 1})
    for name in (good, other):
        hung = Producer(
            root,
            transactional_id=f"{name}-hung",
            transaction_group=name,
            transaction_records="in.log",
            transaction_timeout_ms=1,
        )
        hung.init_transactions()
        found[f"{name}-hung"] = str(hung.begin_transaction())
        hung.send("t", b"x")
        hung.flush()
    journal = number_of(other).journal
    entry = Path(root, journal.layout.entry(journal.next_slot))
    while entry.exists():
        entry = entry.with_name(f"{int(entry.stem) + 1:020}.json")
    entry.write_bytes(b"not JSON")
    return DamagedLog(root, good, other, found, entry)
