"""`txlog doctor`: checks of an installation, and how to repair it."""

from __future__ import annotations

from typing import Annotated

import typer

from txlog.cli.doctor.check import Status
from txlog.cli.doctor.check_checkpoint import show_checkpoint
from txlog.cli.doctor.check_deployment import show_deployment
from txlog.cli.doctor.check_packages import distribution_checks, package_checks
from txlog.cli.doctor.check_spark import spark_checks
from txlog.cli.doctor.check_store import store_checks
from txlog.cli.exit_codes import FAILED
from txlog.cli.output.output import Facts, Grid
from txlog.cli.session import Session, with_session
from txlog.errors import UsageError

app = typer.Typer()

EXAMPLES = """Examples:

txlog --root s3://bucket/log doctor

txlog --root ./data doctor --checkpoint ./checkpoints/orders

txlog --root s3://bucket/log doctor --spark -- --master spark://host:7077 --py-files txlog.zip
"""


@app.command("doctor", epilog=EXAMPLES)
@with_session
def doctor(
    session: Session,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            "--checkpoint",
            metavar="DIR",
            help="Only compare this Spark checkpoint with the log.",
        ),
    ] = None,
    spark: Annotated[
        bool,
        typer.Option("--spark", help="Only run a Spark job that looks from driver and executors."),
    ] = False,
    submit_options: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- OPTIONS", help="With --spark: the options of spark-submit, as your job's."
        ),
    ] = None,
) -> None:
    """Check Python, Java, Spark and the store, and say how to repair what is wrong.

    Exit code 1 if a check fails; warnings do not count. With --root the store is probed: a few
    small objects are written below probes/ and removed. With --checkpoint it shows the positions of
    a query's checkpoint and of the log, and what the query's next start will do; 1 if the start
    will be refused. With --spark it starts a job by spark-submit, which writes and removes an
    object below probes/ from the driver and from each executor.
    """
    if submit_options and not spark:
        raise UsageError(f"doctor takes {submit_options[0]} only with --spark.")
    if checkpoint is not None:
        if spark:
            raise UsageError("give --checkpoint or --spark, not both.")
        is_well = show_checkpoint(session, checkpoint)
    elif spark:
        is_well = show_deployment(session, submit_options or ())
    else:
        is_well = _environment(session)
    if not is_well:
        raise typer.Exit(FAILED)


def _environment(session: Session) -> bool:
    checks = [
        *distribution_checks(),
        *package_checks(),
        *spark_checks(),
        *store_checks(session.options.root, session.storage_options),
    ]
    is_well = all(check.status is not Status.FAIL for check in checks)
    document = {
        "ok": is_well,
        "checks": [
            {"check": c.name, "status": str(c.status), "found": c.found, "fix": c.fix or None}
            for c in checks
        ],
    }
    rows = [(check.name, check.status, check.found) for check in checks]
    fixes = tuple((check.name, check.fix) for check in checks if check.fix)
    sections = [Grid(("CHECK", "STATUS", "FOUND"), rows)]
    session.show(document, [*sections, Facts(fixes)] if fixes else sections)
    return is_well
