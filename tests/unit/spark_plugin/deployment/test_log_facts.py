"""What a process of a cluster tells about a log."""

import shutil
from pathlib import Path

import pytest

from spark_plugin.deployment.log_facts import file_system, log_facts, marked
from tests.logs.empty_log import empty_log
from txlog.layout import CLUSTER_FILE, PROBES

MOUNTS = r"""
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:40 / /mnt/shared\040logs rw shared:2 - nfs4 server:/export rw
31 22 0:41 / /mnt rw - tmpfs tmpfs rw
32 22 0:42 / /mnt/shared\040logs/own rw - xfs /dev/vdb rw
33 32 0:43 / /mnt/shared\040logs/own rw - fuse.s3fs s3fs rw
34 22 0:44 / /mnt/dashed rw - nfs server:/a - b rw
35 31 0:45 / /mnt/X rw - btrfs /dev/vdc rw
""".strip()


def objects(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_process_tells_the_log_and_leaves_no_object_behind(tmp_path: Path) -> None:
    root = empty_log(tmp_path / "log")
    before = objects(tmp_path / "log")
    with marked(root, {}) as mark:
        assert mark in objects(tmp_path / "log")
        found = log_facts(root, {}, mark)
    first_ms, last_ms, dated_ms = found["dated_ms"]
    assert first_ms - 1_000 <= dated_ms <= last_ms + 1_000
    assert len(found["log_id"]) == 32
    assert found["sees_mark"]
    assert objects(tmp_path / "log") == before


def test_copy_of_the_log_has_its_id_and_not_the_mark(tmp_path: Path) -> None:
    root = empty_log(tmp_path / "log")
    shutil.copytree(tmp_path / "log", tmp_path / "copy")
    with marked(root, {}) as mark:
        here, there = (log_facts(str(tmp_path / name), {}, mark) for name in ("log", "copy"))
    assert here["log_id"] == there["log_id"]
    assert (here["sees_mark"], there["sees_mark"]) == (True, False)


def test_missing_folder_is_told_and_not_created(tmp_path: Path) -> None:
    root = str(tmp_path / "none")
    with marked(root, {}) as mark:
        assert mark == ""
        found = log_facts(root, {}, mark)
    assert (found["log_id"], found["sees_mark"]) == (None, False)
    assert list(tmp_path.iterdir()) == []


def test_unusable_root_is_an_error_with_its_code(tmp_path: Path) -> None:
    with marked("nope://x", {}) as mark:
        found = log_facts("nope://x", {}, mark)
    assert found["read_error"]["code"] == "usage"
    assert "nope://" in found["read_error"]["reason"]


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/", "ext4"),
        ("/mnt-2/log", "ext4"),
        ("/mnt/log", "tmpfs"),
        ("/mnt/shared logs/a", "nfs4"),
        ("/mnt/shared logs/own", "fuse.s3fs"),
        ("/mnt/dashed/log", "nfs"),
        ("/mnt/X", "btrfs"),
    ],
)
def test_file_system_is_that_of_the_nearest_mount_and_the_newest(folder: str, kind: str) -> None:
    assert file_system(folder, MOUNTS) == kind
    assert file_system(folder, "") == ""


def test_facts_of_a_disk_name_its_file_system_and_those_of_a_bucket_none(tmp_path: Path) -> None:
    root = empty_log(tmp_path / "log")
    found = log_facts(root, {})
    assert (found["place"], found["file_system"]) == (root, file_system(root))
    assert found["file_system"]
    assert not found["sees_mark"], "no mark is looked for"
    found = log_facts("memory://nowhere", {})
    assert (found["file_system"], found["log_id"]) == (None, None)


def test_place_that_cannot_be_written_or_read_is_told_with_reason_and_remedy(
    tmp_path: Path,
) -> None:
    root = empty_log(tmp_path / "log")
    (tmp_path / "log" / PROBES).write_text("in the way of the folder")
    with marked(root, {}) as mark:
        assert mark == ""
    found = log_facts(root, {}, "probes/x/driver")
    assert found["write_error"]["reason"]
    assert not found["write_error"]["reason"].endswith(".")
    assert "dated_ms" not in found
    (tmp_path / "log" / CLUSTER_FILE).write_text("damaged")
    found = log_facts(root, {})
    assert found["read_error"]["code"] == "corrupt-data"
    assert found["read_error"]["remedy"].startswith("Restore the object")
    assert (found["log_id"], "dated_ms" in found) == (None, False)
