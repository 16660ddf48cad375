"""`txlog export` writes each record that read_committed shows exactly once, into complete files."""

import csv
import io
import json
import os
import signal
import subprocess
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem

from tests.logs.empty_log import empty_log
from tests.processes.command_line import PROCESS_TIMEOUT_S, Run, command, environment, files, run
from tests.unit.cli.sample_log import SampleLog
from txlog.cli.output import export_files
from txlog.client.admin import Admin
from txlog.client.consumer import cut_reader
from txlog.client.consumer.cut_reader import RECORDS_MAX, read_partition, topics_at_cut
from txlog.client.producer.producer import Producer
from txlog.clock import Runtime
from txlog.engine.connection import connect
from txlog.errors import CorruptData, StoreUnavailable, UsageError
from txlog.model import Decision, IsolationLevel
from txlog.settings import LogSettings
from txlog.storage.disk.output_file import new_output_file
from txlog.topic.events import WriteMarker

FORMATS = ("parquet", "arrow", "csv")
FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n")
"""What a spreadsheet runs."""


def records(path: Path) -> list[dict[str, object]]:
    """Partition, offset and value of each record in a file, in order."""
    if path.suffix == ".csv":
        rows = csv.DictReader(io.StringIO(path.read_text(encoding="utf-8")))
        return [
            {"p": int(r["partition"]), "o": int(r["offset"]), "v": r["value"].encode()}
            for r in rows
        ]
    table = pq.read_table(path) if path.suffix == ".parquet" else pa.ipc.open_file(path).read_all()
    names = ("_partition", "_offset", "value")
    columns = [table[name].to_pylist() for name in names]
    return [{"p": p, "o": o, "v": v} for p, o, v in zip(*columns, strict=True)]


def consumed(log: SampleLog, *arguments: object) -> list[dict[str, object]]:
    """Partition, offset and value of each record, as `txlog consume` prints them."""
    lines = run("consume", "orders", *arguments, root=log.root).json_lines
    return [{"p": r["partition"], "o": r["offset"], "v": str(r["value"]).encode()} for r in lines]


def exported(log: SampleLog, file: Path, *arguments: object) -> Run:
    done = run("export", "orders", "--file", file, *arguments, root=log.root)
    assert done.code == 0, done.err
    return done


@pytest.mark.parametrize("suffix", FORMATS)
def test_file_contains_the_records_of_a_read_committed_consumer(
    suffix: str, log: SampleLog, tmp_path: Path
) -> None:
    file = tmp_path / f"orders.{suffix}"
    exported(log, file, "-p", 0)
    assert records(file) == consumed(log, "-p", 0)
    assert len(records(file)) == 10
    assert os.listdir(tmp_path) == [file.name]


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_read_uncommitted_export_includes_aborted_and_open_records(
    suffix: str, log: SampleLog, tmp_path: Path
) -> None:
    file = tmp_path / f"orders.{suffix}"
    exported(log, file, "-p", 0, "--isolation", "read_uncommitted")
    assert [record["v"] for record in records(file)][-2:] == [b"aborted", b"open"]


@pytest.mark.parametrize("suffix", FORMATS)
def test_exported_file_can_be_produced_again(suffix: str, log: SampleLog, tmp_path: Path) -> None:
    root = empty_log(tmp_path / "copy")
    for topic in ("orders", "flights"):
        file = tmp_path / f"{topic}.{suffix}"
        wanted = ("-p", 0) if topic == "orders" else ()
        assert run("export", topic, "--file", file, *wanted, root=log.root).code == 0
        Admin(root).create_topic(topic, 1, log.admin.describe_topic(topic).schema)
        done = run("produce", topic, file, root=root)
        assert done.code == 0, done.err
        copy = run("consume", topic, root=root).json_lines
        original = run("consume", topic, *wanted, root=log.root).json_lines
        assert [r["value"] for r in copy] == [r["value"] for r in original]
        assert [r["timestamp"] for r in copy] == [r["timestamp"] for r in original]


