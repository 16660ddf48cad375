"""The shim that Spark imports never raises, whatever fails behind it."""

import json
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from tests.source_tree import ROOT

IMPORT_THE_SHIM = """
import json, pyspark_txlog
print(json.dumps([hasattr(pyspark_txlog, "DefaultSource"), repr(pyspark_txlog.IMPORT_ERROR)]))
"""


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("", "ImportError"),
        ("import no_such_package", "ModuleNotFoundError"),
        ("raise RuntimeError('broken')", "RuntimeError('broken')"),
        ("class TxlogDataSource(", "SyntaxError"),
    ],
)
def test_shim_of_a_broken_plugin_has_no_source_but_the_import_error(
    tmp_path: Path, source: str, reason: str
) -> None:
    plugin = tmp_path / "spark_plugin"
    plugin.mkdir()
    (plugin / "__init__.py").write_text("")
    (plugin / "datasource.py").write_text(source)
    present, error = import_the_shim(tmp_path)
    assert not present
    assert reason in error


def test_shim_exposes_a_working_plugin_as_the_default_source(tmp_path: Path) -> None:
    plugin = tmp_path / "spark_plugin"
    plugin.mkdir()
    (plugin / "__init__.py").write_text("")
    (plugin / "datasource.py").write_text("class TxlogDataSource: pass")
    assert import_the_shim(tmp_path) == (True, "None")


def test_shim_with_an_older_pyspark_names_the_version_that_is_needed() -> None:
    older = "import pyspark.sql.datasource; sys.modules['pyspark.sql.streaming.datasource'] = None"
    present, error = import_the_shim(ROOT, older)
    assert not present
    assert f"needs PySpark 4.2 or newer, and this Python has {pyspark.__version__}" in error


def import_the_shim(plugin_folder: Path, before: str = "") -> tuple[bool, str]:
    """Import it in a fresh interpreter that finds the plugin of `plugin_folder` first, and has run
    the program `before`."""
    paths = f"import sys; sys.path[:0] = [{str(plugin_folder)!r}, {str(ROOT)!r}]"
    done = subprocess.run(
        [sys.executable, "-c", f"{paths}\n{before}{IMPORT_THE_SHIM}"],
        cwd=plugin_folder,
        capture_output=True,
        text=True,
        check=True,
    )
    present, error = json.loads(done.stdout)
    return present, error
