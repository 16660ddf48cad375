"""Runs mutmut over one module, in a copy of the project, and reads what it found.

mutmut was chosen over cosmic-ray because it forks each mutant from a process that has imported
pyarrow and collected the tests, and runs only the tests that call the changed function: about
0.2 s a mutant. cosmic-ray starts a new interpreter for each, which takes 2 s before the first test.
It does not change functions with a decorator, such as properties, nor code outside of functions.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.modules import Mutated
from tests.mutation.mutant import Mutant, mutants_of
from tests.source_tree import ROOT

WORK = ROOT / "build" / "mutants"
COPIED = ("txlog", "spark_plugin", "pyspark_txlog", "tests", "conf", "docs", "examples")
FILES = ("pyproject.toml", "setup.cfg", "README.md", "Makefile")

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
LOG = "mutmut.log"
NO_MUTANT = "txlog.no_mutant_has_this_name"
NO_TESTS = "could not find any test case for any mutant"

SURVIVED = {0}
UNTESTED = {33, 5}
SKIPPED = 34
UNFINISHED = {None, 2}

CONFIGURATION = """
[tool.mutmut]
source_paths = ["txlog", "spark_plugin"]
only_mutate = [{path}]
also_copy = ["pyspark_txlog", "conf", "docs", "examples", "README.md", "Makefile"]
pytest_add_cli_args = ["-m", "not spark and not slow", "-p", "no:cacheprovider"]
pytest_add_cli_args_test_selection = {tests}
process_isolation = "forkserver"
timeout_multiplier = 5.0
track_dependencies = false
use_git_change_detection = false
"""


@dataclass(frozen=True)
class Outcome:
    """What became of the mutants of a module."""

    killed: int
    words: int
    survivors: tuple[Mutant, ...]
    """Not killed, and not of words only."""
    tests_seconds: float
    """How long the tests that judge them take together."""


class MutationFailed(Exception):
    """mutmut did not come to its end: the tests fail without a mutant, or it cannot start."""


def prepare(name: str, module: Mutated) -> Path:
    """A copy of the project, configured for that module; a copy that was there is replaced."""
    folder = WORK / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    ignored = shutil.ignore_patterns("__pycache__")
    for part in COPIED:
        shutil.copytree(ROOT / part, folder / part, ignore=ignored)
    for part in FILES:
        shutil.copy2(ROOT / part, folder / part)
    _configure(folder, module)
    return folder


def _configure(folder: Path, module: Mutated) -> None:
    text = (ROOT / "pyproject.toml").read_text()
    judged = CONFIGURATION.format(path=json.dumps(module.path), tests=json.dumps(module.tests))
    (folder / "pyproject.toml").write_text(text + judged)


def renew_tests(folder: Path, module: Mutated) -> None:
    """The tests as they are now, in a copy where mutmut has run."""
    _configure(folder, module)
    for place in (folder / "tests", folder / "mutants" / "tests"):
        shutil.rmtree(place)
        shutil.copytree(ROOT / "tests", place, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "mutants" / "mutmut-stats.json").unlink(missing_ok=True)


def run(folder: Path, module: Mutated, workers: int, names: Sequence[str] = ()) -> None:
    """Try all mutants, or those named, but none that changes words only.

    Raises:
        MutationFailed: with the end of what mutmut said.
    """
    if not names:
        _pass_over_words(folder, module)
    said = _mutmut(folder, workers, names)
    if said and not any(NO_TESTS in line for line in said):
        raise MutationFailed("\n".join([f"{folder / LOG} ends with:", *said[-20:]]))


def _pass_over_words(folder: Path, module: Mutated) -> None:
    # mutmut makes the mutants, then refuses the name; what has a result already it does not try.
    said = _mutmut(folder, 1, [NO_MUTANT])
    if not any("nothing matches" in line for line in said):
        raise MutationFailed("\n".join([f"{folder / LOG} ends with:", *said[-20:]]))
    path = folder / "mutants" / module.path
    results = path.with_name(path.name + ".meta")
    content = json.loads(results.read_text())
    for name, mutant in _mutants(folder, module).items():
        if mutant.words_only:
            content["exit_code_by_key"][name] = SKIPPED
    results.write_text(json.dumps(content))


def _mutmut(folder: Path, workers: int, names: Sequence[str]) -> list[str]:
    """What mutmut said; nothing if it came to its end."""
    command = [str(Path(sys.executable).with_name("mutmut")), "run", "--max-children", str(workers)]
    with (folder / LOG).open("w") as file:
        done = subprocess.run(
            [*command, *names], cwd=folder, stdout=file, stderr=subprocess.STDOUT, check=False
        )
    if not done.returncode:
        return []
    lines = (folder / LOG).read_text().splitlines()
    return [line for line in lines if line and line[0] not in SPINNER]


def _mutants(folder: Path, module: Mutated) -> Mapping[str, Mutant]:
    text = (folder / "mutants" / module.path).read_text()
    return mutants_of(module.path.removesuffix(".py").replace("/", "."), text)


def outcome(folder: Path, module: Mutated) -> Outcome:
    """What mutmut left in that folder.

    Raises:
        MutationFailed: Some mutants were not tried.
    """
    path = folder / "mutants" / module.path
    mutants = _mutants(folder, module)
    codes = json.loads(path.with_name(path.name + ".meta").read_text())["exit_code_by_key"]
    tested = any(code is not None for code in codes.values())
    if tested and any(code in UNFINISHED for code in codes.values()):
        raise MutationFailed(f"mutmut did not try every mutant of {module.path}; run it again.")
    alive = [mutants[name] for name, code in codes.items() if code in SURVIVED | UNTESTED | {None}]
    words = sum(one.words_only for one in mutants.values())
    killed = sum(not mutants[name].words_only for name in codes) - sum(
        not m.words_only for m in alive
    )
    return Outcome(
        killed, words, tuple(m for m in alive if not m.words_only), _tests_seconds(folder)
    )


def _tests_seconds(folder: Path) -> float:
    stats = folder / "mutants" / "mutmut-stats.json"
    if not stats.exists():
        return 0.0
    return float(sum(json.loads(stats.read_text())["duration_by_test"].values()))
