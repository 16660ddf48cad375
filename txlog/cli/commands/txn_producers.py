"""`txlog txn describe-producers | find-hanging | outcome`, in the terms of KIP-664: only reads."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

import typer

from txlog.cli.commands.txn import app
from txlog.cli.exit_codes import FAILED
from txlog.cli.output.output import Grid, counted, duration_text
from txlog.cli.session import Session, Topic, topic_names, with_session
from txlog.client.positions.listed_offsets import duration_ms
from txlog.documents.record_json import iso_time
from txlog.documents.transactions import hanging_document
from txlog.documents.unreadable import Unreadable
from txlog.errors import UnknownTransaction
from txlog.model import TopicPartition, TransactionOutcome, TxId

__all__ = ["app"]

PRODUCER_HEADERS = (
    "ProducerId",
    "ProducerEpoch",
    "LastSequence",
    "LastTimestamp",
    "CurrentTransactionStartOffset",
    "Transaction",
)
HANGING_HEADERS = (
    "Topic",
    "Partition",
    "Transaction",
    "TransactionalId",
    "TransactionState",
    "StartOffset",
    "Duration",
    "TransactionTimeout",
)


@app.command("describe-producers", epilog="Example: txlog txn describe-producers orders 0")
@with_session
def producers(
    session: Session,
    topic: Topic,
    partition: Annotated[int, typer.Argument(metavar="PARTITION", help="Its number.")],
) -> None:
    """The producers that a partition remembers, and where their open transactions begin."""
    found = session.admin().describe_producers(TopicPartition(topic, partition))
    document = [
        {
            "producer_id": each.producer_id,
            "producer_epoch": each.producer_epoch,
            "last_sequence": each.last_sequence,
            "last_timestamp": iso_time(each.last_timestamp_ms),
            "current_transaction_start_offset": each.current_transaction_start_offset,
            "transaction": None if each.transaction is None else str(each.transaction),
        }
        for each in found
    ]
    rows = [tuple(entry.values()) for entry in document]
    session.show(document, [Grid(PRODUCER_HEADERS, rows)])
    if not found:
        session.say(f"No producer id has written to {topic}-{partition}.")


@app.command(
    "find-hanging",
    epilog="Example: txlog txn find-hanging --max-transaction-timeout PT15M",
)
@with_session
def hanging(
    session: Session,
    topic: Annotated[
        str | None, typer.Option("--topic", help="Only there.", autocompletion=topic_names)
    ] = None,
    max_timeout: Annotated[
        str | None,
        typer.Option(
            "--max-transaction-timeout",
            metavar="PnDTnHnMnS",
            help="Late means open for longer than this; default: its own timeout.",
        ),
    ] = None,
) -> None:
    """Open transactions that block readers and are late. Exit code 1 if there is one.

    'txlog txn abort' ends one of them; a reader that is blocked by a late one aborts it, too.
    """
    admin = session.admin()
    now_ms = admin.connection.runtime.clock.wall_ms()
    limit_ms = None if max_timeout is None else duration_ms(max_timeout)
    unread = Unreadable()
    found = admin.find_hanging_transactions(topic, limit_ms, on_error=unread.note)
    document = [hanging_document(each, now_ms) for each in found]
    rows = [
        (
            *each.where,
            each.tx_id,
            each.transactional_id,
            each.state,
            each.start_offset,
            None if each.started_ms is None else duration_text(now_ms - each.started_ms),
            None if each.timeout_ms is None else duration_text(each.timeout_ms),
        )
        for each in found
    ]
    session.show(document, [Grid(HANGING_HEADERS, rows)])
    session.end_with(unread)
    if not found:
        session.say("No transaction hangs.")
        return
    count = len({each.tx_id for each in found})
    session.say(f"{counted(count, 'transaction')} {'hangs' if count == 1 else 'hang'}.")
    raise typer.Exit(FAILED)


@app.command("outcome", epilog="Examples: txlog txn outcome 7-0-12, txlog txn outcome order-17")
@with_session
def outcome(
    session: Session,
    name: Annotated[
        str, typer.Argument(metavar="ID", help="A transaction (7-0-12), or the tag of one.")
    ],
) -> None:
    """How a transaction ended: COMMITTED, ABORTED, OPEN or DEAD_LETTERED, in one word."""
    admin = session.admin()
    # The tag first: users choose tags freely, and one may look like a transaction.
    unread = Unreadable()
    found = admin.outcome(name, on_error=unread.note)
    if found is TransactionOutcome.UNKNOWN_ID:
        with suppress(ValueError):  # Not a transaction, either.
            found = admin.outcome(TxId.parse(name))
    if found is TransactionOutcome.UNKNOWN_ID:
        session.end_with(unread)  # A coordinator that cannot be read may know it.
        raise _unknown(name)
    session.show({"id": name, "outcome": str(found)}, [Grid(("OUTCOME",), [(str(found),)])])
    session.end_with(unread)


def _unknown(name: str) -> UnknownTransaction:
    return UnknownTransaction(
        f"no transaction, and no tag, {name!r} is known: it never existed, or it ended so long ago "
        "that its coordinator has forgotten it.",
        transaction=name,
    )
