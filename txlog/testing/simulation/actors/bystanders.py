"""Who stands beside the work, as actors: a witness of offsets, an operator, a collector of
segments, a spoiler of hints.

A witness looks at what no client is shown, the moment between two steps of a commit. It must not
finish anything that it meets: others would no longer see it unfinished.
"""

from __future__ import annotations

from txlog.client.admin import Admin
from txlog.errors import IllegalTransition, UnknownTransaction
from txlog.layout import JournalLayout
from txlog.maintenance.vacuum import Vacuum
from txlog.testing.simulation.actors.role import EXPECTED, Recurring
from txlog.testing.simulation.environment.process import SimulatedProcess
from txlog.topic.state import NEW_PRODUCER


class Witness(Recurring):
    """Sees offsets of a group that a transaction committed, and then whether its topics have it."""

    pause_ms = (20, 2_000)

    def __init__(self, name: str, group: str, topics: tuple[str, ...]) -> None:
        super().__init__(name)
        self._group = group
        self._topics = topics

    def turn(self, process: SimulatedProcess) -> None:
        """The group first, then the topics: what is applied before the offsets is there by then."""
        tx_id = process.connection.offsets.group(self._group).last_commit
        if tx_id is None:
            return
        applied = []
        for name in self._topics:
            state = process.connection.cluster.present_topic(name, certain=True).state
            if state.producers.get(tx_id.pid, NEW_PRODUCER).is_finished(tx_id):
                applied.append(name)
        process.note("witnessed", tx=str(tx_id), group=self._group, applied=applied)


class Collector(Recurring):
    """Vacuums all the time, and lets nothing be that is older than a moment."""

    pause_ms = (10, 500)

    def __init__(self, name: str, retention_ms: int) -> None:
        super().__init__(name)
        self._retention_ms = retention_ms

    def turn(self, process: SimulatedProcess) -> None:
        """One look, and another one that deletes."""
        vacuum = Vacuum(process.connection, self._retention_ms)
        found = vacuum.look()
        process.sleep(1, 200)
        if vacuum.sweep(found).objects:
            process.note("maintained", tasks=["vacuum"])


class Operator(Recurring):
    """Ends transactions that were open when it looked, and may be anything by now."""

    pause_ms = (10, 20_000)
    met = (IllegalTransition, UnknownTransaction, *EXPECTED)

    def turn(self, process: SimulatedProcess) -> None:
        """Looks, waits, and ends one of them."""
        listed = Admin(process.connection).list_transactions()
        opened = [one.tx_id for each in listed for one in each.all_open]
        opened += [one.tx_id for each in listed for one in each.pended]
        if opened:
            process.sleep(1, 2_000)
            tx_id = process.random.choice(opened)
            process.note("ending", tx=str(tx_id))
            Admin(process.connection).abort_transaction(tx_id)


class HintSpoiler(Recurring):
    """Makes hints old, wrong or gone: a restored backup, a cache, a tidy operator (rule R16)."""

    pause_ms = (10, 5_000)

    def __init__(self, name: str, topics: tuple[str, ...]) -> None:
        super().__init__(name)
        self._topics = topics
        self._seen: dict[str, list[bytes]] = {}

    def turn(self, process: SimulatedProcess) -> None:
        """One journal's hint."""
        self._spoil(process, self._chosen(process).hint)

    def _chosen(self, process: SimulatedProcess) -> JournalLayout:
        cluster = process.connection.cluster
        names = cluster.layout
        layouts = [names.cluster(), names.transactions(0)]
        for name in self._topics:
            layouts.append(names.topic(name, cluster.present_topic(name).topic_id))
        return process.random.choice(layouts)

    def _spoil(self, process: SimulatedProcess, path: str) -> None:
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
