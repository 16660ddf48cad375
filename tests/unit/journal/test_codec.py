"""The codec writes frozen dataclasses as JSON and reads back only exactly these."""

import json
from collections.abc import Mapping
from dataclasses import (
    MISSING,
    dataclass,
    field,
    fields,
    is_dataclass,
    make_dataclass,
    replace,
)
from enum import IntEnum, StrEnum
from functools import cache
from types import EllipsisType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from txlog.catalog.state import ClusterEvent, ClusterMachine
from txlog.coordinator.events import (
    CoordinatorEvent,
    Participant,
    StagingHorizonAdvanced,
    TopicDeletionBegun,
)
from txlog.errors import CorruptData, InternalError, UnsupportedFormat
from txlog.groups.machine import CoordinatorMachine
from txlog.groups.state import OffsetsEvent
from txlog.journal.codec import EventCodec, SectionCodec, decode, encode
from txlog.journal.machine import Machine
from txlog.layout import segment_id_at
from txlog.model import PARTITIONS_MAX, WALL_MS_MAX
from txlog.settings import COMPRESSION_TYPES, TopicConfig
from txlog.sorted_map import SortedMap
from txlog.stored import stored, stored_form, stored_list
from txlog.topic.events import HorizonAdvanced, PartitionsAdded, TopicEvent, TopicOpened
from txlog.topic.machine import TopicMachine

MACHINES: list[tuple[Machine[Any], Any]] = [
    (TopicMachine(), TopicEvent),
    (CoordinatorMachine(), CoordinatorEvent),
    (CoordinatorMachine(), OffsetsEvent),
    (ClusterMachine(), ClusterEvent),
]
QUICK = settings(max_examples=examples(60), derandomize=True)

IDS = st.from_regex(r"[a-f0-9]{16}", fullmatch=True)
NAMES = st.from_regex(r"[a-z][A-Za-z0-9._-]{0,8}", fullmatch=True)
COUNTS = st.integers(1, PARTITIONS_MAX)
HORIZONS = st.integers(0, WALL_MS_MAX).map(segment_id_at)
SPECIAL: dict[tuple[Any, str], st.SearchStrategy[Any]] = {
    (TopicOpened, "topic_id"): IDS,
    (TopicOpened, "name"): NAMES,
    (TopicOpened, "partition_count"): COUNTS,
    (PartitionsAdded, "partition_count"): COUNTS,
    (Participant, "topic_id"): IDS,
    (Participant, "topic"): NAMES,
    (Participant, "segments"): st.just(()),
    (TopicDeletionBegun, "topic_ids"): st.lists(IDS, max_size=3).map(tuple),
    (HorizonAdvanced, "segment_id"): HORIZONS,
    (StagingHorizonAdvanced, "segment_id"): HORIZONS,
}
"""Fields that accept fewer values than their type."""


