"""Hooks that stop the sink of a drilled job at a drill's points; the sink does not know them.

A drill stops the sink alone: a source may finish another producer's transaction, whose markers are
not a step of the batch. The hooks guard nothing; they must not change what is written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any

from spark_plugin.drill.points import DrillPoints, DrillStep, points_of_process
from spark_plugin.options import ReaderOptions, WriterOptions
from txlog.clock import Runtime
from txlog.engine.connection import Connection, open_connection
from txlog.storage.open import open_store
from txlog.storage.policy.store_wrapper import StoreWrapper
from txlog.storage.store import CreateResult, NewObject, Store, open_new

OpenLog = Callable[..., Connection]


def apply(module: ModuleType) -> None:
    """Hook a module that was just imported, if this process has points."""
    points = points_of_process()
    if points is not None and hasattr(module, "TxlogStreamWriter"):
        hook_writer(module.TxlogStreamWriter, points)
    elif points is not None:
        vars(module)["open_log"] = drilled_open_log(module.open_log, points)


def drilled_open_log(open_log: OpenLog, points: DrillPoints) -> OpenLog:
    """`open_log` for a process that stops at `points` when its sink creates objects."""

    kept: dict[str, Connection] = {}

    def drilled(options: WriterOptions, create: bool) -> Connection:
        runtime = Runtime()
        store = open_store(options.root, runtime, dict(options.storage))
        return open_connection(DrilledStore(store, points), runtime, create=create)

    def opened(
        options: ReaderOptions | WriterOptions, *, create: bool = False, **handed_over: Any
    ) -> Connection:
        if not isinstance(options, WriterOptions):
            return open_log(options, create=create, **handed_over)
        # With the process id: a forked child opens a connection of its own. As a text, because an
        # option of the store may be an object.
        key = f"{os.getpid()} {options.root} {create} {sorted(options.storage.items())!r}"
        if key not in kept:
            kept[key] = drilled(options, create)
        return kept[key]

    return opened


def hook_writer(writer: Any, points: DrillPoints) -> None:
    """Make `TxlogStreamWriter` stop where a batch is planned, staged and committed."""
    for_batch, write, commit = writer.for_batch, writer.write, writer.commit

    # As the sink is called: a drill does not know its arguments.
    def planned(cls: Any, *arguments: Any, **named: Any) -> Any:
        made = for_batch(*arguments, **named)
        if made._plan is not None:  # A writer without a plan only commits.
            points.passed(DrillStep.PLANNED, made._options.query_name or "")
        return made

    def staged(self: Any, iterator: Iterator[Any]) -> Any:
        message = write(self, iterator)
        points.passed(DrillStep.STAGED, self._options.query_name or "")
        return message

    def returned(self: Any, messages: Sequence[Any], batchId: int) -> None:
        commit(self, messages, batchId)
        points.passed(DrillStep.RETURNED, self._options.query_name or "")

    writer.for_batch = classmethod(planned)
    writer.write, writer.commit = staged, returned


class DrilledStore(StoreWrapper):
    """A store whose `create` stops at the points."""

    def __init__(self, store: Store, points: DrillPoints) -> None:
        super().__init__(store)
        self._points = points

    def turn(self, folder: str, prepare: Callable[[], object]) -> AbstractContextManager[bool]:
        """No turns: other writers would wait for that of a process that has stopped."""
        return nullcontext(False)

    def create(self, path: str, data: bytes) -> CreateResult:
        """See Store.create."""
        return self._points.create(path, data, lambda: self._store.create(path, data))

    def open_new(self, path: str) -> NewObject:
        """See `open_new` in `store.py`."""
        return open_new(self._store, path)
