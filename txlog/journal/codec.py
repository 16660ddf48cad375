"""Frozen dataclasses to JSON values and back, strictly.

Entries and snapshots hold nothing else. It guards I15: anything that is not exactly what the type
says (a missing or unknown field, a wrong type, a number out of its bounds) is CorruptData, never a
guess. What could not be read back is not written either: every other process would find it damaged.
Nothing stored is ever evaluated. It must not know any particular event.

A whole number has 64 bits, or the bounds of its type: `Annotated[int, Within(low, high)]`.

A class with `__compact__ = True` is written as an array in field order, which keeps lists of
record batches short; `__added__` names fields that such arrays have only since a later version.
Unions of event classes are written as {"type": "<snake case name>", ...}.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin, get_type_hints

from txlog.errors import CorruptData, InternalError, UsageError
from txlog.model import Within

Json: TypeAlias = Any
"""A value that the json module reads and writes."""

_LONG = Within(-(1 << 63), (1 << 63) - 1)

Encoder: TypeAlias = Callable[[Any], Json]
Decoder: TypeAlias = Callable[[Json], Any]


def encode(value: object) -> Json:
    """The JSON value of a dataclass instance. Raises InternalError if `decode` would refuse it."""
    kind: Any = type(value)
    return _codec(kind)[0](value)


def decode(kind: Any, value: Json) -> Any:
    """An instance of `kind` (a dataclass, or a union of them). Raises CorruptData."""
    return _codec(kind)[1](value)


def encode_event(value: object) -> Json:
    """The JSON value of one event, with its type name."""
    kind: Any = type(value)
    return {"type": type_name(kind), **encode(value)}


class EventCodec:
    """Encodes and decodes the events of one machine."""

    def __init__(self, *kinds: Any) -> None:
        self._kinds = {type_name(kind): kind for kind in kinds}

    def encode(self, event: object) -> Json:
        """The JSON value of `event`."""
        return encode_event(event)

    def decode(self, value: Json) -> Any:
        """The event that `value` describes. Raises CorruptData."""
        if not isinstance(value, dict) or not isinstance(value.get("type"), str):
            raise _wrong("an event with a type", value)
        kind = self._kinds.get(value["type"])
        if kind is None:
            raise CorruptData(f"unknown event type {value['type']!r:.80}")
        return decode(kind, {name: part for name, part in value.items() if name != "type"})


@cache
def type_name(kind: Any) -> str:
    """BatchesAppended -> batches_appended."""
    name: str = kind.__name__
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _wrong(expected: str, value: Json) -> CorruptData:
    return CorruptData(f"expected {expected}, found {value!r:.80}")


@cache
def _codec(kind: Any) -> tuple[Encoder, Decoder]:
    """Encoder and decoder of a type, built once."""
    if kind is int:
        return _number(_LONG)
    if kind in (float, str, bool):
        return _plain(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _enum(kind)
    if is_dataclass(kind):
        return _compact(kind) if getattr(kind, "__compact__", False) else _record(kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _number(arguments[1])
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return _sequence(arguments[0])
    if origin is tuple:
        return _fixed(arguments)
    if origin in (dict, Mapping):
        return _mapping(*arguments)
    if origin in (Union, types.UnionType) and types.NoneType in arguments:
        (inner,) = (argument for argument in arguments if argument is not types.NoneType)
        return _optional(inner)
    raise TypeError(f"no codec for {kind!r}")


def _plain(kind: type) -> tuple[Encoder, Decoder]:
    def decode_plain(value: Json) -> Any:
        if type(value) is not kind:
            raise _wrong(kind.__name__, value)
        return value

    def encode_plain(value: Any) -> Json:
        # JSON knows neither enums nor numpy's floats: it writes them as what they are made of.
        if type(value) is kind or (isinstance(value, kind) and not isinstance(value, bool)):
            return value
        raise InternalError(
            f"{value!r:.80} was to be stored where {kind.__name__} belongs. Nothing was written; "
            "please report this."
        )

    return encode_plain, decode_plain


def bounds_of(kind: Any, name: str) -> Within:
    """Of a field that is a whole number."""
    hint = get_type_hints(kind, include_extras=True)[name]
    return get_args(hint)[1] if get_origin(hint) is Annotated else _LONG


def _number(bounds: Within) -> tuple[Encoder, Decoder]:
    low, high = bounds.low, bounds.high
    encode_int, _ = _plain(int)

    def decode_number(value: Json) -> Any:
        if type(value) is int and low <= value <= high:
            return value
        raise _wrong(f"a whole number from {low} to {high}", value)

    def encode_number(value: Any) -> Json:
        if not low <= encode_int(value) <= high:
            raise CorruptData(
                f"what is stored leads to {value!s:.40} for a number from {low} to {high}, and "
                "nothing was written. Run 'txlog verify' to find what is damaged or forged."
            )
        return value

    return encode_number, decode_number


def _enum(kind: type[Enum]) -> tuple[Encoder, Decoder]:
    members = {member.value: member for member in kind}

    def decode_enum(value: Json) -> Any:
        if not isinstance(value, str) or value not in members:
            raise _wrong(f"one of {sorted(members)}", value)
        return members[value]

    return (lambda member: member.value), decode_enum


def _optional(kind: Any) -> tuple[Encoder, Decoder]:
    encode_inner, decode_inner = _codec(kind)
    return (
        lambda value: None if value is None else encode_inner(value),
        lambda value: None if value is None else decode_inner(value),
    )


def _sequence(kind: Any) -> tuple[Encoder, Decoder]:
    encode_item, decode_item = _codec(kind)

    def decode_sequence(value: Json) -> Any:
        if not isinstance(value, list):
            raise _wrong("a list", value)
        return tuple([decode_item(item) for item in value])

    return (lambda items: [encode_item(item) for item in items]), decode_sequence


def _fixed(kinds: tuple[Any, ...]) -> tuple[Encoder, Decoder]:
    codecs = [_codec(kind) for kind in kinds]

    def decode_fixed(value: Json) -> Any:
        if not isinstance(value, list) or len(value) != len(codecs):
            raise _wrong(f"a list of {len(codecs)}", value)
        return tuple([codec[1](item) for codec, item in zip(codecs, value, strict=True)])

    def encode_fixed(items: Any) -> Json:
        return [codec[0](item) for codec, item in zip(codecs, items, strict=True)]

    return encode_fixed, decode_fixed


def _mapping(key_kind: Any, kind: Any) -> tuple[Encoder, Decoder]:
    """Keys that are no text (ints, ids) are written as pairs, since JSON keys are text."""
    if key_kind is str:
        encode_item, decode_item = _codec(kind)

        def decode_mapping(value: Json) -> Any:
            if not isinstance(value, dict):
                raise _wrong("an object", value)
            return {name: decode_item(item) for name, item in value.items()}

        return (lambda items: {k: encode_item(v) for k, v in items.items()}), decode_mapping
    encode_pairs, decode_pairs = _sequence(tuple[key_kind, kind])

    def decode_pairs_once(value: Json) -> Any:
        found = decode_pairs(value)
        if len(by_key := dict(found)) != len(found):
            raise _wrong("distinct keys", value)
        return by_key

    return (lambda items: encode_pairs(items.items())), decode_pairs_once


def _record(kind: Any) -> tuple[Encoder, Decoder]:
    """A dataclass as an object. Fields at their default are left out, which keeps entries small."""
    hints = get_type_hints(kind, include_extras=True)
    parts = [(field.name, *_codec(hints[field.name]), field.default) for field in fields(kind)]
    names = {name for name, *_ in parts}

    def encode_record(value: Any) -> Json:
        found = {}
        for name, encode_part, _, default in parts:
            part = getattr(value, name)
            if default is MISSING or part != default:
                found[name] = encode_part(part)
        return found

    def decode_record(value: Json) -> Any:
        if not isinstance(value, dict):
            raise _wrong(kind.__name__, value)
        if not names.issuperset(value):
            raise CorruptData(f"{kind.__name__} has unknown fields {sorted(set(value) - names)}")
        arguments = {}
        for name, _, decode_part, default in parts:
            if name in value:
                arguments[name] = decode_part(value[name])
            elif default is MISSING:
                raise CorruptData(f"{kind.__name__} lacks the field {name!r}")
        try:
            return kind(**arguments)
        except UsageError as error:
            raise CorruptData(f"{kind.__name__}: {error.message}") from error

    return encode_record, decode_record


def _compact(kind: Any) -> tuple[Encoder, Decoder]:
    """A dataclass as a list. What an older program wrote lacks the fields that came later: those
    are the last ones, and `__added__` names them. A list that lacks others is damaged. They are
    written only as far as they say something, so that an older program can read the rest.
    """
    hints = get_type_hints(kind, include_extras=True)
    names = [field.name for field in fields(kind)]
    added = getattr(kind, "__added__", ())
    defaults = [field.default for field in fields(kind) if field.name in added]
    encode_fields, decode_fields = _fixed(tuple(hints[name] for name in names))

    def decode_compact(value: Json) -> Any:
        lacking = len(names) - len(value) if isinstance(value, list) else 0
        if 0 < lacking <= len(defaults):
            value = [*value, *defaults[-lacking:]]
        return kind(*decode_fields(value))

    def encode_compact(item: Any) -> Json:
        values = [getattr(item, name) for name in names]
        spoken = encode_fields(values)
        for default in reversed(defaults):
            if values.pop() != default:
                break
            spoken.pop()
        return spoken

    return encode_compact, decode_compact
