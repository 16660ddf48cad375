"""SQL and Spark's catalog: views read and write topics; tables of the catalog have no options."""

from collections.abc import Iterator

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from tests.spark.bench import Bench

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


@pytest.fixture
def sink(bench: Bench) -> Iterator[str]:
    """A view to insert rows into."""
    options = f"OPTIONS (path '{bench.log.url}', topic 'out')"
    bench.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW sink (n BIGINT) USING txlog {options}")
    yield "sink"
    bench.spark.catalog.dropTempView("sink")


@pytest.fixture
def table(bench: Bench) -> Iterator[str]:
    """A table of the catalog, with its columns."""
    bench.spark.sql(f"CREATE TABLE listed (n BIGINT) USING txlog OPTIONS (path '{bench.log.url}')")
    yield "listed"
    bench.spark.sql("DROP TABLE listed")


def numbers(frame: DataFrame) -> list[int]:
    return sorted(row["n"] for row in frame.collect())


def test_sql_reads_and_writes_through_temporary_views(bench: Bench, sink: str) -> None:
    spark = bench.spark
    spark.sql(f"INSERT INTO {sink} VALUES (1), (2)")
    bench.counted(1).write.insertInto(sink)
    bench.counted(1, "n + 7 AS n").writeTo(sink).append()
    source = f"USING txlog OPTIONS (path '{bench.log.url}', subscribe 'out')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW out {source}")
    try:
        assert numbers(spark.sql("SELECT n FROM out WHERE _offset >= 0")) == [0, 1, 2, 7]
        spark.sql(f"INSERT INTO {sink} SELECT n + 100 FROM out WHERE n > 2")
    finally:
        spark.catalog.dropTempView("out")
    assert bench.log.column("out", "n") == [0, 1, 2, 7, 107]


def test_an_insert_overwrite_is_refused(bench: Bench, sink: str) -> None:
    bench.spark.sql(f"INSERT INTO {sink} VALUES (1)")
    with pytest.raises(PySparkException, match="a log can only be appended to"):
        bench.spark.sql(f"INSERT OVERWRITE {sink} VALUES (2)")
    assert bench.log.column("out", "n") == [1]


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE made USING txlog OPTIONS (path '{root}', subscribe 'out')",
        "CREATE TABLE made USING txlog OPTIONS (path '{root}', topic 'new') AS SELECT 1L AS n",
    ],
    ids=["without columns", "as select"],
)
def test_create_table_without_columns_or_as_select_is_refused(bench: Bench, statement: str) -> None:
    with pytest.raises(PySparkException, match="Use CREATE TEMPORARY VIEW ... USING txlog"):
        bench.spark.sql(statement.format(root=bench.log.url))
    assert not bench.spark.catalog.tableExists("made")
    assert sorted(bench.log.admin.list_topics()) == ["numbers", "out"]


def test_catalog_table_requires_options_at_each_use(bench: Bench, table: str) -> None:
    spark, root = bench.spark, bench.log.url
    with pytest.raises(PySparkException, match="give the options with each use"):
        spark.sql(f"SELECT * FROM {table}").collect()
    with pytest.raises(PySparkException, match="give the options with each use"):
        spark.sql(f"INSERT INTO {table} VALUES (0)")
    assert bench.log.rows("out") == []
    spark.sql(f"INSERT INTO {table} WITH (root = '{root}', topic = 'out') VALUES (1)")
    bench.counted(1).writeTo(table).options(root=root, topic="out").append()
    read = spark.read.options(root=root, subscribe="out")
    assert numbers(read.table(table)) == [0, 1]
    given = f"WITH (root = '{root}', subscribe = 'out')"
    assert numbers(spark.sql(f"SELECT * FROM {table} {given}")) == [0, 1]


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM {table} WHERE n = 1",
        "UPDATE {table} SET n = 2",
        "TRUNCATE TABLE {table}",
        "MERGE INTO {table} USING (SELECT 1L AS m) AS s ON n = m WHEN MATCHED THEN DELETE",
        "SELECT * FROM txlog.`{root}`",
    ],
    ids=lambda text: text.split()[0].lower(),
)
def test_delete_update_truncate_merge_and_path_queries_are_refused(
    bench: Bench, table: str, statement: str
) -> None:
    with pytest.raises(PySparkException, match="(?i)support"):
        bench.spark.sql(statement.format(table=table, root=bench.log.url)).collect()


def test_save_as_table_writes_rows_but_stores_no_options(bench: Bench) -> None:
    writer = bench.counted(2).write.format("txlog").mode("append")
    writer.options(root=bench.log.url, topic="out").saveAsTable("saved")
    try:
        assert bench.log.column("out", "n") == [0, 1]
        with pytest.raises(PySparkException, match="give the options with each use"):
            bench.spark.table("saved").collect()
    finally:
        bench.spark.sql("DROP TABLE saved")


def test_streaming_query_writes_to_a_table_when_given_options(bench: Bench, table: str) -> None:
    bench.log.put("numbers", 3)
    options = {"root": bench.log.url, "topic": "out", "checkpointLocation": str(bench.checkpoint)}
    writer = bench.numbers().writeStream.options(**options).trigger(availableNow=True)
    writer.toTable(table).awaitTermination()
    assert bench.log.column("out", "n") == [0, 1, 2]
