"""The demo's parts without Spark: its input, its producer, its kills, and a verifier that detects
faults."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from examples.demo.__main__ import main, parse, prepare_work
from examples.demo.comparison import compare
from examples.demo.drill import plans
from examples.demo.expected import expected_outputs
from examples.demo.flights import FLIGHT_COUNT, FLIGHTS_SCHEMA, csv_archive, read_flights
from examples.demo.report import TOPICS, _record_rows
from examples.demo.root import prepare_root
from examples.demo.transactions import PRODUCER
from examples.demo.verify import SOURCE
from tests.integration.small_demo import DAY_ROWS, SmallDemo, Tables, one_day
from txlog.cli.drill.drill_rounds import AT_RANDOM, WITHOUT_RECORDS
from txlog.client.admin import Admin
from txlog.client.consumer.consumer import Consumer
from txlog.engine.connection import connect
from txlog.errors import TopicExists, UsageError
from txlog.layout import CLUSTER_FILE

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def flights() -> pa.Table:
    return read_flights()


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return one_day(tmp_path_factory.mktemp("archive"))


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "log")


# The input.


def test_all_flights_of_2013_are_read_with_correct_types(flights: pa.Table) -> None:
    assert flights.num_rows == FLIGHT_COUNT
    assert flights.schema.equals(FLIGHTS_SCHEMA)
    assert pa.types.is_timestamp(flights.schema.field("event_time").type)
    nulls = {name: flights[name].null_count for name in flights.column_names}
    assert {name: count for name, count in nulls.items() if count} == {
        "dep_time": 8_255,
        "dep_delay": 8_255,
        "arr_time": 8_713,
        "arr_delay": 9_430,
        "tailnum": 2_512,
        "air_time": 9_430,
    }


def test_flights_are_ordered_by_scheduled_departure(flights: pa.Table) -> None:
    times = flights["event_time"].cast(pa.int64()).combine_chunks()
    assert pc.all(pc.greater_equal(times[1:], times[:-1])).as_py()
    first = flights.slice(0, 1).to_pylist()[0]
    assert (first["carrier"], first["flight"], first["sched_dep_time"]) == ("UA", 1545, 515)
    assert first["event_time"].isoformat() == "2013-01-01T10:15:00+00:00"


def test_verifier_reads_the_same_flights_independently(flights: pa.Table) -> None:
    expected = expected_outputs(csv_archive())
    assert compare(expected.flights, flights).is_none
    assert expected.delays.num_rows + expected.cancellations.num_rows == FLIGHT_COUNT
    assert expected.cancellations.num_rows == 8_255


# The verifier, on a log of one day.


def test_proof_of_an_intact_log_has_no_problems(root: str, archive: Path) -> None:
    proof = SmallDemo(root, archive).proof()
    assert proof.problems() == []
    rows = _record_rows(proof)
    assert rows["records in"] == rows["records out"]
    assert (rows["records in"][SOURCE], rows["records in"]["cancellations"]) == (DAY_ROWS, 4)
    assert min(rows["records in"][name] for name in TOPICS) > 0
    assert len(proof.endings[PRODUCER].committed) == 9
    assert len(proof.endings["delays"].committed) == 2
    assert proof.endings["hourly"].watermark_only == 1


def test_proof_counts_aborted_records_that_are_in_the_log(root: str, archive: Path) -> None:
    demo = SmallDemo(root, archive)
    proof = demo.proof()
    consumer = Consumer(
        SOURCE, root=demo.connection, auto_offset_reset="earliest", enable_auto_commit=False
    )
    seen = 0
    while (table := consumer.poll_arrow()) is not None:
        seen += table.num_rows
    assert len(proof.endings[PRODUCER].aborted) == 2
    assert proof.records_aborted == seen - DAY_ROWS > 100


def lose(batches: list[Tables]) -> None:
    batches[0]["delays"] = batches[0]["delays"].slice(1)


def double(batches: list[Tables]) -> None:
    rows = batches[0]["delays"]
    batches[0]["delays"] = pa.concat_tables([rows, rows.slice(0, 1)])


def alter(batches: list[Tables]) -> None:
    rows = batches[0]["delays"]
    place = rows.schema.get_field_index("delay_minutes")
    minutes = rows["delay_minutes"].to_pylist()
    minutes[0] += 1
    batches[0]["delays"] = rows.set_column(place, "delay_minutes", [pa.array(minutes)])


def move(batches: list[Tables]) -> None:
    """A record comes with the other batch: all are there, but a crash would have exposed it."""
    moved = batches[0]["delays"].slice(0, 1)
    lose(batches)
    batches[1]["delays"] = pa.concat_tables([batches[1]["delays"], moved])


@pytest.mark.parametrize(
    ("change", "lost", "duplicated", "wrong", "torn"),
    [(lose, 1, 0, 0, 0), (double, 0, 1, 0, 0), (alter, 1, 0, 1, 0), (move, 0, 0, 0, 2)],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_verifier_detects_a_single_wrong_record(
    root: str, archive: Path, change: object, lost: int, duplicated: int, wrong: int, torn: int
) -> None:
    proof = SmallDemo(root, archive, change).proof()  # type: ignore[arg-type]
    found = proof.topics["delays"]
    assert (found.lost, found.duplicated, found.wrong) == (lost, duplicated, wrong)
    assert proof.torn == {SOURCE: 0, "delays": torn}
    assert len(proof.problems()) == 1
    assert all(proof.topics[name].is_none for name in TOPICS if name != "delays")


def test_verifier_detects_a_group_behind_the_end(root: str, archive: Path) -> None:
    demo = SmallDemo(root, archive, batches_left_out=1)
    proof = demo.proof()
    behind = sum(end - end // 2 for end in _ends(demo))
    assert proof.groups["delays"].offsets_behind == behind > 0
    assert f"group delays is {behind} offsets from the ends of flights" in proof.problems()
    assert proof.topics["delays"].lost > 0


def _ends(demo: SmallDemo) -> list[int]:
    state = demo.connection.cluster.topic(SOURCE).catch_up()
    return [bounds.next_offset for bounds in state.partitions]


def test_verifier_detects_a_damaged_entry(root: str, archive: Path) -> None:
    demo = SmallDemo(root, archive)
    cancelled = demo.connection.cluster.topic("cancellations")
    entry = Path(root, cancelled.layout.entry(0))
    entry.write_bytes(entry.read_bytes().replace(b'"cancellations"', b'"cancellationz"'))
    found = [str(finding) for finding in demo.proof().findings]
    assert any(cancelled.layout.entry(0) in text for text in found), found


def test_comparing_tables_with_different_columns_raises() -> None:
    left, right = pa.table({"a": [1], "b": [2]}), pa.table({"a": [1]})
    with pytest.raises(KeyError, match="'b'"):
        compare(left, right)


# The place of the log.


def test_root_with_an_earlier_demo_is_refused_with_a_remedy(root: str) -> None:
    prepare_root(root, fresh=False)
    with pytest.raises(TopicExists, match="--fresh"):
        prepare_root(root, fresh=False)
    assert main(["--root", root]) == 1


def test_fresh_deletes_an_earlier_demo_only(root: str) -> None:
    prepare_root(root, fresh=False)
    before = (Path(root) / CLUSTER_FILE).read_bytes()
    prepare_root(root, fresh=True)
    assert (Path(root) / CLUSTER_FILE).read_bytes() != before
    Admin(root).create_topic("of-another-user")
    with pytest.raises(TopicExists, match="of-another-user"):
        prepare_root(root, fresh=True)
    assert "of-another-user" in connect(root).cluster.state().topics


def test_checkpoint_folder_must_be_empty(tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / "delays").mkdir(parents=True)
    with pytest.raises(UsageError, match="--work"):
        prepare_work(tmp_path, fresh=False)
    prepare_work(tmp_path, fresh=True)
    assert list(tmp_path.iterdir()) == []


# The drill.


def test_drill_plan_kills_each_job_and_loses_one_checkpoint() -> None:
    for seed in range(20):
        planned = plans(3, seed)
        assert {name: len(rounds) for name, rounds in planned.items()} == {"delays": 4, "hourly": 3}
        lost = {name: [r.checkpoint_lost for r in rounds] for name, rounds in planned.items()}
        assert sum(lost["delays"][1:]) == sum(lost["delays"]) == 1
        assert not any(lost["hourly"])
        points = {name: [r.point for r in rounds] for name, rounds in planned.items()}
        assert points["hourly"].count(WITHOUT_RECORDS) == 1
        assert set(points["delays"]) == {AT_RANDOM}
        for rounds in planned.values():
            assert {r.with_workers for r in rounds[:2]} == {True, False}
    assert plans(3, 7) == plans(3, 7)


def test_number_of_kills_out_of_range_is_refused() -> None:
    for kills in ("0", "21"):
        with pytest.raises(SystemExit):
            parse(["--kills", kills])
