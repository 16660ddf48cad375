"""The pages are correct: programs run, links have targets, names exist."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import Page, pages
from tests.docs.programs import EXAMPLES, PAGE_TIMEOUT_S, execute, run_module, run_page
from tests.source_tree import ROOT, modules

pytestmark = pytest.mark.slow

_DEFINED = re.compile(r"^ *def (\w+)\(", re.MULTILINE)
_TEST_NAME = re.compile(r"test_\w+")
_PATH = re.compile(
    r"\b(?:txlog|spark_plugin|pyspark_txlog|tests|examples|benchmarks|conf|docs)/[\w./-]*\w"
)
_PAGE = re.compile(r"\bdocs/[\w/-]+\.md")
_FILE = re.compile(r"\w+\.py")
_MEMBER = re.compile(r"([A-Z]\w*)\.(\w+)")
_DEFINED_NAME = re.compile(r"^ +(?:def )?(?:self\.)?(\w+)(?=\(self|\(cls|:| =)", re.MULTILINE)
INHERITANCE_DEPTH_MAX = 5
_OF_KAFKA = {"transactions_test.py"}
_MADE_BY_RUNNING = "txlog-data/"
WORDS_MAX = 1_500
WORDS_MAX_OF_LARGE_SUBJECTS = {
    "docs/spark.md": 3_100,
    "docs/architecture.md": 2_100,
    "docs/cli.md": 1_800,
}
"""Pages whose subject would otherwise be on several, among which a reader has to guess."""


def id_of(page: Page) -> str:
    return page.place


# Programs.


@pytest.mark.parametrize(
    "page",
    [p for p in pages() if any(b.is_python and not b.needs_spark for b in p.blocks)],
    ids=id_of,
)
def test_programs_print_the_output_shown_on_the_page(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    execute([b for b in page.blocks if b.is_python and not b.needs_spark], tmp_path)


@pytest.mark.spark
@pytest.mark.timeout(PAGE_TIMEOUT_S)
@pytest.mark.parametrize(
    "page", [p for p in pages() if any(b.needs_spark for b in p.blocks)], ids=id_of
)
def test_spark_programs_print_the_output_shown_on_the_page(page: Page, tmp_path: Path) -> None:
    run_page(page, tmp_path)


@pytest.mark.parametrize("module", sorted(set(EXAMPLES.values()) - {"examples.spark_two_topics"}))
def test_example_can_be_run_twice_in_one_folder(module: str, tmp_path: Path) -> None:
    """A reader may run it twice; the tests of the Spark examples run those again themselves."""
    for _ in range(2):
        assert run_module(tmp_path, module)


def test_every_example_is_shown_on_a_page() -> None:
    shown = {block.text.strip() for page in pages() for block in page.blocks}
    assert [module for program, module in EXAMPLES.items() if program not in shown] == []


# Links and names.


@pytest.mark.parametrize("page", pages(), ids=id_of)
def test_links_point_to_existing_files_and_headings(page: Page) -> None:
    broken = []
    for link in page.links:
        target, _, anchor = link.partition("#")
        if "://" in link:
            continue
        path = (page.path.parent / target).resolve() if target else page.path
        if not path.exists() or (anchor and anchor not in Page(path).anchors):
            broken.append(link)
    assert broken == []


def test_every_page_is_reachable_from_the_readme() -> None:
    reached, waiting = set(), [(ROOT / "README.md").resolve()]
    while waiting:
        path = waiting.pop()
        if path.suffix == ".md" and path not in reached:
            reached.add(path)
            targets = (link.partition("#")[0] for link in Page(path).links if "://" not in link)
            waiting += [(path.parent / target).resolve() for target in targets if target]
    pages_to_reach = {p.path.resolve() for p in pages() if not p.path.name.startswith("0000")}
    assert sorted(pages_to_reach - reached) == []


def test_index_lists_every_page_once() -> None:
    """docs/README.md, whose order the documentation site takes over."""
    index = Page(ROOT / "docs" / "README.md")
    listed = [link for link in index.links if re.fullmatch(r"(dev/)?[\w-]+\.md", link)]
    folders = (ROOT / "docs", ROOT / "docs" / "dev")
    there = [path.relative_to(ROOT / "docs") for folder in folders for path in folder.glob("*.md")]
    assert sorted([*listed, "README.md"]) == sorted(path.as_posix() for path in there)


@pytest.mark.parametrize("page", pages(), ids=id_of)
def test_tests_named_on_a_page_exist(page: Page) -> None:
    assert sorted(set(_TEST_NAME.findall(page.text)) - known_tests()) == []


@cache
def known_tests() -> frozenset[str]:
    """Functions and files; the conformance suites are in the package."""
    texts = (module.text for module in modules("tests", "txlog"))
    functions = {name for text in texts for name in _DEFINED.findall(text)}
    return frozenset(functions | {path.stem for path in (ROOT / "tests").rglob("test_*.py")})


@pytest.mark.parametrize("page", pages(), ids=id_of)
def test_files_named_on_a_page_exist(page: Page) -> None:
    named = (path for path in _PATH.findall(page.text) if not path.startswith(_MADE_BY_RUNNING))
    assert sorted(path for path in set(named) if not (ROOT / path).exists()) == []


def test_pages_named_in_code_exist() -> None:
    """In messages, docstrings, comments and the texts of `--help`."""
    everything = modules("txlog", "spark_plugin", "tests", "examples", "benchmarks")
    named = {page for module in everything for page in _PAGE.findall(module.text)}
    assert sorted(page for page in named if not (ROOT / page).exists()) == []


@pytest.mark.parametrize("page", pages(), ids=id_of)
def test_modules_and_members_named_on_a_page_exist(page: Page) -> None:
    """`faults.py`, and `Replica.execute` of a class of the project."""
    names = {path.name for folder in ("txlog", "spark_plugin", "tests") for path in _files(folder)}
    files = {code for code in page.code_words if _FILE.fullmatch(code)}
    absent = files - names - _OF_KAFKA
    for match in filter(None, map(_MEMBER.match, page.code_words)):
        if match[1] in members() and match[2] not in members()[match[1]]:
            absent.add(match[0])
    assert sorted(absent) == []


def _files(folder: str) -> Iterator[Path]:
    return (ROOT / folder).rglob("*.py")


@cache
def members() -> dict[str, set[str]]:
    """Class -> names that it or a class of the project above it defines."""
    found: dict[str, set[str]] = {}
    above: dict[str, set[str]] = {}
    for module in modules("txlog", "spark_plugin"):
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                text = ast.unparse(node)
                found.setdefault(node.name, set()).update(_DEFINED_NAME.findall(text))
                bases = {ast.unparse(base).partition("[")[0] for base in node.bases}
                above.setdefault(node.name, set()).update(bases)
    for _ in range(INHERITANCE_DEPTH_MAX):
        for name, bases in above.items():
            found[name].update(*(found.get(base, set()) for base in bases))
    return found


@pytest.mark.parametrize("page", pages(), ids=id_of)
def test_pages_are_ascii_with_short_lines(page: Page) -> None:
    """Plain text without emojis, in lines that fit into an editor's window."""
    assert sorted(set(re.findall(r"[^\x00-\x7f]", page.text))) == []
    outside_tables = [line for line in page.prose.split("\n") if not line.startswith("|")]
    assert [line for line in outside_tables if len(line) > 125] == []


@pytest.mark.parametrize("page", pages(), ids=id_of)
def test_code_and_links_stand_in_one_line(page: Page) -> None:
    """The other tests would not see them, and neither would a search for a command."""
    lines = [line for line in page.prose.split("\n") if not line.startswith("    ")]
    assert [line for line in lines if line.count("`") % 2] == []
    assert re.findall(r"\[[^\]]*\n[^\]]*\]\([^)]*\)", page.prose) == []


@pytest.mark.parametrize(
    "page", [p for p in pages() if p.path.parent.name in ("docs", "dev")], ids=id_of
)
def test_page_begins_with_what_it_is_for(page: Page) -> None:
    """A sentence below the title, and no table, list, program or heading."""
    title, blank, first, *_ = page.text.split("\n")
    assert title.startswith("# ")
    assert blank == ""
    assert re.match(r"[\w`(*]", first), first


@pytest.mark.parametrize("page", [p for p in pages() if p.path.parent.name != "design"], ids=id_of)
def test_pages_stay_within_the_word_limit(page: Page) -> None:
    """A longer page must be split or shortened."""
    assert page.words <= WORDS_MAX_OF_LARGE_SUBJECTS.get(page.place, WORDS_MAX)
