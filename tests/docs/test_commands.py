"""Commands on the pages and in the product's own messages are valid as shown."""

import ast
import configparser
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from tests.docs.pages import Page, pages
from tests.source_tree import PRODUCT, ROOT, Module, modules
from txlog.cli.main import app

pytestmark = pytest.mark.slow

ROOT_COMMAND: Any = typer.main.get_command(app)
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
SHELL_ONLY = ("export", "cd", "echo", "git", "kcat", "ls", ".", "venv-pack")
_QUOTED = re.compile(r"'(txlog [^']*)'")


def id_of(source: Page | Module) -> str:
    return source.place


def shown(page: Page) -> Iterator[str]:
    """Lines of shell blocks, and inline code that is a command."""
    for block in page.blocks:
        if block.info == "sh":
            yield from block.text.splitlines()
    for code in page.code_words:
        if code.startswith(("make ", "txlog ", "pip ", "python -m ")):
            yield code


def problem(line: str) -> str:
    """Why the command line is invalid, or an empty text."""
    first, both, second = line.partition(" && ")
    if both:
        return problem(first) or problem(second)
    match shlex.split(line, comments=True):
        case []:
            return ""
        case ["make", *words]:
            return make_problem(words)
        case ["txlog", *words]:
            return txlog_problem(words)
        case ["pip", "install", *targets]:
            return next(filter(None, map(extras_problem, targets)), "")
        case ["pip", "uninstall" | "wheel", *_] | ["python3", "-m", "venv", _]:
            return ""
        case ["python", "-m", module, *words]:
            return module_problem(module) or module_option_problem(module, words)
        case [first, *_] if first in SHELL_ONLY:
            return ""
    return "unknown kind of command"


def make_problem(words: list[str]) -> str:
    for word in words:
        name, is_setting, _ = word.partition("=")
        pattern = rf"^{name}\b.*\?=" if is_setting else rf"^{name}:"
        if not re.search(pattern, MAKEFILE, re.MULTILINE):
            return f"the Makefile has no {name}"
    return ""


def txlog_problem(words: list[str]) -> str:
    """Commands and options must exist, globally or for the command; arguments after them, or after
    --, are free."""
    command, names = ROOT_COMMAND, {"--help": True} | option_names(ROOT_COMMAND)
    waits = False
    for word in words[: words.index("--")] if "--" in words else words:
        if word.startswith("-") and word != "-":
            if word not in names:
                return f"no option {word}"
            waits = not names[word]
        elif waits:
            waits = False
        elif commands := getattr(command, "commands", None):
            if word not in commands:
                return f"no command {word}"
            command = commands[word]
            names |= option_names(command)
    return ""


def option_names(command: Any) -> dict[str, bool]:
    """Option -> whether it takes no value."""
    return {
        name: bool(getattr(parameter, "is_flag", False))
        for parameter in command.params
        for name in (*parameter.opts, *parameter.secondary_opts)
        if name.startswith("-")
    }


def extras_problem(target: str) -> str:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    extras = set(config["options.extras_require"])
    named = re.search(r"\[(.*)\]", target)
    unknown = set(named[1].split(",")) - extras if named else set()
    return f"no extra {sorted(unknown)}" if unknown else ""


def module_problem(module: str) -> str:
    place = ROOT / module.replace(".", "/")
    is_ours = place.parts[len(ROOT.parts)] in (*PRODUCT, "examples", "benchmarks")
    exists = place.with_suffix(".py").exists() or (place / "__main__.py").exists()
    return "" if exists or not is_ours else f"no module {module}"


def module_option_problem(module: str, words: list[str]) -> str:
    """Options of the project's own modules are in their sources."""
    place = ROOT / module.replace(".", "/")
    sources = [path for path in (place.with_suffix(".py"), place / "__main__.py") if path.exists()]
    text = "".join(path.read_text(encoding="utf-8") for path in sources)
    names = [word.partition("=")[0] for word in words if word.startswith("--")]
    unknown = [name for name in names if f'"{name}"' not in text]
    return f"no option {unknown[0]}" if sources and unknown else ""


@pytest.mark.parametrize("page", pages(), ids=id_of)
def test_commands_on_a_page_exist(page: Page) -> None:
    assert {line: found for line in shown(page) if (found := problem(line))} == {}


def test_nonexistent_commands_are_detected() -> None:
    wrong = ["make tea", "make NOTHING=1", "txlog topics", "txlog topic list --all", "rm -rf /"]
    wrong += ["pip install '.[tea]'", "python -m examples.tea", "txlog --tea topic list"]
    wrong += ["python -m tests.mutation --tea", "cd x && make tea", "pip install x '.[tea]'"]
    assert [line for line in wrong if not problem(line)] == []


def messages(module: Module) -> Iterator[str]:
    """The texts in a module, with 'x' in place of each inserted value."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.JoinedStr):
            parts = (getattr(part, "value", None) for part in node.values)
            yield "".join(part if isinstance(part, str) else "x" for part in parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@pytest.mark.parametrize("module", modules("txlog", "spark_plugin"), ids=id_of)
def test_commands_in_messages_exist(module: Module) -> None:
    """The remedy in an error names an existing command."""
    named = {line for text in messages(module) for line in _QUOTED.findall(text)}
    assert {line: found for line in named if (found := problem(line))} == {}
