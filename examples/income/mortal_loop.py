"""Runs one loop in a process that kills itself with SIGKILL at a given step.

    python -m examples.income.mortal_loop --root ./income-data "at least once" --die-at BETWEEN

Nothing in a process can catch SIGKILL: no handler runs, no buffer is written, no file is closed.
"""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Callable, Sequence

from examples.income import loop, weaker_loops
from examples.income.loop import Job, Step

DYING_BATCH = 2
"""The second batch, so that the process has committed some work before."""

LOOPS: dict[str, Callable[[Job], None]] = {
    "at most once": weaker_loops.run_at_most_once,
    "at least once": weaker_loops.run_at_least_once,
    "exactly once": loop.run,
}


def job_of(root: str, delivery: str, on_step: Callable[[Step], object] = lambda _: None) -> Job:
    """The job of that kind of delivery, with topics and a group of its own."""
    name = delivery.replace(" ", "-")
    return Job(root, f"income-{name}", f"income-{name}", f"receipts-{name}", on_step)


def death_at(step: Step) -> Callable[[Step], None]:
    """Kill this process when it reaches `step` in its second batch."""
    turns = 0

    def look(now: Step) -> None:
        nonlocal turns
        turns += now is step
        if turns == DYING_BATCH:
            os.kill(os.getpid(), signal.SIGKILL)

    return look


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one loop until nothing is left, or until it dies."""
    parser = argparse.ArgumentParser(prog="python -m examples.income.mortal_loop")
    parser.add_argument("delivery", choices=LOOPS)
    parser.add_argument("--root", default="./income-data", help="the log: a folder or a URL")
    parser.add_argument("--die-at", choices=Step.__members__)
    options = parser.parse_args(arguments)
    on_step = death_at(Step[options.die_at]) if options.die_at else lambda _: None
    LOOPS[options.delivery](job_of(options.root, options.delivery, on_step))


if __name__ == "__main__":
    main()
