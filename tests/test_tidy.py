"""The house style, as far as a program can check it; `make tidy` prints the figures."""

import ast
import configparser
import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles

import pytest

import spark_plugin
import txlog
import txlog.storage
from tests.source_tree import (
    BESIDE,
    PRODUCT,
    ROOT,
    Definition,
    Module,
    length,
    modules,
    nearest,
    product_graph,
)
from txlog.cli.command_table import COMMANDS

pytestmark = pytest.mark.slow

FUNCTION_LINES_MAX = 100
FUNCTION_LINES_P95 = 45
FUNCTION_LINES_MEDIAN = 25
FILE_LINES_MAX = 800
FILE_LINES_MEDIAN = 400
FOLDER_MODULES_MAX = 14
LINE_LENGTH_MAX = 100

LEFT_OVER = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
HOMELESS_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "managers"}
OPTIONAL_PACKAGES = {
    "obstore",
    "s3fs",
    "aiobotocore",
    "botocore",
    "pandas",
    "polars",
    "delta",
    "duckdb",
    "pyspark",
    "matplotlib",
    "prometheus_client",
    "rich",
    "textual",
}
"""Packages of extras: code that needs one of them may import it inside a function."""
SLOW_MODULES = {
    "importlib.metadata",
    "pyarrow.compute",
    "pyarrow.parquet",
    "txlog.dataset",
    "txlog.metrics",
    "txlog.otel.clients",
    "txlog.ui",
    "txlog.cli.top.screen",
    "txlog.kafka",
}
"""These take a noticeable part of a command's start and are rarely needed, or need an extra; they
may be imported late, too."""

STARTED_BY_NAME = (
    r"pyspark_txlog",  # by Spark
    r"spark_plugin\.drill\.numbers_job",  # by spark-submit
    r"spark_plugin\.deployment\..*",  # by spark-submit, and by name in tasks
    r"spark_plugin\.drill\.(hooks|startup\..*)",  # by Python, in the processes of a drilled job
    r".*\.__main__",  # by python -m
    r"(txlog|spark_plugin)\.otel",  # by a program that wants spans
    r"txlog\.testing\..*",  # by the tests of this and other projects
    r"txlog\.storage\.(object_stores\.(azure|gcs)|s3\.s3_client)",  # for such a URL
    r"spark_plugin\.checkpoints\.hadoop_files",  # for such a checkpoint
    r"txlog\.cli\.main",  # by the console script, once it holds off Ctrl-C
    *(re.escape(f"txlog.cli.{known.module}") for known in COMMANDS.values()),  # when they are run
)
"""Modules that no product module imports, and what loads them instead."""

NOT_TUNED = {
    "_INT32_MAX",
    "_RANK_MAX",
    "_FLOAT16_MAX",
    "DAY_MS",
    "_DAY_MS",
    "_UNIT_MS",
    "_NS_PER_MS",
    "_DURATION_MS",
}
"""Numbers that have no other value: limits of a type, and units."""

VAGUE = re.compile(r"\b(whoever|nobody|somebody|anybody)\b", re.IGNORECASE)
IS_NO = re.compile(
    r"(?<!there )\b(is|are) no\b"
    r"(?! (longer|more|less|fewer|later|larger|smaller|higher|lower|newer|sooner)\b)",
    re.IGNORECASE,
)


def everything() -> tuple[Module, ...]:
    return modules(*PRODUCT, *BESIDE)


def test_functions_are_short() -> None:
    found = [
        f"{module.place}:{function.lineno} {function.name}: {length(function)} lines"
        for module in everything()
        for function in module.functions
        if length(function) > FUNCTION_LINES_MAX
    ]
    assert found == []


def test_files_are_short() -> None:
    found = [
        f"{module.place}: {lines} lines"
        for module in everything()
        if (lines := len(module.text.splitlines())) > FILE_LINES_MAX
    ]
    assert found == []
    assert median(len(m.text.splitlines()) for m in modules(*PRODUCT)) <= FILE_LINES_MEDIAN


def test_folders_are_small() -> None:
    """A folder stays small enough to survey, and keeps related modules together."""
    files = (module.path for module in modules(*PRODUCT) if module.path.name != "__init__.py")
    counts = Counter(path.parent.relative_to(ROOT).as_posix() for path in files)
    assert {place: n for place, n in counts.items() if n > FOLDER_MODULES_MAX} == {}


