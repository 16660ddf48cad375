"""The service's record of a write in a simulated world, whatever answer the process gets."""

import random
from contextlib import suppress

import pytest

from tests.simulator.environment.faults import Faults
from tests.simulator.environment.network import Network, NoAnswer, ProcessDied
from tests.simulator.environment.scheduler import Scheduler
from tests.simulator.environment.service import S3Request, SimulatedS3
from tests.simulator.environment.world_state import WorldState
from txlog.clock import Runtime
from txlog.fan_out import SerialFanOut
from txlog.testing.clock import ManualClock, SeededEntropy

FAULTS = (
    "error_500_after",
    "replayed",
    "lost_response",
    "late_landing",
    "crash_after",
    "crash_midway",
    "pause",
)


@pytest.mark.parametrize("fault", FAULTS)
def test_archive_records_when_an_object_was_stored_under_any_fault(fault: str) -> None:
    """Checkers use it to find a tombstone that was removed before the record that it hides."""
    scheduler = Scheduler(random.Random(3))
    service = SimulatedS3(Runtime(ManualClock(), SeededEntropy(0), SerialFanOut()), {})
    faults = Faults(**{fault: 1.0})
    world_state = WorldState(scheduler, service, faults, requests_max=100, requests=41)
    entry = S3Request("put_object", "cluster/entries/00000000000000000000.json", b"{}", True)

    def put() -> None:
        with suppress(NoAnswer, ProcessDied):
            Network(world_state, "p").send(entry, timeout_ms=10_000)

    scheduler.spawn("p", put)
    scheduler.run()
    assert world_state.counts, "the fault has happened"
    assert service.archive[entry.path].step == 42
