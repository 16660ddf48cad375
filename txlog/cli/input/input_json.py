"""Records from JSON lines, in the form in which `txlog consume -o json` prints them. Pure.

It guards that no name in an object is silently ignored.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from txlog.cli.input.column_values import json_bytes, json_value, value_reader
from txlog.cli.input.input_records import (
    ENVELOPE,
    KAFKA_NAMES,
    ParsedRecord,
    RecordForm,
    Row,
    parsed_record,
    typed_row,
    with_headers,
)
from txlog.errors import InvalidRecord


def parse_json(line: bytes, form: RecordForm) -> ParsedRecord:
    """An object as `txlog consume -o json` prints it; for a typed topic also its bare columns."""
    found = json_value(line)
    if not isinstance(found, dict):
        raise InvalidRecord("it is not a JSON object")
    if form.is_kafka:
        return _kafka_record(found, form)
    if _is_envelope(found, form.schema):
        return parsed_record(typed_row(found["value"], form, value_reader), found, form)
    return parsed_record(typed_row(found, form, value_reader), {}, form)


def _is_envelope(found: Row, schema: pa.Schema) -> bool:
    """False if all its names are columns of the topic: then the object is the columns."""
    is_form = found.keys() <= ENVELOPE | {"value"} and isinstance(found.get("value"), dict)
    return is_form and not found.keys() <= set(schema.names)


def _kafka_record(found: Row, form: RecordForm) -> ParsedRecord:
    _require_names(found, ENVELOPE | KAFKA_NAMES)
    if not found.keys() & KAFKA_NAMES:
        raise InvalidRecord("it has neither key nor value nor headers")
    own: Row = {}
    for name in ("key", "value"):
        try:
            own[name] = json_bytes(found.get(name))
        except InvalidRecord as error:
            raise InvalidRecord(f"{name!r}: {error.message}") from error
    if own["key"] is None:
        own["key"] = form.key
    own["headers"] = with_headers(json_headers(found.get("headers")), form)
    return parsed_record(own, found, form)


def _require_names(found: Row, known: frozenset[str]) -> None:
    if not found.keys() <= known:
        unknown = sorted(found.keys() - known)
        raise InvalidRecord(
            f"{', '.join(map(repr, unknown))[:80]} is unknown; a record has key, value, headers, "
            "timestamp and partition"
        )


def json_headers(found: Any) -> list[Row]:
    """Headers as `consume` prints them. Raises InvalidRecord."""
    if found is None:
        return []
    headers = []
    for header in found if isinstance(found, list) else [found]:
        if not isinstance(header, dict) or header.keys() != {"key", "value"}:
            raise InvalidRecord('\'headers\' must be [{"key": ..., "value": ...}, ...]')
        if not isinstance(header["key"], str):
            raise InvalidRecord("the key of a header must be text")
        headers.append({"key": header["key"], "value": json_bytes(header["value"])})
    return headers
