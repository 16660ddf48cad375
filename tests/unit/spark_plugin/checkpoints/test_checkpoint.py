"""A checkpoint folder as the sink reads it: its query, its newest batch, and the batch's ranges."""

from pathlib import Path

import pytest

from spark_plugin.checkpoints.checkpoint import (
    BatchPlan,
    Checkpoint,
    open_checkpoint,
    query_checkpoint,
)
from spark_plugin.checkpoints.offset_log import GroupTopicPartition
from spark_plugin.options import parse_writer_options
from spark_plugin.source.offsets import PartitionRange, encode
from tests.unit.spark_plugin.offset_lines import offset_of
from txlog.clock import Runtime
from txlog.errors import CheckpointConflict, CorruptData, InvalidOption

QUERY = "fd680284-8d11-45ac-b03b-9c7ff82d25c2"
P0 = GroupTopicPartition("g", "orders", 0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint after Spark has planned batch 1, in a folder whose name has a space."""
    place = tmp_path / "check point"
    for name in ("offsets", "commits"):
        (place / name).mkdir(parents=True)
    (place / "metadata").write_text(f'{{"id":"{QUERY}"}}')
    (place / ".metadata.crc").write_bytes(b"crc")
    plan(place, 0, 0, 4)
    (place / "commits" / "0").write_text('v1\n{"nextBatchWatermarkMs":0}')
    plan(place, 1, 4, 9)
    return place


def plan(place: Path, batch_id: int, start: int, end: int, time_ms: int = 7) -> None:
    """Write `offsets/<batch_id>`, with a checksum file beside it."""
    line = encode(offset_of({0: (start, end)}))
    metadata = f'{{"batchWatermarkMs":0,"batchTimestampMs":{time_ms}}}'
    (place / "offsets" / str(batch_id)).write_text(f"v1\n{metadata}\n{line}")
    (place / "offsets" / f".{batch_id}.crc").write_bytes(b"crc")


def opened(folder: Path) -> Checkpoint:
    """The checkpoint, by its path."""
    return open_checkpoint(str(folder), Runtime())


def test_checkpoint_has_query_id_newest_batch_and_newest_commit(folder: Path) -> None:
    checkpoint = opened(folder)
    assert checkpoint.query_id() == QUERY
    assert checkpoint.newest_batch() == 1
    assert checkpoint.newest_commit() == 0


def test_absolute_checkpoint_is_found_although_the_process_folder_is_deleted(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = parse_writer_options({"path": "/log", "checkpointLocation": str(folder)})
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert query_checkpoint(options).newest_batch() == 1


def test_relative_checkpoint_follows_the_process_folder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process may change its folder between two batches (R24)."""
    options = parse_writer_options({"path": "/log", "checkpointLocation": folder.name})
    monkeypatch.chdir(tmp_path)
    assert query_checkpoint(options).newest_batch() == 1
    monkeypatch.chdir(folder)
    assert query_checkpoint(options).newest_batch() is None


def test_newest_batch_is_found_numerically_ignoring_other_files(folder: Path) -> None:
    plan(folder, 10, 9, 11)
    plan(folder, 9, 9, 9)
    (folder / "offsets" / ".11.tmp").write_text("")
    (folder / "offsets" / "notes.txt").write_text("")
    assert opened(folder).newest_batch() == 10


def test_batch_range_contains_the_ranges_that_the_batch_advances(folder: Path) -> None:
    found = opened(folder).batch_range(1, "log")
    assert dict(found.ranges) == {P0: PartitionRange(4, 9)}
    assert found.batch_id == 1


def test_R1_the_plan_is_the_newest_batch_and_its_digest(folder: Path) -> None:
    checkpoint = opened(folder)
    planned = checkpoint.plan()
    assert planned == BatchPlan(1, checkpoint.offsets(1).digest)
    checkpoint.require_plan(planned)


def test_R1_batch_replanned_while_it_ran_is_refused(folder: Path) -> None:
    """A stale run staged rows of [4, 9); the checkpoint is restored, a new run plans [4, 6)."""
    planned = opened(folder).plan()
    plan(folder, 1, 4, 6)
    with pytest.raises(CheckpointConflict, match="was rewritten while the batch ran"):
        opened(folder).require_plan(planned)


def test_R1_batch_replanned_with_the_same_range_is_refused(folder: Path) -> None:
    planned = opened(folder).plan()
    plan(folder, 1, 4, 9, time_ms=8)
    assert dict(opened(folder).batch_range(1, "log").ranges) == {P0: PartitionRange(4, 9)}
    with pytest.raises(CheckpointConflict, match="was rewritten while the batch ran"):
        opened(folder).require_plan(planned)


def test_R1_batch_whose_offsets_file_is_missing_is_refused(folder: Path) -> None:
    planned = opened(folder).plan()
    (folder / "offsets" / "1").unlink()
    with pytest.raises(CheckpointConflict, match=r"offsets/1 is missing"):
        opened(folder).require_plan(planned)


def test_a_checkpoint_without_any_batch_is_refused(folder: Path) -> None:
    for file in (folder / "offsets").iterdir():
        file.unlink()
    assert opened(folder).newest_batch() is None
    with pytest.raises(CheckpointConflict, match="contains no batch"):
        opened(folder).plan()


def test_R23_a_batch_whose_predecessor_is_missing_is_refused(folder: Path) -> None:
    (folder / "offsets" / "0").unlink()
    with pytest.raises(
        CheckpointConflict, match=r"offsets/0 is missing.*startingOffsets=committed"
    ):
        opened(folder).batch_range(1, "log")


def test_R23_batch_0_needs_no_predecessor(folder: Path) -> None:
    assert dict(opened(folder).batch_range(0, "log").ranges) == {P0: PartitionRange(0, 4)}


def test_R24_the_checkpoint_of_another_query_is_refused(folder: Path) -> None:
    checkpoint = opened(folder)
    checkpoint.require_query(QUERY)
    with pytest.raises(CheckpointConflict, match=f"is of query {QUERY}, but .* other"):
        checkpoint.require_query("other")


def test_R24_folder_without_metadata_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointConflict, match=r"metadata is missing"):
        opened(tmp_path).query_id()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"id":""}', '{"id":5}', "\x00"])
def test_I15_damaged_metadata_raises_corrupt_data(folder: Path, text: str) -> None:
    (folder / "metadata").write_text(text)
    with pytest.raises(CorruptData, match="metadata is not what Spark writes"):
        opened(folder).query_id()


def test_I15_torn_offsets_file_raises_corrupt_data_with_its_path(folder: Path) -> None:
    whole = (folder / "offsets" / "1").read_bytes()
    (folder / "offsets" / "1").write_bytes(whole[:-7])
    with pytest.raises(CorruptData, match=r"check point/offsets/1"):
        opened(folder).batch_range(1, "log")


def test_R22_missing_checkpoint_location_option_is_refused() -> None:
    with pytest.raises(InvalidOption, match="Add .option"):
        open_checkpoint(None, Runtime())
