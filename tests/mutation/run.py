"""Runs mutmut over modules that the same tests judge, in a copy of the project, and reads its
results.

mutmut was chosen over cosmic-ray because it forks each mutant from a process that has imported
pyarrow and collected the tests, and runs only the tests that call the changed function. cosmic-ray
starts a new interpreter for each, which takes longer than the tests. mutmut does not change
functions with a decorator, such as properties, nor code outside of functions.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.modules import MODULES, Mutated
from tests.mutation.mutant import Mutant, mutants_of
from tests.mutation.progress import Progress
from tests.mutation.sample import ALL, Sample
from tests.mutation.type_errors import refused
from tests.source_tree import ROOT

WORK = ROOT / "build" / "mutants"
COPIED = ("txlog", "spark_plugin", "pyspark_txlog", "tests", "conf", "docs", "examples")
FILES = ("pyproject.toml", "setup.cfg", "README.md", "Makefile")

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
LOG = "mutmut.log"
NO_MUTANT = "txlog.no_mutant_has_this_name"

MARKS = "not spark and not slow"
"""Only fast tests judge mutants."""

SURVIVED = {0}
UNTESTED = {33, 5}
OUT_OF_TIME = {-24, 24, 36, 152, 255}
SKIPPED = 34
UNFINISHED = {None, 2}

CONFIGURATION = """
[tool.mutmut]
source_paths = ["txlog", "spark_plugin"]
only_mutate = {paths}
also_copy = ["pyspark_txlog", "conf", "docs", "examples", "README.md", "Makefile"]
pytest_add_cli_args = ["-m", "{marks}", "-p", "no:cacheprovider", "-o", "timeout=600"]
pytest_add_cli_args_test_selection = {tests}
process_isolation = "forkserver"
timeout_multiplier = 5.0
track_dependencies = false
use_git_change_detection = false
"""


@dataclass(frozen=True)
class Outcome:
    """The results of a module's mutants."""

    killed: int
    survivors: tuple[Mutant, ...]
    """Mutants that were not killed; they change more than words, and mypy accepts them."""
    tests_seconds: float
    """The total time of the tests that call the module."""
    left_out: int = 0
    """Mutants that change more than words and are not in the sample."""
    words: int = 0
    """Mutants that change words only."""
    type_errors: int = 0
    """Other mutants that mypy refuses."""
    out_of_time: tuple[Mutant, ...] = ()
    """Killed because their tests exceeded the time limit. On a busy machine some may be
    survivors."""

    @property
    def in_doubt(self) -> tuple[Mutant, ...]:
        """Mutants that better tests, or a quieter machine, may judge differently."""
        return (*self.survivors, *self.out_of_time)


class MutationFailed(Exception):
    """mutmut did not finish: the tests fail without a mutant, or it cannot start."""


def prepare(names: Sequence[str]) -> Path:
    """Make a copy of the project, configured for modules that the same tests judge, under the first
    one's name; an older copy of that name is replaced."""
    folder = WORK / names[0]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    ignored = shutil.ignore_patterns("__pycache__")
    for part in COPIED:
        shutil.copytree(ROOT / part, folder / part, ignore=ignored)
    for part in FILES:
        shutil.copy2(ROOT / part, folder / part)
    _configure(folder, names)
    return folder


def latest_run(module: Mutated) -> Path | None:
    """The folder of the last run of a module."""
    found = WORK.glob(f"*/mutants/{module.path}.meta")
    latest = max(found, key=lambda result: result.stat().st_mtime, default=None)
    return latest and WORK / latest.relative_to(WORK).parts[0]


def _configure(folder: Path, names: Sequence[str]) -> None:
    text = (ROOT / "pyproject.toml").read_text()
    modules = [MODULES[name] for name in names]
    judged = CONFIGURATION.format(
        paths=json.dumps([module.path for module in modules]),
        marks=MARKS,
        tests=json.dumps(modules[0].tests),
    )
    (folder / "pyproject.toml").write_text(text + judged)


def renew_tests(folder: Path) -> None:
    """Copy the present tests into a folder where mutmut has run."""
    tried = [name for name, module in MODULES.items() if _results(folder, module).exists()]
    _configure(folder, tried)
    for place in (folder / "tests", folder / "mutants" / "tests"):
        shutil.rmtree(place)
        shutil.copytree(ROOT / "tests", place, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "mutants" / "mutmut-stats.json").unlink(missing_ok=True)


