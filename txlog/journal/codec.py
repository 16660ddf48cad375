"""Frozen dataclasses to JSON values and back, strictly, under their stored names.

Entries and snapshots contain nothing else; `txlog/stored.py` has the names. Keeps I15: anything
that is not exactly what the type says (a missing or unknown field, a wrong type, a number out of
its bounds) is CorruptData, never a guess. A value that could not be read back is not written: every
other process would find it damaged. Stored bytes are never evaluated. It must not know any
particular event.

A whole number has 64 bits, or the bounds of its type: `Annotated[int, Within(low, high)]`. A field
with its default value is left out; in a list (`@stored_list`) only after the last one that has
another value. An event is an object that also contains its stored name: {"type": "<name>", ...}.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin, get_type_hints

from txlog.errors import CorruptData, InternalError, UnsupportedFormat, UsageError
from txlog.model import Within
from txlog.sorted_map import SortedMap
from txlog.stored import EVENT_NAME, StoredForm, stored_form

Json: TypeAlias = Any
"""A value that the json module reads and writes."""

_LONG = Within(-(1 << 63), (1 << 63) - 1)

Encoder: TypeAlias = Callable[[Any], Json]
Decoder: TypeAlias = Callable[[Json], Any]


def parsed(text: str | bytes) -> Json:
    """The JSON value of a stored text, or of offsets that a user gives. Raises ValueError, also for
    an object that has a key twice, and RecursionError."""
    # A user's text may contain half a surrogate pair.
    return _PARSER.decode(text if isinstance(text, str) else str(text, "utf-8", "surrogatepass"))


def _distinct(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    # `dict` alone would silently keep the last of two equal keys (I15).
    if len(found := dict(pairs)) != len(pairs):
        raise ValueError("a name occurs twice in an object")
    return found


_PARSER = json.JSONDecoder(object_pairs_hook=_distinct)
"""Made once, because snapshots have many small texts."""


def encode(value: object) -> Json:
    """The JSON value of a dataclass instance. Raises InternalError if `decode` would refuse it."""
    kind: Any = type(value)
    return _codec(kind)[0](value)


def decode(kind: Any, value: Json) -> Any:
    """An instance of `kind` (a dataclass, or a union of them). Raises CorruptData."""
    return _codec(kind)[1](value)


class EventCodec:
    """Encodes and decodes the events of one machine."""

    def __init__(self, *kinds: Any) -> None:
        """Raises InternalError if a kind has no stored name, or if two kinds share one."""
        self._kinds = {stored_form(kind).name: kind for kind in kinds}
        self._known = frozenset(kinds)
        if len(self._kinds) != len(kinds):
            raise InternalError(
                f"two of {sorted(kind.__name__ for kind in kinds)} have the same stored name; "
                "please report this."
            )

    def encode(self, event: object) -> Json:
        """The JSON value of `event`."""
        kind: Any = type(event)
        if kind not in self._known:
            raise InternalError(f"{kind.__name__} is not an event here. Please report this.")
        return _event(kind)[0](event)

    def decode(self, value: Json) -> Any:
        """The event that `value` describes. Raises CorruptData, UnsupportedFormat."""
        if not isinstance(value, dict) or not isinstance(name := value.get(EVENT_NAME), str):
            raise _wrong(f"an event with a {EVENT_NAME}", value)
        kind = self._kinds.get(name)
        if kind is None:
            raise UnsupportedFormat(f"{name!r:.80} is not an event that this txlog knows")
        return _event(kind)[1](value)


class JsonText(str):
    """A row of a snapshot that is encoded already."""

    __slots__ = ()


def json_text(row: Json) -> str:
    """A row of a snapshot as text."""
    # In ASCII: a user's text may contain half a surrogate pair, which no Arrow text can hold.
    return row if type(row) is JsonText else _ENCODER.encode(row)


_ENCODER = json.JSONEncoder(separators=(",", ":"))


class SectionCodec:
    """Encodes and decodes the sections of one machine's snapshots: rows of one type in each."""

    def __init__(self, rows_max: Mapping[str, int] | None = None, /, **kinds: Any) -> None:
        """`rows_max` are the most rows that a section can need, where the format knows it."""
        self.rows_max = rows_max or {}
        self.kinds: Mapping[str, Any] = kinds

    def encode(self, rows: Mapping[str, Iterable[Any]]) -> Mapping[str, Iterable[Json]]:
        """The JSON values of all sections, or their texts where `texts` has made them."""
        return {
            name: [row if type(row) is JsonText else encode_row(row) for row in rows[name]]
            for name, (encode_row, _) in self._codecs()
        }

    def texts(
        self, name: str, items: SortedMap[Any, Any], row_of: Callable[[Any, Any], Any]
    ) -> Iterator[JsonText]:
        """The rows of a section, which are encoded once: a snapshot costs what has changed since
        the one before it, as far as its rows can be shared."""
        encode_row, _ = _codec(self.kinds[name])

        def texts_of(pairs: Iterable[tuple[Any, Any]]) -> list[JsonText]:
            return [JsonText(json_text(encode_row(row_of(*pair)))) for pair in pairs]

        return chain.from_iterable(items.by_leaf(texts_of))

    def decode(self, sections: Mapping[str, list[Json]]) -> dict[str, list[Any]]:
        """The rows of all sections; a missing section has none. Raises CorruptData,
        UnsupportedFormat."""
        if unknown := sorted(set(sections) - set(self.kinds)):
            raise UnsupportedFormat(f"sections {unknown!r:.80} are not known")
        return {
            name: [decode_row(row) for row in sections.get(name, ())]
            for name, (_, decode_row) in self._codecs()
        }

    def _codecs(self) -> list[tuple[str, tuple[Encoder, Decoder]]]:
        return [(name, _codec(kind)) for name, kind in self.kinds.items()]


