"""The Arrow types that a topic's columns may have, and the safe conversions between them.

Pure rules over types, no data. `canonical_type` is an allow-list: a type that Arrow adds later is
refused until it is listed here. `widens` says what a change of schema may do to stored records;
`fits` says what may happen to a batch on its way into a topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa

from txlog.errors import IncompatibleSchema
from txlog.model import has_unseen_characters

NESTING_DEPTH_MAX = 32
"""Levels of lists, structs and maps. Arrow's IPC reader supports 64, and a map takes two of them; a
deeper type would be written and could not be read."""

_types = pa.types

_PLAIN: tuple[Callable[[pa.DataType], bool], ...] = (
    _types.is_boolean,
    _types.is_integer,
    _types.is_floating,
    _types.is_string,
    _types.is_binary,
    _types.is_fixed_size_binary,
    _types.is_date,
    _types.is_time,
    _types.is_duration,
    _types.is_decimal128,
    _types.is_decimal256,
)
_UTC_NAMES = frozenset({"utc", "etc/utc", "z", "+00:00", "gmt"})
_TIME_UNITS = ("s", "ms", "us", "ns")

_SIGNED = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_UNSIGNED = (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
_FLOATS = (pa.float16(), pa.float32(), pa.float64())
_WIDER: dict[pa.DataType, tuple[pa.DataType, ...]] = {
    # Every value of the left type has exactly one value in each of the right ones.
    **{kind: _SIGNED[index + 1 :] for index, kind in enumerate(_SIGNED)},
    **{kind: _UNSIGNED[i + 1 :] + _SIGNED[i + 1 :] for i, kind in enumerate(_UNSIGNED)},
    **{kind: _FLOATS[index + 1 :] for index, kind in enumerate(_FLOATS)},
}
# A double holds whole numbers of up to 53 bits exactly, so not every int64.
for _small in (pa.int8(), pa.int16(), pa.int32()):
    _WIDER[_small] += (pa.float64(),)


def canonical_field(field: pa.Field, path: str, depth: int = 0) -> pa.Field:
    """The field without metadata and with a canonical type. Raises IncompatibleSchema."""
    return pa.field(field.name, canonical_type(field.type, path, depth), field.nullable)


def canonical_type(kind: pa.DataType, path: str, depth: int = 0) -> pa.DataType:
    """The form in which a topic stores `kind`; `path` names the column in errors.

    Large strings, binaries and lists become plain ones, dictionaries (pandas' categories) and views
    what they hold, small decimals decimal128; every name of UTC becomes "UTC", and list items get
    Arrow's default name. Raises IncompatibleSchema for a type that is not supported.
    """
    if depth > NESTING_DEPTH_MAX:
        raise IncompatibleSchema(
            f"column {path!r} nests deeper than {NESTING_DEPTH_MAX} levels; flatten it.", path=path
        )
    if (_types.is_fixed_size_binary(kind) and not kind.byte_width) or (
        _types.is_fixed_size_list(kind) and not kind.list_size
    ):  # Parquet and Arrow's own kernels lose which of such values are null.
        raise _unsupported(kind, path)
    if any(accepts(kind) for accepts in _PLAIN):
        return kind
    if _types.is_large_string(kind) or _types.is_string_view(kind):
        return pa.string()
    if _types.is_large_binary(kind) or _types.is_binary_view(kind):
        return pa.binary()
    if _types.is_decimal(kind):  # Of 32 or 64 bits.
        return pa.decimal128(kind.precision, kind.scale)
    if _types.is_dictionary(kind):
        return canonical_type(kind.value_type, path, depth)
    if _types.is_timestamp(kind):
        return _canonical_timestamp(kind, path)
    if _types.is_nested(kind):
        return _canonical_nested(kind, path, depth + 1)
    raise _unsupported(kind, path)


def _canonical_timestamp(kind: pa.DataType, path: str) -> pa.DataType:
    if kind.tz is None:
        return kind
    if kind.tz.lower() not in _UTC_NAMES:
        raise IncompatibleSchema(
            f"column {path!r} is a timestamp in time zone {kind.tz!r}; a topic keeps timestamps in "
            f"UTC or without a zone. Cast it to {pa.timestamp(kind.unit, 'UTC')}.",
            path=path,
            type=str(kind),
        )
    return pa.timestamp(kind.unit, "UTC")


def _canonical_nested(kind: pa.DataType, path: str, depth: int) -> pa.DataType:
    if _types.is_list(kind) or _types.is_large_list(kind):
        return pa.list_(_canonical_item(kind.value_field, path, depth))
    if _types.is_fixed_size_list(kind):
        return pa.list_(_canonical_item(kind.value_field, path, depth), kind.list_size)
    if _types.is_map(kind):
        key = canonical_type(kind.key_type, f"{path}.key", depth)
        item = canonical_type(kind.item_type, f"{path}.value", depth)
        return pa.map_(key, pa.field("value", item, kind.item_field.nullable))
    if _types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        require_distinct_names([field.name for field in fields], path)
        return pa.struct([canonical_field(f, f"{path}.{f.name}", depth) for f in fields])
    raise _unsupported(kind, path)


def _canonical_item(field: pa.Field, path: str, depth: int) -> pa.Field:
    return pa.field("item", canonical_type(field.type, f"{path}[]", depth), field.nullable)


def require_distinct_names(names: Iterable[str], path: str = "") -> None:
    """Check the names of columns. Raises IncompatibleSchema if there are none, for an empty name
    or one of blanks, for control characters (also those that change the direction of text) and
    characters that are not shown, and for two names that differ only in case, which Spark cannot
    tell apart.
    """
    place = f"struct {path!r}" if path else "the schema"
    seen: dict[str, str] = {}
    for name in names:
        if not name.strip():
            raise IncompatibleSchema(f"{place} has a column without a name; name it.", path=path)
        if has_unseen_characters(name):
            raise IncompatibleSchema(
                f"{place} has a column {name!a} with control characters, which terminals and "
                "readers would obey, or with characters that are not shown. Rename it.",
                path=path,
            )
        folded = name.casefold()
        if folded in seen:
            raise IncompatibleSchema(
                f"{place} has two columns named {seen[folded]!r} and {name!r}; Spark cannot tell "
                "them apart, as it ignores case. Rename one.",
                path=path,
            )
        seen[folded] = name
    if not seen:
        raise IncompatibleSchema(f"{place} has no columns; give it at least one.", path=path)


def _unsupported(kind: pa.DataType, path: str) -> IncompatibleSchema:
    return IncompatibleSchema(
        f"column {path!r} has type {kind}, which a topic cannot hold; {_remedy(kind)}.",
        path=path,
        type=str(kind),
    )


def _remedy(kind: pa.DataType) -> str:
    if _types.is_run_end_encoded(kind):
        return f"cast it to its value type, {kind.value_type}"
    if isinstance(kind, pa.BaseExtensionType):
        return f"cast it to its storage type, {kind.storage_type}"
    if _types.is_list_view(kind) or _types.is_large_list_view(kind):
        return f"cast it to {pa.list_(kind.value_field)}"
    if _types.is_union(kind):
        return "use one nullable column for each of its types"
    if _types.is_null(kind):
        return "declare the type that its values will have"
    return "cast it to a plain type"


def widens(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether the flat type `new` has every value of `old` exactly, and is wider."""
    if _types.is_decimal(old) and _types.is_decimal(new):
        whole_digits_gained = (new.precision - new.scale) - (old.precision - old.scale)
        return bool(whole_digits_gained >= 0 and new.scale >= old.scale)
    return new in _WIDER.get(old, ())


def fits(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether a column of type `source` may be written into a canonical column of type `target`.

    In addition to `widens`: other layouts of the same values (large, view, dictionary), text into
    binary (as UTF-8), coarser into finer time units, columns of nulls. Null values are not checked.
    """
    if _types.is_dictionary(source):
        return fits(source.value_type, target)
    if _types.is_null(source) or source == target:
        return True
    if _types.is_nested(target):
        return _nested_fits(source, target)
    plain = _plain_layout(source)
    if plain == target or widens(plain, target):
        return True
    if plain == pa.string() and target == pa.binary():
        return True
    return _finer_unit(plain, target)


def _plain_layout(kind: pa.DataType) -> pa.DataType:
    if _types.is_large_string(kind) or _types.is_string_view(kind):
        return pa.string()
    if _types.is_large_binary(kind) or _types.is_binary_view(kind):
        return pa.binary()
    if _types.is_large_binary(kind) or _types.is_binary_view(kind):
        return pa.binary()
    if _types.is_timestamp(kind) and kind.tz and kind.tz.lower() in _UTC_NAMES:
        return pa.timestamp(kind.unit, "UTC")
    return kind


def _finer_unit(source: pa.DataType, target: pa.DataType) -> bool:
    if _types.is_timestamp(source) and _types.is_timestamp(target):
        if source.tz != target.tz:
            return False
    elif not (_types.is_duration(source) and _types.is_duration(target)):
        return False
    return _TIME_UNITS.index(source.unit) <= _TIME_UNITS.index(target.unit)


def _nested_fits(source: pa.DataType, target: pa.DataType) -> bool:
    if _types.is_struct(target):
        return _types.is_struct(source) and _struct_fits(source, target)
    if _types.is_map(target):
        return (
            _types.is_map(source)
            and fits(source.key_type, target.key_type)
            and fits(source.item_type, target.item_type)
        )
    if _types.is_fixed_size_list(target):
        same = _types.is_fixed_size_list(source) and source.list_size == target.list_size
        return same and fits(source.value_type, target.value_type)
    # List views do not fit: pyarrow 26 casts them to lists without their items.
    listed = _types.is_list(source) or _types.is_large_list(source)
    return listed and fits(source.value_type, target.value_type)


def _struct_fits(source: pa.DataType, target: pa.DataType) -> bool:
    given = {field.name: field for field in source}
    wanted = {field.name: field for field in target}
    if len(given) != source.num_fields or not given.keys() <= wanted.keys():
        return False
    missing = wanted.keys() - given.keys()
    return all(wanted[name].nullable for name in missing) and all(
        fits(field.type, wanted[name].type) for name, field in given.items()
    )
