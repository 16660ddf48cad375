"""Processes that trust a boundary check for a time, on a store that dates its objects."""

from dataclasses import dataclass, replace

from tests.unit.journal.shelf_journal import OPTIONS, process
from tests.unit.journal.shelf_machine import Shelf
from txlog.clock import Runtime
from txlog.fan_out import SerialFanOut
from txlog.journal.replication.replica import Replica
from txlog.storage import MemoryStore, Store
from txlog.testing.clock import SeededEntropy

TRUST_MS = 1_000
GRACE_MS = 7_000
TRUSTING = replace(OPTIONS, trust_ms=TRUST_MS, grace_ms=GRACE_MS, is_far=True)
_seeds = iter(range(1 << 20, 1 << 30))


@dataclass
class MachineClocks:
    """The clocks of one machine, which may differ from those of others and from each other."""

    wall: float = 1_000_000.0
    boot: float = 5_000.0

    def wall_ms(self) -> int:
        return int(self.wall)

    def monotonic_ms(self) -> float:
        return self.boot

    def boot_ms(self) -> float:
        return self.boot

    def sleep_ms(self, duration_ms: float) -> None:
        self.pass_ms(duration_ms)

    def pass_ms(self, duration_ms: float) -> None:
        """Let time pass on both clocks."""
        self.wall += duration_ms
        self.boot += duration_ms


def dated_store(clocks: MachineClocks) -> MemoryStore:
    """An empty store whose dates come from these clocks."""
    return MemoryStore(_runtime(clocks))


def trusting(store: Store, clocks: MachineClocks) -> Replica[Shelf]:
    """A process on a machine with these clocks; it shares only the store with others."""
    return process(store, TRUSTING, _runtime(clocks))


def _runtime(clocks: MachineClocks) -> Runtime:
    return Runtime(clocks, SeededEntropy(next(_seeds)), SerialFanOut())
