"""`txlog topic`: list, describe, create, alter, config, delete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import pyarrow as pa
import typer

from txlog.cli.options.schema_text import parse_schema
from txlog.cli.output.output import Facts, Grid, Section, counted, grid_of
from txlog.cli.session import Execute, Session, Topic, with_session
from txlog.client.admin import Admin, NewTopic, TopicDescription
from txlog.documents.topics import LIST_NAMES, list_row, topic_document
from txlog.documents.unreadable import Unreadable
from txlog.engine.new_topic import checked_topic
from txlog.errors import NotATxlog, UsageError
from txlog.settings import TopicConfig

app = typer.Typer(
    name="topic", no_args_is_help=True, help="Topics: list, describe, create, change, delete."
)

Config = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        metavar="NAME=VALUE",
        help=f"A configuration value; repeatable: {', '.join(TopicConfig.names())}.",
    ),
]


@app.command("list", epilog="Example: txlog topic list -o json | jq -r '.[].topic'")
@with_session
def list_topics(
    session: Session,
    offsets: Annotated[
        bool,
        typer.Option(
            "--offsets", help="Read every topic: its partitions, offsets and open transactions."
        ),
    ] = False,
) -> None:
    """The names of all topics.

    OFFSETS counts what can be read from the start to the end, aborted records included.
    """
    admin = session.admin()
    unread = Unreadable()
    rows: list[tuple[str, int, int, int]] | list[tuple[str]]
    if offsets:
        rows = [list_row(topic) for topic in admin.describe_topics(on_error=unread.note)]
    else:
        rows = [(name,) for name in admin.list_topics()]
    session.show_rows(LIST_NAMES if offsets else LIST_NAMES[:1], rows)
    session.end_with(unread)
    if not rows:
        session.say("There are no topics; 'txlog topic create' creates one.")


@app.command("describe", epilog="Example: txlog topic describe orders")
@with_session
def describe(session: Session, name: Topic) -> None:
    """One topic: its columns, its configuration, and where each partition begins and ends.

    A reader at read_committed reads up to LAST-STABLE-OFFSET; records between it and
    LOG-END-OFFSET wait for open transactions.
    """
    _show(session, session.admin(), name)


def _show(session: Session, admin: Admin, name: str) -> None:
    topic = admin.describe_topic(name)
    document = topic_document(topic)
    session.show(document, _sections(topic, document))
    if topic.is_being_deleted:
        session.say(
            f"Its deletion has begun, and it takes no transactions. 'txlog topic delete {name}' or "
            "'txlog maintain' finishes the deletion if it was interrupted."
        )


def _sections(topic: TopicDescription, document: Mapping[str, Any]) -> Iterable[Section]:
    yield Facts(
        (
            ("Topic", topic.name),
            ("TopicId", topic.topic_id),
            ("SchemaId", topic.schema_id),
            *document["config"].items(),
            ("OpenTransactions", ", ".join(document["open_transactions"])),
            ("IsBeingDeleted", document["is_being_deleted"]),
        )
    )
    yield grid_of(document["schema"], ("column", "type", "nullable"))
    names = ("partition", "log_start_offset", "last_stable_offset", "log_end_offset")
    yield grid_of(document["partitions"], names)


@app.command(
    "create",
    epilog="Example: txlog topic create flights --partitions 4 "
    "--schema 'carrier: string, dep_delay: int32, at: timestamp[us, UTC] not null' "
    "--config key.column=carrier",
)
@with_session
def create(
    session: Session,
    name: Annotated[str, typer.Argument(help="Name of the new topic.", metavar="TOPIC")],
    partitions: Annotated[int, typer.Option("--partitions", "-p", help="How many.")] = 1,
    schema: Annotated[
        str | None,
        typer.Option(
            "--schema",
            metavar="COLUMNS",
            help="'name: type [not null], ...' with Arrow's types, or @FILE for the schema of a "
            "Parquet or Arrow file. Without it the topic has Kafka's columns: key, value, headers.",
        ),
    ] = None,
    config: Config = None,
    log_config: Annotated[
        list[str] | None,
        typer.Option(
            "--log-config",
            metavar="NAME=VALUE",
            help="A setting of the log, fixed when the log is created, such as "
            "boundary.trust.ms=0. Repeatable.",
        ),
    ] = None,
) -> None:
    """Create a topic, and the log too if there is none at the root.

    With -o it prints the topic as 'txlog topic describe' does.
    """
    columns = None if schema is None else parse_schema(schema)
    topic = NewTopic(name, partitions, columns, config_pairs(config or ()))
    # Before the log is created: a refused topic must not leave an empty log behind.
    checked_topic(topic)
    made_log = False
    try:
        admin = session.admin(log_config=config_pairs(log_config or ()))
    except NotATxlog as error:
        # Only an absent log may be created; a log of another format raises NotATxlog, too.
        if "url" not in error.facts:
            raise
        admin = session.admin(create=True, log_config=config_pairs(log_config or ()))
        made_log = True
    admin.create_topics([topic])
    if session.options.output is not None:
        _show(session, admin, name)
    if made_log:
        session.say(f"Created a log at {admin.connection.cluster.store.url}.")
    session.say(f"Created topic {name} with {counted(partitions, 'partition')}.")


def config_pairs(pairs: Sequence[str]) -> dict[str, object]:
    """`name=value` texts as a mapping. Raises UsageError."""
    values: dict[str, object] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise UsageError(f"{pair!r} is not a configuration; write NAME=VALUE.")
        values[name] = value
    return values


@app.command("config", epilog="Example: txlog topic config orders max.message.bytes=10000000")
@with_session
def config(
    session: Session,
    name: Topic,
    changes: Annotated[
        list[str] | None,
        typer.Argument(help="Values to change; without any, show them.", metavar="[NAME=VALUE]..."),
    ] = None,
) -> None:
    """Show a topic's configuration, or change values of it."""
    admin = session.admin()
    wanted = config_pairs(changes or ())
    if wanted:
        values = admin.alter_topic_config(name, wanted).to_dotted()
        session.say(f"Changed {', '.join(wanted)} of topic {name}.")
    else:
        values = admin.describe_topic(name).config.to_dotted()
    session.show(values, [Grid(("NAME", "VALUE"), list(values.items()))])


