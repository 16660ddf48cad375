"""Points of a micro-batch at which a drill stops a process, to examine the log and to kill it.

The environment variable TXLOG_DRILL_POINTS names a folder. A file `<name>.json` there is a place to
stop: just before or just after an object is created whose path and content match, or where the
source and sink report their progress in a batch. A process that reaches it writes `<name>.reached`
and waits for `<name>.go`, or until it is killed. Without the variable nothing of this module runs.
It guards nothing; it must not change what is written.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from txlog.clock import Runtime
from txlog.errors import InternalError
from txlog.layout import TOPICS, TRANSACTIONS
from txlog.storage.capabilities import NewObject, hold, is_near, open_new
from txlog.storage.store import (
    Body,
    ByteRange,
    Bytes,
    CreateResult,
    Exists,
    Store,
    StoredObject,
)

VARIABLE = "TXLOG_DRILL_POINTS"
WAIT_MAX_MS = 600_000.0
"""A process that is stopped and forgotten continues after this time (I16)."""

POLL_MS = 5.0


class DrillStep(StrEnum):
    """A step of a micro-batch, at which a drill may stop it."""

    PLANNED = "planned"
    """The sink's writer is created: Spark has planned the batch, and none of its tasks runs yet."""
    STAGED = "staged"
    """A task has staged its rows, and has not reported to the driver."""
    BEFORE = "before"
    """An object is about to be created."""
    AFTER = "after"
    """It is created, and its writer does not know it yet."""
    RETURNED = "returned"
    """The sink's commit is done, and Spark does not know it yet."""


@dataclass(frozen=True, slots=True)
class DrillPoint:
    """One place to stop."""

    step: DrillStep
    path: str = ""
    """Prefix of the object's path."""
    words: tuple[str, ...] = ()
    """Texts that the object contains, all of them; else the query's name, if it must be that
    one."""
    number: int = 1
    """Which of the matching objects; those before it are created first."""

    def matches(self, path: str, data: bytes) -> bool:
        """Whether that object is one of them."""
        return path.startswith(self.path) and all(word.encode() in data for word in self.words)


def _entry(step: DrillStep, journals: str, event: str) -> DrillPoint:
    return DrillPoint(step, f"{journals}/", (f'"{event}"',))


POINTS = {
    "batch planned": DrillPoint(DrillStep.PLANNED),
    "rows staged": DrillPoint(DrillStep.STAGED),
    "before PREPARE_COMMIT": _entry(DrillStep.BEFORE, TRANSACTIONS, "commit_prepared"),
    "after PREPARE_COMMIT": _entry(DrillStep.AFTER, TRANSACTIONS, "commit_prepared"),
    "before the first marker": _entry(DrillStep.BEFORE, TOPICS, "marker_written"),
    "after the first marker": _entry(DrillStep.AFTER, TOPICS, "marker_written"),
    "before COMMITTED": _entry(DrillStep.BEFORE, TRANSACTIONS, "transaction_completed"),
    "after COMMITTED": _entry(DrillStep.AFTER, TRANSACTIONS, "transaction_completed"),
    "commit returned": DrillPoint(DrillStep.RETURNED),
}
"""Steps of every micro-batch that a txlog sink commits (docs/drills.md), in their order."""


