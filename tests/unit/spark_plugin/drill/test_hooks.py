"""A drill stops a query at the steps of its sink, and never during work of its source."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from spark_plugin import datasource
from spark_plugin.connections import open_log
from spark_plugin.drill.hooks import drilled_open_log, hook_writer
from spark_plugin.drill.points import POINTS, VARIABLE, DrillPoints
from spark_plugin.options import ReaderOptions, WriterOptions, parse_writer_options
from spark_plugin.sink.stream_writer import TxlogStreamWriter
from spark_plugin.source import stream_reader
from spark_plugin.source.stream_reader import TxlogStreamReader
from tests.unit.spark_plugin.spark_query import COLUMNS, FRAME, Query, new_log
from txlog.cli.spark_environment import python_path
from txlog.client.admin import Admin
from txlog.client.producer.producer import Producer
from txlog.engine.connection import connect
from txlog.engine.producer_config import IN_LOG
from txlog.errors import NotATxlog, TxlogError

POINT = "before the first marker"


@pytest.fixture
def points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DrillPoints:
    """A point that is released already, so that this process passes it at once."""
    points = DrillPoints(tmp_path / "points")
    points.set(POINT, POINTS[POINT])
    points.release(POINT)
    monkeypatch.setattr(stream_reader, "open_log", drilled_open_log(open_log, points))
    return points


def passed(points: DrillPoints) -> int:
    """How many objects were created at the point."""
    return len(list(points.folder.glob("*.begun *")))


def leave_decided_transaction(root: str) -> None:
    """Leave a transaction whose producer died between its decision and its markers."""
    producer = Producer(root, transactional_id="feeder", transaction_records=IN_LOG)
    producer.init_transactions()
    tx_id = producer.begin_transaction()
    producer.send("numbers", b"1").get()
    coordinator = connect(root).coordinator_of("feeder")
    coordinator.prepare_commit("feeder", tx_id)


def test_drill_does_not_stop_source_completing_another_transaction(
    tmp_path: Path, points: DrillPoints
) -> None:
    root = str(tmp_path / "log")
    Admin(root, create=True).create_topic("numbers", 1)
    leave_decided_transaction(root)
    reader = TxlogStreamReader(ReaderOptions(root, subscribe=("numbers",)), COLUMNS)
    reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    left = connect(root).coordinator_of("feeder").catch_up().open_transactions()
    assert list(left) == [], "the source has finished it"
    assert passed(points) == 0


def test_drill_stops_sink_before_its_first_marker(tmp_path: Path, points: DrillPoints) -> None:
    root = str(tmp_path / "log")
    Admin(root, create=True).create_topic("numbers", 1)
    leave_decided_transaction(root)
    connection = drilled_open_log(open_log, points)(WriterOptions(root))
    connection.coordinator_of("feeder").maintain()
    assert passed(points) == 1


def test_drilled_sink_opens_a_store_whose_option_is_an_object(
    tmp_path: Path, points: DrillPoints
) -> None:
    """The drill passes such an option to its job as JSON."""
    given = {"root": str(tmp_path / "log"), "storage.client_kwargs": '{"verify": false}'}
    opened = drilled_open_log(open_log, points)
    with pytest.raises(TxlogError) as refused:
        opened(parse_writer_options(given))
    with pytest.raises(type(refused.value)):
        open_log(parse_writer_options(given))


def test_drilled_sink_keeps_its_connection_and_creates_a_log_where_asked_to(
    tmp_path: Path, points: DrillPoints
) -> None:
    opened = drilled_open_log(open_log, points)
    options = WriterOptions(str(tmp_path / "log"))
    with pytest.raises(NotATxlog):
        opened(options)
    created = opened(options, create=True)
    found = opened(options)
    assert found is opened(options)
    assert found is not created
    assert found.cluster.log_id == created.cluster.log_id
    other = WriterOptions(str(tmp_path / "other"))
    assert opened(other, create=True).cluster.log_id != created.cluster.log_id


def test_drilled_source_opens_the_log_as_without_a_drill(
    tmp_path: Path, points: DrillPoints
) -> None:
    given: list[tuple[object, dict[str, object]]] = []

    def own(options: object, **named: object) -> None:
        given.append((options, named))

    options = ReaderOptions(str(tmp_path / "log"))
    opened = drilled_open_log(own, points)  # type: ignore[arg-type]
    opened(options)
    opened(options, create=True, cluster_file="handed over")
    assert given == [
        (options, {"create": False}),
        (options, {"create": True, "cluster_file": "handed over"}),
    ]


def test_drilled_query_makes_its_writer_as_the_data_source_does(
    tmp_path: Path, points: DrillPoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: the data source passed an argument that the hook did not know."""

    class Drilled(TxlogStreamWriter):
        pass

    hook_writer(Drilled, points)
    monkeypatch.setattr(datasource, "TxlogStreamWriter", Drilled)
    points.set("planned", POINTS["batch planned"])
    points.release("planned")
    query = Query(new_log(), tmp_path / "checkpoint")
    query.plan_other(0, 10)
    root = str(tmp_path / "log")
    Admin(root, create=True)
    options = {"root": root, "topic": "out", "checkpointLocation": str(query.folder)}
    made = datasource.TxlogDataSource(options).streamWriter(FRAME, overwrite=False)
    assert isinstance(made, Drilled)
    assert made._plan is not None


PROGRAM = """
import sys
from spark_plugin.sink.stream_writer import TxlogStreamWriter, open_log
print(getattr(sys, "hidden", None), TxlogStreamWriter.write.__module__, open_log.__module__)
"""


@pytest.mark.parametrize(
    ("variable", "writer", "opener"),
    [
        ("points", "spark_plugin.drill.hooks", "spark_plugin.drill.hooks"),
        ("", "spark_plugin.sink.stream_writer", "spark_plugin.connections"),
    ],
    ids=["drilled", "not drilled"],
)
def test_hooks_load_only_in_drilled_process_and_keep_user_sitecustomize(
    tmp_path: Path, variable: str, writer: str, opener: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.hidden = 'its own'")
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={
            **os.environ,
            VARIABLE: variable and str(tmp_path / variable),
            "PYTHONPATH": os.pathsep.join([python_path(), str(tmp_path)]),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert finished.stdout.split("\n")[0] == f"its own {writer} {opener}"
