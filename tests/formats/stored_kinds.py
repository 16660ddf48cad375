"""The stored format as the code's classes define it, and the tables of docs/dev/format.md.

`python -m tests.formats.stored_kinds` rewrites the tables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from types import EllipsisType, NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from tests.source_tree import ROOT
from txlog.catalog import state as cluster_state
from txlog.catalog.cluster_file import ClusterFile
from txlog.catalog.state import ClusterEvent
from txlog.coordinator.events import CoordinatorEvent
from txlog.coordinator.outcomes import OutcomeColumns
from txlog.groups import machine
from txlog.groups.state import OffsetsEvent
from txlog.journal.boundaries.boundary import Boundary
from txlog.journal.snapshot import SnapshotHead
from txlog.sorted_map import SortedMap
from txlog.stored import stored_form
from txlog.topic import machine as topic_machine
from txlog.topic.batch_index import IndexedBatch
from txlog.topic.events import TopicEvent

PAGE = ROOT / "docs" / "dev" / "format.md"
EVENTS: Mapping[str, tuple[Any, ...]] = {
    "cluster": get_args(ClusterEvent),
    "topics": get_args(TopicEvent),
    "transactions": (*get_args(CoordinatorEvent), *get_args(OffsetsEvent)),
}
"""The events of each kind of journal, by the journal's folder."""
SECTIONS: Mapping[str, Mapping[str, Any]] = {
    "cluster": cluster_state.SECTIONS.kinds,
    "topics": topic_machine.SECTIONS.kinds,
    "transactions": machine.SECTIONS.kinds,
}
"""The sections of each kind of snapshot."""
OBJECTS = (ClusterFile, Boundary, SnapshotHead, OutcomeColumns, IndexedBatch)
"""Other objects that are stored separately."""

Said = tuple[str, str]
"""The stored name of a kind of value, and the name of one of its fields."""


def nested(kind: Any) -> Iterator[Any]:
    """The classes in a type: the type itself, if it is a class, and those of its fields."""
    if isinstance(kind, type) and is_dataclass(kind):  # Bounds of numbers are dataclass instances.
        yield kind
        hints = get_type_hints(kind)
        for attribute in stored_form(kind).fields:
            yield from nested(hints[attribute])
    for argument in get_args(kind):
        yield from nested(argument)


def all_kinds() -> dict[str, Any]:
    """Stored name -> class, for everything that can be stored."""
    rows = [kind for sections in SECTIONS.values() for kind in sections.values()]
    roots = [*(kind for kinds in EVENTS.values() for kind in kinds), *rows, *OBJECTS]
    found: dict[str, Any] = {}
    for kind in (kind for root in roots for kind in nested(root)):
        name = stored_form(kind).name
        assert found.setdefault(name, kind) is kind, f"two kinds of values are called {name}"
    return found


def all_fields() -> set[Said]:
    """Every field that a stored value can have."""
    return {
        (name, stored_name)
        for name, kind in all_kinds().items()
        for stored_name in stored_form(kind).fields.values()
    }


def said(kind: Any, value: Any) -> Iterator[Said]:
    """The fields that are present in a JSON value of that type, and not at their default."""
    origin, arguments = get_origin(kind), get_args(kind)
    if is_dataclass(kind):
        yield from _said_of_class(kind, value)
    elif origin is Annotated or value is None:
        return
    elif origin in (Union, UnionType):
        yield from said(next(a for a in arguments if a is not NoneType), value)
    elif origin is tuple and isinstance(arguments[-1], EllipsisType):
        for item in value:
            yield from said(arguments[0], item)
    elif origin in (Mapping, SortedMap):
        pairs = value.items() if isinstance(value, dict) else value
        for key, item in pairs:
            yield from said(arguments[0], key)
            yield from said(arguments[1], item)


