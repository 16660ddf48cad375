"""Spark's own Kafka connector reads and writes a log through `txlog kafka`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import txlog
from tests.kafka.connector_program import ROWS
from tests.kafka.programs import MARKS
from tests.processes.kafka_gateway import Gateway
from tests.source_tree import ROOT

pytestmark = [*MARKS, pytest.mark.spark]


def test_spark_connector_writes_streams_and_reads(gateway: Gateway, tmp_path: Path) -> None:
    txlog.Admin(gateway.root).create_topics([txlog.NewTopic("spark-in", 2)])
    program = [sys.executable, "-m", "tests.kafka.connector_program", gateway.address]
    done = subprocess.run(
        [*program, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert not done.returncode, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == list(range(2 * ROWS))
    with txlog.Consumer("spark-out", root=gateway.root, auto_offset_reset="earliest") as consumer:
        assert len(list(consumer.read_to_end())) == 2 * ROWS