def test_csv_has_no_formula_and_is_produced_again_as_it_was(tmp_path: Path) -> None:
    """In texts, bytes, headers and a column's name."""
    texts = ["=1+1", "+49", "-2", "@x", "\t=1", "\r=1", "\n=1", "'=1", "''-", "it's", "'", "plain"]
    root, columns = empty_log(tmp_path / "log"), pa.schema([("=t", pa.string()), ("n", pa.int64())])
    for name in ("kafka", "kafka-copy"):
        Admin(root).create_topic(name)
    for name in ("typed", "typed-copy"):
        Admin(root).create_topic(name, 1, columns)
    with Producer(root) as producer:
        for text in texts:
            data = text.encode()
            producer.send("kafka", data, key=data, headers=[(text, data)])
            producer.send("typed", {"=t": text, "n": -5})
    for name in ("kafka", "typed"):
        file = tmp_path / f"{name}.csv"
        assert run("export", name, "--file", file, root=root).code == 0
        rows = list(csv.reader(io.StringIO(file.read_bytes().decode(), newline="")))
        found = [cell for row in rows for cell in row if cell.startswith(FORMULAS)]
        assert set(found) <= {"-5"}
        assert run("produce", f"{name}-copy", file, root=root).code == 0
        wanted, copied = (
            [[r["value"], r.get("key"), r.get("headers")] for r in found.json_lines]
            for found in (run("consume", topic, root=root) for topic in (name, f"{name}-copy"))
        )
        assert copied == wanted
        assert len(wanted) == len(texts)


def test_export_has_merged_records_once_unlike_a_glob_over_segments(
    tmp_path: Path,
) -> None:
    root = Path(
        empty_log(
            tmp_path / "log", LogSettings(journal_snapshot_entries=4, entry_records_max_bytes=0)
        )
    )
    Admin(str(root)).create_topic("clicks", 1)
    producer = Producer(str(root))
    for number in range(40):
        producer.send("clicks", b"%d" % number).get()
    assert "merged" in run("maintain", "--once", "--no-vacuum", root=root).out
    globbed = sum(
        pa.ipc.open_file(path).read_all().num_rows for path in root.rglob("segments/*.arrow")
    )
    assert globbed > 40
    file = tmp_path / "clicks.parquet"
    assert run("export", "clicks", "--file", file, root=root).code == 0
    assert [record["v"] for record in records(file)] == [b"%d" % n for n in range(40)]


def test_export_omits_a_transaction_whose_marker_is_in_one_topic_only(tmp_path: Path) -> None:
    """I11: the other topic's marker is not written yet."""
    root = empty_log(tmp_path / "log")
    connection = connect(root)
    for name in ("a", "b"):
        Admin(connection).create_topic(name, 1)
    producer = Producer(connection, transactional_id="both", transaction_records="in.log")
    producer.init_transactions()
    for number in range(2):
        tx_id = producer.begin_transaction()
        for name in ("a", "b"):
            producer.send(name, b"%d" % number)
        if number == 0:
            producer.commit_transaction()
    producer.flush()
    topics = {name: connection.cluster.topic(name) for name in ("a", "b")}
    ids = tuple(sorted(topic.topic_id for topic in topics.values()))
    topics["a"].execute(WriteMarker(tx_id, Decision.COMMIT, tx_id.number, 0, topic_ids=ids))
    assert len(run("consume", "a", root=root).json_lines) == 2
    done = run("export", "a", "b", "--folder", tmp_path, "-o", "json", root=root)
    assert done.json["records"] == 2
    for name in ("a", "b"):
        assert [r["v"] for r in records(tmp_path / f"{name}.parquet")] == [b"0"]


@pytest.mark.parametrize(
    ("arguments", "offsets"),
    [
        (("--from", 3), range(3, 10)),
        (("--until", 3), range(3)),
        (("--from", 3, "--until", 5), range(3, 5)),
        (("--from", "@2013-01-01T05:15:04Z"), range(4, 10)),
        (("--until", "@2013-01-01T05:15:04Z"), range(4)),
        (("--from", 500), range(0)),
        (("--until", 500), range(10)),
        (("--from", "@2030-01-01"), range(0)),
    ],
)
def test_from_and_until_limit_the_exported_offsets(
    arguments: tuple[object, ...], offsets: range, log: SampleLog, tmp_path: Path
) -> None:
    file = tmp_path / "orders.parquet"
    exported(log, file, "-p", 0, *arguments)
    assert [record["o"] for record in records(file)] == list(offsets)
    assert "_offset" in pq.read_schema(file).names