@app.command(
    "alter",
    epilog="Examples: txlog topic alter orders --partitions 8, "
    "txlog topic alter flights --add-column 'gate: string'",
)
@with_session
def alter(
    session: Session,
    name: Topic,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", help="The new number; never fewer than now."),
    ] = None,
    add_column: Annotated[
        list[str] | None,
        typer.Option(
            "--add-column",
            metavar="COLUMN",
            help="'name: type' with Arrow's types; repeatable.",
        ),
    ] = None,
) -> None:
    """Add partitions or columns to a topic; neither can be undone.

    With more partitions a key may map to another one: its records are in order only from then on.
    Existing records read null in a new column. With -o it prints the topic as
    'txlog topic describe' does.
    """
    if (partitions is None) == (not add_column):
        raise UsageError(
            "say what to add, one at a time: --partitions N, or --add-column 'name: type'."
        )
    admin = session.admin()
    topic = admin.describe_topic(name)
    if partitions is None:
        added = parse_schema(", ".join(add_column or ()))
        admin.evolve_schema(name, pa.schema([*topic.schema, *added]))
        message = f"Added {counted(len(added), 'column')} to topic {name}."
    else:
        admin.create_partitions(name, partitions)
        before = len(topic.partitions)
        message = f"Topic {name} has {counted(partitions, 'partition')}; it had {before}."
    if session.options.output is not None:
        _show(session, admin, name)
    session.say(message)


@app.command("delete", epilog="Example: txlog topic delete orders --execute")
@with_session
def delete(
    session: Session,
    name: Topic,
    execute: Execute = False,
) -> None:
    """Delete a topic and all its records. Without --execute it only shows what would be deleted."""
    admin = session.admin()
    topic = admin.describe_topic(name)
    row = _, partitions, offsets, opened = list_row(topic)
    if execute:
        admin.delete_topics([name])
    document = dict(zip(LIST_NAMES, row, strict=True))
    session.show({**document, "deleted": execute}, [grid_of([document], LIST_NAMES)])
    what = (
        f"topic {name}: {counted(partitions, 'partition')}, {counted(offsets, 'offset')}, "
        f"{counted(opened, 'open transaction')}"
    )
    if execute:
        session.say(f"Deleted {what}.")
    else:
        session.say_planned(f"delete {what}")
