"""`format("txlog")`: the entry point, which Spark finds through pyspark_txlog or by `register`.

It only parses options, and creates readers and writers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, SupportsIndex

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from spark_plugin.archive import opener, own_archive, ship
from spark_plugin.arrow_schema import source_schema
from spark_plugin.connections import open_log
from spark_plugin.options import ReaderOptions, parse_reader_options, parse_writer_options
from spark_plugin.python_worker import CHECKPOINT_LOCATION, called_by_spark, takes_filters
from spark_plugin.sink.batch_writer import TxlogBatchWriter
from spark_plugin.sink.stream_writer import TxlogStreamWriter
from spark_plugin.source.batch_reader import TxlogBatchReader, TxlogFilteredReader
from spark_plugin.source.stream_reader import TxlogStreamReader
from spark_plugin.source.subscription import inferred_schema, subscribed_topics
from txlog.errors import InvalidOption
from txlog.topic.records.schema import KAFKA_SCHEMA
from txlog.topic.topic_log import TopicLog


class TxlogDataSource(DataSource):
    """Topics of a txlog as streams and as tables. Options: docs/spark-options.md."""

    _is_inferred = False
    """Whether Spark asked for the columns. Spark pickles the object after that, and makes the
    readers of this copy."""

    _checkpoints: str | None = None
    """The session's location of checkpoints, in the class that `register` gives to Spark: the
    processes that call a sink do not see the session."""

    @classmethod
    def name(cls) -> str:
        """The argument of `format`."""
        return "txlog"

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        archive = own_archive()
        if archive is None:
            return super().__reduce_ex__(protocol)
        # The class that `register` made is in no module: what it knows goes with the object.
        attributes = self.__dict__ | {"_checkpoints": self._checkpoints}
        return opener(), (str(archive), __name__, TxlogDataSource.__name__, attributes)

    @called_by_spark
    def schema(self) -> StructType:
        """The subscribed topics' columns. Raises UnknownTopic, IncompatibleSchema."""
        options = parse_reader_options(self.options)
        connection = open_log(options)
        # Spark loads a query at every start, and some of its topics may be gone by then. If all of
        # them are, the second call raises the error that says so.
        topics: Mapping[str, TopicLog] = {}
        if not (options.fail_on_data_loss and options.fail_on_missing_topics):
            topics = subscribed_topics(connection, options, may_miss=True)
        if options.fail_on_missing_topics:
            topics = topics or subscribed_topics(connection, options)
        # Topics that a query waits for are Kafka-shaped, unless the user gives the columns.
        stored = inferred_schema(topics, options) if topics else KAFKA_SCHEMA
        self._is_inferred = True
        return source_schema(stored, options.columns, include_headers=options.include_headers)

    @called_by_spark
    def reader(self, schema: StructType) -> TxlogBatchReader:
        """`spark.read`."""
        options = parse_reader_options(self.options, streaming=False)
        kind = TxlogFilteredReader if takes_filters() else TxlogBatchReader
        return kind(options, schema, has_all_columns=self._has_all_columns(options))

    @called_by_spark
    def streamReader(self, schema: StructType) -> TxlogStreamReader:
        """`spark.readStream`."""
        options = parse_reader_options(self.options, streaming=True)
        return TxlogStreamReader(options, schema, has_all_columns=self._has_all_columns(options))

    def _has_all_columns(self, options: ReaderOptions) -> bool:
        """Whether the DataFrame has all columns that the topics had when it was loaded."""
        has_all = self._is_inferred and options.columns is None
        if options.fail_on_new_columns and not has_all:
            raise InvalidOption(
                "option 'failOnNewColumns' is for a DataFrame with all columns of its topics; "
                "leave out option 'columns' and the reader's schema, or this option.",
                option="failOnNewColumns",
            )
        return has_all

    @called_by_spark
    def writer(self, schema: StructType, overwrite: bool) -> TxlogBatchWriter:
        """`df.write`."""
        return TxlogBatchWriter.for_job(parse_writer_options(self.options), schema, overwrite)

    @called_by_spark
    def streamWriter(self, schema: StructType, overwrite: bool) -> TxlogStreamWriter:
        """`df.writeStream`; called for every batch. With output mode `complete`, `overwrite` is
        true."""
        if overwrite:
            raise InvalidOption(
                "a log can only be appended to, so output mode 'complete' cannot be written; use "
                "append.",
                option="outputMode",
            )
        options = parse_writer_options(self.options)
        return TxlogStreamWriter.for_batch(options, schema, self._checkpoints)


def register(spark: SparkSession) -> None:
    """Register `format("txlog")` with a session that does not find it by itself.

    The sink then finds the checkpoints of named queries by the session's present
    `spark.sql.streaming.checkpointLocation`, too.

    If this code is in an archive from `--py-files`, the executors get it, too. All processes of a
    registered source run `PYSPARK_PYTHON`. Raises UsageError in a session of Spark Connect that
    imports txlog from an archive.
    """
    archive = own_archive()
    if archive is not None:
        ship(spark, archive)
    location = spark.conf.get(CHECKPOINT_LOCATION, None)
    # A class that no module has is pickled with its attributes; another one only by its name.
    own = type(TxlogDataSource.__name__, (TxlogDataSource,), {"_checkpoints": location})
    spark.dataSource.register(own if location else TxlogDataSource)
