"""How many calls of the product a send, a poll and a micro-batch make.

Who follows a path through the code reads its functions, and turns to another file at each call that
leads to one. So each path has three numbers: calls of Python functions, in all threads; functions
that are called; and calls into another file than the caller's. The bounds are the figures in
docs/dev/calls.md, which also says what needs the calls of each stage. They only go down: if a
change lowers a number, write the page again. To print the calls, and to write them there:

    python -m tests.docs.test_files_on_a_path [PATH]
    python -m tests.docs.test_files_on_a_path --write
"""

import json
import re
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from operator import attrgetter, le
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.streaming.datasource import ReadAllAvailable

from spark_plugin.datasource import TxlogDataSource
from spark_plugin.python_worker import BATCH_ID, JOB_GROUP, QUERY_ID
from spark_plugin.sink import batch_commit
from tests.docs.pages import Page
from tests.docs.stages_of_a_path import OTHERS, STAGES
from tests.source_tree import PRODUCT, ROOT
from txlog import Admin, Consumer, Producer
from txlog.engine.connection import connect
from txlog.settings import ProcessSettings

PAGE = Page(ROOT / "docs" / "dev" / "calls.md")
STATUS_CALLS_MAX, OPENAT2_MAX = 16, 16
"""What a send asks the disk about names besides reading and writing files (design note 0017)."""

ROWS = 100
PARTITIONS = 2
LINGER_MS = 3_600_000
"""So long that a transaction is completed by the next one, or by `join`, and by no clock."""


@dataclass
class Calls:
    """The calls of the product's functions that were made while this counted."""

    functions: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(file, function) -> calls."""
    changes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(file of the caller, file of the function) -> calls."""
    stages: Counter[str] = field(default_factory=Counter)
    """Stage of the path -> calls."""
    status_calls: int = 0
    _counts: bool = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch this thread, and those that are started here."""
        before = sys.getprofile(), threading.getprofile()
        threading.setprofile(self._called)
        sys.setprofile(self._called)
        try:
            yield
        finally:
            sys.setprofile(before[0])
            threading.setprofile(before[1])

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count the calls in this block."""
        self._counts = True
        yield
        self._counts = False

    @property
    def numbers(self) -> tuple[int, int, int]:
        """Calls, functions and changes of file."""
        return self.functions.total(), len(self.functions), self.changes.total()

    @property
    def openat2_calls(self) -> int:
        """Names that were opened through no symbolic link."""
        return self.functions["txlog/storage/disk/root_folder.py", "open_below"]

    def _called(self, frame: FrameType, event: str, what: Any) -> None:
        if not self._counts:
            return
        if event == "call":
            file = _file(frame.f_code)
            # A generator is called once, and then resumed: the instruction RESUME says which.
            if file is not None and not frame.f_code.co_code[frame.f_lasti + 1]:
                self.functions[file, frame.f_code.co_qualname] += 1
                self._changed(frame.f_back, file)
                self.stages[_stage(frame)] += 1
        elif event == "c_call" and what.__name__ in ("stat", "lstat", "fstat"):
            self.status_calls += _file(frame.f_code) is not None

    def _changed(self, caller: FrameType | None, file: str) -> None:
        while caller is not None and (before := _file(caller.f_code)) is None:
            caller = caller.f_back
        if caller is not None and before is not None and before != file:
            self.changes[before, file] += 1


def _file(code: CodeType) -> str | None:
    """The product's file that has this function. A comprehension is a part of its function."""
    name = code.co_name
    if not code.co_filename.startswith(f"{ROOT}/") or name == "<module>" or name.endswith(_INLINE):
        return None
    file = code.co_filename.removeprefix(f"{ROOT}/")
    return file if file.split("/", 1)[0] in PRODUCT else None


_INLINE = ("comp>", "<genexpr>")


def _stage(frame: FrameType | None) -> str:
    """The stage of a call: that of the innermost function around it that begins one."""
    while frame is not None:
        file = _file(frame.f_code)
        found = STAGES.get(f"{file} {frame.f_code.co_qualname}") if file else None
        if found is not None:
            return found
        frame = frame.f_back
    return OTHERS


def table(rows: int) -> pa.Table:
    """So many records of a Kafka-shaped topic."""
    return pa.table({"key": [b"%d" % row for row in range(rows)], "value": [b"order"] * rows})


