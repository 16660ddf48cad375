"""docs/spark-options.md lists every option of source and sink, with its other names and default."""

from collections.abc import Mapping
from dataclasses import fields

import pytest

from spark_plugin import options
from spark_plugin.option_values import OffsetSpec, duration_ms, size_bytes
from spark_plugin.source.read_plan import WORTH_BYTES, WORTH_RECORDS
from tests.docs.pages import Page
from tests.source_tree import ROOT

OPTIONS = Page(ROOT / "docs" / "spark-options.md")
KINDS = {
    "reader": (options.ReaderOptions, options.options_of(options.ReaderOptions)),
    "writer": (options.WriterOptions, options.options_of(options.WriterOptions)),
}


def listed(kind: str) -> dict[str, list[str]]:
    """Option -> its other names, its default and its meaning, from the page."""
    rows = OPTIONS.rows(f"<!-- {kind} options -->")
    assert len({row[0] for row in rows}) == len(rows)
    return {plain(row[0]): row[1:] for row in rows}


def plain(cell: str) -> str:
    return cell.replace("`", "")


def known(kind: str) -> Mapping[str, options.Option]:
    """Option -> the code's parser for it."""
    return {option.name: option for option in KINDS[kind][1].values()}


@pytest.mark.parametrize("kind", KINDS)
def test_page_lists_exactly_the_existing_options(kind: str) -> None:
    prefixes = {"reader": ("storage.*",), "writer": ("storage.*", "topic.*")}
    assert sorted(listed(kind)) == sorted([*known(kind), *prefixes[kind]])


@pytest.mark.parametrize("kind", KINDS)
def test_page_lists_every_option_alias(kind: str) -> None:
    found = {name: plain(row[0]) for name, row in listed(kind).items() if "*" not in name}
    assert found == {name: ", ".join(option.aliases) for name, option in known(kind).items()}


@pytest.mark.parametrize("kind", KINDS)
def test_page_shows_the_defaults_of_the_code(kind: str) -> None:
    settings, table = KINDS[kind]
    defaults = {field.name: field.default for field in fields(settings)}
    wrong = {
        option.name: (said, defaults[target])
        for target, option in table.items()
        if not agrees(said := plain(listed(kind)[option.name][1]), defaults[target])
    }
    assert wrong == {}


def test_page_says_how_the_default_number_of_tasks_is_chosen() -> None:
    said = listed("reader")["minPartitions"][1]
    assert f" {WORTH_BYTES >> 20} MB" in said
    assert f" {WORTH_RECORDS:,} records" in said


def agrees(said: str, default: object) -> bool:
    """Whether the words state the code's default; without one, they describe the behaviour."""
    match default:
        case bool():
            return said == str(default).lower()
        case int():
            return default in (duration_ms("", said), size_bytes("", said))
        case OffsetSpec():
            return said == str(default.point)
        case None | "" | ():
            return said not in ("", "true", "false")
        case str():
            return said == default
        case _:
            return said == "required"


@pytest.mark.parametrize("kind", KINDS)
def test_every_option_has_a_description(kind: str) -> None:
    assert [name for name, row in listed(kind).items() if not row[2]] == []