def test_times_limit_records_that_are_not_in_the_order_of_their_times(tmp_path: Path) -> None:
    root = empty_log(tmp_path / "log")
    Admin(root).create_topic("t", 1)
    times_ms = [50, 10, 40, 20, 30, 10]
    with Producer(root) as producer:
        for time_ms in times_ms:
            producer.send("t", b"%d" % time_ms, timestamp_ms=time_ms)
    for start, until in ((10, 40), (20, 50), (11, 51), (60, 70), (40, 40)):
        bounds = ("--from", f"@{start}", "--until", f"@{until}")
        file = tmp_path / f"{start}.csv"
        done = run("export", "t", "--file", file, *bounds, "-o", "json", root=root)
        wanted = [time for time in times_ms if start <= time < until]
        assert done.json["records"] == len(wanted)
        assert [int(str(record["v"], "ascii")) for record in records(file)] == wanted
    done = run(
        "export", "t", "--file", tmp_path / "x.csv", "--from", "@9", "--until", "@8", root=root
    )
    assert (done.code, "before it starts" in done.err) == (2, True)


def test_json_summary_lists_files_and_exported_ranges(log: SampleLog, tmp_path: Path) -> None:
    file = tmp_path / "orders.parquet"
    done = exported(log, file, "-o", "json")
    assert done.json == {
        "records": 11,
        "files": [str(file)],
        "partitions": [
            {"topic": "orders", "file": str(file), "partition": part, "start_offset": 0,
             "end_offset": end, "records": count}
            for part, end, count in ((0, 11, 10), (1, 1, 1))
        ],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("orders",), 2, "--file FILE for one topic, or --folder DIR"),
        (("orders", "--file", "{}/x.csv", "--folder", "{}"), 2, "--file FILE"),
        (("orders", "flights", "--file", "{}/x.csv"), 2, "give --folder"),
        (("orders", "orders", "--folder", "{}"), 2, "named twice"),
        (("orders", "--file", "{}/x.txt"), 2, "--format parquet, arrow or csv"),
        (("orders", "--file", "{}/none/x.csv"), 2, "there is no folder"),
        (("orders", "--file", "{}/there.csv"), 2, "exists already"),
        (("orders", "--file", "nothing://x/x.csv"), 2, "Check the protocol"),
        (("nothing", "--file", "{}/x.csv"), 3, "nothing"),
        (("orders", "--file", "{}/x.csv", "-p", 7), 3, "no partition 7"),
        (("orders", "--file", "{}/x.csv", "--from", "latest"), 2, "nothing to export"),
        (("orders", "--file", "{}/x.csv", "--from", 5, "--until", 2), 2, "before it starts"),
        (("orders", "--file", "{}/x.csv", "--from", "soon"), 2, "soon"),
    ],
)
def test_refused_export_creates_no_file(
    arguments: tuple[object, ...], code: int, words: str, log: SampleLog, tmp_path: Path
) -> None:
    (tmp_path / "there.csv").write_text("mine")
    done = run("export", *(str(a).format(tmp_path) for a in arguments), root=log.root)
    assert (done.code, done.out) == (code, "")
    assert words in done.err
    assert os.listdir(tmp_path) == ["there.csv"]
    assert (tmp_path / "there.csv").read_text() == "mine"


