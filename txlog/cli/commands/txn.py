"""`txlog txn`: list, describe and abort, in the terms of kafka-transactions.sh."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import typer

from txlog.cli.commands.txn_half import half_facts, show_half
from txlog.cli.output.output import Facts, Grid, Section, duration_text, grid_of
from txlog.cli.session import Execute, Session, with_session
from txlog.client.admin import Admin
from txlog.client.admin.transactions import transaction_at
from txlog.coordinator.transaction import TransactionState
from txlog.documents.transactions import listing_document, transaction_document
from txlog.documents.unreadable import Unreadable
from txlog.errors import IllegalTransition, UnknownTransaction, UsageError
from txlog.model import TopicPartition, TransactionOutcome, TxId

app = typer.Typer(
    name="txn",
    no_args_is_help=True,
    help="Transactions: list, describe, abort; how they ended.",
)

HEADERS = ("TransactionalId", "Coordinator", "ProducerId", "ProducerEpoch", "TransactionState")


@app.command("list", epilog="Examples: txlog txn list --open, txlog txn list --half")
@with_session
def list_transactions(
    session: Session,
    only_open: Annotated[bool, typer.Option("--open", help="Only those with an open one.")] = False,
    half: Annotated[
        bool, typer.Option("--half", help="Half transactions without a decision.")
    ] = False,
) -> None:
    """Every transactional id, with its state and its open transaction.

    One with staged records is listed once it has pending offsets, or commits.

    With --half, the open half transactions (half messages) of all producers, oldest first, with the
    number of checks so far and the time of the next.
    """
    admin = session.admin()
    now_ms = admin.connection.runtime.clock.wall_ms()
    if half:
        show_half(session, admin, now_ms)
        return
    unread = Unreadable()
    listed = admin.list_transactions(on_error=unread.note)
    found = [
        listing_document(each, now_ms)
        for each in listed
        if each.all_open or each.pending or not only_open
    ]
    rows = [row for each in found for row in _rows(each)]
    session.show(found, [Grid((*HEADERS, "OpenTransaction", "Duration"), rows)])
    session.end_with(unread)
    if not found:
        session.say("No transaction is open." if only_open else "There are no transactional ids.")


@app.command(
    "describe", epilog="Examples: txlog txn describe billing-job, txlog txn describe 7-0-12"
)
@with_session
def describe(
    session: Session,
    name: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="A transactional id, or a transaction: producer-epoch-number."
        ),
    ],
) -> None:
    """A transactional id with its open transactions, or one transaction and how it ended."""
    admin = session.admin()
    now_ms = admin.connection.runtime.clock.wall_ms()
    unread = Unreadable()
    # The name first: a transactional id may look like a transaction, as 0-0-0 does.
    found = [
        listing_document(each, now_ms)
        for each in admin.list_transactions(on_error=unread.note)
        if each.transactional_id == name
    ]
    if found:
        sections = [part for each in found for part in _listing_sections(each)]
        session.show(found[0] if len(found) == 1 else found, sections)
    else:
        try:
            tx_id = _transaction_id(name)
        except UnknownTransaction:
            session.end_with(unread)  # A coordinator that cannot be read may know it.
            raise
        described = admin.describe_transaction(tx_id, on_error=unread.note)
        document = transaction_document(described, now_ms)
        session.show(document, _sections(document))
    session.end_with(unread)


def _transaction_id(name: str) -> TxId:
    """Raises UnknownTransaction if the name is neither a transactional id nor a transaction."""
    try:
        return TxId.parse(name)
    except ValueError as error:
        raise UnknownTransaction(
            f"there is no transactional id {name!r}; 'txlog txn list' shows them.",
            transactional_id=name,
        ) from error


@app.command("abort", epilog="Example: txlog txn abort 7-0-12 --execute")
@with_session
def abort(
    session: Session,
    transaction: Annotated[
        str | None,
        typer.Argument(metavar="[TRANSACTION]", help="As printed by 'txlog txn list': 7-0-12."),
    ] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", help="The transaction that begins in this topic, ...")
    ] = None,
    partition: Annotated[int | None, typer.Option("--partition", help="... partition ...")] = None,
    start_offset: Annotated[
        int | None, typer.Option("--start-offset", help="... at this offset.")
    ] = None,
    execute: Execute = False,
) -> None:
    """Abort any process's open transaction. Without --execute it only shows which.

    Its epoch ends with it, so its owner cannot commit it any more. The offsets that are pending for
    it are released. A decided transaction cannot be aborted.
    """
    admin = session.admin()
    tx_id = _chosen(admin, transaction, topic, partition, start_offset)
    unread = Unreadable()
    found = admin.describe_transaction(tx_id, on_error=unread.note)
    if found.outcome is TransactionOutcome.COMMITTED:
        raise IllegalTransition(
            f"transaction {tx_id} is committed and can no longer be aborted; to go back, write "
            "records that undo it.",
            tx_id=str(tx_id),
        )
    if execute:
        found = admin.abort_transaction(tx_id, on_error=unread.note)
    document = transaction_document(found, admin.connection.runtime.clock.wall_ms())
    session.show(document, _sections(document))
    if execute:
        session.say(f"Transaction {tx_id} of {found.transactional_id} is aborted.")
    elif found.outcome is TransactionOutcome.ABORTED and not found.open:
        session.say(f"Transaction {tx_id} is aborted already.")
    else:
        session.say_planned(f"abort transaction {tx_id}")
    session.end_with(unread)


def _chosen(
    admin: Admin,
    transaction: str | None,
    topic: str | None,
    partition: int | None,
    start_offset: int | None,
) -> TxId:
    """The transaction by its id, or by where it begins. Raises UsageError, UnknownTransaction."""
    place = (topic, partition, start_offset)
    if transaction is not None and place == (None, None, None):
        return TxId.parse(transaction)
    if transaction is None and topic and partition is not None and start_offset is not None:
        where = TopicPartition(topic, partition)
        return transaction_at(admin.connection, where, start_offset)
    raise UsageError(
        "say which transaction: TRANSACTION, or --topic, --partition and --start-offset."
    )


# The same documents as tables.


def _rows(listing: Mapping[str, Any]) -> Iterable[tuple[object, ...]]:
    """One row for each open transaction, or one without."""
    row = _listing_row(listing)
    for opened in listing["open"]:
        yield *row, opened["transaction"], _duration(opened)
    for pending in listing["pending"]:
        # Only its pend is stored: to its coordinator the id has no open transaction.
        yield *row[:-1], TransactionState.ONGOING, pending["transaction"], _duration(pending)
    if not listing["open"] and not listing["pending"]:
        yield *row, None, None


def _listing_row(listing: Mapping[str, Any]) -> tuple[object, ...]:
    """The cells under HEADERS."""
    names = ("transactional_id", "coordinator", "producer_id", "producer_epoch")
    return (*(listing[name] for name in names), listing["transaction_state"])


def _duration(transaction: Mapping[str, Any]) -> str:
    """How long it has been open; half transactions, whose timeout is None, are never late."""
    open_ms, timeout_ms = transaction["duration_ms"], transaction["transaction_timeout_ms"]
    is_late = timeout_ms is not None and open_ms > timeout_ms
    return f"{duration_text(open_ms)}{' (late)' if is_late else ''}"


def _listing_sections(listing: Mapping[str, Any]) -> Iterable[Section]:
    yield Facts(
        (
            *zip(HEADERS, _listing_row(listing), strict=True),
            ("TransactionTimeoutMs", listing["transaction_timeout_ms"]),
            ("Instance", listing["instance"]),
            ("LastTransaction", listing["last_transaction"]),
        )
    )
    for opened in listing["open"]:
        yield from _open_sections(opened)
    for pending in listing["pending"]:
        yield Facts(
            (
                ("OpenTransaction", pending["transaction"]),
                ("TransactionState", TransactionState.ONGOING),
                ("Duration", _duration(pending)),
                ("TransactionTimeoutMs", pending["transaction_timeout_ms"]),
                ("Groups", ", ".join(pending["groups"])),
            )
        )


def _open_sections(opened: Mapping[str, Any]) -> Iterable[Section]:
    yield Facts(
        (
            ("OpenTransaction", opened["transaction"]),
            ("TransactionState", opened["transaction_state"]),
            ("StartTime", opened["started_at"]),
            ("Duration", _duration(opened)),
            ("TransactionTimeoutMs", opened["transaction_timeout_ms"]),
            ("Groups", ", ".join(opened["groups"])),
            *half_facts(opened["half"]),
        )
    )
    if opened["partitions"]:
        yield grid_of(opened["partitions"], ("topic", "partition"))


def _sections(found: Mapping[str, Any]) -> Iterable[Section]:
    yield Facts(
        (
            ("Transaction", found["transaction"]),
            ("Outcome", found["outcome"]),
            ("TransactionalId", found["transactional_id"]),
            ("Coordinator", found["coordinator"]),
            ("PendingGroups", ", ".join(found["pending_groups"])),
        )
    )
    if found["open"] is not None:
        yield from _open_sections(found["open"])
