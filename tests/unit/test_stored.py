"""Each attribute of a stored class has one stored name; errors are found at its definition."""

from dataclasses import dataclass
from typing import Any

import pytest

from txlog.errors import InternalError
from txlog.stored import StoredForm, stored, stored_form, stored_list


def point() -> Any:
    """A class whose values are to be stored."""

    @dataclass(frozen=True, slots=True)
    class Point:
        x: int
        y: int

    return Point


@pytest.mark.parametrize("how", [stored, stored_list])
def test_stored_form_keeps_names_in_declared_order(how: Any) -> None:
    kind = how("place", y="north", x="east")(point())
    form = StoredForm("place", {"y": "north", "x": "east"}, is_list=how is stored_list)
    assert stored_form(kind) == form
    assert list(stored_form(kind).fields) == ["y", "x"]
    assert kind(1, 2).x == 1


@pytest.mark.parametrize(
    ("names", "what"),
    [
        ({"x": "x"}, r"stored names differ in \['y'\]"),
        ({"x": "x", "z": "y"}, r"stored names differ in \['y', 'z'\]"),
        ({"x": "x", "y": "y", "z": "z"}, r"stored names differ in \['z'\]"),
        ({"x": "x", "y": "x"}, "two fields under one name"),
        ({"x": "x", "y": "type"}, "has a field 'type'"),
        ({"x": "x", "y": "northing of it"}, "northing of it"),
        ({"x": "x", "y": "North"}, "North"),
        ({"x": "x", "y": ""}, "lower case"),
    ],
)
def test_invalid_stored_names_are_refused_at_class_definition(
    names: dict[str, str], what: str
) -> None:
    for how in (stored, stored_list):
        with pytest.raises(InternalError, match=what) as caught:
            how("place", **names)(point())
        assert "Point" in caught.value.message


def test_class_without_fields_and_invalid_class_name_are_refused() -> None:
    with pytest.raises(InternalError, match=r"int .*differ in \['real'\]"):
        stored("number", real="real")(int)
    with pytest.raises(InternalError, match="Place"):
        stored("Place", x="x", y="y")(point())


def test_undecorated_class_or_subclass_has_no_stored_form() -> None:
    with pytest.raises(InternalError, match="Point has no stored names"):
        stored_form(point())
    kind = stored("place", x="x", y="y")(point())

    class Other(kind):  # type: ignore[misc]
        """A subclass, whose fields may be others."""

    with pytest.raises(InternalError, match="Other has no stored names"):
        stored_form(Other)


def test_dotted_kafka_name_is_a_valid_stored_name() -> None:
    kind = stored("place", x="retention.ms", y="segment.bytes")(point())
    assert list(stored_form(kind).fields.values()) == ["retention.ms", "segment.bytes"]
