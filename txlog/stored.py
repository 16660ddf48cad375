"""Stored names: what a value and its fields are called in a log, whatever Python calls them.

A class whose values are stored declares it: `@stored("topic_deleted", name="name", ...)`. Keeps I15
across releases: renaming a class, an attribute or a module, or reordering fields, changes no stored
byte. A missing, unknown or duplicate name is found when the class is defined. It must not know how
values are written: that is `journal/codec.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeVar

from txlog.errors import InternalError

EVENT_NAME = "type"
"""The key of an event's own stored name, so that no field has it."""

_NAME = re.compile(r"[a-z][a-z0-9_]*(?:\.[a-z0-9_]+)*")
_KindT = TypeVar("_KindT")


@dataclass(frozen=True, slots=True)
class StoredForm:
    """The stored form of a class."""

    name: str
    """Stored with an event; for other values only documentation and errors use it."""
    fields: Mapping[str, str]
    """Attribute -> stored name, in the order in which they are written."""
    is_list: bool = False
    """Written as a list of values: the order is stored, and not the names."""


def stored(name: str, /, **names: str) -> Callable[[type[_KindT]], type[_KindT]]:
    """Declares a dataclass's stored name, and the field name of each attribute."""
    return _declaration(StoredForm(name, names))


def stored_list(name: str, /, **names: str) -> Callable[[type[_KindT]], type[_KindT]]:
    """The same for values of which there are many: a list in this order, which never changes."""
    return _declaration(StoredForm(name, names, is_list=True))


def stored_form(kind: Any) -> StoredForm:
    """The declaration of `kind`. Raises InternalError if it has none, as a subclass may not."""
    form: StoredForm | None = vars(kind).get("__stored__")
    if form is None:
        raise _wrong(kind, "has no stored names")
    return form


def _declaration(form: StoredForm) -> Callable[[type[_KindT]], type[_KindT]]:
    def declare(kind: type[_KindT]) -> type[_KindT]:
        _check(kind, form)
        kind.__stored__ = form  # type: ignore[attr-defined]
        return kind

    return declare


def _check(kind: Any, form: StoredForm) -> None:
    """Each attribute has one name, and each name one attribute. Raises InternalError."""
    attributes = {field.name for field in fields(kind)} if is_dataclass(kind) else set()
    names = list(form.fields.values())
    if attributes != set(form.fields):
        differing = sorted(attributes ^ set(form.fields))
        raise _wrong(kind, f"and its stored names differ in {differing}")
    if len(set(names)) != len(names):
        raise _wrong(kind, "stores two fields under one name")
    if unfit := [name for name in (form.name, *names) if not _NAME.fullmatch(name)]:
        raise _wrong(kind, f"has stored names that are not in lower case with '_': {unfit}")
    if EVENT_NAME in names:
        raise _wrong(kind, f"has a field {EVENT_NAME!r}, which is reserved for an event's name")


def _wrong(kind: Any, what: str) -> InternalError:
    return InternalError(
        f"{kind.__module__}.{kind.__qualname__} {what}. Declare them in its @stored "
        "(docs/dev/format.md); please report this."
    )
