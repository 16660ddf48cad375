"""The counting of `make mutants`: which mutants change words only, and which are listed as
harmless."""

import ast
import io
import json
import math
import os
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import Page
from tests.mutation.__main__ import Figures
from tests.mutation.measuring import MEASURED, VARIABLE, measure_this_process_only
from tests.mutation.modules import FOLDERS, IN_SPARK, MODULES, PROTOCOL, Mutated, grouped
from tests.mutation.mutant import Function, mutants_of
from tests.mutation.progress import Progress
from tests.mutation.run import outcome
from tests.mutation.sample import Sample, interval
from tests.mutation.type_errors import refused
from tests.mutation.unchanged import listed
from tests.source_tree import ROOT

MUTATED = """
def x_check__mutmut_orig(n):
    if n < 0:
        raise InvalidConfig(f"{n} is too small.", value=n)
    return [n]

def x_check__mutmut_1(n):
    if n <= 0:
        raise InvalidConfig(f"{n} is too small.", value=n)
    return [n]

def x_check__mutmut_2(n):
    if n < 0:
        raise InvalidConfig(None, value=n)
    return [n]

def x_check__mutmut_3(n):
    if n < 0:
        raise InvalidConfig(f"{n} is too small.", value=n)
    return [None]
"""


def test_mutants_of_error_texts_are_distinguished_from_mutants_of_behaviour() -> None:
    found = mutants_of("m", MUTATED)
    assert {name: one.words_only for name, one in found.items()} == {
        "m.x_check__mutmut_1": False,
        "m.x_check__mutmut_2": True,
        "m.x_check__mutmut_3": False,
    }
    first = found["m.x_check__mutmut_1"]
    assert (first.function, first.removed, first.added) == (
        "check",
        ("if n < 0:",),
        ("if n <= 0:",),
    )


def test_mutants_of_what_holds_in_every_run_are_passed_over() -> None:
    text = MUTATED.replace("return [n]", "return zip(n, n, strict=True)")
    text = text.replace("return [None]", "return zip(n, n)")
    assert [one.words_only for one in mutants_of("m", text).values()] == [False, True, True]


def test_mutants_of_coroutines_are_found() -> None:
    found = mutants_of("m", MUTATED.replace("def ", "async def "))
    assert len(found) == 3


def test_timed_out_mutant_counts_as_killed_and_in_doubt(tmp_path: Path) -> None:
    module, results = Mutated("m.py", ()), tmp_path / "mutants" / "m.py.meta"
    results.parent.mkdir()
    results.with_name("m.py").write_text(MUTATED)
    for first, third, in_doubt in ((-24, 0, {"1", "3"}), (-24, 1, {"1"}), (1, 1, set[str]())):
        codes = {"1": first, "2": 34, "3": third}
        named = {f"m.x_check__mutmut_{number}": code for number, code in codes.items()}
        results.write_text(json.dumps({"exit_code_by_key": named}))
        found = outcome(tmp_path, module)
        assert found.killed + len(found.survivors) == 2
        assert {one.name[-1] for one in found.in_doubt} == in_doubt


@pytest.mark.parametrize(
    ("given", "seen"), [(MEASURED, None), ("m.x_f__mutmut_1", "m.x_f__mutmut_1")]
)
def test_process_that_a_test_starts_runs_a_mutant_but_is_not_measured(
    given: str, seen: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, given)
    measure_this_process_only()
    assert os.environ.get(VARIABLE) == seen


def test_every_mutated_module_and_its_tests_exist() -> None:
    for module in MODULES.values():
        for path in (module.path, *module.tests):
            assert (ROOT / path).exists(), path


def test_page_lists_every_mutated_module_in_order() -> None:
    shown = Page(ROOT / "docs" / "dev" / "mutation.md").rows("<!-- mutants -->")
    assert shown == [[name, f"`{module.path}`"] for name, module in PROTOCOL.items()]
    page = (ROOT / "docs" / "dev" / "mutation.md").read_text()
    assert [path for path in (*FOLDERS, *IN_SPARK) if f"`{path}`" not in page] == []


def test_mutants_listed_as_harmless_still_match_the_code() -> None:
    for one in listed():
        names, lines = functions_of(one.module)
        assert one.function.rpartition(".")[2] in names, one
        assert any(one.removed in line for line in lines), one
        assert one.reason.endswith("."), one


