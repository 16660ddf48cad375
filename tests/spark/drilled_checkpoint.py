"""A query that is killed in the middle of batches, with its checkpoint where a test puts it."""

import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from spark_plugin.checkpoints.checkpoint import open_checkpoint
from txlog.cli.drill.drill import BUNDLED_JOB
from txlog.cli.drill.drill_checks import drill_checks
from txlog.cli.drill.drill_log import DrillLog
from txlog.cli.drill.drill_rounds import Drill, DrilledJob, Round
from txlog.cli.options.storage_options import VARIABLE
from txlog.cli.spark_environment import spark_environment
from txlog.engine.connection import connect

POINTS = ("rows staged", "after PREPARE_COMMIT", "commit returned")
"""The points at which driver, JVM and workers are killed, each in the middle of a batch."""

WAIT_S = 240.0


def with_settings(settings: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The variables of a driver with further settings of Spark."""
    found = spark_environment(folder)
    own = [f"--conf {shlex.quote(f'{name}={value}')}" for name, value in settings.items()]
    submit = " ".join([*own, found["PYSPARK_SUBMIT_ARGS"]])
    return {**found, "PYSPARK_SUBMIT_ARGS": submit}


def assert_exactly_once(
    root: str,
    checkpoint: str,
    environment: Mapping[str, str],
    folder: Path,
    storage_options: Mapping[str, object] | None = None,
) -> None:
    """Run the drill, and check that nothing is lost, doubled or torn.

    `environment` are the driver's variables; `folder` is for its temporary files.
    """
    options = dict(storage_options or {})
    connection = connect(root, create=True, storage_options=options)
    data = DrillLog(connection, "drill")
    data.create()
    places = ["--root", root, "--checkpoint", checkpoint]
    job = DrilledJob(
        [sys.executable, str(BUNDLED_JOB), *places, *data.job_arguments],
        folder,
        {**environment, VARIABLE: json.dumps(options)},
        open_checkpoint(checkpoint, connection.runtime, storage_options=options),
        WAIT_S,
    )
    drill = Drill(
        connection, job, [Round(point) for point in POINTS], print, data.feed,
        lambda: data.lag() == 0,
    )  # fmt: skip
    try:
        drill.run()
    finally:
        data.close()
    found = list(drill_checks(connection, job.checkpoint, data))
    assert [(kill.point, kill.is_reached) for kill in drill.kills] == [(p, True) for p in POINTS]
    assert [kill.found.is_in_log for kill in drill.kills] == [False, True, True]
    assert [(check.name, check.found) for check in found if not check.is_well] == []
