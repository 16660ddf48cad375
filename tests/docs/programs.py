"""Runs the programs in the docs: in order, in one folder, and compares their output.

`python -m tests.docs.programs docs/spark.md` runs those of one page in the current folder, with a
Spark session for them. A JVM cannot change its working directory, so such a page has a process of
its own.
"""

import ast
import contextlib
import io
import os
import subprocess
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path

from tests.docs.pages import Block, Page
from tests.source_tree import ROOT
from tests.spark.session import small_session
from txlog.otel import uninstrument

PROGRAM_TIMEOUT_S = 150
PAGE_TIMEOUT_S = 2 * PROGRAM_TIMEOUT_S


def body(path: Path) -> str:
    """A program without its docstring."""
    source = path.read_text(encoding="utf-8")
    lines = source.split("\n")
    return "\n".join(lines[ast.parse(source).body[0].end_lineno :]).strip()


EXAMPLES = {
    body(path): f"examples.{path.stem}"
    for path in (ROOT / "examples").glob("*.py")
    if path.stem != "__init__"
}
"""Program -> the module that holds it."""


def execute(blocks: Iterable[Block], folder: Path) -> None:
    """Run the programs of one page one after the other, in `folder`, and compare their output.

    A program that is an example's is run as that example; the others share their names.
    """
    names: dict[str, object] = {"__name__": "__docs__"}
    try:
        _execute(blocks, folder, names)
    finally:
        uninstrument()  # A page may have wrapped the clients, and other tests have this process.


def _execute(blocks: Iterable[Block], folder: Path, names: dict[str, object]) -> None:
    for block in blocks:
        module = EXAMPLES.get(block.text.strip())
        printed = run_module(folder, module) if module else run_here(block, names)
        if block.output is not None:
            assert printed == block.output, f"line {block.line} printed:\n{printed}"


def run_here(block: Block, names: dict[str, object]) -> str:
    """The program's output."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block.text, f"<line {block.line}>", "exec"), names)  # noqa: S102 - our own
    return printed.getvalue()


def run_page(page: Page, folder: Path) -> None:
    """Run all programs of a page with Spark, in a process of their own."""
    run_module(folder, "tests.docs.programs", page.place, timeout_s=PAGE_TIMEOUT_S)


def run_module(
    folder: Path, module: str, *arguments: str, timeout_s: float = PROGRAM_TIMEOUT_S
) -> str:
    """The module's output."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def main(place: str) -> None:
    """Run all programs of a page. Raises AssertionError, and the errors of the programs."""
    warnings.simplefilter("error")  # As in every test: a reader would see the warnings.
    blocks = [block for block in Page(ROOT / place).blocks if block.is_python]
    with contextlib.ExitStack() as running:
        if any(block.text.strip() not in EXAMPLES for block in blocks):
            running.enter_context(small_session("txlog docs"))
        execute(blocks, Path.cwd())


if __name__ == "__main__":
    main(*sys.argv[1:])