def run(
    folder: Path,
    names: Sequence[str],
    workers: int,
    mutants: Sequence[str] = (),
    sample: Sample = ALL,
) -> None:
    """Try the named mutants of modules, by default all in the sample that have no result, change
    more than words, and have no type error.

    Raises:
        MutationFailed: with the end of mutmut's output.
        KeyboardInterrupt: mutmut has ended, and its results so far are kept.
    """
    modules = [MODULES[name] for name in names]
    progress = Progress(names[0], [_results(folder, module) for module in modules])
    if not mutants:
        # mutmut makes the mutants and then refuses the name; what has a result is not tried again.
        said = _mutmut(folder, 1, [NO_MUTANT], progress)
        if not any("nothing matches" in line for line in said):
            raise _failed(folder, modules, said)
        for module in modules:
            _pass_over(folder, module, sample)
    said = _mutmut(folder, workers, mutants, progress)
    if said:
        raise _failed(folder, modules, said)


def _failed(folder: Path, modules: Sequence[Mutated], said: Sequence[str]) -> MutationFailed:
    # mutmut does not report which test failed.
    tests = f"python -m pytest -x -m '{MARKS}' {' '.join(modules[0].tests)}"
    lines = [f"{folder / LOG} ends with:", *said[-20:], "If a test fails, this shows it:", tests]
    return MutationFailed("\n".join(lines))


def _results(folder: Path, module: Mutated) -> Path:
    return folder / "mutants" / f"{module.path}.meta"


def _refused(folder: Path) -> set[str]:
    known = folder / "type_errors.json"
    if not known.exists():
        paths = [one.path for one in MODULES.values() if _results(folder, one).exists()]
        known.write_text(json.dumps(sorted(refused(folder / "mutants", paths))))
    return set(json.loads(known.read_text()))


def _pass_over(folder: Path, module: Mutated, sample: Sample) -> None:
    results, mutants = _results(folder, module), _mutants(folder, module)
    if not results.exists():
        return  # It has no function.
    content = json.loads(results.read_text())
    codes = content["exit_code_by_key"]
    out = _refused(folder)
    tried = sample.of([n for n in codes if not mutants[n].words_only and n not in out])
    codes |= {name: SKIPPED for name, code in codes.items() if code is None and name not in tried}
    results.write_text(json.dumps(content))


def _mutmut(folder: Path, workers: int, names: Sequence[str], progress: Progress) -> list[str]:
    """mutmut's output; empty if it finished."""
    command = [str(Path(sys.executable).with_name("mutmut")), "run", "--max-children", str(workers)]
    with (folder / LOG).open("w") as file:
        # A process group of its own, so that Ctrl-C reaches mutmut once, and through this process.
        process = subprocess.Popen(
            [*command, *names],
            cwd=folder,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            _wait(process, progress)
        except KeyboardInterrupt:
            _end(process)
            raise
        finally:
            progress.clear()
    if not process.returncode:
        return []
    lines = (folder / LOG).read_text().splitlines()
    return [line for line in lines if line and line[0] not in SPINNER]


def _wait(process: subprocess.Popen[bytes], progress: Progress) -> None:
    while True:
        try:
            process.wait(1.0)
            return
        except subprocess.TimeoutExpired:
            progress.show()


def _end(process: subprocess.Popen[bytes]) -> None:
    # mutmut records every result at once, so nothing is lost if it has to be killed.
    for number in (signal.SIGINT, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(10.0)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def _mutants(folder: Path, module: Mutated) -> Mapping[str, Mutant]:
    text = (folder / "mutants" / module.path).read_text()
    return mutants_of(module.path.removesuffix(".py").replace("/", "."), text)


def outcome(folder: Path, module: Mutated) -> Outcome:
    """Read the results that mutmut left in that folder.

    Raises:
        MutationFailed: Some mutants were not tried.
    """
    mutants = _mutants(folder, module)
    codes = json.loads(_results(folder, module).read_text())["exit_code_by_key"]
    if any(code in UNFINISHED for code in codes.values()):
        raise MutationFailed(f"Not every mutant of {module.path} was tried; --resume goes on.")
    speaking = {name for name in codes if mutants[name].words_only}
    ill_typed = (_refused(folder) & set(codes)) - speaking
    counted = {name: code for name, code in codes.items() if name not in speaking | ill_typed}
    tried = {name: code for name, code in counted.items() if code != SKIPPED}
    alive = [mutants[name] for name, code in tried.items() if code in SURVIVED | UNTESTED]
    return Outcome(
        killed=len(tried) - len(alive),
        survivors=tuple(alive),
        tests_seconds=_tests_seconds(folder, module),
        left_out=len(counted) - len(tried),
        words=len(speaking),
        type_errors=len(ill_typed),
        out_of_time=tuple(mutants[name] for name, code in tried.items() if code in OUT_OF_TIME),
    )


def _tests_seconds(folder: Path, module: Mutated) -> float:
    stats = folder / "mutants" / "mutmut-stats.json"
    if not stats.exists():
        return 0.0
    measured = json.loads(stats.read_text())
    name = module.path.removesuffix(".py").replace("/", ".")
    calling = {
        test
        for function, tests in measured["tests_by_mangled_function_name"].items()
        if function.rpartition(".")[0] == name
        for test in tests
    }
    return float(sum(measured["duration_by_test"][test] for test in calling))
