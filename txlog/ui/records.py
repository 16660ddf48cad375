"""Records of a partition for a page: some of them from one place on, and what lies between them.

Reads what a `read_committed` consumer sees, through `txlog.scan`: unlike a consumer it ends no late
transaction. It must not write anything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from txlog.client.admin import Admin
from txlog.documents.record_json import finite, json_records, text_or_base64
from txlog.engine.times import milliseconds
from txlog.errors import UsageError
from txlog.model import IsolationLevel
from txlog.topic.read.time_lookup import offset_for_time
from txlog.topic.records.schema import is_kafka_schema
from txlog.topic.topic_log import TopicLog

RECORDS_MAX = 200
"""Records of one answer: a page that one can look through."""
SEARCHED_MAX = 20_000
"""Records that one search for a key reads; the answer says where to go on. They take about a second
at 100 bytes a record."""
TEXT_LENGTH_MAX = 4_000
"""Characters of one text that are sent: longer ones are cut, and say so."""
_EXACT_MAX = 1 << 53
"""JavaScript's numbers are exact up to here; larger ones are texts."""


def records_document(admin: Admin, topic: str, params: Mapping[str, str]) -> dict[str, Any]:
    """Up to `limit` records of `partition` from `from` on: an offset, `earliest`, `latest` (the
    last ones) or @ and a time; only those with `key`, if given. `next` is where to go on, or null.
    Gaps are offsets whose records no consumer sees. Raises UnknownTopic, UnknownPartition,
    UsageError."""
    # It imports pandas where that is installed: 45 MB, which other views do without.
    from txlog.dataset.scan import scan

    log = admin.connection.cluster.present_topic(topic, linearizable=True)
    partition = whole(params, "partition", 0, 1 << 31)
    log.check_partition(partition)
    limit = whole(params, "limit", 50, RECORDS_MAX)
    key = params.get("key", "")
    low = log.state.partitions[partition].log_start
    stable = log.state.last_stable_offset(partition)
    start = _start(log, partition, params.get("from", "earliest"), limit, low, stable)
    end, gaps = _range(log, partition, start, stable, SEARCHED_MAX if key else limit)
    records: list[dict[str, Any]] = []
    if start < end:
        found = scan(
            topic, root=admin.connection, partitions=[partition], start_offset=start, end_offset=end
        ).to_table()
        wanted = _with_key(found, log, key) if key else found
        if wanted.num_rows > limit:
            end = wanted["_offset"][limit].as_py()
        records = [shown(record) for record in json_records(wanted.slice(0, limit))]
    return {
        "topic": topic,
        "partition": partition,
        "log_start_offset": low,
        "last_stable_offset": stable,
        "log_end_offset": log.state.end_offset(partition),
        "from": start,
        "next": end if end < stable else None,
        "records": records,
        "gaps": [gap for gap in gaps if gap["start_offset"] < end],
    }


def whole(params: Mapping[str, str], name: str, default: int, highest: int) -> int:
    """A whole number from 0 to `highest`. Raises UsageError."""
    text = params.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= highest):
        raise UsageError(f"{name} is {text!r:.40}; give a whole number up to {highest}.")
    return int(text)


def _start(log: TopicLog, partition: int, text: str, limit: int, low: int, stable: int) -> int:
    """The offset to begin with. Raises UsageError."""
    if text == "earliest":
        return low
    if text == "latest":
        return max(low, stable - limit)
    if text.startswith("@"):
        found = offset_for_time(
            log, partition, milliseconds(text[1:]), IsolationLevel.READ_COMMITTED
        )
        return stable if found is None else found.offset
    return min(max(whole({"from": text}, "from", low, (1 << 63) - 1), low), stable)


def _range(
    log: TopicLog, partition: int, start: int, stable: int, wanted: int
) -> tuple[int, list[dict[str, Any]]]:
    """Where a range of so many visible records from `start` on ends, and the gaps in it."""
    end, count, gaps = start, 0, []
    for row in log.batches(log.state, partition, start, stable):
        if row.base_offset > end:
            gaps.append(_gap(end, row.base_offset, "compacted"))
        first, end = max(row.base_offset, start), min(row.next_offset, stable)
        if row.aborted:
            gaps.append(_gap(first, end, "aborted"))
        elif row.stored_rows < 0:  # No record is missing: the range may end within the batch.
            end = min(end, first + wanted - count)
            count += end - first
        else:
            count += row.record_count
            if row.record_count < row.row_count:
                gaps.append(_gap(first, end, "compacted"))
        if count >= wanted:
            return end, gaps
    return stable, gaps


def _gap(start: int, end: int, why: str) -> dict[str, Any]:
    return {"start_offset": start, "end_offset": end, "why": why}


def _with_key(found: pa.Table, log: TopicLog, key: str) -> pa.Table:
    """The records whose key column has this text. Raises UsageError without such a column."""
    name = "key" if is_kafka_schema(log.schema()) else str(log.state.config.key_column or "")
    if not name:
        raise UsageError(f"topic {log.name!r} has no key column; leave the key out.")
    column = found[name]
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return found.filter(pc.equal(column, pa.scalar(key.encode(), kind)))
    try:
        return found.filter(pc.equal(column, pa.scalar(key).cast(kind)))
    except pa.ArrowException as error:
        raise UsageError(f"{key!r:.60} is not a {kind}, as column {name!r} has them.") from error


def shown(value: Any) -> Any:
    """The value as JSON that loses nothing in JavaScript; long texts are cut, and say so."""
    if isinstance(value, bytes):
        value = text_or_base64(value)
    if isinstance(value, str) and len(value) > TEXT_LENGTH_MAX:
        return f"{value[:TEXT_LENGTH_MAX]}\N{HORIZONTAL ELLIPSIS} ({len(value)} characters)"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _EXACT_MAX:
        return str(value)
    if isinstance(value, dict):
        return {str(name): shown(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [shown(item) for item in value]
    return finite(value)


def json_bytes(document: Any) -> bytes:
    """The document as JSON on one line."""
    return json.dumps(document, allow_nan=False, ensure_ascii=False).encode("utf-8", "replace")


def paged(
    items: Sequence[Any], params: Mapping[str, str], size: int
) -> tuple[Sequence[Any], int, int]:
    """The items of page `page`, the number of that page, and how many there are."""
    pages = max(-(-len(items) // size), 1)
    page = min(whole(params, "page", 0, 1 << 31), pages - 1)
    return items[page * size : (page + 1) * size], page, pages
