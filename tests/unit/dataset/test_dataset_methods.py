"""Each public name of pyarrow's Dataset is served by a Scan, or refused with the reason.

A name that is not in a Scan would act on what pyarrow's C++ code sees, which is not the records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import txlog
from tests.logs.memory_log import MemoryLog
from txlog.dataset.scan import Scan, ScanFragment
from txlog.errors import UsageError

FIRST = ds.field("_offset") < 2
PLACE = ["_partition", "_offset"]


@pytest.fixture
def scan(log: MemoryLog) -> Scan:
    """Three records in each of two partitions."""
    log.admin.create_topic("numbers", 2, pa.schema([("n", pa.int64())]))
    producer = log.producer()
    for partition in (0, 1):
        table = pa.table({"n": [0, 1, 2]})
        producer.send_batch("numbers", table, partition=partition)
    return txlog.scan("numbers", root=log.process(), columns=["n", *PLACE])


SERVED: dict[str, tuple[Callable[[Scan], Any], Any]] = {
    "schema": (lambda scan: scan.schema.names, ["n", *PLACE]),
    "partition_expression": (lambda scan: str(scan.partition_expression), "true"),
    "count_rows": (lambda scan: (scan.count_rows(), scan.count_rows(FIRST)), (6, 4)),
    "filter": (lambda scan: scan.filter(FIRST).to_table().num_rows, 4),
    "get_fragments": (lambda scan: [f.count_rows() for f in scan.get_fragments()], [3, 3]),
    "head": (lambda scan: scan.head(2, columns=["_offset"]).to_pydict(), {"_offset": [0, 1]}),
    "join": (lambda scan: scan.join(scan, PLACE, right_suffix="_").count_rows(), 6),
    "join_asof": (
        lambda scan: (
            scan.filter(ds.field("_partition") == 0)
            .join_asof(scan.filter(ds.field("_partition") == 0), "_offset", ["n", "_partition"], 0)
            .count_rows()
        ),
        3,
    ),
    "scanner": (lambda scan: scan.scanner(filter=FIRST).count_rows(), 4),
    "sort_by": (lambda scan: scan.sort_by([("n", "descending")]).head(1)["n"].to_pylist(), [2]),
    "take": (lambda scan: scan.take([5])["n"].to_pylist(), [2]),
    "to_batches": (lambda scan: sum(b.num_rows for b in scan.to_batches(filter=FIRST)), 4),
    "to_table": (lambda scan: scan.to_table(["n"]).to_pydict(), {"n": [0, 1, 2] * 2}),
}
REFUSED: dict[str, Callable[[Scan], Any]] = {
    "replace_schema": lambda scan: scan.replace_schema(scan.schema),
    "children": lambda scan: scan.children,
}
OF_A_SCAN: dict[str, tuple[Callable[[Scan], Any], Any]] = {
    "offsets": (lambda scan: sorted(scan.offsets.values()), [(0, 3), (0, 3)]),
    "to_reader": (lambda scan: scan.to_reader().read_all().num_rows, 6),
    "to_pandas": (lambda scan: scan.to_pandas()["n"].sum(), 6),
    "to_polars": (lambda scan: scan.to_polars().collect()["n"].sum(), 6),
    "__arrow_c_stream__": (lambda scan: pa.table(scan).num_rows, 6),
    "__arrow_c_schema__": (lambda scan: pa.schema(scan).names, ["n", *PLACE]),
}


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_every_public_name_of_a_dataset_is_tried_here() -> None:
    assert public(ds.UnionDataset) == SERVED.keys() | REFUSED.keys()
    own = {name for name in OF_A_SCAN if not name.startswith("_")}
    assert public(Scan) == public(ds.UnionDataset) | own
    assert public(ds.Fragment) <= public(ScanFragment)


def test_every_method_of_a_dataset_is_one_of_the_scan_itself() -> None:
    inherited = {"schema", "partition_expression"}
    assert public(ds.UnionDataset) - inherited <= vars(Scan).keys()


@pytest.mark.filterwarnings("ignore:.*scan_pyarrow_dataset")
@pytest.mark.parametrize("name", [*SERVED, *OF_A_SCAN])
def test_name_acts_on_the_records(name: str, scan: Scan) -> None:
    call, wanted = {**SERVED, **OF_A_SCAN}[name]
    assert call(scan) == wanted


@pytest.mark.parametrize("name", REFUSED)
def test_refused_name_says_what_to_use(name: str, scan: Scan) -> None:
    with pytest.raises(UsageError, match="Scan .*; use "):
        REFUSED[name](scan)


@pytest.mark.parametrize(
    "use",
    [
        lambda scan: ds.dataset([scan, scan]).to_table(),
        lambda scan: ds.Scanner.from_dataset(scan).to_table(),
        lambda scan: ds.UnionDataset(scan.schema, [scan]).count_rows(),
        lambda scan: ds.dataset(scan.to_table()).join(scan, "n").to_table(),
    ],
    ids=["dataset of datasets", "Scanner", "UnionDataset", "right side of a join"],
)
def test_scan_within_another_object_of_pyarrow_fails_in_place_of_being_empty(
    use: Callable[[Scan], Any], scan: Scan
) -> None:
    with pytest.raises((UsageError, OSError), match="Scan"):
        use(scan)


def test_fragments_have_the_records_of_their_partition(scan: Scan) -> None:
    first, second = scan.get_fragments()
    for fragment in (first, second):
        assert fragment.physical_schema.equals(scan.schema)
        assert str(fragment.partition_expression) == "true"
        assert fragment.to_table(scan.schema).num_rows == 3
        assert fragment.head(1)["n"].to_pylist() == [0]
        assert fragment.take([2])["n"].to_pylist() == [2]
        assert sum(batch.num_rows for batch in fragment.to_batches(filter=FIRST)) == 2
    assert first.to_table()["_partition"].to_pylist() == [0, 0, 0]
    with pytest.raises(UsageError, match="columns of the scan"):
        first.scanner(pa.schema([("other", pa.int8())]))
    (only,) = scan.get_fragments(ds.field("_partition") == 1)
    assert only.to_table()["_partition"].to_pylist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("columns", "condition", "wanted"),
    [
        ({"twice": ds.field("n") * 2}, None, {"twice": [0, 2, 4] * 2}),
        ({"twice": ds.field("n") * 2}, ds.field("_partition") == 0, {"twice": [0, 2, 4]}),
        (["n"], ds.field("_partition") + 0 == 1, {"n": [0, 1, 2]}),
        ([], ds.field("n") == 2, {}),
        (["n"], (ds.field("n") == 0) | (ds.field("_offset") == 2), {"n": [0, 2, 0, 2]}),
        (["n"], ~ds.field("_offset").isin([0, 2]), {"n": [1, 1]}),
        (["n"], ds.field("_offset") < -1, {"n": []}),
        (["n"], ds.field("_offset").is_null(), {"n": []}),
    ],
)
def test_projection_and_filter_are_exact(
    columns: Any, condition: Any, wanted: dict[str, list[int]], scan: Scan
) -> None:
    found = scan.to_table(columns, condition)
    assert {name: found[name].to_pylist() for name in found.column_names} == wanted
    if not columns:
        assert found.num_rows == 2


@pytest.mark.parametrize("call", ["scanner", "to_table", "to_reader", "to_batches", "count_rows"])
def test_wrong_columns_and_filters_are_refused(call: str, scan: Scan) -> None:
    if call != "count_rows":
        with pytest.raises(UsageError, match="Scan of numbers> has no column 'x'; it has n, _part"):
            getattr(scan, call)(columns=["x"])
        with pytest.raises(UsageError, match="columns is a list"):
            getattr(scan, call)(columns="n")
    with pytest.raises(pa.ArrowInvalid, match="FieldRef"):
        getattr(scan, call)(filter=ds.field("x") == 1)
    with pytest.raises(UsageError, match="by its position; name the column"):
        getattr(scan, call)(filter=ds.field(1) == 1)
    with pytest.raises(UsageError, match="expression of pyarrow"):
        scan.filter("n = 1")