@cache
def functions_of(module: str) -> tuple[set[str], set[str]]:
    """The names and lines of the functions, in the form in which mutants show them."""
    tree = ast.parse((ROOT / MODULES[module].path).read_text())
    functions = [node for node in ast.walk(tree) if isinstance(node, Function)]
    lines = {line.strip() for node in functions for line in ast.unparse(node).splitlines()}
    return {node.name for node in functions}, lines


def test_total_score_is_computed_from_mutants_not_from_module_scores() -> None:
    total = Figures(killed=97, unchanged=4, survivors=3) + Figures(killed=1, survivors=1)
    assert total == Figures(killed=98, unchanged=4, survivors=4)
    assert [cell.strip() for cell in total.row("2 of 2 modules").split("|")[1:-1]] == [
        *("2 of 2 modules", "106", "106", "98", "4", "4", "96.1%", "", "0.0", "0", "0"),
    ]


def test_progress_is_printed_once_a_minute_without_a_terminal(tmp_path: Path) -> None:
    results, stream, times = tmp_path / "cut.py.meta", io.StringIO(), iter([100, 101, 170, 231])
    progress = Progress("cut", [results], stream, lambda: next(times))
    progress.show()
    progress.show()
    results.write_text(json.dumps({"exit_code_by_key": {"a": 1, "b": None, "c": None, "d": 34}}))
    progress.show()
    results.write_text(json.dumps({"exit_code_by_key": {"a": 1, "b": 0, "c": None, "d": 34}}))
    progress.show()
    assert stream.getvalue().splitlines() == [
        "cut: the tests run without a mutant",
        "cut: 1 of 3 mutants tried",
        "cut: 2 of 3 mutants tried, about 61 s left",
    ]


def test_sample_is_counted_as_tried_and_the_rest_as_left_out(tmp_path: Path) -> None:
    module, results = Mutated("m.py", ()), tmp_path / "mutants" / "m.py.meta"
    results.parent.mkdir()
    results.with_name("m.py").write_text(MUTATED)
    codes = {"m.x_check__mutmut_1": 1, "m.x_check__mutmut_2": 34, "m.x_check__mutmut_3": 34}
    results.write_text(json.dumps({"exit_code_by_key": codes}))
    found = outcome(tmp_path, module)
    assert (found.killed, found.survivors, found.left_out, found.words) == (1, (), 1, 1)


def test_mutants_with_a_type_error_of_their_own_are_refused(tmp_path: Path) -> None:
    text = MUTATED.replace("(n)", "(n: int) -> list[int]").replace("[None]", "[n, None]")
    # The argument that ValueError does not take is in the unchanged function, too.
    (tmp_path / "m.py").write_text(text.replace("InvalidConfig", "ValueError"))
    assert refused(tmp_path, ["m.py"]) == {"m.x_check__mutmut_3"}


def test_sample_is_spread_over_the_module_and_the_seed_moves_it() -> None:
    mutants = [str(number) for number in range(100)]
    samples = [Sample(10, seed).of(mutants) for seed in range(50)]
    assert samples == [Sample(10, seed).of(mutants) for seed in range(50)]
    for sample in samples:
        assert sorted(int(one) // 10 for one in sample) == list(range(10))
    assert set().union(*samples) == set(mutants)
    assert Sample(100).of(mutants) == Sample().of(mutants) == set(mutants)


def test_interval_of_a_sample_contains_the_share_95_times_in_100() -> None:
    for share in (0.5, 0.9, 0.97):
        inside = 0.0
        for killed in range(26):
            low, high = interval(killed, 25)
            chance = math.comb(25, killed) * share**killed * (1 - share) ** (25 - killed)
            inside += chance if low <= share <= high else 0
        assert 0.92 < inside < 0.99, share
    assert interval(25, 25)[1] == 1.0
    assert interval(0, 0) == (0.0, 1.0)


def test_modules_with_the_same_tests_are_tried_together() -> None:
    groups = grouped(MODULES)
    assert sorted(name for group in groups for name in group) == sorted(MODULES)
    assert all(len({MODULES[name].tests for name in group}) == 1 for group in groups)
    assert sum("txlog.verify" in group[0] for group in groups) == 1
