"""The txlog source and sink, in processes that stop at a step of the commit and wait to be killed.

The environment variable `PAUSES` names a folder. A file `<name>.json` there is a place to stop:
just before or just after an object is created whose path and content match, or when the sink's
commit has returned. Whoever comes there writes `<name>.reached` and waits for `<name>.go`, so that
a test can look at the log as the step left it, and kill every process of the driver exactly there.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from spark_plugin.datasource import TxlogDataSource
from spark_plugin.options import parse_writer_options
from spark_plugin.stream_writer import TxlogStreamWriter
from txlog.storage.local import LocalStore
from txlog.storage.store import CreateResult

PAUSES = "TXLOG_TEST_PAUSES"
"""Name of the environment variable."""

COMMIT_RETURNS = "commit returns"
BEFORE, AFTER = "before", "after"


@dataclass(frozen=True)
class Place:
    """One place to stop."""

    moment: str
    """`BEFORE` or `AFTER` the object is created, or `COMMIT_RETURNS`."""
    path: str = ""
    """What the object's path begins with."""
    words: tuple[str, ...] = ()
    """Texts that the object holds, all of them; of `COMMIT_RETURNS`, the query's name."""
    number: int = 1
    """Which of the objects that match; those before it are created first."""

    def matches(self, path: str, data: bytes) -> bool:
        """Whether that object is one of them."""
        return path.startswith(self.path) and all(word.encode() in data for word in self.words)


class Pauses:
    """The places to stop, as both sides see them: files in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    # The test's side.

    def set(self, name: str, place: Place) -> None:
        """From now on, stop there."""
        self.folder.mkdir(parents=True, exist_ok=True)
        temporary = self.folder / f".{name}"
        temporary.write_text(json.dumps(asdict(place)))
        temporary.rename(self.folder / f"{name}.json")

    def is_reached(self, name: str) -> bool:
        """Whether somebody waits there."""
        return (self.folder / f"{name}.reached").exists()

    def release(self, name: str) -> None:
        """Let it go on; nobody stops there again."""
        (self.folder / f"{name}.go").touch()

    # The side of the process that stops.

    def create(self, path: str, data: bytes, call: Callable[[], CreateResult]) -> CreateResult:
        """Create an object, and stop before or after it if it is one of the places."""
        found = [(n, p) for n, p in self._places(BEFORE, AFTER) if p.matches(path, data)]
        turns = {name: self._turn(name) for name, _ in found}
        for name, place in found:
            if place.moment == BEFORE and turns[name] == place.number:
                self._wait_for_others(name, place.number - 1)
                self._stop(name)
        result = call()
        for name, place in found:
            (self.folder / f"{name}.created {turns[name]}").touch()
            if place.moment == AFTER and turns[name] == place.number:
                self._stop(name)
        return result

    def commit_returns(self, query: str) -> None:
        """The sink's commit of that query is done, and Spark has not been told."""
        for name, place in self._places(COMMIT_RETURNS):
            if query in place.words:
                self._stop(name)

    def _places(self, *moments: str) -> list[tuple[str, Place]]:
        found = [(f.stem, Place(**json.loads(f.read_text()))) for f in self.folder.glob("*.json")]
        return [(name, place) for name, place in found if place.moment in moments]

    def _turn(self, name: str) -> int:
        """Counted in files, as Spark hands each commit of a query to any idle Python process."""
        for number in itertools.count(1):
            with contextlib.suppress(FileExistsError):
                (self.folder / f"{name}.begun {number}").touch(exist_ok=False)
                return number
        raise AssertionError("counting does not end")

    def _wait_for_others(self, name: str, count: int) -> None:
        while len(list(self.folder.glob(f"{name}.created *"))) < count:
            time.sleep(0.001)

    def _stop(self, name: str) -> None:
        (self.folder / f"{name}.reached").touch()
        while not (self.folder / f"{name}.go").exists():
            time.sleep(0.005)


def install(pauses: Pauses) -> None:
    """Let every create of this process pass by the places."""
    create = LocalStore.create

    def pausing_create(self: LocalStore, path: str, data: bytes) -> CreateResult:
        return pauses.create(path, data, lambda: create(self, path, data))

    LocalStore.create = pausing_create  # type: ignore[method-assign]


class PausingStreamWriter(TxlogStreamWriter):
    """The sink, which may stop once its commit is done."""

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        super().commit(messages, batch_id)
        _PAUSES.commit_returns(self._options.query_name or "")


class PausingSource(TxlogDataSource):
    """`format("txlog")` of the drivers that tests kill."""

    def streamWriter(self, schema: StructType, overwrite: bool) -> PausingStreamWriter:
        writer = PausingStreamWriter.for_batch(parse_writer_options(self.options), schema)
        assert isinstance(writer, PausingStreamWriter)
        return writer


_PAUSES = Pauses(Path(os.environ.get(PAUSES, os.devnull)))
if PAUSES in os.environ:
    install(_PAUSES)
