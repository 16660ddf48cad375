"""Spark on topics that are compacted, truncated or merged while it runs."""

import pytest

from tests.spark.bench import Bench
from txlog.maintenance.maintenance import Maintenance
from txlog.maintenance.vacuum import Vacuum
from txlog.model import TopicPartition
from txlog.settings import ProcessSettings

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

QUICK = ProcessSettings(staging_retention_ms=1, file_delete_delay_ms=1)


def maintain(bench: Bench) -> None:
    report = Maintenance(bench.log.connection, QUICK).run_once(vacuum=False)
    assert report.failures == []


def vacuum(bench: Bench) -> int:
    collector = Vacuum(bench.log.connection, 1)
    return collector.sweep(collector.find_candidates()).objects


def test_compacted_topic_is_read_with_its_remaining_offsets(bench: Bench) -> None:
    bench.log.admin.alter_topic_config("numbers", {"cleanup.policy": "compact"})
    for _ in range(3):
        bench.log.put("numbers", 3, key=b"one")
        bench.log.put("numbers", 3, key=b"other")
    maintain(bench)
    options = {"root": bench.log.url, "subscribe": "numbers"}
    table = bench.spark.read.format("txlog").options(**options).load()
    found = {(bytes(r.key), bytes(r.value), r.partition, r.offset) for r in table.collect()}
    expected = {
        (b["key"], b["value"], b["_partition"], b["_offset"]) for b in bench.log.rows("numbers")
    }
    assert found == expected
    assert {(key, value) for key, value, _, _ in found} == {(b"one", b"14"), (b"other", b"17")}
    bench.run(bench.numbers())
    assert bench.log.column("out", "n") == [14, 17]
    assert bench.log.lag("g") == 0


def test_a_query_stops_if_records_were_deleted_before_it_read_them(bench: Bench) -> None:
    bench.log.put("numbers", 4)
    bench.run(bench.numbers())
    bench.log.put("numbers", 8)
    bench.log.admin.delete_records({TopicPartition("numbers", 0): 4})
    with pytest.raises(Exception, match="records were deleted before they were read"):
        bench.run(bench.numbers())
    assert bench.log.column("out", "n") == [0, 1, 2, 3]
    bench.run(bench.numbers(options={"failOnDataLoss": "false"}))
    assert bench.log.column("out", "n") == [0, 1, 2, 3, 5, 7, 8, 9, 10, 11]


@pytest.mark.segments
def test_R19_planned_task_reads_records_that_maintenance_moved(bench: Bench) -> None:
    bench.log.admin.alter_topic_config("numbers", {"cleanup.policy": "compact"})
    for number in range(4):
        bench.log.put("numbers", 2, key=b"%d" % number)
    options = {"root": bench.log.url, "subscribe": "numbers"}
    table = bench.spark.read.format("txlog").options(**options).load()
    planned = table.rdd  # The plan, with the segments in it, is made now.
    assert planned.getNumPartitions() > 0
    maintain(bench)
    assert vacuum(bench) > 0
    assert {bytes(row.value) for row in planned.collect()} == {b"1", b"3", b"5", b"7"}
