"""Faults that people and tools cause: transactions aborted by an administrator, wrong hints."""

from __future__ import annotations

from tests.simulator.actors.role import EXPECTED, Recurring
from tests.simulator.environment.process import SimulatedProcess
from txlog.client.admin import Admin
from txlog.errors import IllegalTransition, UnknownTransaction
from txlog.layout import JournalLayout


class TransactionAborter(Recurring):
    """Aborts transactions that were open a while ago, whatever has become of them."""

    pause_ms = (10, 20_000)
    met = (IllegalTransition, UnknownTransaction, *EXPECTED)

    def turn(self, process: SimulatedProcess) -> None:
        """List the open transactions, wait, and abort one of them."""
        listed = Admin(process.connection).list_transactions()
        opened = [one.tx_id for each in listed for one in each.all_open]
        opened += [one.tx_id for each in listed for one in each.pending]
        if opened:
            process.sleep(1, 2_000)
            tx_id = process.random.choice(opened)
            process.note("ending", tx=str(tx_id))
            Admin(process.connection).abort_transaction(tx_id)


class HintCorrupter(Recurring):
    """Replaces or deletes hints, as a restored backup, a cache or an administrator may (R16)."""

    pause_ms = (10, 5_000)

    def __init__(self, name: str, topics: tuple[str, ...]) -> None:
        super().__init__(name)
        self._topics = topics
        self._seen: dict[str, list[bytes]] = {}

    def turn(self, process: SimulatedProcess) -> None:
        """Replace or delete one journal's hint."""
        self._corrupt(process, self._chosen(process).hint)

    def _chosen(self, process: SimulatedProcess) -> JournalLayout:
        cluster = process.connection.cluster
        names = cluster.layout
        layouts = [names.cluster(), names.transactions(0)]
        for name in self._topics:
            layouts.append(names.topic(name, cluster.present_topic(name).topic_id))
        return process.random.choice(layouts)

    def _corrupt(self, process: SimulatedProcess, path: str) -> None:
        seen = self._seen.setdefault(path, [])
        found = process.store.get(path)
        if found is not None and found not in seen:
            seen.append(found)
        chance = process.random.random()
        if chance < 0.3:
            process.store.delete(path)
        elif chance < 0.8 and seen:
            process.store.replace(path, process.random.choice(seen))
        else:
            wrong = (b"", b"{}", b'{"snapshot": 1000000}', b'{"snapshot": 0}', b"[1")
            process.store.replace(path, process.random.choice(wrong))
