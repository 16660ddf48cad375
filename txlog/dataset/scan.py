"""`txlog.scan`: topics at one consistent cut, as a dataset of pyarrow.

DuckDB, Polars, DataFusion and pyarrow itself ask a dataset for the columns and the filter that they
need. The ends are chosen once, over all topics, and hold for every use (I11). Filters are exact, as
these engines do not filter again. No method of a dataset acts on anything else than these records:
a method that is not here fails, in place of finding nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from txlog.client.consumer.cut_reader import AtOffset, TopicRange, topics_at_cut
from txlog.client.html_table import html_table
from txlog.client.positions.position_arguments import checked_offset
from txlog.dataset.pruning import INDEXED, PartitionBatches, names_in, pruned
from txlog.dataset.reading import ScanPart, common_schema, read_parts
from txlog.engine.as_of import Moment, parse_moment
from txlog.engine.connection import Connection, InOneProcess, connect
from txlog.engine.times import milliseconds
from txlog.errors import TxlogError, UsageError
from txlog.model import IsolationLevel, TopicPartition, TxId
from txlog.topic.batch_index import IndexedBatch
from txlog.topic.records.conversion import TIMESTAMP_COLUMN, TIMESTAMP_FIELD

Time = datetime | int | str
"""An instant: with no zone it is UTC; a number is milliseconds since 1970; a text is ISO 8601."""

BATCH_ROWS = 131_072
"""pyarrow's own default of `batch_size`."""

_ELSEWHERE = "a txlog Scan in another object of pyarrow: use its to_reader() or to_table()"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def scan(
    *topics: str,
    root: str | Connection,
    columns: Sequence[str] | None = None,
    partitions: Sequence[int] | None = None,
    start_offset: int | None = None,
    end_offset: int | None = None,
    start_time: Time | None = None,
    end_time: Time | None = None,
    as_of: Time | TxId | None = None,
    isolation_level: str = "read_committed",
    storage_options: Mapping[str, object] | None = None,
) -> Scan:
    """The records of topics at one consistent cut, as a `Scan`; reads none of them yet.

    Offsets [start_offset, end_offset) are those of each partition; one below the log start means
    the log start, and one above the cut the cut. Times [start_time, end_time) are those of records.
    `as_of` is a time, or a transaction as `txlog txn` prints it: the cut is that of this moment.
    Raises UnknownTopic, UnknownPartition, OffsetOutOfRange (the range would end before it starts,
    or retention has removed what `as_of` needs), UnknownTransaction, UsageError (another argument
    is wrong, or the topics' columns do not fit together), and what `connect` raises.
    """
    if not topics or not all(isinstance(name, str) for name in topics):
        raise UsageError('name the topics to read, each as a text: scan("orders", root=...).')
    if len(set(topics)) < len(topics):
        raise UsageError("a topic is named twice; name each once.")
    if isinstance(columns, str) or isinstance(partitions, int):
        raise UsageError('columns and partitions are lists: columns=["value"], partitions=[0].')
    try:
        isolation = IsolationLevel(isolation_level)
    except ValueError as error:
        raise UsageError(
            f"isolation_level is {isolation_level!r:.40}; give read_committed or read_uncommitted."
        ) from error
    if as_of is not None and isolation is not IsolationLevel.READ_COMMITTED:
        raise UsageError("as_of reads what was committed; leave isolation_level out.")
    start, end = (
        None if offset is None else AtOffset(checked_offset(name, offset))
        for name, offset in (("start_offset", start_offset), ("end_offset", end_offset))
    )
    since = None if start_time is None else _time_ms("start_time", start_time)
    until = None if end_time is None else _time_ms("end_time", end_time)
    moment = as_of if as_of is None or isinstance(as_of, TxId) else _moment(as_of)
    connection = (
        root if isinstance(root, Connection) else connect(root, storage_options=storage_options)
    )
    ranges = topics_at_cut(connection, topics, isolation, start, end, moment)
    whole = scan_of([one.only(partitions or ()) for one in ranges], isolation, connection)
    for bound, is_start in ((since, True), (until, False)):
        if bound is not None:
            stamp, time = ds.field(TIMESTAMP_COLUMN), pa.scalar(bound, TIMESTAMP_FIELD.type)
            whole = whole.filter(stamp >= time if is_start else stamp < time)
    return whole if columns is None else whole._with_columns(columns)


