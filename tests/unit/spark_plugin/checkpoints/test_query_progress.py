"""The progress of a query, read from its checkpoint."""

import json
from pathlib import Path

from spark_plugin.checkpoints.checkpoint import Checkpoint, open_checkpoint
from spark_plugin.checkpoints.query_progress import (
    NONE,
    NewestBatch,
    QueryProgress,
    is_without_records,
    newest_batch,
    query_progress,
)
from txlog.clock import Runtime
from txlog.coordinator.events import ReplayMark


def opened(folder: Path) -> Checkpoint:
    return open_checkpoint(str(folder), Runtime())


def progress_of(folder: Path) -> QueryProgress:
    return query_progress(opened(folder))


def test_progress_is_read_from_a_checkpoint(tmp_path: Path) -> None:
    assert progress_of(tmp_path) == progress_of(tmp_path / "missing")
    assert progress_of(tmp_path) == QueryProgress("", NONE, NONE)
    for folder, names in (("offsets", "0 1 2 10 .10.crc"), ("commits", "0 1 2 .2.crc")):
        (tmp_path / folder).mkdir()
        for name in names.split():
            (tmp_path / folder / name).write_text("v1\n{}\n{}")
    (tmp_path / "metadata").write_text(json.dumps({"id": "query"}))
    progress = progress_of(tmp_path)
    assert (progress.query_id, progress.planned, progress.finished) == ("query", 10, 2)
    assert progress.is_in_flight


def test_batch_with_unchanged_source_lines_is_without_records(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    for batch, source in enumerate(["a", "b", "b"]):
        (tmp_path / "offsets" / str(batch)).write_text(
            f'v1\n{{"batchWatermarkMs": {batch}}}\n{source}'
        )
    assert [is_without_records(opened(tmp_path), batch) for batch in range(4)] == [
        False,
        False,
        True,
        False,
    ]


def test_newest_batch_combines_checkpoint_and_replay_marks(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "commits").mkdir()
    for batch in range(2):
        (tmp_path / "offsets" / str(batch)).write_text('v1\n{"batchWatermarkMs":0}\nsame')
    (tmp_path / "commits" / "0").write_text("v1\n{}")
    (tmp_path / "metadata").write_text('{"id": "query"}')
    for newest, is_in_log in ((0, False), (1, True)):
        marks = [ReplayMark("other", 7), ReplayMark("query", newest)]
        found = newest_batch(opened(tmp_path), marks)
        assert found == NewestBatch(1, True, True, is_in_log)
