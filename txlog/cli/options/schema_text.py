"""Schemas as text: `carrier: string, delay: int32 not null, at: timestamp[us, UTC]`.

Type names are Arrow's. `parse_schema` reads what `type_text` prints. A schema may also come from
a Parquet or Arrow file, of which only the schema is read. Whether a topic may have the schema is
not decided here.
"""

from __future__ import annotations

import base64
import difflib
import json
import os
import re
from pathlib import Path
from typing import Any

import pyarrow as pa

from txlog.documents.type_text import PRINTED, UNITS
from txlog.errors import UsageError
from txlog.topic.records.column_types import NESTING_DEPTH_MAX
from txlog.topic.records.schema import RESERVED_NAMES

_TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[^\s:,<>()\[\]"]+|[:,<>()\[\]])')
_END = ""

_SYNONYMS = {"double": "float64", "float": "float32", "halffloat": "float16", "boolean": "bool"}
_SHAPES = ("timestamp[us, UTC]", "decimal128(10, 2)", "fixed_size_binary[4]", "list<int32>")
_SHAPES_NESTED = ("list<int32>[3]", "map<string, int32>", "struct<a: int32>")


IGNORED = re.compile(r"_topic|_offset|__index_level_\d+__")
"""Columns of files that are not the topic's: readers add them, and pandas, for its index."""
INT96_UNIT = "us"
"""Of times of Spark and Hive in Parquet's old type: the unit that has all their years."""


def parse_schema(text: str) -> pa.Schema:
    """The schema of `name: type [not null], ...`, or of the file in `@file`. Raises UsageError."""
    if text.startswith("@"):
        # Not Path.expanduser, which raises RuntimeError for a user that does not exist.
        return _schema_of_file(os.path.expanduser(text[1:]))
    try:
        return pa.schema(_Parser(text).fields(_END, 0))
    # UsageError is a ValueError, too, and has its own message.
    except UsageError:
        raise
    except (ValueError, OverflowError, pa.ArrowException) as error:
        raise _refusal(f"a number or a quoted name cannot be read ({error})") from error


def _schema_of_file(path: str) -> pa.Schema:
    """The columns of a file that a topic may have: not those that readers and pandas add."""
    try:
        with Path(path).open("rb") as stream:
            mark = stream.read(6)
            stream.seek(0)
            if mark[:4] == b"PAR1":
                import pyarrow.parquet as pq

                file = pq.ParquetFile(stream, coerce_int96_timestamp_unit=INT96_UNIT)
                schema = written_schema(file)
            elif mark == b"ARROW1":
                schema = pa.ipc.open_file(stream).schema
            else:  # A stream begins without a mark.
                schema = pa.ipc.open_stream(stream).schema
    except (OSError, pa.ArrowException) as error:
        raise UsageError(
            f"no schema can be read from {path} ({str(error)[:200]}); name a Parquet or Arrow "
            "file, or write the columns: --schema 'name: type, ...'."
        ) from error
    added = [n for n in schema.names if n in RESERVED_NAMES or IGNORED.fullmatch(n)]
    return pa.schema([field for field in schema if field.name not in added])


def written_schema(file: Any) -> pa.Schema:
    """The columns of a ParquetFile as Arrow, which wrote it, had them, or else as it reads them."""
    stored = (file.metadata.metadata or {}).get(b"ARROW:schema")
    written = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(stored))) if stored else None
    # Another program may have rewritten the file and kept the note.
    is_known = written is not None and written.names == file.schema_arrow.names
    return written if is_known else file.schema_arrow