class DrillPoints:
    """The places to stop, as both sides see them: files in a folder."""

    def __init__(self, folder: Path, runtime: Runtime | None = None) -> None:
        self.folder = folder
        self._clock = (runtime or Runtime()).clock

    # The drill's side.

    def set(self, name: str, place: DrillPoint) -> None:
        """Stop there from now on."""
        self.folder.mkdir(parents=True, exist_ok=True)
        temporary = self.folder / f".{name}"
        temporary.write_text(json.dumps(asdict(place)), encoding="utf-8")
        temporary.rename(self.folder / f"{name}.json")

    def is_reached(self, name: str) -> bool:
        """Whether a process waits there."""
        return (self.folder / f"{name}.reached").exists()

    def release(self, name: str) -> None:
        """Let it continue; no process stops there again."""
        (self.folder / f"{name}.go").touch()

    def clear(self) -> None:
        """Remove every place."""
        for file in self.folder.glob("*.*"):
            file.unlink(missing_ok=True)

    # The side of the process that stops.

    def create(self, path: str, data: bytes, call: Callable[[], CreateResult]) -> CreateResult:
        """Create an object, and stop before or after it if it is one of the places.

        After one whose name another process has taken it does not stop: the caller tries the next
        name, and what the stop is to show is stored there.
        """
        places = self._places(DrillStep.BEFORE, DrillStep.AFTER)
        found = [(name, place) for name, place in places if place.matches(path, data)]
        turns = {name: self._turn(name) for name, _ in found}
        for name, place in found:
            if place.step is DrillStep.BEFORE and turns[name] == place.number:
                self._wait_for_others(name, place.number - 1)
                self._stop(name)
        result = call()
        if isinstance(result, Exists):
            for name, turn in turns.items():
                (self.folder / f"{name}.begun {turn}").unlink(missing_ok=True)
            return result
        for name, place in found:
            (self.folder / f"{name}.created {turns[name]}").touch()
            if place.step is DrillStep.AFTER and turns[name] == place.number:
                self._stop(name)
        return result

    def passed(self, step: DrillStep, query: str) -> None:
        """A batch of that query has reached this step."""
        for name, place in self._places(step):
            if not place.words or query in place.words:
                self._stop(name)

    def _places(self, *steps: DrillStep) -> list[tuple[str, DrillPoint]]:
        found = [(file.stem, _read(file)) for file in self.folder.glob("*.json")]
        return [(n, place) for n, place in found if place is not None and place.step in steps]

    def _turn(self, name: str) -> int:
        """Counted in files, as Spark passes each commit of a query to any idle Python process."""
        for number in itertools.count(1):
            with contextlib.suppress(FileExistsError):
                (self.folder / f"{name}.begun {number}").touch(exist_ok=False)
                return number
        raise InternalError("counting has ended. Please report this.")

    def _wait_for_others(self, name: str, count: int) -> None:
        self._wait(lambda: len(list(self.folder.glob(f"{name}.created *"))) >= count)

    def _stop(self, name: str) -> None:
        if not (self.folder / f"{name}.go").exists():
            (self.folder / f"{name}.reached").touch()
            self._wait(lambda: (self.folder / f"{name}.go").exists())

    def _wait(self, is_over: Callable[[], bool]) -> None:
        deadline_ms = self._clock.monotonic_ms() + WAIT_MAX_MS
        while not is_over() and self._clock.monotonic_ms() < deadline_ms:
            self._clock.sleep_ms(POLL_MS)


def _read(file: Path) -> DrillPoint | None:
    """None if the place has just been removed."""
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return DrillPoint(
        DrillStep(value["step"]), value["path"], tuple(value["words"]), value["number"]
    )


def points_of_process() -> DrillPoints | None:
    """The places given to this process; None unless it is drilled."""
    folder = os.environ.get(VARIABLE)
    return DrillPoints(Path(folder)) if folder else None


def passed(step: DrillStep, query: str) -> None:
    """Stop here if a drill wants it."""
    points = points_of_process()
    if points is not None:
        points.passed(step, query)


class DrilledStore:
    """A store whose `create` stops at the places. All else is the inner store's."""

    def __init__(self, store: Store, points: DrillPoints) -> None:
        self._store = store
        self._points = points

    @property
    def url(self) -> str:
        """The inner store's URL."""
        return self._store.url

    @property
    def is_near(self) -> bool:
        """See `abilities.py`."""
        return is_near(self._store)

    def hold(self, path: str) -> bool:
        """See `abilities.py`."""
        return hold(self._store, path)

    def create(self, path: str, data: bytes) -> CreateResult:
        """See Store.create."""
        return self._points.create(path, data, lambda: self._store.create(path, data))

    def get(self, path: str) -> bytes | None:
        """See Store.get."""
        return self._store.get(path)

    def get_ranges(self, path: str, ranges: Sequence[ByteRange]) -> list[Bytes] | None:
        """See Store.get_ranges."""
        return self._store.get_ranges(path, ranges)

    def put_new(self, path: str, data: Body) -> None:
        """See Store.put_new."""
        self._store.put_new(path, data)

    def open_new(self, path: str) -> NewObject:
        """See `new_object.py`."""
        return open_new(self._store, path)

    def replace(self, path: str, data: bytes) -> None:
        """See Store.replace."""
        self._store.replace(path, data)

    def list_after(self, prefix: str, after: str = "") -> Iterator[StoredObject]:
        """See Store.list_after."""
        return self._store.list_after(prefix, after)

    def delete(self, path: str) -> None:
        """See Store.delete."""
        self._store.delete(path)