def _wrong(expected: str, value: Json) -> CorruptData:
    return CorruptData(f"expected {expected}, found {value!r:.80}")


def _exact(kind: Any) -> tuple[type | None, Any, Any]:
    """(type, low, high): a value of exactly that type, within these bounds if it has some, is its
    own JSON value, and the loops below take it without a call. (None, ...) for any other kind."""
    if kind in (str, bool):
        return kind, None, None
    bounds = _LONG if kind is int else None
    if get_origin(kind) is Annotated:
        bounds = get_args(kind)[1]
    return (int, bounds.low, bounds.high) if bounds is not None else (None, None, None)


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
        form = stored_form(kind)
        return _list(kind, form) if form.is_list else _record(kind, form)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _number(arguments[1])
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return _sequence(arguments[0])
    if origin is tuple:
        return _fixed(arguments)
    if origin in (dict, Mapping):
        return _mapping(*arguments)
    if origin is SortedMap:
        encode_items, decode_items = _mapping(*arguments)
        return encode_items, lambda value: SortedMap(decode_items(value))
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
        # JSON has neither enums nor numpy's floats: they are written as their values.
        if type(value) is kind or (isinstance(value, kind) and not isinstance(value, bool)):
            return value
        raise InternalError(
            f"{value!r:.80} cannot be stored in place of {kind.__name__}. Nothing was written; "
            "please report this."
        )

    return encode_plain, decode_plain


