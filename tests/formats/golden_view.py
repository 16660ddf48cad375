"""Everything that users can see of a log, as plain JSON values; it must never change for a golden
log."""

from __future__ import annotations

import datetime as dt
from typing import Any

from txlog.client.admin import Admin
from txlog.client.consumer.consumer import Consumer
from txlog.engine.connection import Connection
from txlog.model import IsolationLevel, TxId


def view(connection: Connection, outcomes: list[str]) -> dict[str, Any]:
    """Topics, records at both levels, groups, transactions, marks; `outcomes` holds ids and
    tags."""
    admin = Admin(connection)
    return {
        "log_id": connection.cluster.log_id,
        "topics": {topic: _topic(connection, admin, topic) for topic in admin.list_topics()},
        "groups": {group: _group(connection, admin, group) for group in admin.list_groups()},
        "transactions": {
            listing.transactional_id: [
                listing.producer_id,
                listing.producer_epoch,
                listing.state,
                [str(transaction.tx_id) for transaction in listing.all_open],
            ]
            for listing in admin.list_transactions()
        },
        "outcomes": {name: str(_outcome(admin, name)) for name in outcomes},
        "marks": sorted(
            [
                m.query_id,
                m.batch_id,
                [list(r) for r in map(_range, m.ranges)],
                m.fingerprint,
                m.label,
            ]
            for m in admin.list_micro_batches()
        ),
    }


def _topic(connection: Connection, admin: Admin, name: str) -> dict[str, Any]:
    described = admin.describe_topic(name)
    return {
        "topic_id": described.topic_id,
        "schema": [
            f"{f.name}: {f.type}{'' if f.nullable else ' not null'}" for f in described.schema
        ],
        "schema_id": described.schema_id,
        "partitions": [
            [p.log_start_offset, p.last_stable_offset, p.end_offset] for p in described.partitions
        ],
        **{str(level): _records(connection, name, level) for level in IsolationLevel},
    }


def _records(connection: Connection, topic: str, level: IsolationLevel) -> list[Any]:
    consumer = Consumer(
        topic,
        root=connection,
        isolation_level=level,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    found: list[dict[str, Any]] = []
    while (table := consumer.poll_arrow()) is not None:
        found += table.to_pylist()
    found.sort(key=lambda row: (row["_partition"], row["_offset"]))
    return [[_plain(value) for value in row.values()] for row in found]


def _group(connection: Connection, admin: Admin, name: str) -> dict[str, Any]:
    described = admin.describe_group(name)
    committed = connection.offsets.group(name).committed
    return {
        "owner": described.owner,
        "committed": [[str(w), c.offset, c.metadata] for w, c in sorted(committed.items())],
        "lag": described.known_lag,
        "pending": [str(tx_id) for tx_id in described.pending],
        "last_commit": str(described.last_commit),
    }


def _outcome(admin: Admin, name: str) -> object:
    """The outcome of an id such as "0-0-1", or else of a tag."""
    parts = name.split("-")
    is_id = len(parts) == 3 and all(part.isdigit() for part in parts)
    return admin.outcome(TxId(*map(int, parts)) if is_id else name)


def _range(moved: Any) -> tuple[Any, ...]:
    return moved.group, moved.topic, moved.partition, moved.start, moved.end


def _plain(value: Any) -> Any:
    """JSON values; values that JSON lacks become text."""
    match value:
        case None | bool() | int() | str():
            return value
        case bytes():
            return value.hex()
        case dt.datetime() | dt.date() | dt.time():
            return value.isoformat()
        case dict():
            return {name: _plain(part) for name, part in value.items()}
        case list() | tuple():
            return [_plain(part) for part in value]
        case _:
            return repr(value)
