"""docs/architecture.md shows the present folders, layers and files."""

import configparser
from collections.abc import Iterator

from tests.docs.pages import Page
from tests.source_tree import ROOT

ARCHITECTURE = Page(ROOT / "docs" / "architecture.md")
PACKAGES = ("txlog", "spark_plugin")
INDENT = 2


def folders_of_the_page() -> Iterator[str]:
    """The paths in the page's tree, in order."""
    above: list[str] = []
    (tree,) = [block.text for block in ARCHITECTURE.blocks if block.text.startswith("txlog/")]
    for line in tree.splitlines():
        depth = (len(line) - len(line.lstrip())) // INDENT
        name, _, text = line.strip().partition("/")
        assert text.strip(), f"{name}: the page does not say what it holds"
        above = [*above[:depth], name]
        yield "/".join(above)


def folders_of_the_product() -> set[str]:
    """The folders that hold modules."""
    files = (path for name in PACKAGES for path in (ROOT / name).rglob("*.py"))
    return {path.parent.relative_to(ROOT).as_posix() for path in files}


def test_folder_tree_lists_each_product_folder_once() -> None:
    assert sorted(folders_of_the_page()) == sorted(folders_of_the_product())


def test_layer_table_matches_the_import_contract_in_order() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    contract = config["importlinter:contract:layers"]["layers"].split("\n")
    table = next(line for line in ARCHITECTURE.text.split("\n") if line.startswith("| layer |"))
    lines = ARCHITECTURE.text.split(f"{table}\n", 1)[1].split("\n\n", 1)[0].split("\n")[1:]
    shown = [line.split("|")[1].replace("`", "").replace(",", " |").strip() for line in lines]
    assert shown == [layer for layer in contract if layer]


def test_files_in_the_look_at_table_exist() -> None:
    table = ARCHITECTURE.text.split("| if you want to | look at |", 1)[1].split("\n\n", 1)[0]
    named = [word.strip("`") for word in table.split("`")[1::2] if "/" in word]
    assert len(named) > 20
    assert [path for path in named if not (ROOT / path).is_file()] == []
