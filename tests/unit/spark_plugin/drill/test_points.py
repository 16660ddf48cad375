"""A drill's points: which created objects a process stops at, and for how long."""

import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_plugin.drill import points
from spark_plugin.drill.hooks import apply, hook_writer
from spark_plugin.drill.points import (
    VARIABLE,
    DrillPoint,
    DrillPoints,
    DrillStep,
    points_of_process,
)
from spark_plugin.sink.stream_writer import TxlogStreamWriter
from txlog.clock import Runtime
from txlog.storage.store import Created, CreateResult, Exists
from txlog.testing.clock import ManualClock


class Job:
    """A process of a job that stops, in which time passes only while it waits."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.points = DrillPoints(folder, Runtime(self.clock))
        self.stopped: list[tuple[str, bool]] = []

    def create(self, path: str = "topics/t/1", data: bytes = b"x", **answer: Any) -> bool:
        """Create an object; returns whether the process has waited for longer than an instant."""
        before_ms = self.clock.monotonic_ms()
        result: CreateResult = answer.get("result", Created())
        seen: list[bool] = []

        def call() -> CreateResult:
            seen.append(self.points.is_reached("p"))
            return result

        assert self.points.create(path, data, call) is result
        (was_reached,) = seen
        self.stopped.append(("before" if was_reached else "after", self.points.is_reached("p")))
        return self.clock.monotonic_ms() > before_ms


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setattr(points, "WAIT_MAX_MS", 200.0)
    return Job(tmp_path / "points")


def test_process_stops_before_or_after_the_object(job: Job) -> None:
    for step, stopped in ((DrillStep.BEFORE, "before"), (DrillStep.AFTER, "after")):
        job.points.set("p", DrillPoint(step, "topics/", ("x",)))
        assert not job.points.is_reached("p")
        assert job.create()
        assert job.stopped.pop() == (stopped, True)
        assert not job.create(), "the second object is not the point's"
        job.points.clear()


@pytest.mark.parametrize("step", [DrillStep.BEFORE, DrillStep.AFTER])
def test_process_stops_at_the_object_of_that_number(job: Job, step: DrillStep) -> None:
    job.points.set("p", DrillPoint(step, "topics/", number=3))
    assert [job.create() for _ in range(5)] == [False, False, True, False, False]


def test_other_objects_and_steps_are_passed(job: Job) -> None:
    job.points.set("p", DrillPoint(DrillStep.BEFORE, "topics/", ("x", "y")))
    assert not job.create("transactions/1", b"x y")
    assert not job.create("topics/1", b"x")
    job.points.passed(DrillStep.STAGED, "query")
    assert not job.points.is_reached("p")
    assert job.create("topics/1", b"y x")


def test_object_that_another_process_has_created_does_not_count(job: Job) -> None:
    job.points.set("p", DrillPoint(DrillStep.AFTER, "topics/"))
    assert not job.create(result=Exists(b"other"))
    assert job.create("topics/t/2")


def test_released_point_stops_no_process_again(job: Job) -> None:
    job.points.set("p", DrillPoint(DrillStep.BEFORE, "topics/"))
    job.points.release("p")
    assert not job.create()
    assert not job.points.is_reached("p")


@pytest.mark.parametrize(
    ("words", "query", "stops"), [((), "a", True), (("a",), "a", True), (("b",), "a", False)]
)
def test_step_of_a_query_stops_at_its_point(
    job: Job, words: tuple[str, ...], query: str, stops: bool
) -> None:
    job.points.set("p", DrillPoint(DrillStep.RETURNED, words=words))
    job.points.passed(DrillStep.PLANNED, query)
    assert not job.points.is_reached("p")
    job.points.passed(DrillStep.RETURNED, query)
    assert job.points.is_reached("p") is stops


def test_points_are_those_of_the_folder_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for value, folder in ((str(tmp_path), tmp_path), ("", None)):
        monkeypatch.setenv(VARIABLE, value)
        found = points_of_process()
        assert (found.folder if found else None) == folder
    monkeypatch.delenv(VARIABLE)
    assert points_of_process() is None


def test_folder_of_points_is_made_and_emptied(tmp_path: Path) -> None:
    drill = DrillPoints(tmp_path / "a" / "b")
    for name in ("p", "q"):
        drill.set(name, DrillPoint(DrillStep.AFTER, "topics/", ("é",), 2))
    drill.release("p")
    assert sorted(file.name for file in drill.folder.iterdir()) == ["p.go", "p.json", "q.json"]
    read = dict(DrillPoints(drill.folder)._points(DrillStep.AFTER))
    assert read["q"] == DrillPoint(DrillStep.AFTER, "topics/", ("é",), 2)
    drill.clear()
    assert list(drill.folder.iterdir()) == []


def test_stopped_process_looks_for_its_release_until_the_longest_wait(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    waiting = DrillPoints(tmp_path, Runtime(clock))
    waiting.set("p", DrillPoint(DrillStep.STAGED))
    before_ms = clock.monotonic_ms()
    waiting.passed(DrillStep.STAGED, "query")
    waited_ms = clock.monotonic_ms() - before_ms
    assert points.WAIT_MAX_MS <= waited_ms < points.WAIT_MAX_MS + 2 * points.POLL_MS


# Hooks.


class Writer:
    """What a data source calls of its stream writer, with its arguments."""

    class _Options:
        query_name = "query"

    def __init__(self, plan: object) -> None:
        self._plan = plan
        self._options = self._Options()
        self.calls: list[object] = []

    @classmethod
    def for_batch(cls, plan: object, *, named: object) -> "Writer":
        made = cls(plan)
        made.calls.append(named)
        return made

    def write(self, iterator: object) -> str:
        self.calls.append(iterator)
        return "message"

    def commit(self, messages: object, batch_id: int) -> None:
        self.calls.append((messages, batch_id))


def hooked(where: DrillPoints) -> Any:
    kind = type("Hooked", (Writer,), dict(vars(Writer)))
    hook_writer(kind, where)
    return kind


@pytest.mark.parametrize("step", [DrillStep.PLANNED, DrillStep.STAGED, DrillStep.RETURNED])
def test_hooked_writer_stops_once_each_step_is_done_and_changes_nothing(
    job: Job, step: DrillStep
) -> None:
    job.points.set("p", DrillPoint(step, words=("query",)))
    made = hooked(job.points).for_batch("plan", named=1)
    steps: list[Callable[[], object]] = [lambda: made.write("rows"), lambda: made.commit(["m"], 7)]
    reached = [job.points.is_reached("p")]
    assert steps[0]() == "message"
    reached.append(job.points.is_reached("p"))
    assert steps[1]() is None
    reached.append(job.points.is_reached("p"))
    assert made.calls == [1, "rows", (["m"], 7)]
    first = [DrillStep.PLANNED, DrillStep.STAGED, DrillStep.RETURNED].index(step)
    assert reached == [number >= first for number in range(3)]


def test_writer_that_only_commits_is_not_planned(job: Job) -> None:
    job.points.set("p", DrillPoint(DrillStep.PLANNED))
    hooked(job.points).for_batch(None, named=1)
    assert not job.points.is_reached("p")


def test_module_is_hooked_only_in_a_drilled_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, is_hooked in (("", False), (str(tmp_path), True)):
        monkeypatch.setenv(VARIABLE, variable)
        sink: Any = types.ModuleType("sink")
        sink.TxlogStreamWriter = type("Own", (TxlogStreamWriter,), {})
        own = sink.TxlogStreamWriter.write
        apply(sink)
        assert (sink.TxlogStreamWriter.write is not own) is is_hooked
        opener: Any = types.ModuleType("opener")
        opener.open_log = opened = lambda options, **named: None
        apply(opener)
        assert (opener.open_log is not opened) is is_hooked
