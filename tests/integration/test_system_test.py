"""Kafka's own system test in a short form, on each store: copiers are killed, stopped and
replaced."""

from pathlib import Path

import pytest

from tests.soak.run import Soak, run_soak
from tests.system_test.process_faults import ProcessFaultCounts
from tests.system_test.run import SystemTest, run_system_test
from tests.system_test.store_location import StoreKind, store_location

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

FORMS = {
    StoreKind.DISK: SystemTest(
        records=1_200, copiers=2, partitions=4, transaction_records=50,
        transaction_timeout_ms=1_000, counts=ProcessFaultCounts(1, 1, 1), seed=1,
    ),
    StoreKind.S3: SystemTest(
        records=1_000, copiers=2, partitions=2, transaction_records=50, pause_ms=0,
        transaction_timeout_ms=3_000, counts=ProcessFaultCounts(1, 1, 0), seed=2,
    ),
    StoreKind.PROXY: SystemTest(
        records=300, copiers=2, partitions=2, transaction_records=50, pause_ms=0,
        transaction_timeout_ms=5_000, counts=ProcessFaultCounts(1, 0, 0), seed=3,
    ),
    StoreKind.FAR: SystemTest(
        records=600, copiers=2, partitions=2, transaction_records=50, pause_ms=0,
        transaction_timeout_ms=4_000, counts=ProcessFaultCounts(1, 1, 0), seed=4,
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "kind",
    [
        StoreKind.DISK,
        # The same server as behind the proxy, on a line without faults.
        pytest.param(StoreKind.S3, marks=[pytest.mark.s3, pytest.mark.extra]),
        pytest.param(StoreKind.PROXY, marks=pytest.mark.s3),
        pytest.param(StoreKind.FAR, marks=[pytest.mark.s3, pytest.mark.extra]),
    ],
)
def test_I3_I5_I6_I8_copy_under_faults_is_exactly_once_and_in_order(
    kind: StoreKind, tmp_path: Path
) -> None:
    test = FORMS[kind]
    root = str(tmp_path / "log") if kind is StoreKind.DISK else ""
    with store_location(kind, root, test.seed) as location:
        report = run_system_test(test, location, tmp_path, note=print)
    print(report.figures)
    assert report.problems == []
    assert report.figures["kills"] == test.copiers * test.counts.kills
    assert report.figures["stops"] == test.copiers * test.counts.stops


def test_I3_I5_soak_of_concurrent_processes_is_read_once_and_in_order(
    tmp_path: Path,
) -> None:
    soak = Soak(seconds=2, producers=2, copiers=2, readers=1, partitions=2)
    report = run_soak(soak, str(tmp_path / "log"), tmp_path, note=print)
    print(report.figures)
    assert report.problems == []
    assert report.figures["records committed"]