def _said_of_class(kind: Any, value: Any) -> Iterator[Said]:
    form, hints = stored_form(kind), get_type_hints(kind)
    defaults = {field.name: field.default for field in fields(kind)}
    values = dict(zip(form.fields.values(), value, strict=False)) if form.is_list else value
    for attribute, name in form.fields.items():
        if name in values and values[name] != defaults[attribute]:
            if values[name] != [] or defaults[attribute] is MISSING:
                yield form.name, name
            yield from said(hints[attribute], values[name])


# The tables.


def type_text(hint: Any) -> str:
    """A type in the words of the page."""
    origin, arguments = get_origin(hint), get_args(hint)
    if is_dataclass(hint):
        return stored_form(hint).name
    if isinstance(hint, type) and issubclass(hint, Enum):
        return " or ".join(json.dumps(member.value) for member in hint)
    if origin in (Union, UnionType):
        return type_text(next(a for a in arguments if a is not NoneType))
    if origin is tuple and isinstance(arguments[-1], EllipsisType):
        return f"[{type_text(arguments[0])}, ...]"
    if origin is tuple:
        return f"[{', '.join(map(type_text, arguments))}]"
    if origin in (Mapping, SortedMap) and arguments[0] is str:
        return f"{{text: {type_text(arguments[1])}, ...}}"
    if origin in (Mapping, SortedMap):
        return f"[[{type_text(arguments[0])}, {type_text(arguments[1])}], ...]"
    return {int: "number", float: "number", str: "text", bool: "true or false"}[hint]


def _default_text(field: Any, hint: Any) -> str:
    if field.default is MISSING and field.default_factory is MISSING:
        return ""
    default = field.default_factory() if field.default is MISSING else field.default
    if isinstance(default, tuple | Mapping):
        return " = {}" if type_text(hint).startswith("{") else " = []"
    return " = {}" if is_dataclass(default) else f" = {json.dumps(default)}"


def _row(kind: Any) -> str:
    form, hints = stored_form(kind), get_type_hints(kind)
    declared = {field.name: field for field in fields(kind)}
    texts = [
        f"`{name}`: {type_text(hints[a])}{_default_text(declared[a], hints[a])}"
        for a, name in form.fields.items()
    ]
    text = f"[{', '.join(texts)}]" if form.is_list else "; ".join(texts)
    return f"| `{form.name}` | {text or 'none'} |"


def tables() -> dict[str, str]:
    """Each generated table of the page, by the name above it."""
    events = {kind for kinds in EVENTS.values() for kind in kinds}
    others = {name: kind for name, kind in all_kinds().items() if kind not in events}
    found = {
        f"events in {folder}/": "\n".join(["| event | fields |", "|---|---|", *map(_row, kinds)])
        for folder, kinds in EVENTS.items()
    }
    found["sections of snapshots"] = "\n".join(
        ["| journal | sections, and what a row of each is |", "|---|---|"]
        + [f"| {folder}/ | {_sections_text(rows)} |" for folder, rows in SECTIONS.items()]
    )
    found["other values"] = "\n".join(
        ["| value | fields |", "|---|---|", *(_row(kind) for _, kind in sorted(others.items()))]
    )
    return found


def _sections_text(rows: Mapping[str, Any]) -> str:
    return "; ".join(f"`{name}`: {type_text(_plain(kind))}" for name, kind in rows.items())


def _plain(kind: Any) -> Any:
    """A type without the bounds of a number."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def shown() -> dict[str, str]:
    """The tables in the page."""
    text = PAGE.read_text(encoding="utf-8")
    pattern = r"<!-- stored: (.+) -->\n\n((?:\|.*\n)*)"
    return {name: table.rstrip("\n") for name, table in re.findall(pattern, text)}


def main() -> None:
    """Write each table into the page, at its mark."""
    text = PAGE.read_text(encoding="utf-8")
    for name, table in tables().items():
        mark = f"<!-- stored: {name} -->\n"
        before, _, after = text.partition(mark)
        rest = re.sub(r"^\n*(?:\|.*\n)*\n*", "", after, count=1)
        text = f"{before}{mark}\n{table}\n\n{rest}"
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
