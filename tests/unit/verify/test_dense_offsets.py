"""The audit's check that a partition's batches cover each offset once, from the log start on."""

import pytest

from txlog.journal.audit import Finding
from txlog.topic.batch_index import IndexedBatch
from txlog.verify.log_audit import JournalReport, _dense


def batch(start: int, end: int) -> IndexedBatch:
    return IndexedBatch(0, 0, start, end - start, "s", 0, 1, 0, 0, 0, 0, -1, -1, -1, -1)


@pytest.mark.parametrize(
    ("batches", "said"),
    [
        ([(0, 4), (4, 6)], []),
        ([(1, 4), (4, 6)], []),  # The log start is within the first batch.
        ([(3, 4), (4, 6)], ["continues at 3, not 2"]),
        ([(0, 3), (4, 6)], ["continues at 4, not 3"]),
        ([(0, 4), (3, 6)], ["continues at 3, not 4"]),
        ([(0, 4), (0, 6)], ["continues at 0, not 4"]),
        ([(2, 5)], ["ends at 5, not 6"]),
        ([(2, 7)], ["ends at 7, not 6"]),
        ([], ["ends at 2, not 6"]),
    ],
)
def test_I2_every_missing_and_overlapping_range_is_reported(
    batches: list[tuple[int, int]], said: list[str]
) -> None:
    report = JournalReport("t")
    rows = [batch(*bounds) for bounds in batches]
    assert list(_dense(iter(rows), 0, (2, 6), "topics/t", report)) == rows
    assert report.findings == [Finding("topics/t", "I2", f"partition 0 {t}") for t in said]
