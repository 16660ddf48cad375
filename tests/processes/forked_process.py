"""A process of its own within milliseconds, forked from a server that has imported the product.

Starting Python and importing the product takes a second of processor time, and the tests that kill
a process at each step of a protocol start dozens. The server runs no code of the product, so a
process forked from it starts like a new process.
"""

import multiprocessing
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

WAIT_S = 100

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    ["examples.income.loop", "tests.processes.killed_process", "txlog.testing.conformance", "s3fs"]
)


@dataclass(frozen=True)
class Ended:
    """How a process ended, as `subprocess` reports it: the negative number of the signal that
    killed it."""

    status: int | None
    out: str
    err: str


def run_forked(main: Callable[..., object], *arguments: object) -> Ended:
    """Call `main` in a process of its own and wait for its end. `main` is a module's function."""
    with TemporaryDirectory(prefix="txlog-forked-") as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        child = _FORKS.Process(target=_call, args=(str(out), str(err), main, arguments))
        child.start()
        child.join(WAIT_S)
        if child.is_alive():
            child.kill()
            child.join()
        return Ended(child.exitcode, out.read_text(), err.read_text())


def _call(out: str, err: str, main: Callable[..., object], arguments: tuple[object, ...]) -> None:
    for descriptor, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), descriptor)
    main(*arguments)
