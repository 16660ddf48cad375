"""Two processes maintain one log at once: one makes a whole pass during a write of the other."""

import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import WRITES, Call, ScriptedStore
from txlog.maintenance.maintenance import Maintenance, MaintenanceReport
from txlog.settings import LogSettings, ProcessSettings
from txlog.testing.clock import ManualClock

DAY_MS = 86_400_000
COUNT = 40
SETTINGS = ProcessSettings(file_delete_delay_ms=1)


def neglected_log() -> MemoryLog:
    """A log with work for every task: `u` exceeds its retention, `c` has each key several times,
    `t` has many small segments, and `gone` is deleted."""
    log = MemoryLog(LogSettings(journal_snapshot_entries=4, entry_records_max_bytes=0))
    log.admin.create_topic("t")
    log.admin.create_topic("u", config={"retention.ms": DAY_MS})
    log.admin.create_topic("c", config={"cleanup.policy": "compact"})
    log.admin.create_topic("gone")
    producer = log.producer()
    for number in range(COUNT):
        topics = ("t", "u", "c", "gone") if number >= COUNT - 12 else ("t",)
        for topic in topics:
            producer.send(topic, key=b"%d" % (number % 3), value=b"%d" % number).get()
    log.admin.delete_topics("gone")
    log.clock.advance(DAY_MS + 1)
    return log


class Pair:
    """Two maintainers, of which `left` pauses at one of its writes for a pass of `right`."""

    def __init__(self, log: MemoryLog, write: int) -> None:
        self.reports: list[MaintenanceReport] = []
        self.has_met = False
        self._clock: ManualClock = log.clock
        self._left_writes = write
        store = ScriptedStore(log.memory)
        store.on(WRITES, "", self._at_write, times=10_000)
        self._left = Maintenance(log.process(store), SETTINGS)
        self._right = Maintenance(log.process(), SETTINGS)

    def run(self) -> None:
        """Two passes of each, and the vacuum that the second one has found work for."""
        for _ in range(2):
            self.reports.append(self._left.run_once())
            self._clock.advance(DAY_MS + 1)
            self.reports.append(self._right.run_once())
        self.reports.append(self._left.vacuum_once())

    def _at_write(self, call: Call) -> object:
        self._left_writes -= 1
        if self._left_writes == -1:
            self.has_met = True
            self.reports.append(self._right.run_once())
        return call()


@pytest.mark.parametrize("write", [*range(16), *range(16, 136, 15)])
def test_pass_during_a_write_of_another_maintainers_pass_fails_neither(write: int) -> None:
    """The first writes rewrite indexes; those that follow raise horizons and delete."""
    log = neglected_log()
    pair = Pair(log, write)
    pair.run()
    assert pair.has_met, "there are fewer writes"
    assert [failure for report in pair.reports for failure in report.failures] == []
    assert log.values("t") == [b"%d" % number for number in range(COUNT)]
    assert log.values("u") == []
    assert log.values("c") == [b"%d" % number for number in range(COUNT - 3, COUNT)]
    log.check()