class _Parser:
    """Reads one text from left to right."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        self._at = place = 0
        text = text.rstrip()
        while place < len(text):
            found = _TOKEN.match(text, place)
            if found is None:
                raise _refusal(f"cannot read {text[place : place + 20]!r}")
            self._tokens.append(found[1])
            place = found.end()
        self._tokens.append(_END)

    def fields(self, end: str, depth: int) -> list[pa.Field]:
        """Fields up to `end`."""
        found = [self._field(depth)]
        while self._take(","):
            found.append(self._field(depth))
        self._expect(end)
        return found

    def _field(self, depth: int) -> pa.Field:
        token = self._next("a column's name")
        name = json.loads(token) if token.startswith('"') else token
        self._expect(":")
        return self._typed(name, depth)

    def _typed(self, name: str, depth: int) -> pa.Field:
        kind = self._type(depth)
        not_null = self._take("not")
        if not_null:
            self._expect("null")
        return pa.field(name, kind, nullable=not not_null)

    def _type(self, depth: int) -> pa.DataType:
        # Before the recursion: a long row of brackets would end it with RecursionError.
        if depth > NESTING_DEPTH_MAX:
            raise _refusal(f"types nest deeper than {NESTING_DEPTH_MAX} levels")
        word = self._next("a type")
        if word == "struct" and self._take("<"):
            return pa.struct(self.fields(">", depth + 1))
        if word == "list" and self._take("<"):
            return self._list(depth + 1)
        if word == "map" and self._take("<"):
            return self._map(depth + 1)
        return self._flat(word)

    def _list(self, depth: int) -> pa.DataType:
        if self._tokens[self._at :][1:2] == [":"]:  # `list<item: int32>`, as Arrow prints it.
            self._at += 2
        item = self._typed("item", depth)
        self._expect(">")
        # -1 is the default of pa.list_: a list of any length.
        size = int(self._arguments("[", "]")[0]) if self._tokens[self._at] == "[" else -1
        return pa.list_(item, size)

    def _map(self, depth: int) -> pa.DataType:
        key = self._type(depth)
        self._expect(",")
        item = self._typed("value", depth)
        self._expect(">")
        return pa.map_(key, item)

    def _flat(self, word: str) -> pa.DataType:
        square, name = self._arguments("[", "]"), _SYNONYMS.get(word, word)
        if not square:
            if name in ("decimal", "decimal128", "decimal256"):
                return self._decimal(name)
        elif name == "fixed_size_binary" and square[0].isdigit():
            return pa.binary(int(square[0]))
        elif name == "timestamp" and len(square) == 2 and square[0] in UNITS:
            # Arrow prints timestamp[us, tz=UTC].
            return pa.timestamp(square[0], square[1].removeprefix("tz="))
        else:
            # Arrow prints date32[day] and date64[ms], although the unit is not a parameter.
            name = name if name in ("date32", "date64") else f"{name}[{square[0]}]"
        if name not in PRINTED:
            raise _unknown_type(name)
        return PRINTED[name]

    def _decimal(self, name: str) -> pa.DataType:
        make = pa.decimal256 if name == "decimal256" else pa.decimal128
        try:
            precision, scale = map(int, self._arguments("(", ")"))
            return make(precision, scale)
        except ValueError as error:
            raise _refusal(f"{name} is written as {name}(precision, scale)") from error

    def _arguments(self, begin: str, end: str) -> list[str]:
        """The arguments between brackets, if brackets come next."""
        found: list[str] = []
        if self._take(begin):
            found.append(self._next("a value"))
            while self._take(","):
                found.append(self._next("a value"))
            self._expect(end)
        return found

    def _next(self, wanted: str) -> str:
        token = self._tokens[self._at]
        if not token or token in ":,<>()[]":
            raise _refusal(f"{wanted} is missing before {token or 'the end'!r}")
        self._at += 1
        return token

    def _take(self, token: str) -> bool:
        taken = self._tokens[self._at] == token
        self._at += taken
        return taken

    def _expect(self, token: str) -> None:
        found = self._tokens[self._at]
        if found != token:
            raise _refusal(f"{token or 'the end'!r} is expected before {found or 'the end'!r}")
        self._at += 1


def _unknown_type(name: str) -> UsageError:
    known = [*PRINTED, *_SYNONYMS, *_SHAPES, *_SHAPES_NESTED]
    near = difflib.get_close_matches(name, known, n=1)
    remedy = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
    return _refusal(f"there is no type {name!r} ({remedy})")


def _refusal(why: str) -> UsageError:
    return UsageError(
        f"the columns: {why}. Write 'name: type, name: type not null', or @FILE for the schema of "
        "a Parquet or Arrow file."
    )
