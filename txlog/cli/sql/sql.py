"""`txlog sql`: queries over topics, each at one consistent cut, by DuckDB.

A file is complete or absent, and nothing is overwritten. It must not know how a query is run or
printed.
"""

from __future__ import annotations

import os
import posixpath
import sys
from collections.abc import Callable
from typing import Annotated

import pyarrow as pa
import typer

from txlog.cli.exit_codes import report_error
from txlog.cli.output.export_files import FileFormat
from txlog.cli.output.output import Facts
from txlog.cli.session import Output, Session, with_session
from txlog.cli.sql import results
from txlog.cli.sql.prompt import History, NameCompletion, history_file, statements
from txlog.clock import SystemEntropy
from txlog.engine.as_of import parse_moment
from txlog.errors import TxlogError, UsageError
from txlog.model import IsolationLevel
from txlog.redaction import redact_url
from txlog.sql.session import SqlSession
from txlog.storage.disk.output_file import new_output_file, require_new

STATEMENT_BYTES_MAX = 1 << 20
"""Of a statement on standard input: it is in memory, and its syntax tree is many times as large."""

app = typer.Typer()

EXAMPLES = """Examples:

txlog sql "select _partition, count(*) from orders group by all"

txlog sql "select * from orders join payments using (id)" --file joined.parquet

txlog sql 'select value from "my.topic" where _offset < 100' --format csv

txlog sql
"""


@app.command("sql", epilog=EXAMPLES)
@with_session
def sql(
    session: Session,
    statement: Annotated[
        str | None,
        typer.Argument(metavar="[QUERY]", help="One query; without it a prompt, or stdin."),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(
            "--file", metavar="FILE", help="Write the result there: a path or fsspec URL."
        ),
    ] = None,
    file_format: Annotated[
        FileFormat | None,
        typer.Option("--format", help="Of FILE, by default from its suffix; or of stdout."),
    ] = None,
    as_of: Annotated[
        str | None,
        typer.Option(
            "--as-of", metavar="WHEN", help="Topics as they were: a time, or a transaction."
        ),
    ] = None,
    isolation: Annotated[
        IsolationLevel, typer.Option("--isolation", help="Whether to read open transactions.")
    ] = IsolationLevel.READ_COMMITTED,
) -> None:
    """Query topics with SQL: joins, windows, groups, all at one consistent cut.

    Topics are tables; names with dots, dashes or capitals are in double quotes. Each has its
    columns, and _topic, _partition, _offset and _timestamp, by which only a part of it is read. A
    query reads topics and nothing else: no files, no extensions, no settings.
    """
    write = _writer(session, file, file_format)
    if as_of is not None and isolation is not IsolationLevel.READ_COMMITTED:
        raise UsageError("--as-of reads what was committed; leave --isolation out.")
    moment = None if as_of is None else parse_moment(as_of)
    engine = SqlSession(session.admin().connection, isolation, moment)
    if statement is None and not sys.stdin.isatty():
        statement = sys.stdin.read(STATEMENT_BYTES_MAX + 1)
    if statement is not None:
        _run(engine, statement, write)
    elif file is not None or not sys.stdout.isatty():
        raise UsageError("name the query: txlog sql QUERY, or give it on standard input.")
    else:
        _prompt(session, engine, write)


def _writer(
    session: Session, file: str | None, form: FileFormat | None
) -> Callable[[pa.RecordBatchReader], None]:
    """What is done with a result. Raises UsageError for options that contradict each other."""
    output = session.options.output
    if form is not None and output is not None and file is None:
        raise UsageError(f"-o {output} and --format {form} contradict each other; leave one out.")
    if file is not None:
        chosen, target = form or _form_by_name(file), file
        require_new(target)

        def write(rows: pa.RecordBatchReader) -> None:
            with new_output_file(target, SystemEntropy()) as opened:
                count = results.write_file(opened, chosen, rows)
            done = {"file": redact_url(target), "rows": count}
            session.show(done, [Facts(tuple(done.items()))])

        return write
    if form is FileFormat.PARQUET:
        raise UsageError("Parquet is not for stdout; give --file FILE.")
    if form is FileFormat.ARROW:
        return results.write_arrow
    return results.write_csv if form is FileFormat.CSV else lambda rows: results.show(session, rows)


def _form_by_name(file: str) -> FileFormat:
    suffix = posixpath.splitext(file)[1].removeprefix(".").lower()
    if suffix not in list(FileFormat):
        raise UsageError("the name of the file does not show its format; give --format.")
    return FileFormat(suffix)


def _run(engine: SqlSession, statement: str, write: Callable[[pa.RecordBatchReader], None]) -> None:
    if len(statement) > STATEMENT_BYTES_MAX:
        raise UsageError(f"the statement has more than {STATEMENT_BYTES_MAX} characters.")
    with engine.run(statement) as rows:
        write(rows)


def _prompt(
    session: Session, engine: SqlSession, write: Callable[[pa.RecordBatchReader], None]
) -> None:
    """Run what is typed. An error or Ctrl-C ends a statement, and not the session."""
    NameCompletion(engine.topics, engine.columns).install()
    with History(history_file(dict(os.environ))):
        for statement in statements(session.say):
            try:
                _run(engine, statement, write)
                sys.stdout.flush()
            except TxlogError as error:
                report_error(error, as_json=session.options.output is Output.JSON)
            except KeyboardInterrupt:
                session.say("Interrupted.")
