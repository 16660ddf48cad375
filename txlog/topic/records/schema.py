"""Schemas of topics: their validation, their stored form, and the changes that are allowed.

A topic has a *topic schema*, which its users see, and a *physical schema*, which its segments have:
the same with a last column `_timestamp`, in milliseconds UTC, never null. Every stored segment
stays readable under every later schema. Pure functions; `conversion.py` brings data into a schema.
"""

from __future__ import annotations

import base64
import binascii
from functools import lru_cache

import pyarrow as pa

from txlog.errors import CorruptData, IncompatibleSchema
from txlog.journal.arrow_ipc import read_schema
from txlog.topic.records.column_types import canonical_field, require_distinct_names, widens
from txlog.topic.records.conversion import OFFSET_FIELD, TIMESTAMP_COLUMN, TIMESTAMP_FIELD

KAFKA_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
"""The default schema of a topic: a Kafka record. Its timestamp is in the physical schema."""

RESERVED_NAMES = frozenset(
    {"_topic", "_partition", "_offset", TIMESTAMP_COLUMN, "_timestamp_type", "_key", "_headers"}
)
"""Names of columns that readers add. A topic may not use them, in upper or lower case."""

_DECODING_ERRORS = (pa.ArrowException, OSError, ValueError, TypeError, MemoryError)


def validate_schema(schema: pa.Schema) -> pa.Schema:
    """The canonical form of a topic schema: without metadata, with plain layouts and "UTC".

    Raises IncompatibleSchema, which names the column and the remedy, for a schema without columns,
    names that are reserved or differ only in case, and types that a topic cannot hold.
    """
    if not isinstance(schema, pa.Schema):
        raise IncompatibleSchema(
            f"a topic's schema must be a pyarrow.Schema, not {type(schema).__name__}."
        )
    for name in schema.names:
        if name.casefold() in RESERVED_NAMES:
            raise IncompatibleSchema(
                f"column {name!r} has a reserved name: readers add "
                f"{', '.join(sorted(RESERVED_NAMES))} themselves. Rename the column, or leave it "
                "out.",
                path=name,
            )
    return _canonical(schema)


def physical_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of the segments of a topic: `schema` (validated) and `_timestamp`, last."""
    return schema.append(TIMESTAMP_FIELD)


def compacted_schema(schema: pa.Schema) -> pa.Schema:
    """The physical schema of batches from which compaction has removed records: it has the column
    `_offset` before `_timestamp`."""
    return schema.append(OFFSET_FIELD).append(TIMESTAMP_FIELD)


def is_kafka_schema(schema: pa.Schema) -> bool:
    """Whether a topic of this validated schema holds plain Kafka records."""
    return bool(schema.equals(KAFKA_SCHEMA))


def encode_schema(schema: pa.Schema) -> str:
    """The schema as journals have it: Base64 text of an Arrow IPC message."""
    return base64.b64encode(schema.serialize()).decode("ascii")


@lru_cache(maxsize=1_024)  # Many topics have one schema.
def decode_schema(text: str) -> pa.Schema:
    """The schema of a text that `encode_schema` made. Raises CorruptData for any other text."""
    try:
        data = base64.b64decode(text, validate=True)
        # Validated like a user's schema, as the stored text may be forged (I15).
        return _canonical(read_schema(memoryview(data), "it")[0])
    except (*_DECODING_ERRORS, CorruptData, binascii.Error) as error:
        raise CorruptData(
            f"a stored schema cannot be read ({error}): the entry or snapshot with it is "
            "damaged. Run 'txlog verify' to find it.",
        ) from error


def evolve(old: pa.Schema, new: pa.Schema) -> pa.Schema:
    """The schema of a topic after a change from `old` to `new`; both are topic schemas.

    Columns are matched by name. New nullable columns come last, whatever their place in `new`;
    integers, floats and decimals may become wider; a column may become nullable. The same holds
    inside structs, lists and maps. Raises IncompatibleSchema, which names every other change.
    """
    before, after = validate_schema(old), validate_schema(new)
    problems: list[str] = []
    fields = _evolve_fields(list(before), list(after), "", problems)
    if problems:
        raise IncompatibleSchema(
            f"this change of schema would make stored records unreadable: {'; '.join(problems)}. "
            "Only new nullable columns, wider numbers and nullable in place of not null are "
            "possible; for anything else create another topic.",
            problems=problems,
        )
    return pa.schema(fields)


def _canonical(schema: pa.Schema) -> pa.Schema:
    require_distinct_names(schema.names)
    return pa.schema([canonical_field(field, field.name) for field in schema])


def _evolve_fields(
    old: list[pa.Field], new: list[pa.Field], prefix: str, problems: list[str]
) -> list[pa.Field]:
    wanted = {field.name: field for field in new}
    fields = []
    for field in old:
        path = prefix + field.name
        successor = wanted.pop(field.name, None)
        if successor is None:
            problems.append(f"column {path!r} ({field.type}) is missing")
        else:
            fields.append(_evolve_field(field, successor, path, problems))
    for field in wanted.values():
        if not field.nullable:
            problems.append(f"column {prefix + field.name!r} ({field.type}) is new and not null")
    return [*fields, *wanted.values()]


def _evolve_field(old: pa.Field, new: pa.Field, path: str, problems: list[str]) -> pa.Field:
    if old.nullable and not new.nullable:
        problems.append(f"column {path!r} was nullable and would be not null")
    return pa.field(old.name, _evolve_type(old.type, new.type, path, problems), new.nullable)


def _evolve_type(old: pa.DataType, new: pa.DataType, path: str, problems: list[str]) -> pa.DataType:
    if old == new or widens(old, new):
        return new
    types = pa.types
    if types.is_struct(old) and types.is_struct(new):
        return pa.struct(_evolve_fields(list(old), list(new), f"{path}.", problems))
    if types.is_list(old) and types.is_list(new):
        return pa.list_(_evolve_field(old.value_field, new.value_field, f"{path}[]", problems))
    if types.is_fixed_size_list(old) and types.is_fixed_size_list(new):
        item = _evolve_field(old.value_field, new.value_field, f"{path}[]", problems)
        if old.list_size == new.list_size:
            return pa.list_(item, new.list_size)
    elif types.is_map(old) and types.is_map(new) and old.key_type == new.key_type:
        item = _evolve_field(old.item_field, new.item_field, f"{path}.value", problems)
        return pa.map_(old.key_type, item)
    problems.append(f"column {path!r} is {old} and would be {new}")
    return old