def test_unit_test_folders_mirror_the_product() -> None:
    """Tests of `txlog/topic/read` are in `tests/unit/topic/read`, those of the plugin in its own
    folder."""
    unit = ROOT / "tests" / "unit"
    tests = {path.parent.relative_to(unit) for path in unit.rglob("*.py")}
    folders = {module.path.parent for module in modules(*PRODUCT)}
    found = {place for place in tests if not {ROOT / place, ROOT / "txlog" / place} & folders}
    assert sorted(place.as_posix() for place in found - {Path()}) == []


def test_test_folders_are_listed_on_the_testing_page() -> None:
    """Only shared settings and tests of the whole tree may be outside the folders."""
    tests = ROOT / "tests"
    flat = {path.stem for path in tests.glob("*.py") if not path.stem.startswith("test_")}
    assert flat == {"__init__", "conftest", "examples", "schedule", "source_tree", "where"}
    folders = {path.relative_to(tests).parts[0] for path in tests.glob("*/**/*.*")}
    (table,) = re.findall(
        r"^\| folder of `tests` .*?\n\n", (ROOT / "docs/dev/testing.md").read_text(), re.M | re.S
    )
    rows = table.strip().splitlines()[2:]
    named = re.findall(r"`(\w+)`", " ".join(row.split("|")[1] for row in rows))
    assert sorted(named) == sorted(folders - {"__pycache__"})


def test_lines_are_short() -> None:
    found = [
        f"{module.place}:{number}: {len(line)} characters"
        for module in everything()
        for number, line in enumerate(module.text.splitlines(), 1)
        if len(line) > LINE_LENGTH_MAX
    ]
    assert found == []


TUNING = re.compile(r"_?[A-Z0-9_]*(_MAX|_MIN|_MS|[A-Z]_S|[A-Z]_BYTES|_ROWS|_ENTRIES|_TRIPS)")


def test_tuning_constants_say_why_they_have_their_value() -> None:
    """Limits, sizes and times of the layers below the command line."""
    found = [
        f"{module.place}:{node.lineno} {node.targets[0].id}"
        for module in modules("txlog", "spark_plugin")
        if not module.place.startswith(("txlog/cli/", "txlog/testing/"))
        for node, below in pairwise([*module.tree.body, ast.Pass()])
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant | ast.BinOp | ast.Name | ast.Attribute)
        and TUNING.fullmatch(node.targets[0].id)
        and not (isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant))
    ]
    assert [one for one in found if one.rpartition(" ")[2] not in NOT_TUNED] == []


def test_every_module_has_a_docstring() -> None:
    assert [m.place for m in everything() if not ast.get_docstring(m.tree)] == []


def test_every_public_function_and_class_is_documented() -> None:
    found = [
        f"{module.place}:{node.lineno} {node.name}"
        for module in modules(*PRODUCT)
        for node in definitions(module.tree)
        if is_public(node) and not ast.get_docstring(node)
    ]
    assert found == []


def test_every_public_method_is_documented_where_it_is_declared() -> None:
    """An override may have no docstring: it implements the method of a port or of a base class."""
    methods = [
        (module, kind, method)
        for module in modules(*PRODUCT)
        for kind in definitions(module.tree)
        if isinstance(kind, ast.ClassDef) and is_public(kind)
        for method in definitions(kind)
        if is_public(method) and not method.name.startswith("test_")
    ]
    declared = {method.name for _, _, method in methods if ast.get_docstring(method)}
    found = [
        f"{module.place}:{method.lineno} {kind.name}.{method.name}"
        for module, kind, method in methods
        if method.name not in declared and not overrides_spark(kind)
    ]
    assert found == []


def test_no_todo_comments_are_left() -> None:
    found = [
        f"{module.place}:{line}: {match.group()}"
        for module in everything()
        if LEFT_OVER.search(module.text)  # Tokenizing is slow, and few files have the word.
        for line, text in (*module.comments, *module.docstrings)
        if (match := LEFT_OVER.search(text))
    ]
    assert found == []


def test_imports_are_at_the_top_of_the_file() -> None:
    found = [
        f"{module.place}:{item.line} {item.target}"
        for module in modules(*PRODUCT)
        for item in module.imports
        if item.in_function
        and item.target.partition(".")[0] not in OPTIONAL_PACKAGES
        and not any(item.target.startswith(module) for module in SLOW_MODULES)
    ]
    assert found == []


def test_no_module_has_a_generic_name() -> None:
    found = [m.place for m in everything() if HOMELESS_NAMES & set(m.name.split("."))]
    assert found == []


