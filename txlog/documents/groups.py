"""Consumer groups as JSON documents."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa

from txlog.client.admin import Admin
from txlog.client.admin.descriptions import GroupDescription
from txlog.client.admin.history import COVERED_SINCE_MS
from txlog.documents.record_json import iso_time, rows_in_ms

LIST_NAMES = ("group", "topics", "partitions", "lag", "lag_seconds", "pending", "owner")
"""Members of a list of groups."""
_PENDING_NAMES = ("topic", "partition", "start_offset", "end_offset")


def list_document(found: GroupDescription) -> dict[str, Any]:
    """A group in one row."""
    return {
        "group": found.group_id,
        "topics": len({part.where.topic for part in found.partitions}),
        "partitions": len(found.partitions),
        "lag": found.lag,
        "lag_seconds": _seconds(found.lag_ms),
        "pending": len(found.pending),
        "owner": found.owner or None,
    }


def group_document(admin: Admin, found: GroupDescription) -> dict[str, Any]:
    """A group: its positions, and the offsets that are pending."""
    pending = admin.connection.offsets.shown(found.group_id).pending
    now_ms = admin.connection.runtime.clock.wall_ms()
    return {
        "group": found.group_id,
        "lag": found.lag,
        "lag_seconds": _seconds(found.lag_ms),
        "owner": found.owner or None,
        "last_commit": iso_time(
            max((part.committed_ms or 0 for part in found.partitions), default=0) or None
        ),
        "last_commit_transaction": None if found.last_commit is None else str(found.last_commit),
        "partitions": [
            {
                "topic": part.where.topic,
                "partition": part.where.partition,
                "current_offset": part.current_offset,
                "log_end_offset": part.log_end_offset,
                "lag": part.lag,
                "lag_seconds": _seconds(part.lag_ms),
                "undecided": part.undecided,
                "committed_at": iso_time(part.committed_ms),
                "metadata": part.metadata,
            }
            for part in found.partitions
        ],
        "pending": [
            {
                "transaction": str(tx_id),
                "transactional_id": pend.transactional_id,
                "outcome": str(admin.connection.coordinator(pend.coordinator).outcome(tx_id)),
                "pending_since": iso_time(pend.pended_ms),
                "duration_ms": now_ms - pend.pended_ms,
                "transaction_timeout_ms": pend.timeout_ms,
                "offsets": [
                    dict(zip(_PENDING_NAMES, (*o.where, o.start, o.end), strict=True))
                    for o in pend.offsets
                ],
            }
            for tx_id, pend in pending.items()
        ],
    }


def lag_document(group: str, table: pa.Table) -> dict[str, Any]:
    """The moments of `Admin.lag_history`."""
    covered_ms = int(table.schema.metadata[COVERED_SINCE_MS])
    moments = [
        _moment(time_ms, list(rows))
        for time_ms, rows in groupby(rows_in_ms(table), itemgetter("time"))
    ]
    return {"group": group, "covered_since": iso_time(covered_ms), "moments": moments}


def _moment(time_ms: int, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The group at one moment. Its lag is unknown if that of a partition with a position is."""
    read = [row for row in rows if row["committed_offset"] is not None]
    lags, ages = [row["lag"] for row in read], [row["lag_ms"] for row in read]
    known = bool(read) and None not in ages
    return {
        "time": iso_time(time_ms),
        "lag": sum(lags) if read and None not in lags else None,
        "lag_seconds": max(ages) // 1000 if known else None,
        "partitions": [
            {
                "topic": row["topic"],
                "partition": row["partition"],
                "current_offset": row["committed_offset"],
                "log_end_offset": row["end_offset"],
                "lag": row["lag"],
                "lag_seconds": None if row["lag_ms"] is None else row["lag_ms"] // 1000,
            }
            for row in rows
        ],
    }


def _seconds(duration_ms: int | None) -> int | None:
    return None if duration_ms is None else duration_ms // 1000
