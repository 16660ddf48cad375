"""Points of a micro-batch at which a drill stops a process, to examine the log and to kill it.

The environment variable TXLOG_DRILL_POINTS names a folder. A file `<name>.json` there is a point:
just before or just after the sink creates an object whose path and content match, or after a step
of its writer. A process that reaches the point creates `<name>.reached` and waits for `<name>.go`,
or until it is killed. It must not change what is written.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from txlog.clock import Runtime
from txlog.errors import InternalError
from txlog.layout import TOPICS, TRANSACTIONS
from txlog.storage.store import CreateResult, Exists

VARIABLE = "TXLOG_DRILL_POINTS"
WAIT_MAX_MS = 600_000.0
"""A stopped process continues after this time even if it is not released (I16). A drill waits three
minutes for a point by default (`--wait`): a process that continued sooner would be killed elsewhere
than at its point."""

POLL_MS = 5.0
"""How often a stopped process checks for its release: a look at one local file. So a drill
lengthens a micro-batch, which takes some 100 ms, by 5 ms at most for each point."""


class DrillStep(StrEnum):
    """A step of a micro-batch, at which a drill may stop it."""

    PLANNED = "planned"
    """Spark has planned the batch and created the sink's writer; none of its tasks runs yet."""
    STAGED = "staged"
    """A task has staged its rows, and has not reported to the driver."""
    BEFORE = "before"
    """An object is about to be created."""
    AFTER = "after"
    """The object was created, and `create` has not returned."""
    RETURNED = "returned"
    """The sink has committed, and has not returned to Spark."""


@dataclass(frozen=True, slots=True)
class DrillPoint:
    """Where to stop."""

    step: DrillStep
    path: str = ""
    """Prefix of the object's path."""
    words: tuple[str, ...] = ()
    """For an object, texts that it must contain; for another step, names of queries, empty for
    any."""
    number: int = 1
    """Which of the matching objects; the process first waits until those before it exist."""

    def matches(self, path: str, data: bytes) -> bool:
        """Whether the object matches."""
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
"""The points of every micro-batch that a txlog sink commits (docs/drills.md), in order."""


class DrillPoints:
    """The points as files in a folder: a drill sets them, the processes of the job stop there."""

    def __init__(self, folder: Path, runtime: Runtime | None = None) -> None:
        self.folder = folder
        self._clock = (runtime or Runtime()).clock

    # For the drill.

    def set(self, name: str, point: DrillPoint) -> None:
        """Make processes stop at this point from now on."""
        self.folder.mkdir(parents=True, exist_ok=True)
        # Written under another name: processes read the folder at any time, and never half a point.
        temporary = self.folder / f".{name}"
        temporary.write_text(json.dumps(asdict(point)), encoding="utf-8")
        temporary.rename(self.folder / f"{name}.json")

    def is_reached(self, name: str) -> bool:
        """Whether a process waits at this point."""
        return (self.folder / f"{name}.reached").exists()

    def release(self, name: str) -> None:
        """Let the process continue; no process stops at this point again."""
        (self.folder / f"{name}.go").touch()

    def clear(self) -> None:
        """Remove every point."""
        for file in self.folder.glob("*.*"):
            file.unlink(missing_ok=True)

    # For the process that stops.

    def create(self, path: str, data: bytes, call: Callable[[], CreateResult]) -> CreateResult:
        """Create an object by `call`, and stop before or after it if a point matches.

        It does not stop after a create that another process has won: the caller tries the next
        name, and the event that the point is for is stored there.
        """
        points = self._points(DrillStep.BEFORE, DrillStep.AFTER)
        found = [(name, point) for name, point in points if point.matches(path, data)]
        turns = {name: self._turn(name) for name, _ in found}
        for name, point in found:
            if point.step is DrillStep.BEFORE and turns[name] == point.number:
                self._wait_for_others(name, point.number - 1)
                self._stop(name)
        result = call()
        if isinstance(result, Exists):
            # The number is free again for the attempt that creates the object.
            for name, turn in turns.items():
                (self.folder / f"{name}.begun {turn}").unlink(missing_ok=True)
            return result
        for name, point in found:
            (self.folder / f"{name}.created {turns[name]}").touch()
            if point.step is DrillStep.AFTER and turns[name] == point.number:
                self._stop(name)
        return result

    def passed(self, step: DrillStep, query: str) -> None:
        """Stop if a point is set at this step of this query."""
        for name, point in self._points(step):
            if not point.words or query in point.words:
                self._stop(name)

    def _points(self, *steps: DrillStep) -> list[tuple[str, DrillPoint]]:
        found = [(file.stem, _read(file)) for file in self.folder.glob("*.json")]
        return [(n, point) for n, point in found if point is not None and point.step in steps]

    def _turn(self, name: str) -> int:
        """The number of this object, counted in files: any Python process may run a commit."""
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
    """None if the point has just been removed."""
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return DrillPoint(
        DrillStep(value["step"]), value["path"], tuple(value["words"]), value["number"]
    )


def points_of_process() -> DrillPoints | None:
    """The points of this process; None unless it is drilled."""
    folder = os.environ.get(VARIABLE)
    return DrillPoints(Path(folder)) if folder else None
