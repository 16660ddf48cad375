"""docs/spark-options.md: every option, column and failure of Spark's Kafka connector has a
row, which says what the code does with it, and a test."""

import re

import pytest
from pyspark.sql.types import ArrayType, StructType

from spark_plugin import options
from spark_plugin.arrow_schema import available_schema
from spark_plugin.foreign_options import IGNORED, REFUSED, found
from spark_plugin.sink.sink_topics import is_kafka_frame
from tests.docs.pages import Page
from tests.docs.test_docs import known_tests
from tests.source_tree import ROOT
from txlog.topic.records.schema import KAFKA_SCHEMA

PAGE = Page(ROOT / "docs" / "spark-options.md")

CONNECTOR = {
    "source": [
        "kafka.bootstrap.servers assign subscribe subscribePattern startingTimestamp",
        "startingOffsetsByTimestamp startingOffsetsByTimestampStrategy startingOffsets",
        "endingTimestamp endingOffsetsByTimestamp endingOffsets failOnDataLoss",
        "kafkaConsumer.pollTimeoutMs fetchOffset.numRetries fetchOffset.retryIntervalMs",
        "maxOffsetsPerTrigger minOffsetsPerTrigger maxTriggerDelay minPartitions",
        "maxRecordsPerPartition groupIdPrefix kafka.group.id includeHeaders",
        "kafka.isolation.level",
    ],
    "sink": [
        "kafka.bootstrap.servers topic includeHeaders kafka.partitioner.class",
        "kafka.transactional.id",
    ],
}
"""Every option of the source and the sink of Spark 4, by Spark's guide."""

KINDS = {"source": options._READER, "sink": options._WRITER}


def plain(cell: str) -> str:
    return cell.replace("`", "")


def rows(kind: str) -> dict[str, list[str]]:
    """First cell -> the others, of a table of the page."""
    table = PAGE.rows(f"<!-- {kind} -->")
    assert len({row[0] for row in table}) == len(table)
    return {plain(row[0]): row[1:] for row in table}


OPTIONS = [
    (f"kafka {kind} options", name, row)
    for kind in KINDS
    for name, row in rows(f"kafka {kind} options").items()
]
OTHERS = [
    (kind, name, row)
    for kind in ("kafka client options", "delta options")
    for name, row in rows(kind).items()
]


@pytest.mark.parametrize("kind", KINDS)
def test_page_lists_every_option_of_the_connector(kind: str) -> None:
    assert sorted(rows(f"kafka {kind} options")) == sorted(" ".join(CONNECTOR[kind]).split())


@pytest.mark.parametrize("kind", KINDS)
def test_options_that_are_the_same_exist_and_no_others(kind: str) -> None:
    known = {s for o in KINDS[kind].values() for s in (o.name, *o.aliases)}
    said = {name for name, row in rows(f"kafka {kind} options").items() if row[0] == "same"}
    assert said == known & set(" ".join(CONNECTOR[kind]).split())


@pytest.mark.parametrize(("table", "name", "row"), [*OPTIONS, *OTHERS])
def test_row_of_an_option_says_what_the_code_does(table: str, name: str, row: list[str]) -> None:
    rules = {"accepted": IGNORED, "refused": REFUSED}
    assert row[0] in {"same", *rules}
    if row[0] in rules:
        says = found(rules[row[0]], name)
        assert says is not None
        assert plain(row[1]) == re.sub(r"'([\w.*]+)'", r"\1", says[1])


def test_every_rule_of_the_code_has_one_row() -> None:
    assert {*REFUSED, *IGNORED} <= {name for _, name, _ in (*OPTIONS, *OTHERS)}
    assert {name for _, name, _ in OTHERS} <= {*REFUSED, *IGNORED}


@pytest.mark.parametrize(
    "kind", ["kafka source options", "kafka sink options", "kafka columns", "kafka failures"]
)
def test_every_row_names_a_test(kind: str) -> None:
    without = [
        name for name, row in rows(kind).items() if plain(row[-1]) not in known_tests() - {""}
    ]
    assert without == []


def test_columns_are_those_of_the_source_with_their_types() -> None:
    schema = available_schema(KAFKA_SCHEMA, include_headers=True)
    said = {name: row[0].split(",")[0] for name, row in rows("kafka columns").items()}
    assert said == {
        field.name: "array"
        if isinstance(field.dataType, ArrayType)
        else field.dataType.simpleString()
        for field in schema
    }


def test_sink_takes_every_column_that_the_page_lists() -> None:
    frame: StructType = available_schema(KAFKA_SCHEMA, include_headers=True)
    assert is_kafka_frame(frame)
    assert sorted(rows("kafka columns")) == sorted(frame.names)
