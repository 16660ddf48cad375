"""Imports go one way: the contracts of setup.cfg hold, and an independent check by `ast` agrees."""

import graphlib
import json
import subprocess
import sys
from collections.abc import Sequence

import pytest

from tests.source_tree import PRODUCT, ROOT, Module, modules, product_graph

pytestmark = pytest.mark.slow

STORAGE_PACKAGES = {"fsspec", "s3fs", "aiobotocore", "botocore", "boto3", "obstore"}
SPARK_PACKAGES = {"pyspark", "py4j", "delta"}
CORE_PACKAGES = {"pyarrow", "numpy", "txlog"}
OPTIONAL = {"txlog/checksum.py": {"isal"}}
"""Module -> packages that it uses if they are installed."""
NOT_CORE = (
    "txlog.cli",
    "txlog.testing",
    "txlog.metrics",
    "txlog.otel",
    "txlog.dataset",
    "txlog.sql",
    "txlog.ui",
    "txlog.kafka",
)
"""pyarrow.dataset, of which `dataset` and `sql` are made, imports pandas wherever it is
installed."""
UNWANTED_ON_A_DISK = ("pandas", "fsspec", "asyncio", "ssl")
UNWANTED_AT_RUN_TIME = (
    "pyspark",
    "typer",
    "rich",
    "pandas",
    "pytest",
    "hypothesis",
    "s3fs",
    "obstore",
)

IMPORT_THESE = """
import importlib, json, sys
for name in json.loads(sys.argv[1]):
    importlib.import_module(name)
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def packages_imported_by(module: Module) -> set[str]:
    return {item.target.partition(".")[0] for item in module.imports}


def core_modules() -> list[Module]:
    return [module for module in modules("txlog") if not module.name.startswith(NOT_CORE)]


def test_import_contracts_of_setup_cfg_hold() -> None:
    """In a process of its own, because import-linter disables all loggers."""
    code = "import sys, importlinter.cli; sys.exit(importlinter.cli.lint_imports(no_cache=True))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("packages", "home"),
    [(STORAGE_PACKAGES, "txlog.storage"), (SPARK_PACKAGES, ("spark_plugin", "pyspark_txlog"))],
    ids=["storage", "spark"],
)
def test_third_party_packages_are_imported_only_in_their_home(
    packages: set[str], home: str | tuple[str, ...]
) -> None:
    strangers = {
        module.place: sorted(packages & packages_imported_by(module))
        for module in modules(*PRODUCT)
        if not module.name.startswith(home) and packages & packages_imported_by(module)
    }
    assert strangers == {}


def test_core_imports_only_pyarrow_numpy_storage_clients_and_stdlib() -> None:
    allowed = CORE_PACKAGES | STORAGE_PACKAGES | sys.stdlib_module_names
    strangers = {
        module.place: found
        for module in core_modules()
        if (found := packages_imported_by(module) - allowed)
    }
    assert strangers == OPTIONAL


def loaded_with(names: Sequence[str]) -> list[str]:
    """The packages that a fresh interpreter has loaded after it imported these modules.

    Executors pay for every import at each start of a worker.
    """
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_THESE, json.dumps(names)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    loaded: list[str] = json.loads(done.stdout)
    assert "txlog" in loaded
    return loaded


def test_importing_the_whole_core_loads_no_optional_package() -> None:
    loaded = loaded_with([module.name for module in core_modules()])
    assert [name for name in UNWANTED_AT_RUN_TIME if name in loaded] == []


def test_importing_the_spark_source_loads_no_packages_of_remote_stores() -> None:
    loaded = loaded_with(["spark_plugin.datasource"])
    assert [name for name in UNWANTED_ON_A_DISK if name in loaded] == []


def test_product_has_no_import_cycles() -> None:
    order = graphlib.TopologicalSorter(product_graph())
    assert len(tuple(order.static_order())) >= len(modules(*PRODUCT))


def test_every_folder_of_the_product_is_a_package() -> None:
    folders = {module.path.parent for module in modules(*PRODUCT)}
    assert [str(f.relative_to(ROOT)) for f in folders if not (f / "__init__.py").exists()] == []