def send(folder: Path) -> Calls:
    """The second transaction of a producer: a batch, the commit, and its completion."""
    process = ProcessSettings(completion_linger_ms=LINGER_MS)
    connection = connect(f"{folder}/log", create=True, process=process)
    Admin(connection).create_topic("orders", 1)
    found = Calls()
    with found.watching(), Producer(connection, transactional_id="shop") as producer:
        session = producer._transaction
        assert session is not None
        producer.init_transactions()

        def run() -> None:
            producer.begin_transaction()
            producer.send_batch("orders", table(ROWS))
            producer.commit_transaction()
            session.join()

        run()
        with found.counting():
            run()
            connection.runtime.fan_out.close()  # Whatever is still running is counted.
    return found


def poll(folder: Path) -> Calls:
    """The second poll of a consumer: it finds a batch that another process has sent."""
    root = f"{folder}/log"
    Admin(root, create=True).create_topic("orders", 1)
    other = connect(root, process=ProcessSettings(completion_linger_ms=LINGER_MS))
    consumer = Consumer("orders", root=root, auto_offset_reset="earliest")
    found = Calls()
    with found.watching(), Producer(other) as producer, consumer:
        for _ in range(2):
            producer.send_batch("orders", table(ROWS))
            found.functions.clear()
            found.changes.clear()
            found.stages.clear()
            with found.counting():
                (records,) = consumer.poll().values()
            assert len(records) == ROWS
    return found


class CopyQuery:
    """A query from the topic `numbers` to the topic `copies`: Spark's calls of the data source."""

    def __init__(self, folder: Path) -> None:
        self._checkpoint = folder / "checkpoint"
        (self._checkpoint / "offsets").mkdir(parents=True)
        (self._checkpoint / "metadata").write_text(json.dumps({"id": "query"}))
        root = f"{folder}/log"
        connection = connect(root, create=True)
        cluster = connection.cluster
        cluster.process = replace(cluster.process, completion_linger_ms=LINGER_MS)
        Admin(connection).create_topic("numbers", PARTITIONS)
        self._producer = Producer(connection)
        self._source = TxlogDataSource(
            {
                "root": root,
                "subscribe": "numbers",
                "group.id": "copier",
                "startingoffsets": "earliest",
                "columns": "key,value",
            }
        )
        self._sink = TxlogDataSource(
            {"root": root, "topic": "copies", "checkpointlocation": str(self._checkpoint)}
        )
        self._schema = self._source.schema()
        self._reader = self._source.streamReader(self._schema)
        self._reached = self._reader.initialOffset()
        self._batch = -1

    def put(self) -> None:
        """Send a record to each partition."""
        for partition in range(PARTITIONS):
            self._producer.send("numbers", b"record", partition=partition)
        self._producer.flush()

    def run_batch(self) -> None:
        """One micro-batch, from `latestOffset` to the driver's commit."""
        start, self._batch = self._reached, self._batch + 1
        end = self._reader.latestOffset(start, ReadAllAvailable())
        assert end != start
        file = self._checkpoint / "offsets" / str(self._batch)
        file.write_text(f'v1\n{{"batchWatermarkMs":0}}\n{json.dumps(end)}')
        self._reader.commit(start)
        writer = self._sink.streamWriter(self._schema, False)
        with self._task():
            messages = [
                writer.write(self._reader.read(task))
                for task in self._reader.partitions(start, end)
            ]
        # The process that commits makes a writer of its own.
        self._sink.streamWriter(self._schema, False).commit(messages, self._batch)
        self._reached = end

    @contextmanager
    def _task(self) -> Iterator[None]:
        """The properties that Spark sets for a task."""
        before = TaskContext.get()
        context = TaskContext()
        context._localProperties = {QUERY_ID: "query", BATCH_ID: str(self._batch), JOB_GROUP: "run"}
        TaskContext._setTaskContext(context)
        try:
            yield
        finally:
            TaskContext._setTaskContext(before)  # type: ignore[arg-type]


def micro_batch(folder: Path) -> Calls:
    """The third micro-batch of a query."""
    found = Calls()
    with found.watching():
        query = CopyQuery(folder)
        for _ in range(2):
            query.put()
            query.run_batch()
        query.put()
        with found.counting():
            query.run_batch()
        for session in batch_commit._sessions.values():
            session.join()
    return found


PATHS = {"send": send, "poll": poll, "micro-batch": micro_batch}


