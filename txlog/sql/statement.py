"""What a statement reads, by its syntax tree as DuckDB prints it.

A statement only reads: it is one query, whose tables are topics or its own, and calls none of
DuckDB's functions that read anything else. DuckDB's settings forbid the rest once more. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from txlog.errors import UsageError

TABLE_FUNCTIONS = frozenset({"generate_series", "json_each", "json_tree", "range", "unnest"})
"""The functions that may be in place of a table: they read nothing but their arguments."""

ONLY_QUERIES = (
    "only one query at a time can be run: SELECT, WITH, FROM, VALUES, DESCRIBE, SUMMARIZE"
)


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables that a statement names."""

    names: tuple[tuple[str, ...], ...]
    """Each as its parts: ("orders",), or ("eu", "orders") for eu.orders without quotes."""
    own: frozenset[str]
    """Names that the statement itself gives, by WITH, in lower case."""


def tables_of(tree: str) -> Tables:
    """The tables of a statement, by the result of `json_serialize_sql`. Raises UsageError."""
    names: dict[tuple[str, ...], None] = {}
    own: set[str] = set()
    try:
        parsed = json.loads(tree)
        if parsed["error"]:
            raise UsageError(_reason(parsed))
        if len(parsed["statements"]) != 1:
            raise UsageError(f"{ONLY_QUERIES}.")
        for node in _nodes(parsed["statements"][0]):
            match node.get("type"):
                case "BASE_TABLE":
                    names[tuple(node["qualified_name"]["path"])] = None
                case "TABLE_FUNCTION":
                    _require_plain(node["function"])
                case "SHOW_REF" if node.get("query") is None:
                    raise UsageError("'txlog topic list' shows the topics; DESCRIBE one of them.")
            own.update(entry["key"].lower() for entry in node.get("cte_map", {}).get("map", ()))
    except (RecursionError, LookupError, AttributeError, json.JSONDecodeError) as error:
        raise UsageError(f"the statement cannot be taken apart: {error!r:.80}.") from error
    return Tables(tuple(names), frozenset(own))


def _reason(parsed: dict[str, Any]) -> str:
    """Why DuckDB has no tree."""
    if parsed.get("error_type") == "not implemented":
        return f"{ONLY_QUERIES}."
    return f"{parsed.get('error_message')}. {ONLY_QUERIES[0].upper()}{ONLY_QUERIES[1:]}."


def _require_plain(function: dict[str, Any]) -> None:
    name = str(function.get("function_name", "")).lower()
    if name not in TABLE_FUNCTIONS:
        raise UsageError(
            f"{name}() reads more than the topics, and is refused; in place of a table only "
            f"{', '.join(sorted(TABLE_FUNCTIONS))} can be called.",
            function=name,
        )


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """All objects in the tree. Not by recursion: a statement may nest deeply."""
    left = [tree]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            yield value
            left += value.values()
        elif isinstance(value, list):
            left += value
