"""conf/txlog.toml lists every setting with its default and meaning in the code."""

import ast
import inspect
import itertools
import textwrap
import tomllib
from pathlib import Path

import pytest

from txlog import settings
from txlog.client.consumer.consumer_config import ConsumerConfig
from txlog.client.half_messages.half_message import HalfConfig
from txlog.engine.producer_config import ProducerConfig

CONF = Path(__file__).parents[2] / "conf" / "txlog.toml"
COMMENT_WIDTH = 96
GROUPS = {
    "log": settings.LogSettings,
    "topic": settings.TopicConfig,
    "process": settings.ProcessSettings,
    "producer": ProducerConfig,
    "consumer": ConsumerConfig,
    "half_message": HalfConfig,
}
"""Tables of the file. The tests know no single setting; a new group needs a line here."""


def meanings(group: type) -> dict[str, str]:
    """Field name -> the text below the field in the source of `group`."""
    body = ast.parse(textwrap.dedent(inspect.getsource(group))).body[0].body
    found = {}
    for field, below in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
            found[field.target.id] = inspect.cleandoc(below.value.value)
    return found


def expected_lines(group: type, name: str) -> list[str]:
    """How one setting is written: its meaning as a comment, its dotted name, its default."""
    text = " ".join(meanings(group)[name.replace(".", "_")].split())
    comment = textwrap.wrap(text, COMMENT_WIDTH, break_on_hyphens=False)
    default = group().to_dotted()[name]
    value = str(default).lower() if isinstance(default, bool) else default
    written = f'"{value}"' if isinstance(value, str) and not isinstance(default, bool) else value
    return [*(f"# {line}" for line in comment), f'"{name}" = {written}']


def tables() -> dict[str, dict[str, object]]:
    """The parsed file."""
    return tomllib.loads(CONF.read_text(encoding="utf-8"))


def test_every_group_of_settings_has_a_table() -> None:
    groups = {group for group in settings.SettingsGroup.__subclasses__() if group.__slots__}
    assert {group.__name__ for group in groups} == {group.__name__ for group in GROUPS.values()}
    assert list(tables()) == list(GROUPS)


@pytest.mark.parametrize("table", GROUPS)
def test_a_table_holds_every_setting_in_order_with_its_default(table: str) -> None:
    assert tuple(tables()[table]) == GROUPS[table].names()
    assert GROUPS[table].from_dotted(tables()[table]) == GROUPS[table]()


@pytest.mark.parametrize(
    ("table", "name"), [(table, name) for table in GROUPS for name in GROUPS[table].names()]
)
def test_setting_comment_matches_its_docstring_in_the_code(table: str, name: str) -> None:
    expected = "\n".join(expected_lines(GROUPS[table], name))
    written = CONF.read_text(encoding="utf-8").split(f"[{table}]", 1)[1]
    assert f"\n{expected}\n" in written, f"write this into [{table}] of {CONF.name}:\n{expected}"
