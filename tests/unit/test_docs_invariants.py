"""docs/invariants.md, the code and the tests name the same invariants and rules."""

import ast
import re
from collections import defaultdict
from functools import cache

import pytest

from tests.docs.pages import Page
from tests.source_tree import PRODUCT, ROOT, modules

PAGE = Page(ROOT / "docs" / "invariants.md")
NUMBERS = [f"I{n}" for n in range(1, 17)] + [
    f"R{n}" for n in (*range(1, 48), *range(54, 57), *range(60, 68))
]
NONE_YET = "none yet"
NOT_BUILT = "not built yet"
_NUMBER = re.compile(r"(?<!\w)[IR][1-9][0-9]?(?!\w)")
_CODE = re.compile(r"`([^`]+)`")


def numbers_in(text: str) -> set[str]:
    """Numbers in a sentence, or in a name such as test_I5_I10_a_query."""
    return set(_NUMBER.findall(text.replace("_", " ")))


def rows() -> dict[str, list[str]]:
    """Number -> its text, where it is guarded, and its tests."""
    tables = [*PAGE.rows("## Invariants"), *PAGE.rows("reasoned.")]
    return {row[0]: row[1:] for row in tables}


@cache
def in_code() -> dict[str, set[str]]:
    """Number -> product files that name it."""
    found = defaultdict(set)
    for module in modules(*PRODUCT):
        for number in _NUMBER.findall(module.text):
            found[number].add(module.place)
    return found


@cache
def in_tests() -> dict[str, set[str]]:
    """Number -> tests that have it in their name or docstring, or in their module's docstring."""
    found = defaultdict(set)
    for module in modules("tests"):
        if not numbers_in(module.text):  # Without numbers it need not be parsed.
            continue
        about = numbers_in(ast.get_docstring(module.tree) or "")
        for function in module.functions:
            if function.name.startswith("test_"):
                own = numbers_in(f"{function.name} {ast.get_docstring(function) or ''}")
                for number in own | about:
                    found[number].add(function.name)
    return found


def test_the_page_lists_every_number_once_and_in_order() -> None:
    tables = [*PAGE.rows("## Invariants"), *PAGE.rows("reasoned.")]
    assert [row[0] for row in tables] == NUMBERS


def test_code_and_tests_use_only_listed_numbers() -> None:
    assert sorted((set(in_code()) | set(in_tests())) - set(NUMBERS)) == []


@pytest.mark.parametrize("number", NUMBERS)
def test_number_appears_in_the_files_that_guard_it(number: str) -> None:
    guarded = rows()[number][1]
    named = set(_CODE.findall(guarded))
    assert named <= in_code()[number]
    assert bool(named) != (guarded == NOT_BUILT)


@pytest.mark.parametrize("number", NUMBERS)
def test_number_has_the_tests_that_its_row_names(number: str) -> None:
    told = rows()[number][2]
    named, found = set(_CODE.findall(told)), in_tests()[number]
    assert named <= found
    assert bool(named) != (told == NONE_YET)
    assert bool(found) == bool(named), f"name some of these in the row of {number}: {sorted(found)}"
