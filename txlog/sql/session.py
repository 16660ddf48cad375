"""Statements over the topics of a log, each at one consistent cut, by DuckDB.

All topics of a statement are read at one cut (I11), and nothing else is read: a statement is
checked before DuckDB runs it, and DuckDB has no access to files, extensions and Python.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import partial
from typing import Any

import pyarrow as pa

from txlog.client.consumer.cut_reader import topics_at_cut
from txlog.dataset.scan import Scan, scan_of
from txlog.distribution import install_command
from txlog.engine.as_of import Moment
from txlog.engine.connection import Connection
from txlog.errors import TxlogError, UnknownTopic, UsageError
from txlog.fan_out import in_background
from txlog.model import IsolationLevel
from txlog.sql.statement import Tables, tables_of

SETTINGS: Mapping[str, str] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",  # No table is a variable of this process.
    "temp_directory": "",  # Nothing is written, also if the memory does not suffice.
    "lock_configuration": "true",
}
"""What DuckDB may not do. None of it can be changed by a statement."""

RESULT_ROWS = 10_000
"""Rows of a batch of a result: of small rows half a megabyte, of which few are in memory."""

_SHOWN_COLUMNS_MAX = 40
"""Columns of a topic in a message, which is a line: the first ones are enough to see what it is."""


class SqlSession:
    """Runs statements over one log. Each reads the log as it is when it begins."""

    def __init__(
        self,
        connection: Connection,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
        as_of: Moment | None = None,
    ) -> None:
        self._connection = connection
        self._isolation = isolation
        self._as_of = as_of

    def topics(self) -> list[str]:
        """The names of the topics."""
        return sorted(self._connection.cluster.state(linearizable=True).topics)

    def columns(self, topic: str) -> list[str]:
        """The columns of a topic, as a statement sees them. Raises UnknownTopic."""
        names: list[str] = self._scans([topic])[topic].schema.names
        return names

    @contextlib.contextmanager
    def run(self, statement: str) -> Iterator[pa.RecordBatchReader]:
        """The result of a query, as a stream that is computed as it is read.

        Raises UsageError, also while it is read, if the statement is wrong or is not one query,
        UnknownTopic, and what reading the topics raises.
        """
        duckdb = _duckdb()
        with duckdb.connect(":memory:", config=dict(SETTINGS)) as engine:
            try:
                asked = engine.execute("select json_serialize_sql(?)", [statement])
                ((tree,),) = asked.fetchall()
            except (duckdb.Error, UnicodeEncodeError) as error:
                raise UsageError(f"the statement cannot be read: {error!s:.200}.") from error
            names = self._tables(tables_of(tree), statement)
            scans = self._scans(sorted(set(names.values()))) if names else {}
            for name, topic in names.items():
                engine.register(name, scans[topic])
            try:
                yield self._result(engine, statement)
            except (duckdb.InterruptException, RuntimeError) as error:
                if "interrupted" not in str(error).lower():
                    raise
                raise KeyboardInterrupt from error
            except (duckdb.Error, OSError, pa.ArrowException) as error:
                # DuckDB and Arrow pass on only the text of an error of the log.
                failures = (scan.failure for scan in scans.values())
                failure = next((found for found in failures if found is not None), None)
                raise failure or _sql_error(error, scans) from error

    def _result(self, engine: Any, statement: str) -> pa.RecordBatchReader:
        """The first batch may take as long as the query, and DuckDB sees no Ctrl-C meanwhile. So
        it is computed in another thread."""
        query = engine.sql(statement)
        answer = in_background(
            self._connection.runtime.fan_out, partial(query.to_arrow_reader, RESULT_ROWS)
        )
        try:
            return answer()
        except KeyboardInterrupt:
            engine.interrupt()
            with contextlib.suppress(Exception):  # It has to end before its engine is closed.
                answer()
            raise

    def _scans(self, topics: list[str]) -> dict[str, Scan]:
        ranges = topics_at_cut(self._connection, topics, self._isolation, as_of=self._as_of)
        return {one.topic.name: scan_of([one], self._isolation, self._connection) for one in ranges}

    def _tables(self, tables: Tables, statement: str) -> dict[str, str]:
        """Table in the statement -> the topic. Raises UnknownTopic, UsageError."""
        found: dict[str, str] = {}
        known = self.topics() if tables.names else []
        for path in tables.names:
            topic = _topic_of(path[-1], known) if len(path) == 1 else None
            if topic is not None:
                found[path[0]] = topic
            elif len(path) > 1 or path[0].lower() not in tables.own:
                raise _no_such_topic(path, known)
        by_case: dict[str, str] = {}
        for name, topic in found.items():
            # DuckDB takes names that differ only in case for one.
            if by_case.setdefault(name.lower(), topic) != topic:
                raise UsageError(
                    f"topics {topic!r} and {by_case[name.lower()]!r} differ only in case, and SQL "
                    "takes their names for one; name one of them in a statement."
                )
        return found


def _duckdb() -> Any:
    """Raises UsageError if it is not installed."""
    try:
        import duckdb
    except ImportError as error:
        raise UsageError(
            f"txlog sql needs DuckDB, which is not installed; run {install_command('sql')!r}."
        ) from error
    return duckdb


def _topic_of(name: str, known: list[str]) -> str | None:
    if name in known:
        return name
    alike = [topic for topic in known if topic.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None


def _no_such_topic(path: tuple[str, ...], known: list[str]) -> UnknownTopic:
    name = ".".join(path)
    if len(path) > 1 and name in known:
        remedy = f'Write the name in double quotes: "{name}".'
    elif near := get_close_matches(name, known, 1):
        remedy = f"Did you mean {near[0]!r}?"
    else:
        remedy = "'txlog topic list' shows the topics."
    return UnknownTopic(f"there is no topic {name!r:.120} in the log. {remedy}", topic=name)


def _sql_error(error: Exception, scans: Mapping[str, Scan]) -> TxlogError:
    """DuckDB's message in one sentence, and the columns of the topics that are read."""
    text = str(error).split("\n\nLINE ", 1)[0].strip().rstrip(".!?").replace("\n", " ")
    kind, _, rest = text.partition(": ")
    reason = rest if kind.endswith("Error") else text
    shown = [f"{name}: {_columns_of(scan)}" for name, scan in scans.items()]
    columns = f" (columns of {'; of '.join(shown)})" if shown else ""
    return UsageError(f"{reason}{columns}. Correct the statement.", topics=sorted(scans))


def _columns_of(scan: Scan) -> str:
    names = scan.schema.names
    more = ["..."] if len(names) > _SHOWN_COLUMNS_MAX else []
    return ", ".join([*names[:_SHOWN_COLUMNS_MAX], *more])
