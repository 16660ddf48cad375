"""`txlog doctor`: what is there, what is wrong, and what to do about it."""

from __future__ import annotations

import typer

from txlog.cli.check import Status
from txlog.cli.check_packages import package_checks
from txlog.cli.check_spark import spark_checks
from txlog.cli.check_store import store_checks
from txlog.cli.exit_codes import FAILED
from txlog.cli.output import Facts, Grid
from txlog.cli.session import Session, with_session

EXAMPLES = "Example: txlog --root s3://bucket/log doctor"


@with_session
def doctor(session: Session) -> None:
    """Check Python, Java, Spark and the store, and say how to mend what is wrong.

    Exit code 1 if anything fails; a warning is no failure. With --root the store is probed: a few
    small objects are written below probes/ and removed.
    """
    checks = [*package_checks(), *spark_checks(), *store_checks(session.options.root)]
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
    if not is_well:
        raise typer.Exit(FAILED)
