"""The command line for tests: run it in this process or in another one, and inspect the results."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import typer.testing

from txlog.cli.main import app

PROCESS_TIMEOUT_S = 60
UNSET = ("TXLOG_ROOT", "NO_COLOR", "FORCE_COLOR", "PYSPARK_PYTHON", "COLUMNS")
"""Variables that a developer's shell may have and that change the output of commands."""


# The parser never changes, and building it takes longer than most commands run.
typer.testing._get_command = cache(typer.testing._get_command)


@dataclass(frozen=True)
class Run:
    """The results of one command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)

    @property
    def json_lines(self) -> list[Any]:
        """The JSON objects on stdout, one per line."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def rows(self) -> list[list[str]]:
        """The cells of each line of stdout; at least two spaces separate them."""
        return [
            [cell.strip() for cell in line.split("  ") if cell] for line in self.out.split("\n")
        ]


def environment(**variables: str) -> dict[str, str]:
    """The variables of this process without those that would change the output."""
    return {k: v for k, v in os.environ.items() if k not in UNSET} | variables


def run(*arguments: object, root: object = None, env: Mapping[str, str] | None = None) -> Run:
    """Run one command line in this process."""
    words = [str(word) for word in ((() if root is None else ("--root", root)) + arguments)]
    variables: dict[str, str | None] = {**dict.fromkeys(UNSET), "COLUMNS": "200", **(env or {})}
    result = typer.testing.CliRunner().invoke(app, words, env=variables)
    return Run(result.exit_code, result.stdout, result.stderr)


def command(*arguments: object) -> list[str]:
    """The installed command with these arguments."""
    return [str(Path(sys.executable).parent / "txlog"), *map(str, arguments)]


def run_process(*arguments: object, **variables: str) -> Run:
    """Run one command line in a process of its own."""
    done = subprocess.run(
        command(*arguments),
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=PROCESS_TIMEOUT_S,
        check=False,
    )
    return Run(done.returncode, done.stdout, done.stderr)


def files(root: Path) -> dict[str, str]:
    """Every file below a folder, with a digest of its content."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }
