"""How many files of the product a reader passes who follows a transaction or a micro-batch.

A file counts if a function of it runs, in any thread. The bounds only go down: if a change lowers a
count, lower its bound as well, and the figures in docs/dev/testing.md. To print the files:

    python -m tests.docs.test_files_on_a_path
"""

import json
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import le
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.sql.streaming.datasource import ReadAllAvailable

from spark_plugin.datasource import TxlogDataSource
from spark_plugin.python_worker import BATCH_ID, JOB_GROUP, QUERY_ID
from tests.docs.pages import Page
from tests.source_tree import PRODUCT, ROOT
from txlog import Admin, Producer
from txlog.engine.connection import connect
from txlog.settings import ProcessSettings

PAGE = Page(ROOT / "docs" / "dev" / "testing.md")
BOUNDS = {"transaction": (45, 33), "micro-batch": (67, 56)}
"""Files at most: all of them, and those without the vocabulary and the stores."""

PARTITIONS = 2
LINGER_MS = 3_600_000
"""So long that a transaction is completed by the next one, or by `close`, and by no clock."""


class FileCount:
    """The product's files with a function that was called while this counted."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self._counts = False

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

    def count(self, call: Callable[[], object]) -> None:
        """Count the files of this call."""
        self._counts = True
        call()
        self._counts = False

    @property
    def layers(self) -> set[str]:
        """The files without the vocabulary (the modules in `txlog/` itself) and the stores."""
        return {
            file
            for file in self.files
            if file.split("/")[:-1] != ["txlog"] and not file.startswith("txlog/storage/")
        }

    def _called(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if self._counts and event == "call" and code.co_name != "<module>":
            file = code.co_filename.removeprefix(f"{ROOT}/")
            if file.split("/")[0] in PRODUCT:
                self.files.add(file)


def transaction(folder: Path) -> FileCount:
    """The second transaction of a producer: one record, sent and committed."""
    process = ProcessSettings(completion_linger_ms=LINGER_MS)
    connection = connect(f"{folder}/log", create=True, process=process)
    Admin(connection).create_topic("orders", PARTITIONS)
    found = FileCount()
    with found.watching(), Producer(connection, transactional_id="shop") as producer:
        producer.init_transactions()

        def run() -> None:
            with producer.transaction():
                producer.send("orders", b"12", key=b"bob")

        run()
        found.count(run)
    return found


class CopyQuery:
    """A query from the topic `numbers` to the topic `copies`: Spark's calls of the data source."""

    def __init__(self, folder: Path) -> None:
        self._checkpoint = folder / "checkpoint"
        (self._checkpoint / "offsets").mkdir(parents=True)
        (self._checkpoint / "metadata").write_text(json.dumps({"id": "query"}))
        root = f"{folder}/log"
        connection = connect(root, create=True)
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


def micro_batch(folder: Path) -> FileCount:
    """The third micro-batch of a query."""
    found = FileCount()
    with found.watching():
        query = CopyQuery(folder)
        for _ in range(2):
            query.put()
            query.run_batch()
        query.put()
        found.count(query.run_batch)
    return found


PATHS = {"transaction": transaction, "micro-batch": micro_batch}


@pytest.mark.parametrize("path", PATHS)
def test_path_passes_no_more_files_than_before(path: str, tmp_path: Path) -> None:
    found = PATHS[path](tmp_path)
    counts = len(found.files), len(found.layers)
    assert all(map(le, counts, BOUNDS[path])), (counts, sorted(found.files))


def test_page_has_the_bounds() -> None:
    (paragraph,) = [part for part in PAGE.text.split("\n\n") if "test_files_on_a_path" in part]
    numbers = [int(word) for word in re.findall(r"\d+", paragraph)]
    assert numbers == [number for bound in BOUNDS.values() for number in bound]


def main() -> None:
    """Print the files of each path; without an indent those of the vocabulary and the stores."""
    for path, measure in PATHS.items():
        with tempfile.TemporaryDirectory() as folder:
            found = measure(Path(folder))
        print(f"{path}: {len(found.files)} files, {len(found.layers)} of them in the layers above")
        for file in sorted(found.files):
            print("   " if file in found.layers else "", file)


if __name__ == "__main__":
    main()