def scan_of(
    ranges: Sequence[TopicRange], isolation: IsolationLevel, connection: Connection
) -> Scan:
    """A scan of these ranges, which are of one cut. Raises UsageError for columns that differ."""
    parts = [ScanPart(one, partition, isolation) for one in ranges for partition in one.offsets]
    return Scan(parts, common_schema(ranges), connection)


def _time_ms(name: str, value: object) -> int:
    """Raises UsageError."""
    if isinstance(value, datetime):
        zoned = value if value.tzinfo else value.replace(tzinfo=UTC)
        # Rounded up: a record has whole milliseconds, and [start, end) stays the same records.
        return -((_EPOCH - zoned) // timedelta(milliseconds=1))
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return milliseconds(str(value))
    raise UsageError(
        f"{name} is {value!r:.40}; give a datetime, a text in ISO 8601 or milliseconds since 1970."
    )


def _moment(value: object) -> Moment:
    return parse_moment(value if isinstance(value, str) else str(_time_ms("as_of", value)))


class Scan(InOneProcess, ds.UnionDataset):  # type: ignore[misc]  # pyarrow has no types
    """Records of topics at one cut, as a `pyarrow.dataset.Dataset`. Safe to use from threads.

    The columns are those of `Consumer.poll_arrow`. Every use reads the same offsets, at any time:
    OffsetOutOfRange says that retention has removed some of them since.
    """

    def __init__(
        self,
        parts: Sequence[ScanPart],
        schema: pa.Schema,
        connection: Connection,
        shown: Sequence[str] | None = None,
        condition: Any = None,
    ) -> None:
        """`shown`: the columns, of those in `schema`; `condition`: an expression that holds for all
        records."""
        names = schema.names if shown is None else list(shown)
        self._parts = tuple(parts)
        self._columns = schema
        self._connection = connection
        self._shown = names
        self._condition = condition
        self.failure: TxlogError | None = None
        """The last error of a use: engines pass on only its text, as an error of their own."""
        # pyarrow's C++ code sees this instead of the records. It cannot be opened, so what does not
        # call the methods below fails; over an empty table it would find no records.
        form, nowhere = ds.IpcFileFormat(), LocalFileSystem()
        visible = pa.schema([schema.field(name) for name in names])
        unreadable = form.make_fragment(_ELSEWHERE, nowhere)
        closed = ds.FileSystemDataset([unreadable], visible, form, nowhere)
        super().__init__(visible, [closed])

    def __repr__(self) -> str:
        return f"<txlog.Scan of {', '.join(dict.fromkeys(part.topic for part in self._parts))}>"

    def _repr_html_(self) -> str:
        """The offsets, in a notebook; it reads no record."""
        return html_table(
            f"Scan of {', '.join(self.schema.names)}",
            ("partition", "start offset", "end offset"),
            [(where, *found) for where, found in self.offsets.items()],
        )

    @property
    def offsets(self) -> dict[TopicPartition, tuple[int, int]]:
        """Partition -> its offsets [start, end)."""
        return {TopicPartition(part.topic, part.partition): part.offsets for part in self._parts}

    # As Arrow.

    def __arrow_c_schema__(self) -> Any:
        """The columns, for any consumer of Arrow."""
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The records, for any consumer of Arrow."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_reader(self, columns: Any = None, filter: Any = None) -> pa.RecordBatchReader:
        """The records as a stream, read as it is consumed."""
        names = self._plain(columns, filter)
        if names is None:
            return self.scanner(columns=columns, filter=filter).to_reader()
        schema = pa.schema([self._columns.field(name) for name in names])
        return pa.RecordBatchReader.from_batches(schema, self._read(self._listed(), schema))

    def to_table(self, columns: Any = None, filter: Any = None, **options: Any) -> pa.Table:
        """All records in memory. `columns` and `filter` as in pyarrow."""
        if self._plain(columns, filter) is None:
            return self.scanner(columns=columns, filter=filter, **options).to_table()
        return self.to_reader(columns).read_all()

    def to_pandas(self, **options: Any) -> Any:
        """All records as a DataFrame of pandas; `options` as in `pyarrow.Table.to_pandas`."""
        return self.to_table().to_pandas(**options)

    def to_polars(self) -> Any:
        """A LazyFrame of Polars, which passes columns and filters on. Raises UsageError without
        Polars."""
        try:
            import polars
        except ImportError as error:
            raise UsageError("Polars is not installed; run 'pip install polars'.") from error
        return polars.scan_pyarrow_dataset(self)

    # As a dataset.

    def scanner(
        self, columns: Any = None, filter: Any = None, batch_size: int = BATCH_ROWS, **options: Any
    ) -> ds.Scanner:
        """A scanner, which can be used once. `options` are pyarrow's, and mean nothing here."""
        self._require_columns(columns)
        shown = list(self._shown) if columns is None else columns
        whole = self if filter is None else self.filter(filter)
        parts = self._listed(whole._condition)
        return self._scanner(parts, shown, whole._condition, batch_size)

    def to_batches(self, **options: Any) -> Iterator[pa.RecordBatch]:
        """The records as batches. Options as of `scanner`."""
        found: Iterator[pa.RecordBatch] = self.scanner(**options).to_batches()
        return found

    def head(self, num_rows: int, **options: Any) -> pa.Table:
        """The first records."""
        return self.scanner(**options).head(num_rows)

    def take(self, indices: Any, **options: Any) -> pa.Table:
        """Records by their place in the scan. It reads all before them."""
        return self.scanner(**options).take(indices)

    def count_rows(self, filter: Any = None, **options: Any) -> int:
        """The number of records: by the index, without reading any but those of batches in which a
        filter may divide them, or of a column that the index does not know."""
        if filter is not None:
            return self.filter(filter).count_rows()
        parts = self._listed(self._condition)
        divided = self._divided(parts)
        counted, to_read = 0, []
        for part in parts:
            partly = []
            for batch in part.batches:
                covered = len(part.covered(batch))
                # Of a part of what compaction has left, only the bytes say which records it has.
                is_known = batch.stored_rows < 0 or covered == batch.row_count
                if is_known and (part.topic, part.partition, batch.base_offset) not in divided:
                    counted += min(covered, batch.record_count)
                else:
                    partly.append(batch)
            to_read.append(replace(part, batches=partly))
        return int(counted + self._scanner(to_read, [], self._condition).count_rows())

    def filter(self, expression: Any) -> Scan:
        """The same scan of only those records."""
        if not isinstance(expression, ds.Expression):
            raise UsageError("filter takes an expression of pyarrow: ds.field('_offset') >= 5.")
        held = expression if self._condition is None else self._condition & expression
        return self._changed(condition=held)

    def get_fragments(self, filter: Any = None) -> Iterator[ScanFragment]:
        """A part for each partition that may have records for this filter."""
        for part in self._listed(self._condition if filter is None else filter):
            yield ScanFragment(self._changed(parts=[replace(part, batches=())]))

    def sort_by(self, sorting: Any, **options: Any) -> ds.Dataset:
        """The records in memory, sorted."""
        return ds.dataset(self.to_table().sort_by(sorting, **options))

    def join(self, right_dataset: Any, *arguments: Any, **options: Any) -> ds.Dataset:
        """A join in memory."""
        return self._in_memory().join(_in_memory(right_dataset), *arguments, **options)

    def join_asof(self, right_dataset: Any, *arguments: Any, **options: Any) -> ds.Dataset:
        """A join in memory."""
        return self._in_memory().join_asof(_in_memory(right_dataset), *arguments, **options)

    def replace_schema(self, schema: pa.Schema) -> NoReturn:
        """Raises UsageError."""
        raise UsageError("a Scan has the columns of its topics; use to_table().cast(schema).")

    @property
    def children(self) -> NoReturn:
        """Raises UsageError."""
        raise UsageError("a Scan is not made of other datasets; use get_fragments().")

    # Within.

    def _with_columns(self, columns: Sequence[str]) -> Scan:
        """Raises UsageError."""
        names = list(columns)
        self._require_columns(names)
        if not names or len(set(names)) < len(names):
            raise UsageError("columns names no column, or one twice; name each once.")
        return self._changed(shown=names)

    def _changed(
        self,
        parts: Sequence[ScanPart] | None = None,
        shown: Sequence[str] | None = None,
        condition: Any = None,
    ) -> Scan:
        return Scan(
            self._parts if parts is None else parts,
            self._columns,
            self._connection,
            self._shown if shown is None else shown,
            self._condition if condition is None else condition,
        )

    def _in_memory(self) -> ds.Dataset:
        return ds.dataset(self.to_table())

    def _plain(self, columns: Any, condition: Any) -> list[str] | None:
        """The names of the columns, if they are read as they are and all records are."""
        self._require_columns(columns)
        if condition is not None or self._condition is not None or isinstance(columns, Mapping):
            return None
        names = self._shown if columns is None else list(columns)
        return names if names and all(isinstance(name, str) for name in names) else None

    def _require_columns(self, columns: Any) -> None:
        """Raises UsageError, which names the column."""
        if isinstance(columns, str):
            raise UsageError(f"columns is a list: columns=[{columns!r:.40}].")
        names = () if columns is None or isinstance(columns, Mapping) else columns
        for name in names:
            if isinstance(name, str) and name not in self._shown:
                raise UsageError(
                    f"{self!r} has no column {name!r:.80}; it has {', '.join(self._shown)}.",
                    column=name,
                )

    def _listed(self, condition: Any = None) -> list[ScanPart]:
        """The parts with the batches that may have records for the condition."""
        with self._noted():
            parts = [part.listed() for part in self._parts]
        return parts if condition is None else self._pruned(parts, condition)

    def _pruned(self, parts: Sequence[ScanPart], condition: Any) -> list[ScanPart]:
        known = [PartitionBatches(part.topic, part.partition, part.batches) for part in parts]
        left: dict[tuple[str, int], Sequence[IndexedBatch]] = {
            (found.topic, found.partition): found.batches
            for found in pruned(known, condition, self._columns)
        }
        found = ((part, left.get((part.topic, part.partition))) for part in parts)
        return [replace(part, batches=batches) for part, batches in found if batches]

    def _divided(self, parts: Sequence[ScanPart]) -> frozenset[tuple[str, int, int]]:
        """Topic, partition and first offset of the batches with records that may not meet the
        condition. Only the columns that the index knows are never null: of others, a comparison may
        be neither true nor false."""
        if self._condition is None:
            return frozenset()
        is_indexed = set(names_in(self._condition, self._columns)) <= set(INDEXED)
        failing = self._pruned(parts, ~self._condition) if is_indexed else parts
        return frozenset(
            (part.topic, part.partition, batch.base_offset)
            for part in failing
            for batch in part.batches
        )

    def _scanner(
        self, parts: Sequence[ScanPart], shown: Any, condition: Any, batch_size: int = BATCH_ROWS
    ) -> ds.Scanner:
        """A scanner of these batches, which are read with the columns that it needs."""
        used = set() if condition is None else set(names_in(condition, self._columns))
        for column in shown.values() if isinstance(shown, Mapping) else shown:
            found = [column] if isinstance(column, str) else names_in(column, self._columns)
            used.update(found)
        # A batch needs a column to have rows; the number of the partition costs nothing.
        names = [name for name in self._columns.names if name in (used or {"_partition"})]
        schema = pa.schema([self._columns.field(name) for name in names])
        return ds.Scanner.from_batches(
            self._read(parts, schema),
            schema=schema,
            columns=shown,
            filter=condition,
            batch_size=batch_size,
        )

    def _read(self, parts: Iterable[ScanPart], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        with self._noted():
            yield from read_parts(list(parts), schema, self._connection.runtime.fan_out)

    @contextmanager
    def _noted(self) -> Iterator[None]:
        try:
            yield
        except TxlogError as error:
            self.failure = error
            raise


def _in_memory(dataset: Any) -> Any:
    return dataset._in_memory() if isinstance(dataset, Scan) else dataset


class ScanFragment:
    """One partition of a scan, with the methods of a fragment of pyarrow."""

    def __init__(self, whole: Scan) -> None:
        self._scan = whole

    @property
    def physical_schema(self) -> pa.Schema:
        """Its columns."""
        return self._scan.schema

    @property
    def partition_expression(self) -> Any:
        """What holds for its records: nothing more than for those of the scan."""
        return self._scan.partition_expression

    def scanner(self, schema: pa.Schema | None = None, **options: Any) -> ds.Scanner:
        """As of the scan. Raises UsageError for another schema."""
        if schema is not None and not schema.equals(self._scan.schema):
            raise UsageError("a fragment of a Scan has the columns of the scan.")
        return self._scan.scanner(**options)

    def to_batches(
        self, schema: pa.Schema | None = None, **options: Any
    ) -> Iterator[pa.RecordBatch]:
        """As of the scan."""
        found: Iterator[pa.RecordBatch] = self.scanner(schema, **options).to_batches()
        return found

    def to_table(self, schema: pa.Schema | None = None, **options: Any) -> pa.Table:
        """As of the scan."""
        return self.scanner(schema, **options).to_table()

    def head(self, num_rows: int, **options: Any) -> pa.Table:
        """As of the scan."""
        return self._scan.head(num_rows, **options)

    def take(self, indices: Any, **options: Any) -> pa.Table:
        """As of the scan."""
        return self._scan.take(indices, **options)

    def count_rows(self, **options: Any) -> int:
        """As of the scan."""
        return self._scan.count_rows(**options)
