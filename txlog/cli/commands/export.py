"""`txlog export`: a copy of topics at one consistent cut, as Parquet, Arrow or CSV.

A file is complete or absent, and nothing is overwritten. It must not know how a cut is found or a
file is written.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated

import typer

from txlog.cli.kafka.exporter import export_to_kafka
from txlog.cli.options.starting_point import Edge, parse_starting_point
from txlog.cli.output.export_files import FileFormat, record_file, require_types
from txlog.cli.output.output import grid_of
from txlog.cli.output.progress import record_progress
from txlog.cli.session import Session, topic_names, with_session
from txlog.client.consumer.consumer_record import arrow_schema
from txlog.client.consumer.cut_reader import RangeBound, TopicRange, read_partition, topics_at_cut
from txlog.clock import Entropy
from txlog.errors import UsageError
from txlog.model import IsolationLevel
from txlog.redaction import redact_url
from txlog.storage.disk.output_file import new_output_file, require_new

app = typer.Typer()

EXAMPLES = """Examples:

txlog export orders --file orders.parquet

txlog export orders payments --folder s3://lake/raw --format parquet

txlog export orders --bootstrap broker:9092 --follow

txlog export orders --partition 0 --from @2013-01-01 --until @2013-02-01 --file january.csv
"""


@dataclass(frozen=True, slots=True)
class _Exported:
    """One partition in a file."""

    topic: str
    file: str
    partition: int
    start_offset: int
    end_offset: int
    records: int


@app.command("export", epilog=EXAMPLES)
@with_session
def export(
    session: Session,
    topics: Annotated[
        list[str],
        typer.Argument(metavar="TOPIC...", help="Names of topics.", autocompletion=topic_names),
    ],
    file: Annotated[
        str | None,
        typer.Option("--file", metavar="FILE", help="For one topic: a path or fsspec URL."),
    ] = None,
    folder: Annotated[
        str | None,
        typer.Option("--folder", metavar="DIR", help="A file for each topic: TOPIC.FORMAT there."),
    ] = None,
    file_format: Annotated[
        FileFormat | None,
        typer.Option("--format", help="By default from FILE's suffix, else parquet."),
    ] = None,
    partitions: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", min=0, help="Only this one; repeatable."),
    ] = None,
    start: Annotated[
        str,
        typer.Option("--from", metavar="WHERE", help="earliest, an offset, or @ and a time."),
    ] = "earliest",
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="WHERE", help="Where to end (exclusive); default: now."),
    ] = None,
    isolation: Annotated[
        IsolationLevel, typer.Option("--isolation", help="Whether to read open transactions.")
    ] = IsolationLevel.READ_COMMITTED,
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap", metavar="HOST:PORT,...", help="Into this Kafka cluster, not to files."
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Into Kafka: go on with records to come, until Ctrl-C.")
    ] = False,
    command_config: Annotated[
        Path | None,
        typer.Option("--command-config", metavar="FILE", help="Settings of Kafka's client."),
    ] = None,
) -> None:
    """Copy topics to files, each transaction whole or not at all, over all topics named.

    Aborted records, and those of open transactions, are left out; so are the copies that merging
    and compaction leave, which a glob over segments would count. A file gets its name when it is
    complete, and an existing file is never replaced.
    """
    if bootstrap is not None:
        for name, given in (("--file", file), ("--folder", folder), ("--until", until)):
            if given is not None:
                raise UsageError(f"{name} is for files; leave it out with --bootstrap.")
        export_to_kafka(session, topics, bootstrap, command_config, follow=follow)
        return
    if command_config is not None or follow:
        name = "--follow" if command_config is None else "--command-config"
        raise UsageError(f"{name} is for Kafka; give --bootstrap, or leave it out.")
    targets = _targets(topics, file, folder, file_format)
    for target, _ in targets.values():
        require_new(target)
    connection = session.admin().connection
    ranges = topics_at_cut(
        connection, topics, isolation, _bound("--from", start), _bound("--until", until)
    )
    for wanted in ranges:
        require_types(targets[wanted.topic.name][1], arrow_schema(wanted.schema))
    chosen = [wanted.only(partitions or ()) for wanted in ranges]
    total = sum(end - begin for wanted in chosen for begin, end in wanted.offsets.values())
    done: list[_Exported] = []
    with record_progress(session, connection.runtime, "export", total) as advance:
        for wanted in chosen:
            target, form = targets[wanted.topic.name]
            entropy = connection.runtime.entropy
            done += _export(wanted, target, form, isolation, entropy, advance)
    _show(session, done)


def _targets(
    topics: Sequence[str], file: str | None, folder: str | None, form: FileFormat | None
) -> dict[str, tuple[str, FileFormat]]:
    """Topic -> its file, and the file's format. Raises UsageError."""
    if len(set(topics)) < len(topics):
        raise UsageError("a topic is named twice; name each once.")
    if folder is not None and file is None:
        suffix = form or FileFormat.PARQUET
        base = folder.rstrip("/") or "/"
        # posixpath, because the folder may be a URL.
        return {name: (posixpath.join(base, f"{name}.{suffix}"), suffix) for name in topics}
    if file is None or folder is not None:
        raise UsageError("name the output: --file FILE for one topic, or --folder DIR.")
    if len(topics) > 1:
        raise UsageError("--file is for one topic, as each has its own columns; give --folder DIR.")
    return {topics[0]: (file, form or _form_by_name(file))}


def _form_by_name(file: str) -> FileFormat:
    suffix = posixpath.splitext(file)[1].removeprefix(".").lower()
    try:
        return FileFormat(suffix)
    except ValueError as error:
        raise UsageError(
            f"the name of {redact_url(file)} does not show its format; give --format parquet, "
            "arrow or csv."
        ) from error


def _bound(option: str, text: str | None) -> RangeBound | None:
    """Raises UsageError."""
    if text in (None, "earliest", "latest"):
        if (text, option) == ("latest", "--from") or (text, option) == ("earliest", "--until"):
            raise UsageError(f"with {option} {text} there is nothing to export; leave it out.")
        return None
    point = parse_starting_point(text or "", option)
    return None if isinstance(point, Edge) else point


def _export(
    wanted: TopicRange,
    target: str,
    form: FileFormat,
    isolation: IsolationLevel,
    entropy: Entropy,
    advance: Callable[[int], None],
) -> list[_Exported]:
    schema = arrow_schema(wanted.schema)
    done = []
    with new_output_file(target, entropy) as file, record_file(file, form, schema) as write:
        for partition, (start, end) in wanted.offsets.items():
            records, counted_to = 0, start
            for batch in read_partition(wanted, partition, isolation):
                write(batch)
                records += batch.num_rows
                # Progress counts offsets, as the total does: some of them have no record to return.
                read_to = batch["_offset"][-1].as_py() + 1
                advance(read_to - counted_to)
                counted_to = read_to
            advance(end - counted_to)
            shown = redact_url(target)
            done.append(_Exported(wanted.topic.name, shown, partition, start, end, records))
    return done


def _show(session: Session, done: Sequence[_Exported]) -> None:
    parts = [asdict(part) for part in done]
    document = {
        "records": sum(part.records for part in done),
        "files": sorted({part.file for part in done}),
        "partitions": parts,
    }
    names = [field.name for field in fields(_Exported)]
    session.show(document, [grid_of(parts, names)])