@pytest.mark.parametrize("path", PATHS)
def test_path_makes_no_more_calls_than_before(path: str, tmp_path: Path) -> None:
    found = PATHS[path](tmp_path)
    bounds = bounds_of_the_page()[path]
    assert all(map(le, found.numbers, bounds)), (found.numbers, bounds)
    shown = stages_of_the_page()[path]
    assert found.stages.total() == found.numbers[0]
    assert {s: (n, shown[s]) for s, n in found.stages.items() if n > shown[s]} == {}


def test_send_asks_the_disk_about_names_no_more_than_before(tmp_path: Path) -> None:
    found = send(tmp_path)
    assert 0 < found.status_calls <= STATUS_CALLS_MAX
    assert 0 < found.openat2_calls <= OPENAT2_MAX


def rows_of_the_page(first: str) -> list[list[str]]:
    """The cells of the table whose first column has that name, from its head on."""
    (table,) = re.findall(rf"(?m)^(\| {first} \|.*\n\|[-| ]+\n(?:\|.*\n)+)", PAGE.text)
    head, _, *rows = table.splitlines()
    return [[cell.strip(" *") for cell in row.strip("|").split("|")] for row in (head, *rows)]


def number(cell: str) -> int:
    """A number of a table; a dash is none."""
    return int(cell.replace(",", "").replace("-", "0"))


def stages_of_the_page() -> dict[str, Counter[str]]:
    """The calls of each path by stage."""
    head, *rows = rows_of_the_page("stage")
    assert [row[0] for row in rows] == [OTHERS, *dict.fromkeys(STAGES.values()), "all"]
    return {
        path: Counter({row[0]: number(row[at]) for row in rows})
        for at, path in enumerate(head[1:-1], 1)
    }


def bounds_of_the_page() -> dict[str, tuple[int, ...]]:
    """Calls, functions and changes of file of each path at most."""
    _, *rows = rows_of_the_page("path")
    assert [row[0] for row in rows] == [*PATHS]
    return {path: tuple(map(number, found)) for path, _, *found in rows}


def test_calls_of_the_stages_add_up_to_those_of_the_path() -> None:
    for path, stages in stages_of_the_page().items():
        assert stages.pop("all") == stages.total() == bounds_of_the_page()[path][0]


def test_stages_begin_with_functions_that_exist() -> None:
    for stage in STAGES:
        file, _, name = stage.partition(" ")
        module: Any = import_module(file.removesuffix(".py").replace("/", "."))
        assert callable(attrgetter(name)(module))


def write_page() -> None:
    """Write the measured figures into the page's tables."""
    found = {}
    for path, run in PATHS.items():
        with tempfile.TemporaryDirectory() as folder:
            found[path] = run(Path(folder))
            found[path].stages["**all**"] = found[path].numbers[0]
    lines = PAGE.text.split("\n")
    for at, line in enumerate(lines):
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 7 and cells[1] in found:
            cells[3:6] = [f"{count:,}" for count in found[cells[1]].numbers]
        elif len(cells) == 7 and cells[1] in (OTHERS, "**all**", *STAGES.values()):
            counts = [calls.stages[cells[1]] for calls in found.values()]
            cells[2:5] = [f"{count:,}" if count else "-" for count in counts]
        else:
            continue
        lines[at] = " | ".join(cells).strip().replace("|  |", "| |")
    PAGE.path.write_text("\n".join(lines), encoding="utf-8")


def main(paths: list[str]) -> None:
    """Print the calls of each path: by stage, by file and function, then the changes of file."""
    if paths == ["--write"]:
        write_page()
        return
    for path in paths or PATHS:
        with tempfile.TemporaryDirectory() as folder:
            found = PATHS[path](Path(folder))
        print(
            f"{path}: %d calls of %d functions, %d changes of file" % found.numbers,
            f"({found.status_calls} stat, {found.openat2_calls} openat2)",
        )
        for stage, count in found.stages.most_common():
            print(f"{count:6} {stage}")
        by_file: Counter[str] = Counter()
        for (file, _), count in found.functions.items():
            by_file[file] += count
        for file, count in by_file.most_common():
            print(f"{count:6} {file}")
            for (place, name), calls in found.functions.most_common():
                if place == file:
                    print(f"{calls:12} {name}")
        for (before, after), count in found.changes.most_common():
            print(f"{count:6} {before} -> {after}")


if __name__ == "__main__":
    main(sys.argv[1:])
