"""`txlog maintain` and `txlog vacuum`: keep a log small and unblock its readers.

They call `txlog/maintenance/maintenance.py` and `vacuum.py`, and show the results.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from txlog.cli.commands.topic import config_pairs
from txlog.cli.exit_codes import FAILED
from txlog.cli.metrics.exporter import require_prometheus
from txlog.cli.output.output import Facts, Grid, counted, duration_text, json_text, printable
from txlog.cli.session import Execute, OnlyTopics, Output, Session, with_session
from txlog.errors import UsageError
from txlog.maintenance.maintenance import Maintenance, MaintenanceAction, MaintenanceReport
from txlog.maintenance.vacuum import Candidates, Vacuum, VacuumReport
from txlog.settings import ProcessSettings

app = typer.Typer()

MAINTAIN_EXAMPLES = (
    "Examples: txlog maintain --once, "
    "txlog maintain --interval-ms 60000 --config staging.retention.ms=3600000"
)
VACUUM_EXAMPLES = "Examples: txlog vacuum, txlog vacuum --execute"

_TUNABLE = (
    "transactional.id.expiration.ms, producer.id.expiration.ms, staging.retention.ms, "
    "file.delete.delay.ms, journal.retention.entries, compaction.keys.max"
)
Config = Annotated[
    list[str] | None,
    typer.Option("--config", metavar="NAME=VALUE", help=f"Repeatable: {_TUNABLE}."),
]


def _settings(session: Session, pairs: list[str] | None) -> ProcessSettings:
    known = session.admin().connection.cluster.process
    return known.altered(config_pairs(pairs or ()))


@app.command("maintain", epilog=MAINTAIN_EXAMPLES)
@with_session
def maintain(
    session: Session,
    once: Annotated[bool, typer.Option("--once", help="One pass, then end.")] = False,
    interval_ms: Annotated[
        int, typer.Option("--interval-ms", min=1, help="Wait between two passes.")
    ] = 300_000,
    topics: OnlyTopics = None,
    vacuum: Annotated[
        bool, typer.Option("--vacuum/--no-vacuum", help="Also delete unreferenced objects.")
    ] = True,
    config: Config = None,
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Serve Prometheus there: passes and failures."),
    ] = None,
) -> None:
    """End late transactions, delete old records, compact and merge, once or repeatedly.

    Transactions past their timeout are aborted and decided ones finished; then each topic's
    retention, compaction and merging run, as its configuration says; idle transactional ids and
    producer ids are forgotten; old journal entries and unreferenced objects are deleted. Any number
    of processes may run it at once. Without maintenance nothing breaks: the log only grows.

    It prints one row for each action; without --once one line, with -o json one object a line.
    """
    connection = session.admin().connection
    maintenance = Maintenance(connection, _settings(session, config), topics or ())
    if once and listen is not None:
        raise UsageError("--listen serves the metrics of repeated passes; leave --once out.")
    if once:
        report = maintenance.run_once(vacuum=vacuum)
        if (delay_ms := maintenance.sweep_due_in_ms()) is not None:
            # The wait may take a minute, so what was done is shown before; stdout gets one answer.
            for action in report.actions:
                session.say(_line(action))
            session.say(_waiting(maintenance.candidates, delay_ms))
            connection.runtime.clock.sleep_ms(delay_ms)
            report.actions += maintenance.vacuum_once().actions
        _show(session, report)
        return
    count_pass = _served(session, listen) if listen is not None else None
    while True:
        # No wait here: a later pass deletes the candidates that are old enough by then.
        report = maintenance.run_once(vacuum=vacuum)
        now_ms = connection.runtime.clock.wall_ms()
        for action in report.actions:
            _print(session, action, now_ms)
        if count_pass is not None:
            count_pass(now_ms, len(report.failures))
        # The reader of this log must not wait for the next pass.
        sys.stdout.flush()
        connection.runtime.clock.sleep_ms(interval_ms)


def _served(session: Session, listen: str) -> Callable[[int, int], None]:
    """Serve the metrics of the passes; returns what is told of each pass."""
    require_prometheus()
    from txlog.metrics.maintenance import MaintenanceMetrics
    from txlog.metrics.server import serve_metrics

    metrics = MaintenanceMetrics()
    session.say(f"Serving {serve_metrics(listen, [metrics])}")
    return metrics.count_pass


def _show(session: Session, report: MaintenanceReport) -> None:
    rows = [
        (_status(action), action.task, action.subject, action.detail) for action in report.actions
    ]
    table = Grid(("STATUS", "TASK", "SUBJECT", "DETAIL"), rows)
    session.show([_document(action) for action in report.actions], [table])
    if not rows:
        session.say("There was nothing to do.")
    if report.failures:
        raise typer.Exit(FAILED)


def _status(action: MaintenanceAction) -> str:
    return "fail" if action.is_failure else "ok"


def _document(action: MaintenanceAction) -> dict[str, object]:
    return {
        "status": _status(action),
        "task": action.task,
        "subject": action.subject,
        "detail": action.detail,
    }


def _print(session: Session, action: MaintenanceAction, now_ms: int) -> None:
    """Print one line an action, so that the output can be kept as a log."""
    time = dt.datetime.fromtimestamp(now_ms / 1000, dt.UTC).isoformat(timespec="seconds")
    if session.options.output is Output.JSON:
        sys.stdout.write(json_text({"time": time, **_document(action)}) + "\n")
        return
    sys.stdout.write(printable(f"{time}  {_line(action)}") + "\n")


def _line(action: MaintenanceAction) -> str:
    return f"{_status(action)}  {action.task}  {action.subject}  {action.detail}"


@app.command("vacuum", epilog=VACUUM_EXAMPLES)
@with_session
def vacuum(
    session: Session,
    execute: Execute = False,
    config: Config = None,
) -> None:
    """Delete stored objects that nothing refers to. Without --execute it only shows them.

    Failed tasks, aborted writes, merging, compaction, retention and deleted topics leave them
    behind. Objects younger than staging.retention.ms (a day) stay: a running task may still commit
    them. Before it deletes, it waits file.delete.delay.ms (a minute) for readers to move on, and
    checks again.
    """
    connection = session.admin().connection
    settings = _settings(session, config)
    collector = Vacuum(connection, settings.staging_retention_ms)
    found = collector.find_candidates()
    if not execute:
        _show_candidates(session, found)
        return
    if found.is_empty:
        _show_deleted(session, VacuumReport())
        return
    delay_ms = settings.file_delete_delay_ms
    session.say(_waiting(found, delay_ms))
    connection.runtime.clock.sleep_ms(delay_ms)
    _show_deleted(session, collector.sweep(found))


def _waiting(found: Candidates, delay_ms: float) -> str:
    """The message before the wait."""
    what = counted(len(found.objects), "object")
    if found.objects:
        what += f" with {found.size_bytes:,} bytes, such as {found.objects[0].path}"
    if found.topics:
        what += f", and the remains of the deleted topics {', '.join(found.topics)}"
    return (
        f"Nothing refers to {what}. Waiting {duration_text(delay_ms)} (file.delete.delay.ms) until "
        "readers have moved on; then it checks again and deletes. "
        "Ctrl-C leaves them to a later run."
    )


def _show_candidates(session: Session, found: Candidates) -> None:
    document = {
        "objects": len(found.objects),
        "bytes": found.size_bytes,
        "paths": [stored.path for stored in found.objects],
        "deleted_topics": list(found.topics),
        "deleted": False,
    }
    rows = [(stored.path, stored.size_bytes) for stored in found.objects]
    session.show(document, [Grid(("OBJECT", "BYTES"), rows)])
    what = f"{counted(len(rows), 'object')} with {found.size_bytes} bytes"
    if found.topics:
        what += f", and the remains of the deleted topics {', '.join(found.topics)}"
    session.say_planned(f"delete {what}")


def _show_deleted(session: Session, report: VacuumReport) -> None:
    document = {
        "objects": report.objects,
        "bytes": report.bytes,
        "deleted_topics": report.topics_ended,
        "deleted": True,
    }
    facts = (
        ("Deleted", report.objects),
        ("Bytes", report.bytes),
        ("DeletedTopics", ", ".join(report.topics_ended)),
    )
    session.show(document, [Facts(facts)])