def bounds_of(kind: Any, name: str) -> Within:
    """The bounds of a field that is a whole number."""
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
        if type(value) is int and low <= value <= high:
            return value
        # CorruptData, not InternalError: valid events lead nowhere near the bounds, so a forged one
        # is among those that led here (design note 0018).
        if not low <= encode_int(value) <= high:
            raise CorruptData(
                f"the stored events lead to {value!s:.40} for a number from {low} to {high}, and "
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
    """Keys that are not text (ints, ids) are written as pairs, since JSON keys are text."""
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
        # `dict` alone would silently keep the last of two equal keys (I15).
        if len(by_key := dict(found)) != len(found):
            raise _wrong("distinct keys", value)
        return by_key

    return (lambda items: encode_pairs(items.items())), decode_pairs_once


def _default(field: Field[Any]) -> Any:
    """The default value of the field, or MISSING if it has none."""
    return field.default if field.default_factory is MISSING else field.default_factory()


@cache
def _event(kind: Any) -> tuple[Encoder, Decoder]:
    """Encoder and decoder of an event, built once."""
    form = stored_form(kind)
    return _record(kind, form, {EVENT_NAME: form.name})


def _record(
    kind: Any, form: StoredForm, tag: Mapping[str, str] | None = None
) -> tuple[Encoder, Decoder]:
    """A dataclass as an object, which begins with `tag`."""
    hints = get_type_hints(kind, include_extras=True)
    defaults = {field.name: _default(field) for field in fields(kind)}
    parts = [
        (attribute, name, *_codec(hint), defaults[attribute], *_exact(hint))
        for attribute, name in form.fields.items()
        for hint in [hints[attribute]]
    ]
    names = {*form.fields.values(), *(tag or ())}

    def encode_record(value: Any) -> Json:
        found: dict[str, Json] = {} if tag is None else {**tag}
        for attribute, name, encode_part, _, default, exact, low, high in parts:
            part = getattr(value, attribute)
            # A default is left out, so that a release that lacks the field can read the object.
            if default is MISSING or part != default:
                is_plain = type(part) is exact and (low is None or low <= part <= high)
                found[name] = part if is_plain else encode_part(part)
        return found

    def decode_record(value: Json) -> Any:
        if not isinstance(value, dict):
            raise _wrong(f"a {form.name}", value)
        # A later release may have added them: the remedy is that release, not a backup (design note
        # 0031).
        if not names.issuperset(value):
            unknown = sorted(set(value) - names)
            raise UnsupportedFormat(f"{form.name} has unknown fields {unknown!r:.200}")
        arguments = {}
        for attribute, name, _, decode_part, default, exact, low, high in parts:
            if name in value:
                part = value[name]
                is_plain = type(part) is exact and (low is None or low <= part <= high)
                arguments[attribute] = part if is_plain else decode_part(part)
            elif default is MISSING:
                raise CorruptData(f"{form.name} lacks the field {name!r}")
        try:
            return kind(**arguments)
        except UsageError as error:
            raise CorruptData(f"{form.name}: {error.message}") from error

    return encode_record, decode_record


def _list(kind: Any, form: StoredForm) -> tuple[Encoder, Decoder]:
    """A dataclass as a list, whose last fields may be missing if they have defaults."""
    hints = get_type_hints(kind, include_extras=True)
    all_defaults = {field.name: _default(field) for field in fields(kind)}
    attributes = tuple(form.fields)
    parts = [(*_codec(hints[name]), *_exact(hints[name])) for name in attributes]
    defaults = [all_defaults[name] for name in attributes]
    shortest = max((at for at, known in enumerate(defaults, 1) if known is MISSING), default=0)
    is_in_order = [field.name for field in fields(kind) if not field.kw_only] == list(attributes)
    values_of = attrgetter(*attributes, "__class__")  # At least two, so that it returns a tuple.

    def decode_list(value: Json) -> Any:
        if not isinstance(value, list) or not shortest <= len(value) <= len(attributes):
            raise _wrong(f"a list of {shortest} to {len(attributes)}, a {form.name}", value)
        found = [
            part
            if type(part) is exact and (low is None or low <= part <= high)
            else decode_part(part)
            for (_, decode_part, exact, low, high), part in zip(parts, value, strict=False)
        ]
        return kind(*found) if is_in_order else kind(**dict(zip(attributes, found, strict=False)))

    def encode_list(item: Any) -> Json:
        values = values_of(item)
        end = len(attributes)
        # As in an object: a release that lacks the last fields can read what does not use them.
        while end > shortest and values[end - 1] == defaults[end - 1]:
            end -= 1
        return [
            part
            if type(part) is exact and (low is None or low <= part <= high)
            else encode_part(part)
            for (encode_part, _, exact, low, high), part in zip(parts, values[:end], strict=False)
        ]

    return encode_list, decode_list
