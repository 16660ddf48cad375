"""Whatever the filter, a scan has exactly the records of a filter in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from tests.logs.memory_log import MemoryLog
from txlog.dataset.pruning import PartitionBatches, pruned
from txlog.dataset.scan import Scan
from txlog.topic.batch_index import IndexedBatch

PARTITIONS = 3
BATCHES = 40
ROWS = 5


@pytest.fixture(scope="module")
def scan() -> Scan:
    """Batches whose times overlap, and go back in every seventh."""
    log = MemoryLog()
    log.admin.create_topic("numbers", PARTITIONS, pa.schema([("n", pa.int64())]))
    producer = log.producer()
    for number in range(PARTITIONS * BATCHES):
        base = 50_000 + number * 1_000 - (30_000 if number % 7 == 6 else 0)
        stamps = pa.array(base + np.arange(ROWS) * 400).cast(pa.timestamp("ms", "UTC"))
        table = pa.table({"n": np.arange(ROWS) + number, "_timestamp": stamps})
        producer.send_batch("numbers", table, partition=number % PARTITIONS)
    return txlog.scan("numbers", root=log.process())


def comparisons(name: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    field = ds.field(name)
    return st.one_of(
        values.map(lambda value: field == value),
        values.map(lambda value: field != value),
        values.map(lambda value: field < value),
        values.map(lambda value: field >= value),
        st.lists(values, min_size=1, max_size=4).map(
            lambda several: field.isin(
                pa.array(several, several[0].type)
                if isinstance(several[0], pa.Scalar)
                else pa.array(several)
            )
        ),
        st.just(field.is_valid()),
    )


stamps = st.integers(0, 180_000).map(lambda ms: pa.scalar(ms, pa.timestamp("ms", "UTC")))
leaves = st.one_of(
    comparisons("_partition", st.integers(-1, PARTITIONS)),
    comparisons("_offset", st.integers(-1, BATCHES * ROWS + 1)),
    comparisons("_timestamp", stamps),
    comparisons("n", st.integers(0, PARTITIONS * BATCHES)),
    st.sampled_from(["numbers", "others"]).map(lambda name: ds.field("_topic") == name),
)
filters = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: pair[0] & pair[1]),
        st.tuples(inner, inner).map(lambda pair: pair[0] | pair[1]),
        inner.map(lambda one: ~one),
    ),
    max_leaves=5,
)


@given(condition=filters)
@settings(max_examples=examples(100), deadline=None, derandomize=True)
def test_filtered_scan_is_the_filtered_table(scan: Scan, condition: Any) -> None:
    whole = ds.dataset(scan.to_table()).to_table(filter=condition)
    assert scan.to_table(filter=condition).to_pylist() == whole.to_pylist()
    assert scan.count_rows(condition) == whole.num_rows


def index(count: int) -> PartitionBatches:
    batches = [
        IndexedBatch(
            slot=n, partition=0, base_offset=10 * n, row_count=10, segment="s", position=0,
            length=100, crc32=0, timestamp_min_ms=1_000 * n, timestamp_max_ms=1_000 * n + 999,
            schema_id=0, pid=-1, epoch=-1, number=-1, base_sequence=-1,
        )
        for n in range(count)
    ]  # fmt: skip
    return PartitionBatches("numbers", 0, batches)


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 1_000])
def test_range_keeps_its_batches_and_few_more(count: int, scan: Scan) -> None:
    part = index(count)
    for first in range(0, 10 * count, max(1, 3 * count)):
        last = min(first + max(1, count // 10), 10 * count - 1)
        condition = (ds.field("_offset") >= first) & (ds.field("_offset") <= last)
        (found,) = pruned([part], condition, scan.schema)
        kept = [batch.base_offset // 10 for batch in found.batches]
        assert kept == list(range(first // 10, last // 10 + 1))
    assert pruned([part], ds.field("_offset") < 0, scan.schema) == []
    (everything,) = pruned([part], ds.field("_offset") >= 0, scan.schema)
    assert len(everything.batches) == count
