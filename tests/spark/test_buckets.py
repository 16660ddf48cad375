"""A log in a bucket: queries work in Spark's forked workers, which obstore does not support."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from txlog import Admin
from txlog.testing.s3_server import S3Server

pytestmark = [
    pytest.mark.spark,
    pytest.mark.s3,
    pytest.mark.extra,
    pytest.mark.timeout(300),
]


@pytest.mark.parametrize("client", ["obstore", "s3fs"])
def test_a_query_reads_and_writes_a_bucket_that_the_driver_has_used(
    spark: SparkSession, tmp_path: Path, client: str
) -> None:
    with S3Server.start() as server:
        root = server.url("log")
        given = {**server.storage_options, "client": client}
        admin = Admin(root, create=True, storage_options=given)
        for topic in ("in", "out"):
            admin.create_topic(topic, num_partitions=2)
        in_spark = {f"storage.{n}": str(v) for n, v in given.items() if n != "client_kwargs"}
        spark.range(100).selectExpr("CAST(id AS STRING) AS value").write.format("txlog").mode(
            "append"
        ).options(root=root, topic="in", **in_spark).save()
        copied(spark, root, in_spark, tmp_path)
        rows: Any = spark.read.format("txlog").options(root=root, subscribe="out", **in_spark)
        found = sorted(int(bytes(row.value)) for row in rows.load().select("value").collect())
    assert found == list(range(100))


def copied(spark: SparkSession, root: str, in_spark: dict[str, str], folder: Path) -> None:
    """A whole query from one topic to the other, with offsets in its transactions."""
    reading: Any = {"group.id": "copier", "startingOffsets": "earliest", **in_spark}
    rows = spark.readStream.format("txlog").options(root=root, subscribe="in", **reading).load()
    place: Any = {"checkpointLocation": str(folder / "checkpoint"), **in_spark}
    writer = rows.select("value").writeStream.format("txlog").trigger(availableNow=True)
    query = writer.options(root=root, topic="out", **place).start()
    assert query.awaitTermination(120)
    assert query.exception() is None
