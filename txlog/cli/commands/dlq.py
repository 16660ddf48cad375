"""`txlog dlq`: dead letters of half transactions without a decision; list, show, replay."""

from __future__ import annotations

import json
from datetime import date, time
from typing import Annotated, Any

import typer

from txlog.cli.output.output import Facts, Grid, counted, write_json
from txlog.cli.session import Execute, Output, Session, topic_names, with_session
from txlog.client.half_messages.dead_letter import (
    DEAD_LETTER_TOPIC,
    DeadLetter,
    letter_at,
    pending_letters,
    replay_letters,
)
from txlog.documents.record_json import finite, iso_time, text_or_base64
from txlog.engine.connection import Connection
from txlog.errors import UnknownTopic
from txlog.model import TopicPartition

LETTERS_MAX = 1_000
"""Letters that one call lists, or replays in one transaction, unless --limit says otherwise."""

KEY_WIDTH_MAX = 40

app = typer.Typer(
    name="dlq",
    no_args_is_help=True,
    help="Dead letters: half messages that were never decided, and their replay.",
)

Topic = Annotated[
    str,
    typer.Option("--topic", help="The dead-letter topic.", autocompletion=topic_names),
]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many, oldest first.")]
HEADERS = (
    "OFFSET",
    "TRANSACTION-ID",
    "PRODUCER-GROUP",
    "CHECKS",
    "TO-TOPIC",
    "TO-PARTITION",
    "KEY",
    "TIMESTAMP",
)


@app.command("list", epilog="Example: txlog dlq list -o json | jq -r '.[].value'")
@with_session
def list_letters(
    session: Session, topic: Topic = DEAD_LETTER_TOPIC, limit: Limit = LETTERS_MAX
) -> None:
    """Dead letters that have not been replayed, oldest first."""
    found = _pending(session.admin().connection, topic, limit)
    _show(session, found)
    if not found:
        session.say("No dead letters wait for a replay.")


@app.command("show", epilog="Example: txlog dlq show 17 | jq .value")
@with_session
def show(
    session: Session,
    offset: Annotated[
        int, typer.Argument(metavar="OFFSET", min=0, help="As printed by 'txlog dlq list'.")
    ],
    topic: Topic = DEAD_LETTER_TOPIC,
    partition: Annotated[
        int, typer.Option("--partition", "-p", min=0, help="Partition of the dead-letter topic.")
    ] = 0,
) -> None:
    """One dead letter with its whole message, replayed or not; JSON unless -o table."""
    where = TopicPartition(topic, partition)
    letter = letter_at(session.admin().connection, where, offset)
    document = _document(letter)
    if session.options.output is Output.TABLE:
        pairs = ((name, _plain(value)) for name, value in document.items())
        session.show(document, [Facts(tuple(pairs))])
    else:
        write_json(document)


@app.command("replay", epilog="Example: txlog dlq replay --limit 10 --execute")
@with_session
def replay(
    session: Session,
    topic: Topic = DEAD_LETTER_TOPIC,
    limit: Limit = LETTERS_MAX,
    execute: Execute = False,
) -> None:
    """Send dead letters to the topics they were meant for, each once, in one transaction.

    Without --execute it only shows them. Letters stay in their topic; the consumer group
    TOPIC.replay records how far they are replayed; 'txlog group reset' resets it.
    """
    connection = session.admin().connection
    found = _pending(connection, topic, limit)
    # Without letters the replay's transactional id need not be registered.
    if execute and found:
        # Its own answer counts: another replay may have taken some of the letters meanwhile.
        found = replay_letters(connection, topic, limit)
    _show(session, found)
    what = counted(len(found), "dead letter")
    if not found:
        session.say("No dead letters wait for a replay.")
    elif execute:
        session.say(f"Replayed {what}.")
    else:
        session.say_planned(f"replay {what}")


def _pending(connection: Connection, topic: str, limit: int) -> list[DeadLetter]:
    """The letters to replay; none if the default topic does not exist."""
    try:
        return pending_letters(connection, topic, limit)
    except UnknownTopic:
        if topic != DEAD_LETTER_TOPIC:
            raise
        return []


def _show(session: Session, found: list[DeadLetter]) -> None:
    session.show([_document(letter) for letter in found], [Grid(HEADERS, list(map(_row, found)))])


def _row(letter: DeadLetter) -> tuple[object, ...]:
    key = _plain(_jsonable(letter.message.key))
    return (
        letter.offset,
        letter.transaction_id,
        letter.producer_group,
        letter.checks,
        letter.message.topic,
        letter.message.partition,
        None if key is None else key[:KEY_WIDTH_MAX],
        iso_time(letter.message.timestamp_ms),
    )


def _document(letter: DeadLetter) -> dict[str, Any]:
    message = letter.message
    return {
        "offset": letter.offset,
        "partition": letter.where.partition,
        "transaction_id": letter.transaction_id,
        "producer_group": letter.producer_group,
        "checks": letter.checks,
        "to_topic": message.topic,
        "to_partition": message.partition,
        "timestamp": iso_time(message.timestamp_ms),
        "key": _jsonable(message.key),
        "value": finite(_jsonable(message.value)),
        "headers": [{"key": name, "value": _jsonable(value)} for name, value in message.headers],
    }


def _jsonable(value: Any) -> Any:
    if isinstance(value, bytes):
        return text_or_base64(value)
    if isinstance(value, date | time):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, dict):
        return {name: _jsonable(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(item) for item in value]
    return value


def _plain(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, default=str, ensure_ascii=False)
