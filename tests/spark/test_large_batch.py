"""A micro-batch above the limit of an entry, whose committer is killed around the decision."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_plugin.drill.points import POINTS
from tests.spark.drill import Driver, start_driver, until
from tests.spark.small_log import SmallLog, small_log
from tests.spark.wide_query import GROUP, PARTITIONS, TASKS, TOPICS
from txlog.client.consumer.consumer import Consumer
from txlog.layout import is_manifest
from txlog.settings import LogSettings
from txlog.verify.invariants import check_log

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.extra, pytest.mark.timeout(400)]

WIDE = [f"wide-{number}" for number in range(TOPICS)]


@pytest.fixture
def drivers() -> Iterator[list[Driver]]:
    """The drivers of the query, one after the other."""
    found: list[Driver] = []
    yield found
    for driver in found:
        driver.kill()


def start(drivers: list[Driver], log: SmallLog, folder: Path) -> Driver:
    own = folder / f"driver {len(drivers)}"
    own.mkdir()
    arguments = [log.url, str(folder / "checkpoint")]
    drivers.append(start_driver("tests.spark.wide_query", arguments, own))
    return drivers[-1]


def values(log: SmallLog) -> Counter[tuple[str, int, int]]:
    """How often each topic and partition has each number."""
    consumer = Consumer(*WIDE, root=log.connection, auto_offset_reset="earliest")
    return Counter((r.topic, r.partition, int(r.value)) for r in consumer.read_to_end())


def manifests(log: SmallLog) -> int:
    paths = [one.path for one in log.connection.cluster.store.list_after("topics/")]
    return len(list(filter(is_manifest, paths)))


def test_I5_I10_committer_of_a_batch_with_manifests_killed_around_its_decision_stores_it_once(
    tmp_path: Path, drivers: list[Driver]
) -> None:
    """First before the decision, and in the second driver between the decision and its markers."""
    topics = {"numbers": TASKS, **dict.fromkeys(WIDE, PARTITIONS)}
    log = small_log(tmp_path / "log", topics, LogSettings(entry_records_max_bytes=0))
    log.put("numbers", TASKS)
    for count, point in enumerate(("before PREPARE_COMMIT", "after PREPARE_COMMIT"), start=1):
        driver = start(drivers, log, tmp_path)
        driver.pauses.set(point, POINTS[point])

        def is_reached(driver: Driver = driver, point: str = point) -> bool:
            driver.check_alive()
            return driver.pauses.is_reached(point)

        until(is_reached, point)
        assert values(log) == Counter()
        assert manifests(log) == count * TOPICS
        driver.kill()
    last = start(drivers, log, tmp_path)
    assert last.process.wait(150) == 0, (last.folder / "output").read_text()
    expected = [(topic, p, n) for topic in WIDE for p in range(PARTITIONS) for n in range(TASKS)]
    assert values(log) == Counter(expected)
    assert log.lag(GROUP) == 0
    # The second driver's decision is that of the batch: its replay adds none.
    assert manifests(log) == 2 * TOPICS
    assert check_log(log.connection) == []