def test_product_class_names_are_unique() -> None:
    places: dict[str, list[str]] = {}
    for module in modules(*PRODUCT):
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(f"{module.place}:{node.lineno}")
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_module_is_dead() -> None:
    """Each module is imported by another product module, public, or loaded by name."""
    imported = frozenset[str]().union(*product_graph().values())
    late = {item.target for m in modules(*PRODUCT) for item in m.imports if item.in_function}
    names = {module.name for module in modules(*PRODUCT)}
    alive = imported | {nearest(target, names) for target in late} | console_scripts()
    for package in (txlog, txlog.storage, spark_plugin):
        alive |= set(package._HOMES.values())
    found = [
        module.place
        for module in modules(*PRODUCT)
        if module.path.name != "__init__.py"
        and module.name not in alive
        and not any(re.fullmatch(pattern, module.name) for pattern in STARTED_BY_NAME)
    ]
    assert found == []


def test_no_test_is_skipped_or_expected_to_fail() -> None:
    found = [
        f"{module.place}:{node.lineno} {ast.unparse(node)}"
        for module in modules("tests")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute)
        and node.attr in {"skip", "skipif", "xfail", "importorskip"}
        and ast.unparse(node).startswith("pytest.")
    ]
    assert found == []


def test_tests_use_no_mocks() -> None:
    found = [
        f"{module.place}:{item.line}"
        for module in modules("tests")
        for item in module.imports
        if item.target.startswith("unittest.mock")
    ]
    assert found == []


def test_texts_contain_no_vague_subjects() -> None:
    """A process, a reader, a caller: not "whoever" or "nobody"; and not "it is no folder"."""
    assert dict(vague_words()) == {}


def vague_words() -> Iterator[tuple[str, list[str]]]:
    """The files that contain such words, and the words."""
    for module in everything():
        texts = " ".join(text for _, text in (*module.docstrings, *module.comments))
        words = VAGUE.findall(module.text) + [m.group() for m in IS_NO.finditer(texts)]
        if words and module.place != "tests/test_tidy.py":
            yield module.place, words
    pages = (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "conf").iterdir())
    for path in pages:
        if words := VAGUE.findall(path.read_text(encoding="utf-8")):
            yield path.relative_to(ROOT).as_posix(), words


def test_median_and_p95_function_length_stay_within_limits() -> None:
    """Median and 95th percentile over the product; prints them with the other figures."""
    lengths = [length(f) for module in modules(*PRODUCT) for f in module.functions]
    p95 = quantiles(lengths, n=20)[-1]
    print(f"\n{figures('product', modules(*PRODUCT))}\n{figures('tests', modules('tests'))}")
    assert median(lengths) <= FUNCTION_LINES_MEDIAN
    assert p95 <= FUNCTION_LINES_P95


def figures(title: str, sources: tuple[Module, ...]) -> str:
    """One line: sizes of files and functions, and the share of comment lines and docstrings."""
    files = [len(module.text.splitlines()) for module in sources]
    lengths = [length(function) for module in sources for function in module.functions]
    total = sum(files)
    lines = (line.lstrip() for module in sources for line in module.text.splitlines())
    comments = sum(line.startswith("#") for line in lines)
    documented = sum(len(t.splitlines()) for module in sources for _, t in module.docstrings)
    return (
        f"{title:8} {len(files)} files, {total} lines (median {median(files):.0f},"
        f" max {max(files)}); {len(lengths)} functions (median {median(lengths):.0f},"
        f" p95 {quantiles(lengths, n=20)[-1]:.0f}, max {max(lengths)});"
        f" comments {comments / total:.1%}, docstrings {documented / total:.1%}"
    )


def definitions(owner: ast.Module | ast.ClassDef) -> Iterator[Definition]:
    """Functions and classes defined directly in `owner`."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return (node for node in owner.body if isinstance(node, kinds))


def is_public(node: Definition) -> bool:
    return not node.name.startswith("_")


def overrides_spark(kind: ast.ClassDef) -> bool:
    """The methods of a data source override PySpark's and are documented there."""
    return any(
        ast.unparse(base).startswith(("DataSource", "InputPartition")) for base in kind.bases
    )


def console_scripts() -> set[str]:
    """The modules behind the console scripts of setup.cfg."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    lines = config["options.entry_points"]["console_scripts"].split("\n")
    return {line.partition("=")[2].strip().partition(":")[0] for line in lines if line.strip()}
