"""docs/guarantees.md lists every box once, and for each an existing test."""

import ast
import re
from functools import cache
from itertools import chain

import pytest

from tests.docs.pages import Page
from tests.source_tree import ROOT, modules

pytestmark = pytest.mark.slow

PAGE = Page(ROOT / "docs" / "guarantees.md")
SECTIONS = {
    "### 0.1 Delivery": 4,
    "### 0.2 Idempotent producer": 10,
    "### 0.3 Transactional producer": 12,
    "### 0.4 Isolation and markers": 8,
    "### 0.5 The coordinator's protocol": 25,
    "[Half messages](half-messages.md) has the differences in full.": 13,
    "### 0.7 Both systems": 7,
}
"""The line above each table, and its number of boxes."""

_NAMED = re.compile(r"`(test_\w+)`")
BOXES = {row[0]: row[1:] for heading in SECTIONS for row in PAGE.rows(heading)}


@cache
def named_tests() -> dict[str, set[str]]:
    """Test name -> the files that contain such a test."""
    found: dict[str, set[str]] = {}
    for module in modules("tests"):
        for function in module.functions:
            found.setdefault(function.name, set()).add(module.place)
    return found


def test_every_box_is_listed_once_and_in_order() -> None:
    expected = [
        f"0.{section}.{number}"
        for section, count in enumerate(SECTIONS.values(), 1)
        for number in range(1, count + 1)
    ]
    assert [row[0] for heading in SECTIONS for row in PAGE.rows(heading)] == expected
    assert PAGE.text.count("\n### 0.") == len(SECTIONS)


@pytest.mark.parametrize("box", BOXES)
def test_each_box_states_a_behaviour_and_names_existing_tests(box: str) -> None:
    behaviour, tests, _ = BOXES[box]
    assert behaviour.endswith(".")
    named = _NAMED.findall(tests)
    assert named
    assert ", ".join(f"`{name}`" for name in named) == tests
    assert [name for name in named if name not in named_tests()] == []


def test_files_that_cite_a_section_have_tests_in_the_tables() -> None:
    """A test file whose docstring names a section has at least one test in the tables."""
    known = named_tests()
    named = set(chain.from_iterable(known.get(name, ()) for name in _NAMED.findall(PAGE.text)))
    about = {
        module.place
        for module in modules("tests")
        if "docs/guarantees.md, 0." in (ast.get_docstring(module.tree) or "")
    }
    assert len(about) >= 6
    assert about - named == set()
