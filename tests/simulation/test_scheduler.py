"""The virtual time of a simulated world."""

import random

from tests.simulator.environment.scheduler import Scheduler

TOO_SHORT_MS = 1e-13
"""Added to a time of some seconds, it changes no digit of a float."""


def test_every_sleep_ends_later_than_it_began() -> None:
    """A consumer that waits for the rest of its timeout otherwise waits for ever."""
    scheduler = Scheduler(random.Random(0))
    times: list[float] = []

    def sleep() -> None:
        scheduler.sleep(32_753.268)
        times.append(scheduler.now_ms)
        scheduler.sleep(TOO_SHORT_MS)
        times.append(scheduler.now_ms)

    scheduler.spawn("sleeper", sleep)
    scheduler.run()
    began_ms, ended_ms = times
    assert began_ms + TOO_SHORT_MS == began_ms, "the sleep is too short for a float"
    assert ended_ms > began_ms
