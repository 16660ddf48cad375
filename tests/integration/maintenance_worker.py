"""A process that `test_maintenance_killed.py` starts: it maintains a log and dies.

`python -m tests.integration.maintenance_worker ROOT STEP` makes passes that delete unreferenced
objects at once, and dies by SIGKILL at the named step; without a step it ends by itself.
"""

import sys

from tests.processes.killed_process import AFTER, BEFORE, kill_at, scripted_log
from txlog.maintenance.maintenance import Maintenance
from txlog.settings import ProcessSettings

STEPS: dict[str, tuple[str, str, str, str, int]] = {
    "before the log start": (BEFORE, "create", "entries/", "log_start_advanced", 1),
    "after the log start": (AFTER, "create", "entries/", "log_start_advanced", 1),
    "after the index is sealed": (AFTER, "create", "entries/", "index_sealed", 1),
    "after a new segment": (AFTER, "put_new", "segments/", "", 1),
    "after a new chunk": (AFTER, "put_new", "chunks/", "", 1),
    "before the chunks are replaced": (BEFORE, "create", "entries/", "chunks_replaced", 1),
    "after the chunks are replaced": (AFTER, "create", "entries/", "chunks_replaced", 2),
    "after the cleaner's checkpoint": (AFTER, "create", "entries/", "cleaner_advanced", 1),
    "after a coordinator's horizon": (AFTER, "create", "transactions/", "horizon_advanced", 3),
    "after a topic's horizon": (AFTER, "create", "topics/", "horizon_advanced", 1),
    "after the last boundary of a deleted topic": (AFTER, "create", "boundaries/", "", 1),
    "before the first deletion": (BEFORE, "delete", "", "", 1),
    "in the middle of deleting": (AFTER, "delete", "segments/", "", 7),
}
"""Name -> before or after which call: its verb, a part of its path and of its content, the nth."""


def main(root: str, step: str = "") -> None:
    """Three passes: the first finds, the second deletes, the third has nothing left to do."""
    store, connection = scripted_log(root)
    if step:
        side, verb, path, holding, nth = STEPS[step]
        store.on(verb, path, kill_at(side, nth), holding=holding, times=100)
    settings = ProcessSettings(staging_retention_ms=1, file_delete_delay_ms=1)
    maintenance = Maintenance(connection, settings)
    for _ in range(3):
        report = maintenance.run_once()
        if report.failures:
            raise SystemExit(f"failed: {report.failures}")
        connection.runtime.clock.sleep_ms(5)


if __name__ == "__main__":
    main(*sys.argv[1:])
