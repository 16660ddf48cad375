"""`format("txlog")`: the entry point, found by Spark through pyspark_txlog or registered.

It only parses options and creates readers and writers, which do everything heavy.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from spark_plugin.arrow_schema import source_schema
from spark_plugin.log_access import open_log
from spark_plugin.options import parse_reader_options, parse_writer_options
from spark_plugin.sink.batch_writer import TxlogBatchWriter
from spark_plugin.sink.stream_writer import TxlogStreamWriter
from spark_plugin.source.batch_reader import TxlogBatchReader
from spark_plugin.source.stream_reader import TxlogStreamReader
from spark_plugin.source.subscription import inferred_schema, subscribed_topics
from txlog.errors import InvalidOption
from txlog.topic.topic_log import TopicLog


class TxlogDataSource(DataSource):
    """Topics of a txlog as streams and as tables. Options: docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        """The argument of `format`."""
        return "txlog"

    def schema(self) -> StructType:
        """The subscribed topics' columns. Raises UnknownTopic, IncompatibleSchema."""
        options = parse_reader_options(self.options)
        connection = open_log(options)
        topics: Mapping[str, TopicLog] = {}
        if not options.fail_on_data_loss:
            topics = subscribed_topics(connection, options, may_miss=True)
        topics = topics or subscribed_topics(connection, options)
        stored = inferred_schema(topics, options)
        return source_schema(stored, options.columns, include_headers=options.include_headers)

    def reader(self, schema: StructType) -> TxlogBatchReader:
        """`spark.read`."""
        return TxlogBatchReader(parse_reader_options(self.options, streaming=False), schema)

    def streamReader(self, schema: StructType) -> TxlogStreamReader:
        """`spark.readStream`."""
        return TxlogStreamReader(parse_reader_options(self.options, streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> TxlogBatchWriter:
        """`df.write`."""
        return TxlogBatchWriter.for_job(parse_writer_options(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> TxlogStreamWriter:
        """`df.writeStream`; called for every batch. `complete` output asks to overwrite."""
        if overwrite:
            raise InvalidOption(
                "a log can only be appended to, so output mode 'complete' cannot be written; use "
                "append.",
                option="outputMode",
            )
        return TxlogStreamWriter.for_batch(parse_writer_options(self.options), schema)