@pytest.mark.parametrize("place", ["topics", "../log", "deep/er", "../link/topics", "."])
@pytest.mark.parametrize("option", ["--file", "--folder"])
def test_export_into_a_folder_within_a_log_is_refused(
    option: str, place: str, own_log: SampleLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    (own_log.root / "deep" / "er").mkdir(parents=True)
    (own_log.root.parent / "link").symlink_to(own_log.root)
    monkeypatch.chdir(own_log.root)
    before = files(own_log.root)
    target = f"{place}/orders.parquet" if option == "--file" else place
    for given in (target, f"file://{own_log.root}/{target}"):
        done = run("export", "orders", option, given, root=own_log.root)
        assert (done.code, done.out) == (2, "")
        assert f"is within the log at {own_log.root}" in done.err
    assert files(own_log.root) == before


def test_export_within_another_log_in_a_bucket_is_refused(log: SampleLog) -> None:
    """A file system of fsspec that has no folders, as a bucket."""
    bucket = fsspec.filesystem("memory")
    bucket.pipe_file("/bucket/log/txlog.json", b"{}")
    for url in ("memory://bucket/log/orders.csv", "memory://bucket/log/a/b/orders.csv"):
        done = run("export", "orders", "--file", url, root=log.root)
        assert (done.code, "is within the log at memory:///bucket/log" in done.err) == (2, True)
    done = run("export", "orders", "--file", "memory://bucket/other/orders.csv", root=log.root)
    assert done.code == 0, done.err
    assert bucket.find("/bucket") == ["/bucket/log/txlog.json", "/bucket/other/orders.csv"]
    bucket.rm("/bucket", recursive=True)


def test_export_of_a_damaged_topic_leaves_no_file(own_log: SampleLog, tmp_path: Path) -> None:
    for segment in own_log.root.rglob("segments/*.arrow"):
        data = bytearray(segment.read_bytes())
        data[len(data) // 2] ^= 0xFF
        segment.write_bytes(data)
    folder = tmp_path / "out"
    folder.mkdir()
    done = run("export", "orders", "--folder", folder, root=own_log.root)
    assert (done.code, os.listdir(folder)) == (1, [])


def test_name_of_the_longest_length_in_bytes_is_written(tmp_path: Path) -> None:
    target = tmp_path / ("\u6f22" * 85)  # 255 bytes of UTF-8.
    with new_output_file(str(target), Runtime().entropy) as file:
        file.write(b"records")
    assert target.read_bytes() == b"records"
    assert list(tmp_path.iterdir()) == [target]


def test_killed_export_leaves_no_file_under_the_final_name(log: SampleLog, tmp_path: Path) -> None:
    """The process is killed when the file is complete but not renamed yet."""
    file = tmp_path / "orders.parquet"
    program = (
        "import os, signal, sys\n"
        "from txlog.storage.disk import output_file\n"
        "output_file.os.link = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "from txlog.cli.main import main\n"
        "main()\n"
    )
    words = ["--root", log.root, "export", "orders", "--file", file]
    done = subprocess.run(
        [command()[0].removesuffix("txlog") + "python", "-c", program, *map(str, words)],
        env=environment(),
        timeout=PROCESS_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    assert not file.exists()
    exported(log, file)
    assert len(records(file)) == 11


def test_file_created_concurrently_is_not_overwritten(tmp_path: Path) -> None:
    entropy = Runtime().entropy

    def race(target: str, path: Path) -> None:
        with new_output_file(target, entropy) as file:
            file.write(b"ours")
            path.write_bytes(b"theirs")

    for target, path in (
        (str(tmp_path / "x"), tmp_path / "x"),
        (f"file://{tmp_path}/y", tmp_path / "y"),
    ):
        with pytest.raises(UsageError, match="exists already"):
            race(target, path)
        assert path.read_bytes() == b"theirs"
    assert sorted(os.listdir(tmp_path)) == ["x", "y"]


def test_fsspec_failure_is_reported_without_secrets_and_leaves_no_file(tmp_path: Path) -> None:
    """The library fails when the complete file gets its name."""
    moved: list[str] = []

    class Failing(LocalFileSystem):  # type: ignore[misc]
        protocol = "failing"

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            return path.partition("@")[2] or path

        def mv(self, path1: str, path2: str, **_: object) -> None:
            moved.append(f"{os.path.getsize(path1)} bytes to {path2}")
            raise RuntimeError("token=hu5h")

    fsspec.register_implementation("failing", Failing, clobber=True)
    with (
        pytest.raises(StoreUnavailable, match=r"failing://\*\*\*@") as caught,
        new_output_file(f"failing://me:hu5h@{tmp_path}/x", Runtime().entropy) as file,
    ):
        file.write(b"ours")
    assert "hu5h" not in str(caught.value)
    assert moved == [f"4 bytes to {tmp_path}/x"]
    assert os.listdir(tmp_path) == []


def test_fsspec_file_is_removed_if_the_export_fails(tmp_path: Path) -> None:
    def export() -> None:
        with new_output_file(f"file://{tmp_path}/x", Runtime().entropy) as file:
            file.write(b"ours")
            assert len(os.listdir(tmp_path)) == 1
            raise CorruptData("damaged.")

    with pytest.raises(CorruptData, match="damaged"):
        export()
    assert os.listdir(tmp_path) == []


def test_export_writes_to_an_fsspec_url_without_overwriting(log: SampleLog) -> None:
    url = "memory://exports/orders.csv"
    done = run("export", "orders", "--file", url, "-p", 0, "-o", "json", root=log.root)
    assert done.json["files"] == [url]
    with fsspec.open(url, "rt") as file:
        assert len(list(csv.reader(file))) == 11
    assert fsspec.filesystem("memory").ls("/exports", detail=False) == ["/exports/orders.csv"]
    assert "exists already" in run("export", "orders", "--file", url, root=log.root).err
    fsspec.filesystem("memory").rm("/exports", recursive=True)


@pytest.fixture
def long_topic(tmp_path: Path) -> str:
    root = empty_log(tmp_path / "log")
    Admin(root).create_topic("long", 1)
    with Producer(root) as producer:
        for number in range(3_000):
            producer.send("long", b"%06d" % number + bytes(994))
    return root


def test_long_topic_is_read_and_written_in_bounded_pieces(
    long_topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cut_reader, "FETCH_BYTES_MAX", 100_000)
    monkeypatch.setattr(cut_reader, "RECORDS_MAX", 100)
    monkeypatch.setattr(export_files, "ROW_GROUP_BYTES", 200_000)
    connection = connect(long_topic)
    (wanted,) = topics_at_cut(connection, ["long"], IsolationLevel.READ_COMMITTED)
    sizes = [b.num_rows for b in read_partition(wanted, 0, IsolationLevel.READ_COMMITTED)]
    assert (sum(sizes), max(sizes)) == (3_000, 100)
    assert RECORDS_MAX > 100
    file = tmp_path / "long.parquet"
    assert run("export", "long", "--file", file, root=long_topic).code == 0
    metadata = pq.ParquetFile(file).metadata
    assert metadata.num_rows == 3_000
    assert metadata.num_row_groups >= 10


@pytest.mark.parametrize("suffix", ["arrow", "csv"])
def test_file_written_in_many_pieces_is_complete(
    suffix: str, long_topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cut_reader, "RECORDS_MAX", 100)
    monkeypatch.setattr(export_files, "ROW_GROUP_BYTES", 200_000)
    file = tmp_path / f"long.{suffix}"
    assert run("export", "long", "--file", file, root=long_topic).code == 0
    assert [record["o"] for record in records(file)] == list(range(3_000))


def test_export_includes_columns_that_were_added_later(tmp_path: Path) -> None:
    root = empty_log(tmp_path / "log")
    admin = Admin(root)
    admin.create_topic("t", 1, pa.schema([("a", pa.int64())]))
    with Producer(root) as producer:
        producer.send("t", {"a": 1})
    assert run("topic", "alter", "t", "--add-column", "b: list<string>", root=root).code == 0
    with Producer(root) as producer:
        producer.send("t", {"a": 2, "b": ["x", None]})
    for suffix in FORMATS:
        assert run("export", "t", "--file", tmp_path / f"t.{suffix}", root=root).code == 0
    assert pq.read_table(tmp_path / "t.parquet")["b"].to_pylist() == [None, ["x", None]]
    rows = list(csv.DictReader((tmp_path / "t.csv").read_text().splitlines()))
    assert [row["a"] for row in rows] == ["1", "2"]
    assert json.loads(rows[1]["b"]) == ["x", None]