@cache
def valid(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a type that the codec accepts."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is TopicConfig:
        compression = st.sampled_from(COMPRESSION_TYPES)
        return st.builds(
            kind, compression_type=compression, max_message_bytes=st.integers(1, 1 << 30)
        )
    if is_dataclass(kind):
        hints = get_type_hints(kind, include_extras=True)
        own = {name: how for (owner, name), how in SPECIAL.items() if owner is kind}
        rest = {f.name: valid(hints[f.name]) for f in fields(kind) if f.name not in own}
        return st.builds(kind, **own, **rest)
    if origin is Annotated:
        return st.integers(arguments[1].low, arguments[1].high)
    if kind is int:
        return st.integers(-(1 << 63), (1 << 63) - 1)
    if origin is tuple and isinstance(arguments[-1], EllipsisType):
        return st.lists(valid(arguments[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(valid, arguments))
    if origin in (Mapping, SortedMap):
        found = st.dictionaries(*map(valid, arguments), max_size=3)
        return found.map(SortedMap) if origin is SortedMap else found
    if origin in (Union, UnionType):
        return st.one_of([valid(argument) for argument in arguments])
    return st.from_type(kind)


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@stored_list("point", x="x", y="y")
@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int


@stored_list("grown", x="x", y="y", z="z", w="w")
@dataclass(frozen=True, slots=True)
class Grown:
    """A class to which `z` and `w` were added later."""

    x: int
    y: int
    z: int = 6
    w: int = 7


@stored(
    "everything",
    number="n",
    text="text",
    flag="flag",
    colour="colour",
    maybe="maybe",
    many="many",
    pair="pair",
    by_name="by_name",
    by_number="by_number",
    by_point="by_point",
    inner="inner",
    defaulted="defaulted",
    made="made",
)
@dataclass(frozen=True, slots=True)
class Everything:
    number: int
    text: str
    flag: bool
    colour: Colour
    maybe: int | None
    many: tuple[str, ...]
    pair: tuple[int, str]
    by_name: Mapping[str, Point]
    by_number: Mapping[int, bool]
    by_point: Mapping[Point, str]
    inner: Point
    defaulted: int = 7
    made: Mapping[int, int] = field(default_factory=dict)


EVENTS = st.one_of(
    [
        st.tuples(st.just(machine), valid(kind))
        for machine, union in MACHINES
        for kind in get_args(union)
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=12,
)


@given(valid(Everything))
@QUICK
def test_every_field_type_round_trips(value: Everything) -> None:
    assert decode(Everything, json.loads(json.dumps(encode(value)))) == value


@given(EVENTS)
@settings(max_examples=examples(400), derandomize=True)
def test_every_event_of_every_machine_round_trips(
    case: tuple[Machine[Any], object],
) -> None:
    machine, event = case
    assert machine.decode_event(json.loads(json.dumps(machine.encode_event(event)))) == event


@given(st.sampled_from([machine for machine, _ in MACHINES]), JSON)
@settings(max_examples=examples(200), derandomize=True)
def test_I15_arbitrary_json_is_corrupt_data(machine: Machine[Any], value: object) -> None:
    with pytest.raises(CorruptData):
        machine.decode_event(value)


@given(EVENTS, st.randoms(use_true_random=False), JSON)
@settings(max_examples=examples(400), derandomize=True)
def test_I15_event_with_one_replaced_value_is_decoded_exactly_or_refused(
    case: tuple[Machine[Any], object], random: Any, junk: object
) -> None:
    machine, event = case
    value = json.loads(json.dumps(machine.encode_event(event)))
    name = random.choice([*value, "unknown"])
    value[name] = junk
    try:
        found = machine.decode_event(value)
    except CorruptData:
        return
    assert json.loads(json.dumps(machine.encode_event(found))) == {
        key: part for key, part in value.items() if part != default_of(found, key)
    }


def default_of(event: object, name: str) -> object:
    """The default of a field; the codec does not write fields that have it."""
    attribute = next((a for a, n in stored_form(type(event)).fields.items() if n == name), "")
    spec = type(event).__dataclass_fields__.get(attribute)  # type: ignore[attr-defined]
    if spec is None or (spec.default is MISSING and spec.default_factory is MISSING):
        return None
    default = spec.default_factory() if spec.default is MISSING else spec.default
    return default if isinstance(default, int | str | None) else []


WRITTEN = Everything(
    1, "a", True, Colour.RED, None, ("b",), (2, "c"), {"d": Point(3, 4)}, {5: False},
    {Point(6, 7): "e"}, Point(8, 9),
)  # fmt: skip
GOOD = encode(WRITTEN)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 1 << 63),
        ("n", -(1 << 63) - 1),
        ("n", 10**30),
        ("n", True),
        ("n", 1.0),
        ("n", "1"),
        ("n", None),
        ("text", 1),
        ("text", None),
        ("flag", 1),
        ("flag", None),
        ("colour", "green"),
        ("colour", 0),
        ("colour", []),
        ("maybe", "x"),
        ("many", "b"),
        ("many", {"0": "b"}),
        ("many", ["b", 1]),
        ("pair", [2]),
        ("pair", [2, "c", 3]),
        ("pair", ["c", 2]),
        ("by_name", [["d", [3, 4]]]),
        ("by_name", {"d": [3]}),
        ("by_number", {"5": False}),
        ("by_number", [[5]]),
        ("by_number", [[5, False], [5, True]]),
        ("by_number", [["5", False]]),
        ("by_point", [[[6], "e"]]),
        ("inner", {"x": 8, "y": 9}),
        ("inner", [8]),
        ("inner", [8, 9, 10]),
        ("defaulted", None),
        ("number", 1),
        ("type", "everything"),
    ],
)
def test_I15_a_wrong_value_is_corrupt_data(name: str, value: object) -> None:
    assert decode(Everything, GOOD)
    with pytest.raises(CorruptData):
        decode(Everything, {**GOOD, name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("number", True),
        ("number", 1.0),
        ("number", "1"),
        ("number", None),
        ("text", 1),
        ("text", b"a"),
        ("text", None),
        ("flag", 1),
        ("flag", None),
        ("maybe", "x"),
        ("maybe", False),
        ("many", ("b", 1)),
        ("pair", (2.0, "c")),
        ("by_name", {"d": Point(3, 4.5)}),  # type: ignore[arg-type]
        ("by_number", {True: False}),
        ("by_point", {Point(6, True): "e"}),
        ("inner", Point(8, None)),  # type: ignore[arg-type]
        ("defaulted", None),
    ],
)
def test_I15_value_that_could_not_be_decoded_is_not_encoded(name: str, value: object) -> None:
    """After writing such an entry, its writer alone could read the journal."""
    with pytest.raises(InternalError, match="Nothing was written"):
        encode(replace(WRITTEN, **{name: value}))  # type: ignore[arg-type]


def test_enum_value_in_an_int_or_str_field_round_trips() -> None:
    class Level(IntEnum):
        HIGH = 3

    value = replace(WRITTEN, number=Level.HIGH, text=Colour.BLUE)
    assert decode(Everything, json.loads(json.dumps(encode(value)))) == value


@pytest.mark.parametrize("name", sorted(GOOD))
def test_I15_a_missing_field_is_corrupt_data(name: str) -> None:
    with pytest.raises(CorruptData, match=name):
        decode(Everything, {key: part for key, part in GOOD.items() if key != name})


def test_a_field_at_its_default_is_not_written() -> None:
    assert "defaulted" not in GOOD
    assert decode(Everything, GOOD).defaulted == 7


def test_I15_invalid_topic_config_is_corrupt_data() -> None:
    with pytest.raises(CorruptData, match="compression"):
        decode(TopicConfig, {"compression.type": "bzip2"})


@pytest.mark.parametrize("machine", [machine for machine, _ in MACHINES])
@pytest.mark.parametrize(
    "value", [None, [], {}, {"type": 1}, {"type": "no_such_event"}, {"type": ""}]
)
def test_I15_event_of_unknown_type_is_corrupt_data(machine: Machine[Any], value: object) -> None:
    with pytest.raises(CorruptData):
        machine.decode_event(value)


def test_trailing_list_fields_at_their_default_are_not_written() -> None:
    """An older program can then read it; and a default is never mistaken for another value."""
    for grown in (Grown(1, 5), Grown(1, 5, z=3), Grown(1, 5, w=3), Grown(1, 5, z=3, w=4)):
        assert decode(Grown, encode(grown)) == grown
    assert encode(Grown(1, 5)) == [1, 5]
    assert encode(Grown(1, 5, z=3)) == [1, 5, 3]
    assert encode(Grown(1, 5, w=3)) == [1, 5, 6, 3]


@pytest.mark.parametrize(
    ("stored_value", "read"),
    [
        ([1, 2], Grown(1, 2)),
        ([1, 2, 3], Grown(1, 2, 3)),
        ([1, 2, 3, 4], Grown(1, 2, 3, 4)),
        ([1], None),
        ([], None),
        ([1, 2, 3, 4, 5], None),
        (12, None),
    ],
)
def test_I15_stored_list_may_omit_only_trailing_fields_with_defaults(
    stored_value: object, read: Grown | None
) -> None:
    if read is not None:
        assert decode(Grown, stored_value) == read
        return
    with pytest.raises(CorruptData):
        decode(Grown, stored_value)


def test_I15_unknown_section_is_corrupt_data() -> None:
    """The section may hold state without which every decision would be wrong."""
    sections = SectionCodec(point=Point)
    rows = {"point": [Point(1, 2)]}
    assert sections.encode(rows) == {"point": [[1, 2]]}
    assert sections.decode({"point": [[1, 2]]}) == rows
    assert sections.decode({}) == {"point": []}
    with pytest.raises(CorruptData, match="painting"):
        sections.decode({"point": [], "painting": []})


# Names.


def renamed(hint: Any) -> Any:
    """The type, in which all classes and attributes have other Python names."""
    origin, arguments = get_origin(hint), get_args(hint)
    if is_dataclass(hint):
        return renamed_class(hint)
    if origin in (Union, UnionType):
        return Union[tuple(map(renamed, arguments))]  # noqa: UP007 - it is made, not written
    if origin is None or origin is Annotated:
        return hint
    return origin[tuple(a if a is Ellipsis else renamed(a) for a in arguments)]


@cache
def renamed_class(kind: Any) -> Any:
    """A class with the same stored names, but other attribute names, another order, another module
    and no checks.
    """
    hints, form = get_type_hints(kind, include_extras=True), stored_form(kind)
    made = make_dataclass(
        f"Renamed{kind.__name__}",
        [
            (f"own_{f.name}", renamed(hints[f.name]), field(default=f.default, kw_only=True))
            if f.default_factory is MISSING
            else (
                f"own_{f.name}",
                renamed(hints[f.name]),
                field(default_factory=f.default_factory, kw_only=True),
            )
            for f in reversed(fields(kind))
        ],
        frozen=True,
        slots=True,
    )
    names = {f"own_{attribute}": name for attribute, name in form.fields.items()}
    return (stored_list if form.is_list else stored)(form.name, **names)(made)


@given(EVENTS)
@settings(max_examples=examples(400), derandomize=True)
def test_I15_renaming_classes_and_attributes_changes_no_stored_byte(
    case: tuple[Machine[Any], object],
) -> None:
    machine, event = case
    text = json.dumps(machine.encode_event(event))
    kind = renamed_class(type(event))
    other = EventCodec(kind)
    read = other.decode(json.loads(text))
    assert type(read) is kind
    assert json.dumps(other.encode(read)) == text


def test_class_without_stored_names_raises_internal_error() -> None:
    @dataclass(frozen=True)
    class Bare(Point):
        """A subclass without its own stored names; those of its base do not apply to it."""

    for use in (lambda: encode(Bare(1, 2)), lambda: EventCodec(Bare)):
        with pytest.raises(InternalError, match="Bare has no stored names"):
            use()


def test_two_events_with_one_stored_name_raise_internal_error() -> None:
    with pytest.raises(InternalError, match="have the same stored name"):
        EventCodec(Everything, renamed_class(Everything))


def test_an_event_of_another_machine_is_not_written() -> None:
    with pytest.raises(InternalError, match="Everything is not an event here"):
        EventCodec(Point).encode(WRITTEN)


@pytest.mark.parametrize("machine", [machine for machine, _ in MACHINES])
def test_I15_an_event_or_a_field_of_a_newer_txlog_is_unsupported(machine: Machine[Any]) -> None:
    """An operator must not restore a newer program's object from a backup."""
    event, union = {"type": "painted"}, next(u for m, u in MACHINES if m is machine)
    with pytest.raises(UnsupportedFormat, match="'painted' is not an event that this txlog knows"):
        machine.decode_event(event)
    for kind in get_args(union):
        name = stored_form(kind).name
        with pytest.raises(UnsupportedFormat, match=rf"{name} has unknown fields \['painted'\]"):
            machine.decode_event({"type": name, "painted": 1})
