"""The loop of examples/income, which dies at a step of the protocol: `python -m ... ROOT STEP`."""

import sys

from examples.income.loop import Job, Step, run
from tests.integration.exactly_once_worker import arm
from tests.processes.killed_process import scripted_log

ARMED_BATCH = 2


def main(root: str, step: str) -> None:
    """Die at that step of the second batch's transaction."""
    store, connection = scripted_log(root)
    batches = 0

    def on_step(now: Step) -> None:
        nonlocal batches
        batches += now is Step.READ
        if now is Step.READ and batches == ARMED_BATCH:
            arm(store, step)

    run(Job(connection, on_step=on_step))


if __name__ == "__main__":
    main(*sys.argv[1:])
