"""Mutants that mypy refuses: no such change could be committed, so no test needs to detect it."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.mutation.mutant import ORIGINAL, Function
from tests.source_tree import ROOT

OF_THE_TOOL = {"no-redef", "unused-ignore", "ignore-without-code", "has-type", "misc"}
"""Errors that come from many variants of one method beside each other."""


def refused(folder: Path, paths: Iterable[str]) -> set[str]:
    """The mutants of these modules with a type error that the unchanged function does not have.
    mutmut has written the modules into that folder."""
    options = ("--config-file", ROOT / "pyproject.toml", "--cache-dir", folder / ".types")
    checked = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            *options,
            "--follow-imports=silent",
            "--output=json",
            *paths,
        ],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    errors: dict[str, list[tuple[int, str]]] = {}
    for line in checked.stdout.splitlines():
        error = json.loads(line) if line.startswith("{") else {"code": "misc"}
        if error["code"] not in OF_THE_TOOL:
            errors.setdefault(error["file"], []).append((error["line"], error["message"]))
    return {
        f"{path.removesuffix('.py').replace('/', '.')}.{mutant}"
        for path, found in errors.items()
        for mutant in _with_new_errors((folder / path).read_text(), found)
    }


def _with_new_errors(text: str, errors: list[tuple[int, str]]) -> Iterable[str]:
    messages = {
        node.name: {said for line, said in errors if node.lineno <= line <= (node.end_lineno or 0)}
        for node in ast.walk(ast.parse(text))
        if isinstance(node, Function) and "__mutmut_" in node.name
    }
    for name, said in messages.items():
        unchanged = f"{name.rpartition('__mutmut_')[0]}__mutmut_{ORIGINAL}"
        if said - messages.get(unchanged, set()):
            yield name
