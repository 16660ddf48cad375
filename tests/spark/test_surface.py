"""What a user of Spark meets, in one real session: errors, options of other connectors, columns
that a topic gains, topics that do not exist yet."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest

from spark_plugin.python_worker import LOG_LEVEL
from tests.source_tree import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

LINES_MAX = 5
"""Lines of an error within which its cause must stand."""

ERRORS = {
    "schema": "UnknownTopic: there is no topic 'absent'",
    "reader": "InvalidOption: 'endingOffsets' must be latest",
    "partitions": "OffsetOutOfRange: startingOffsets names offset 77",
    "read": "MissingObject: on host .* is missing",
    "writer": "InvalidOption: unknown writer option 'topics'",
    "write": "UnknownPartition: on host .* topic 't' has partitions 0 to 0",
    "initialOffset": "OffsetOutOfRange: startingOffsets names offset 77",
    "stream commit": "InvalidOption: a source of this query reads the log",
    "stream write": "UnknownPartition: on host .* topic 't' has partitions 0 to 0",
    "no mergeSchema": "IncompatibleSchema: topic 'typed' has no column 'job'",
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """What the program saw, and what Spark's processes logged."""
    folder = tmp_path_factory.mktemp("surface")
    program = [sys.executable, "-m", "tests.spark.surface_program", str(folder)]
    done = subprocess.run(
        program,
        cwd=ROOT,
        env={**os.environ, LOG_LEVEL: "debug"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.fail(done.stderr[-5_000:])
    return json.loads((folder / "seen.json").read_text()), done.stderr


@pytest.mark.parametrize("where", ERRORS)
def test_message_of_an_error_is_in_its_first_lines(
    ran: tuple[dict[str, Any], str], where: str
) -> None:
    seen, _ = ran
    lines = seen["errors"][where].split("\n")
    assert re.search(rf"txlog\.errors\.{ERRORS[where]}", "\n".join(lines[:LINES_MAX]))
    assert [line for line in lines if line.startswith('  File "')] == []


def test_error_of_a_users_function_keeps_its_traceback(ran: tuple[dict[str, Any], str]) -> None:
    """It runs in another process than the method of txlog that failed before."""
    seen, _ = ran
    assert re.search(
        r'File ".*surface_program\.py".*KeyError', seen["errors"]["users function"], re.DOTALL
    )


@pytest.mark.parametrize(
    "frames",
    [
        r"TxlogDataSource\.schema failed\nTraceback .*\n  File .*subscription\.py",
        r"TxlogStreamReader\.initialOffset failed\nTraceback .*\n  File .*starting_points\.py",
        r"TxlogStreamWriter\.commit failed\nTraceback .*\n  File .*batch_commit\.py",
        r"TxlogBatchReader\.read failed\nTraceback .*\n  File .*read_plan\.py",
        r"TxlogBatchWriter\.write failed\nTraceback .*\n  File .*staging\.py",
    ],
)
def test_log_has_the_traceback_of_an_error(ran: tuple[dict[str, Any], str], frames: str) -> None:
    _, log = ran
    assert re.search(frames, log, re.DOTALL)


def test_query_with_tuning_options_of_other_connectors_runs_and_warns_once_of_all(
    ran: tuple[dict[str, Any], str],
) -> None:
    seen, log = ran
    assert seen["moved"] == 5
    told = [line for line in log.split("\n") if "options without effect in txlog: " in line]
    assert len(told) == 2, "one of the source, one of the sink"
    for line, names in zip(
        sorted(told),
        [("kafka.acks", "kafka.linger.ms"), ("kafka.max.poll", "skipChange")],
        strict=True,
    ):
        assert all(name in line for name in names)


def test_merge_schema_adds_columns_in_a_job_a_query_and_a_foreach_batch(
    ran: tuple[dict[str, Any], str],
) -> None:
    seen, _ = ran
    none = dict.fromkeys(("job", "query", "each"))
    assert seen["typed"] == [
        {"n": 0, **none},
        {"n": 1, **none, "job": "job"},
        {"n": 2, **none, "query": "query"},
        {"n": 3, **none, "each": "each"},
    ]


def test_running_query_reads_a_topic_that_is_created_after_its_start(
    ran: tuple[dict[str, Any], str],
) -> None:
    seen, log = ran
    assert seen["awaited"] == 3
    assert "waiting for topics that do not exist yet: later" in log
    columns, count = seen["never"]
    assert columns[:3] == ["key", "value", "topic"]
    assert count == 0
