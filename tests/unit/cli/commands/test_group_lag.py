"""`txlog group lag`: the chart, the document, and the picture."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.processes.command_line import run, run_process
from tests.unit.cli.sample_log import SampleLog
from txlog import Admin, Consumer, Producer, TopicPartition


@pytest.fixture
def root(tmp_path: Path) -> str:
    """Five records, of which the group has read two."""
    root = str(tmp_path / "log")
    with Producer(root, create=True) as producer:
        Admin(root).create_topic("orders", 1)
        for _ in range(5):
            producer.send("orders", b"x")
    with Consumer(root=root, group_id="$billing$ [red]", enable_auto_commit=False) as consumer:
        consumer.commit({TopicPartition("orders", 0): 2})
    return root


def test_lag_is_drawn_over_time(root: str) -> None:
    done = run("group", "lag", "$billing$ [red]", root=root)
    assert (done.code, done.err) == (0, "")
    assert ["Lag", "3"] in done.rows
    assert done.out.count("\nLAG\n") == 1
    assert "LAG-SECONDS" in done.out


def test_document_has_each_moment_and_partition(root: str) -> None:
    done = run("group", "lag", "$billing$ [red]", "--step", "20m", "-o", "json", root=root)
    moments = done.json["moments"]
    assert len(moments) == 4
    now = moments[-1]
    assert (now["lag"], now["partitions"][0]["current_offset"]) == (3, 2)
    assert now["partitions"][0]["log_end_offset"] == 5
    assert moments[0]["lag"] is None, "the group had no position"
    assert done.json["covered_since"] == moments[0]["time"]


def test_damaged_entry_ends_what_is_known_and_is_named(root: str) -> None:
    group = "$billing$ [red]"
    connection = Admin(root).connection
    journal = connection.coordinator(connection.offsets.coordinator_number_of(group)).journal
    with Consumer(root=root, group_id=group, enable_auto_commit=False) as consumer:
        consumer.commit({TopicPartition("orders", 0): 3})
        entry = max((Path(root) / journal.layout.root).rglob("entries/*.json"))
        consumer.commit({TopicPartition("orders", 0): 4})
    entry.write_bytes(b"not JSON")
    done = run("group", "lag", group, root=root)
    assert (done.code, entry.name in done.err) == (1, True)
    assert ["Lag", "1"] in done.rows


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_picture_is_written(root: str, tmp_path: Path, suffix: str) -> None:
    """Its title is text: no formula, no markup."""
    path = tmp_path / f"lag.{suffix}"
    done = run("group", "lag", "$billing$ [red]", "--plot", str(path), root=root)
    assert (done.code, done.err) == (0, f"Wrote {path}.\n")
    data = path.read_bytes()
    if suffix == "png":
        assert data.startswith(b"\x89PNG")
    else:
        assert "Lag of group $billing$ [red]" in data.decode()


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_hostile_name_of_a_group_is_text_in_the_picture(
    root: str, tmp_path: Path, suffix: str
) -> None:
    """No formula that fails, no markup, no link, and no warning of a character without a glyph."""
    name = "$\\frac{1}{0}$ <script>alert(1)</script> --><a href='x'>y</a> ]]>&\u65e5"
    with Consumer(root=root, group_id=name, enable_auto_commit=False) as consumer:
        consumer.commit({TopicPartition("orders", 0): 2})
    path = tmp_path / f"lag.{suffix}"
    done = run_process("--root", root, "group", "lag", name, "--plot", path)
    assert (done.code, done.err) == (0, f"Wrote {path}.\n")
    if suffix == "svg":
        elements = list(ElementTree.fromstring(path.read_text(encoding="utf-8")).iter())
        assert not {element.tag.partition("}")[2] for element in elements} & {"script", "a"}
        links = {value for each in elements for key, value in each.items() if "href" in key}
        assert all(link.startswith("#") for link in links)


def test_other_pictures_are_refused_before_anything_is_read(log: SampleLog) -> None:
    done = run("group", "lag", "absent", "--plot", "lag.bmp", root=log.root)
    assert done.code == 2
    assert "give a name that ends with .svg or .png" in done.err


def test_unknown_group_and_bad_times_say_what_to_write(log: SampleLog) -> None:
    done = run("group", "lag", "absent", root=log.root)
    assert (done.code, "txlog group list" in done.err) == (3, True)
    done = run("group", "lag", "billing", "--since", "soon", root=log.root)
    assert (done.code, "an age such as 90s" in done.err) == (2, True)
