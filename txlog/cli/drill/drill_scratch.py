"""What a drill leaves behind: nothing if all is well, else its evidence, with the place named.

A drill that fails for any reason keeps its folder (checkpoints, the job's output, its own log) and
its topics, and says where they are. It must not know what a drill does.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from txlog.cli.session import Session
from txlog.errors import UsageError


@dataclass(slots=True)
class Scratch:
    """A folder for a drill's files."""

    folder: Path
    topics: str = ""
    """What the drill created elsewhere, and how to delete it; "" if nothing."""
    is_well: bool = False
    """Whether everything may be deleted."""


@contextmanager
def scratch_folder(session: Session) -> Iterator[Scratch]:
    """Deleted at the end if the drill is well or the folder is empty; else kept, and named."""
    scratch = Scratch(Path(tempfile.mkdtemp(prefix="txlog-drill-")))
    try:
        yield scratch
    finally:
        is_left = not scratch.is_well
        if is_left and scratch.topics:
            session.say(scratch.topics)
        if is_left and any(scratch.folder.iterdir()):
            session.say(f"Checkpoints, the job's output and its log are in {scratch.folder}.")
        else:
            shutil.rmtree(scratch.folder, ignore_errors=True)


@contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """A CI system that ends the drill with SIGTERM, at its time limit, thereby ends the job too."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def require_writable(report: Path) -> None:
    """Check it first, because a drill takes minutes. Raises UsageError."""
    if report.is_dir():
        raise UsageError(f"--report {report} is a folder; name a file.")
    if not report.parent.is_dir():
        raise UsageError(f"--report {report}: there is no folder {report.parent}; make it first.")
    if not os.access(report if report.exists() else report.parent, os.W_OK):
        raise UsageError(f"--report {report} is not writable; name another file.")


def write_report(report: Path, text: str) -> None:
    """Raises OSError that names the file."""
    try:
        report.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OSError(error.errno, f"{report}: {error.strerror}") from error
