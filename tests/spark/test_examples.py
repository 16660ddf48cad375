"""Each query in examples/spark runs as it stands, and prints what its docstring says."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.docs.pages import Page
from tests.docs.programs import body, run_module
from tests.source_tree import ROOT
from tests.spark.environment import SPARK_ENVIRONMENT

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

FOLDER = ROOT / "examples" / "spark"
INDEX = Page(ROOT / "docs" / "spark.md")
OWN_SESSION = {"delta", "cluster_job", "__init__"}
"""Those that need a session, or a cluster, of their own."""

LONG = {"window", "lost_checkpoint"}
"""A query of many batches, and one that the test of its page runs, too."""

EXAMPLES = [
    pytest.param(name, marks=pytest.mark.extra if name in LONG else ())
    for name in sorted(path.stem for path in FOLDER.glob("*.py"))
    if name not in OWN_SESSION
]


def promised(name: str) -> str:
    """The output at the end of the docstring."""
    text = ast.get_docstring(ast.parse((FOLDER / f"{name}.py").read_text())) or ""
    return "".join(f"{line[4:]}\n" for line in text.split("\n") if line.startswith("    "))


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_prints_what_it_promises(
    name: str,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In the session of the tests, which it finds by `getOrCreate`."""
    monkeypatch.chdir(tmp_path)
    source = (FOLDER / f"{name}.py").read_text()
    exec(compile(source, name, "exec"), {"__name__": "__main__"})  # noqa: S102 - our own
    assert capsys.readouterr().out == promised(name)


@pytest.mark.extra
def test_delta_example_writes_each_batch_once_to_table_and_topic(tmp_path: Path) -> None:
    """It downloads Delta's jars where they are not cached."""
    assert run_module(tmp_path, "examples.spark.delta", timeout_s=250) == promised("delta")


@pytest.mark.extra
def test_submitted_job_copies_on_two_executors(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        **SPARK_ENVIRONMENT,
        "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]]),
        "PYTHONPATH": str(ROOT),
    }
    for count in (1_000, 2_000):
        done = subprocess.run(
            [FOLDER / "submit.sh"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=250,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == f"{count} rows, 1000 numbers in the topic copies\n"


def test_lost_checkpoint_example_is_the_program_of_the_recovery_page() -> None:
    page = Page(ROOT / "docs" / "spark.md")
    assert body(FOLDER / "lost_checkpoint.py") in {block.text.strip() for block in page.blocks}


def test_index_lists_every_example() -> None:
    named = set(re.findall(r"examples/spark/(\w+\.\w+)", INDEX.text))
    files = {path.name for path in FOLDER.iterdir() if path.suffix in (".py", ".sh")}
    assert named == files - {"__init__.py", "cluster_job.py"}
