"""`txlog verify`: read every object that the log refers to, and name those that are damaged.

`txlog/verify/log_audit.py` reads; this module shows the report and repairs nothing. Listings are
used here, because no decision depends on them (I14). This is the only product module that may
import the tests' checker (setup.cfg), which compares the journals of a log at rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated

import typer

from txlog.cli.exit_codes import FAILED
from txlog.cli.output.output import Grid, Section, grid_of
from txlog.cli.output.progress import byte_progress
from txlog.cli.session import OnlyTopics, Session, with_session
from txlog.engine.connection import Connection
from txlog.journal.audit import Finding
from txlog.storage.policy.read_ahead import ReadAheadStore
from txlog.storage.store import Store
from txlog.verify.invariants import check_log
from txlog.verify.log_audit import JournalReport, LogReport, audit_log, stored_objects

app = typer.Typer()

EXAMPLES = """Examples:

txlog verify ./data && echo whole

txlog verify --topic orders --topic payments

txlog verify s3://bucket/log --at-rest -o json
"""

ROOT_ARGUMENT_HELP = "The log, in place of --root."

CHECKS_MAX = 3
"""How often journals are compared if there are findings, as other processes may be writing."""


@app.command("verify", epilog=EXAMPLES)
@with_session
def verify(
    session: Session,
    place: Annotated[
        str | None, typer.Argument(metavar="[ROOT]", help=ROOT_ARGUMENT_HELP, show_default=False)
    ] = None,
    topics: OnlyTopics = None,
    at_rest: Annotated[
        bool,
        typer.Option(
            "--at-rest",
            help="No process is writing: also compare the journals.",
        ),
    ] = False,
) -> None:
    """Read the log and name every damaged or missing object; exit code 1 if there is one.

    It reads all entries, snapshots and records, so it takes as long as reading them; nothing is
    written or repaired, and other processes may keep writing. Unreferenced objects are counted:
    failed tasks, aborted writes, merging, compaction and deleted topics leave them, or they are
    being written just now.
    """
    if place is not None:
        session = Session(replace(session.options, root=place))
    connection = session.admin().connection
    listed = stored_objects(connection)
    total = sum(stored.size_bytes for stored in listed)
    with byte_progress(session, connection.runtime, "verifying", total) as advance:
        report = audit_log(connection, tuple(topics or ()), listed, advance)
    # The checker reads the same bytes, so it finds the same damage again.
    known = {(finding.path, finding.invariant) for finding in report.findings}
    proof = proven(connection) if at_rest or report.may_be_torn else []
    broken = [finding for finding in proof if (finding.path, finding.invariant) not in known]
    session.show(_document(report, broken), _sections(report, broken))
    if report.findings or broken:
        raise typer.Exit(FAILED)


def _journal(found: JournalReport) -> dict[str, object]:
    counts = (found.entries, found.snapshots, found.batches, found.records, found.size_bytes)
    return dict(zip(_NAMES, (found.name, *counts, len(found.findings)), strict=True))


_NAMES = ("journal", "entries", "snapshots", "batches", "records", "bytes", "damaged")


def _document(report: LogReport, broken: list[Finding]) -> dict[str, object]:
    return {
        "ok": not report.findings and not broken,
        "journals": [_journal(found) for found in report.journals],
        "damage": [
            {"object": f.path, "invariant": f.invariant, "found": f.sentence}
            for f in (*report.findings, *broken)
        ],
        "unreferenced": [
            {
                "kind": found.kind,
                "objects": len(found.objects),
                "bytes": found.size_bytes,
                "paths": [stored.path for stored in found.objects],
            }
            for found in report.unreferenced
        ],
    }


def _sections(report: LogReport, broken: list[Finding]) -> Iterator[Section]:
    yield grid_of([_journal(found) for found in report.journals], _NAMES)
    damage = [(finding.sentence,) for finding in report.findings]
    if damage:
        yield Grid(("DAMAGE",), damage)
    if broken:
        yield Grid(
            ("VIOLATED", "WHERE", "FOUND"), [(f.invariant, f.path, f.message) for f in broken]
        )
    if report.unreferenced:
        rows = [
            (found.kind, len(found.objects), found.size_bytes, found.objects[0].path)
            for found in report.unreferenced
        ]
        yield Grid(("UNREFERENCED", "OBJECTS", "BYTES", "FIRST"), rows)


def proven(connection: Connection) -> list[Finding]:
    """Contradictions between the journals of a log; empty if there are none.

    The journals are read one after the other while other processes may write, so a finding counts
    only if each of several checks has it.
    """
    found = set(check_log(_readable(connection)))
    for _ in range(CHECKS_MAX - 1):
        if not found:
            break
        found &= set(check_log(_readable(connection)))
    return sorted(found)


def _readable(connection: Connection) -> Store:
    """The log's store; a distant one is read ahead along a listing made now."""
    cluster = connection.cluster
    if not cluster.is_far:
        return cluster.store
    listed = list(cluster.store.list_after(""))
    return ReadAheadStore(cluster.store, cluster.request_fan_out, listed)
