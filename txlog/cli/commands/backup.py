"""`txlog backup` and `txlog restore`: a copy of a log at one moment, while its writers go on.

`txlog/backup/log_copy.py` copies; both commands differ only in which of the two places is named by
--root.
"""

from __future__ import annotations

from typing import Annotated

import typer

from txlog.backup.log_copy import CopyReport, copy_log
from txlog.cli.options.storage_options import storage_options
from txlog.cli.output.output import Facts
from txlog.cli.output.progress import byte_progress
from txlog.cli.session import Session, with_session
from txlog.engine.connection import Connection, connect, require_own_place
from txlog.storage.open import open_store
from txlog.storage.root_url import split_root
from txlog.verify.log_audit import stored_objects

app = typer.Typer()

BACKUP_EXAMPLES = """Examples:

txlog backup --root s3://bucket/log --to s3://backups/log-2026-11-26

txlog backup --to /mnt/backups/monday && txlog verify /mnt/backups/monday
"""
RESTORE_EXAMPLES = """Examples:

txlog restore --from s3://backups/log-2026-11-26 --root s3://bucket/log

txlog restore --from /mnt/backups/monday --root ./data
"""

OptionsThere = Annotated[
    list[str] | None,
    typer.Option(
        "--backup-storage-option",
        metavar="NAME=VALUE",
        help="An option of the backup's store, if it is not that of the log.",
    ),
]


@app.command("backup", epilog=BACKUP_EXAMPLES)
@with_session
def backup(
    session: Session,
    to: Annotated[
        str, typer.Option("--to", metavar="URI", help="An empty folder or prefix for the backup.")
    ],
    options: OptionsThere = None,
) -> None:
    """Copy the log to another place as it is at one moment; writers go on.

    Each transaction is in it whole or not at all, and no group is ahead of its topics. The copy is
    a log of its own, with another id: `txlog verify`, consumers and Spark can read it. It has the
    records, topics, groups and transactional ids, and not the history of the journals.
    """
    source = session.admin().connection
    _copy(session, source, to, _options_of(session, to, session.root, options))


@app.command("restore", epilog=RESTORE_EXAMPLES)
@with_session
def restore(
    session: Session,
    origin: Annotated[str, typer.Option("--from", metavar="URI", help="The backup.")],
    options: OptionsThere = None,
) -> None:
    """Copy a backup to --root, which must be empty, as a log with an id of its own.

    Processes that had the lost log open are refused there: they would go on from records that the
    backup does not have. Start them again. Move a damaged log away first; nothing is overwritten.
    """
    source = connect(origin, storage_options=_options_of(session, origin, session.root, options))
    _copy(session, source, session.root, session.storage_options)


def _options_of(
    session: Session, place: str, root: str, given: list[str] | None
) -> dict[str, object]:
    """Storage options of the backup: those given, or those of the log if it is in the same kind of
    store."""
    if given:
        return storage_options(given, {})
    return session.storage_options if split_root(place)[0] == split_root(root)[0] else {}


def _copy(session: Session, source: Connection, to: str, options: dict[str, object]) -> None:
    runtime = source.runtime
    target = open_store(to, runtime, options)
    require_own_place(to, target, runtime, options)
    total = sum(stored.size_bytes for stored in stored_objects(source))
    with byte_progress(session, runtime, "copying", total) as advance:
        report = copy_log(source, target, advance)
    document = _document(report, target.url)
    session.show(document, [Facts(tuple(document.items()))])


def _document(report: CopyReport, url: str) -> dict[str, object]:
    return {
        "copy": url,
        "log_id": report.log_id,
        "topics": report.topics,
        "objects": report.objects,
        "bytes": report.size_bytes,
    }
