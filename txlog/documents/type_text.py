"""Schemas and their types as text, with Arrow's names: `at: timestamp[us, UTC] not null`."""

from __future__ import annotations

import json
import re

import pyarrow as pa

_BARE_NAME = re.compile(r'[^\s:,<>()\[\]"]+')
UNITS = ("s", "ms", "us", "ns")

PRINTED: dict[str, pa.DataType] = {
    **{f"int{bits}": getattr(pa, f"int{bits}")() for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": getattr(pa, f"uint{bits}")() for bits in (8, 16, 32, 64)},
    **{f"float{bits}": getattr(pa, f"float{bits}")() for bits in (16, 32, 64)},
    **{f"timestamp[{unit}]": pa.timestamp(unit) for unit in UNITS},
    **{f"duration[{unit}]": pa.duration(unit) for unit in UNITS},
    **{f"time32[{unit}]": pa.time32(unit) for unit in UNITS[:2]},
    **{f"time64[{unit}]": pa.time64(unit) for unit in UNITS[2:]},
    "bool": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date32": pa.date32(),
    "date64": pa.date64(),
}
"""Types without parameters, and those whose only parameter is a unit, by the printed name."""

_NAMES = {kind: name for name, kind in PRINTED.items()}


def type_text(kind: pa.DataType) -> str:
    """The text of a type that a topic can have."""
    types = pa.types
    if kind in _NAMES:
        return _NAMES[kind]
    if types.is_timestamp(kind):
        return f"timestamp[{kind.unit}, {kind.tz}]"
    if types.is_struct(kind):
        return f"struct<{', '.join(_field_text(field) for field in kind)}>"
    if types.is_map(kind):
        return f"map<{type_text(kind.key_type)}, {_item_text(kind.item_field)}>"
    if types.is_fixed_size_list(kind):
        return f"list<{_item_text(kind.value_field)}>[{kind.list_size}]"
    if types.is_list(kind):
        return f"list<{_item_text(kind.value_field)}>"
    return str(kind)


def _field_text(field: pa.Field) -> str:
    plain = _BARE_NAME.fullmatch(field.name)
    name = field.name if plain else json.dumps(field.name, ensure_ascii=False)
    return f"{name}: {_item_text(field)}"


def _item_text(field: pa.Field) -> str:
    return type_text(field.type) + ("" if field.nullable else " not null")
