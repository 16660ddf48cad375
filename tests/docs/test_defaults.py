"""The table of defaults that differ between Python, Spark and the command has those of the code."""

import inspect
import re
from typing import Any

from spark_plugin.options import parse_reader_options, parse_writer_options
from spark_plugin.sink.batch_commit import STAGED_TIMEOUT_MS
from tests.docs.pages import Page
from tests.source_tree import ROOT
from txlog import NewTopic
from txlog.cli.commands import consume, topic
from txlog.client.consumer.consumer_config import ConsumerConfig
from txlog.engine.producer_config import ProducerConfig

PAGE = Page(ROOT / "docs" / "kafka-users.md")
READ = {"root": "/log", "subscribe": "t"}


def default_of(command: Any, name: str) -> Any:
    return inspect.signature(command).parameters[name].default


def test_table_of_defaults_has_those_of_the_code() -> None:
    consumer, producer = ConsumerConfig(), ProducerConfig()
    stream, batch = (parse_reader_options(READ, streaming=is_stream) for is_stream in (True, False))
    writer = parse_writer_options({"root": "/log", "topic": "t"})
    edges = [str(each.start.point) for each in (stream, batch)]
    expected = {
        "isolation level": (
            [consumer.isolation_level],
            [str(stream.isolation_level)],
            [str(default_of(consume.consume, "isolation"))],
        ),
        "where reading begins": ([consumer.auto_offset_reset], edges, ["earliest"]),
        "time until others may abort a transaction": (
            [str(producer.transaction_timeout_ms)],
            [str(STAGED_TIMEOUT_MS)],
            [str(producer.transaction_timeout_ms)],
        ),
        "partitions of a new topic": (
            [str(NewTopic("t").num_partitions)],
            [str(writer.partitions)],
            [str(default_of(topic.create, "partitions"))],
        ),
        "offsets are committed": ([str(consumer.auto_commit_interval_ms)], [], []),
    }
    found = {
        row[0]: tuple(
            [word for word in re.findall("`([^`]+)`", cell) if word not in ("poll", "--group")]
            for cell in row[1:4]
        )
        for row in PAGE.rows("### Defaults of Python, Spark and the command")
    }
    assert found == expected
