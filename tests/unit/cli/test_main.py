"""The whole command: shared options, help, and the existence of every recommended command."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from tests.processes.command_line import run
from tests.source_tree import PRODUCT, ROOT, modules
from tests.unit.cli.command_cases import commands
from tests.unit.cli.sample_log import SampleLog
from txlog.cli.command_table import COMMANDS
from txlog.cli.main import app
from txlog.cli.session import GlobalOptions, Output

RECOMMENDED = re.compile(r"'txlog ([a-z]+)(?: ([a-z]+))?")


def test_every_command_is_documented() -> None:
    pages = (ROOT / "docs").glob("cli*.md")
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    assert [name for name, _ in commands() if f"`txlog {name}" not in text] == []


def test_every_command_that_a_message_recommends_exists() -> None:
    """Strings are joined first because a message may be split within a command's name."""
    known = set(dict(commands()))
    for module in modules(*PRODUCT):
        text = re.sub(r'"\s*\n\s*f?"', "", module.text)
        for noun, verb in RECOMMENDED.findall(text):
            assert noun in known or f"{noun} {verb}" in known, (module.place, noun, verb)


@pytest.mark.parametrize("name", sorted(dict(commands())))
def test_every_command_has_help_with_an_example(name: str) -> None:
    done = run(*name.split(), "--help")
    assert (done.code, done.err) == (0, "")
    assert re.search(rf"txlog .*\b{name}\b", done.out.split("Example", 1)[1])
    assert "Global options" in done.out


def test_call_without_a_command_prints_help() -> None:
    done = run()
    assert done.code == 2
    assert "consume" in done.out
    assert done.err == ""
    assert run("-h").code == 0


def test_top_level_help_matches_the_help_of_each_command() -> None:
    """The help is printed without importing the commands, so their summaries are written twice."""
    group = typer.main.get_group(app)
    for name, known in COMMANDS.items():
        assert group.commands[name].help.split("\n\n")[0].replace("\n", " ") == known.help
        assert known.help.split(". ")[0].split(",")[0] in run("--help").out


WITHOUT_COMMANDS = """
import sys
from txlog.cli.command_table import COMMANDS
from txlog.cli.main import app
try:
    app(["--help"])
except SystemExit as done:
    assert done.code == 0
heavy = {"pyarrow", "numpy", "fsspec", "obstore", "rich.progress", "spark_plugin", "txlog.engine"}
print(sorted(heavy & set(sys.modules)), file=sys.stderr)
"""


def test_help_imports_no_heavy_modules() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_COMMANDS], capture_output=True, text=True, check=True
    )
    assert done.stderr == "[]\n"
    assert "vacuum" in done.stdout


def test_version_option_prints_name_and_version() -> None:
    done = run("--version")
    assert (done.code, done.err) == (0, "")
    assert re.fullmatch(r"txlog \d+\.\d+.*\n", done.out)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["nope"], "No such command 'nope'. 'txlog --help' shows how."),
        (["topic", "nope"], "No such command 'nope'. 'txlog topic --help' shows how."),
        (["gruop", "list"], "No such command 'gruop'. Did you mean 'group'? 'txlog --help' shows"),
        (["--nope"], "No such option: --nope"),
        (
            ["-o", "xml", "topic", "list"],
            "for '--output' / '-o': 'xml' is not one of 'table', 'json'",
        ),
        (["--root"], "--root"),
    ],
)
def test_usage_error_is_one_line_and_exits_2(arguments: list[str], why: str) -> None:
    done = run(*arguments)
    assert (done.code, done.out) == (2, "")
    assert why in done.err
    assert done.err.count("\n") == 1


def test_global_options_are_accepted_before_and_after_the_command(log: SampleLog) -> None:
    expected = run("topic", "list", "-o", "json", root=log.root).out
    assert run("-o", "json", "topic", "list", "--root", log.root).out == expected
    assert run("topic", "list", "--root", log.root, "-o", "json").out == expected


def test_root_option_overrides_the_variable_and_an_earlier_root_option(
    log: SampleLog, tmp_path: Path
) -> None:
    env = {"TXLOG_ROOT": str(tmp_path / "none")}
    assert run("topic", "list", env=env).code == 3
    assert run("topic", "list", root=log.root, env=env).code == 0
    assert run("topic", "list", "--root", log.root, env=env).code == 0
    assert run("topic", "list", "--root", log.root, root=tmp_path / "none").code == 0
    assert run("topic", "list", env={"TXLOG_ROOT": str(log.root)}).code == 0


@pytest.mark.parametrize("env", [{}, {"TXLOG_ROOT": ""}])
def test_missing_root_is_refused_with_a_hint(env: dict[str, str]) -> None:
    done = run("topic", "list", env=env)
    assert (done.code, done.out) == (2, "")
    assert done.err == "txlog: no log was named; give --root URI, or set TXLOG_ROOT.\n"


def test_root_without_a_log_exits_3_and_stays_empty(tmp_path: Path) -> None:
    done = run("topic", "list", root=tmp_path)
    assert (done.code, done.out) == (3, "")
    assert f"there is no log at {tmp_path}" in done.err
    assert list(tmp_path.iterdir()) == []


def test_unreadable_root_exits_5(tmp_path: Path) -> None:
    """A loop of symbolic links gives every user an error, including root."""
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    done = run("topic", "list", root=loop)
    assert (done.code, done.out) == (5, "")
    assert done.err.count("\n") == 1


def test_verbose_prints_a_traceback_before_the_error_line(log: SampleLog) -> None:
    done = run("topic", "describe", "nope", "-v", root=log.root)
    assert done.code == 3
    assert done.err.startswith("Traceback (most recent call last):")
    assert done.err.splitlines()[-1].startswith("txlog: there is no topic 'nope'")


def test_global_options_are_overridden_individually() -> None:
    early = GlobalOptions("a", Output.JSON, True, False, False)
    assert early.overridden(GlobalOptions()) == early
    late = GlobalOptions("b", None, False, True, True)
    assert early.overridden(late) == GlobalOptions("b", Output.JSON, True, True, True)


def test_completion_offers_names_from_the_log_and_nothing_without_one(log: SampleLog) -> None:
    line = {"_TXLOG_COMPLETE": "complete_bash", "COMP_CWORD": "3"}
    words = f"txlog topic describe {{}} --root {log.root}"
    root = {"TXLOG_ROOT": str(log.root)}
    assert complete(line | root | {"COMP_WORDS": words.format("o")}) == ["orders"]
    assert complete(line | root | {"COMP_WORDS": "txlog group describe b"}) == ["billing"]
    broken = {"TXLOG_ROOT": "/no/such/log"}
    assert complete(line | broken | {"COMP_WORDS": words.format("o")}) == []


@pytest.mark.parametrize("words", ["{} topic describe o", "topic describe {} o"])
def test_completion_opens_the_log_with_the_given_storage_options(
    words: str, log: SampleLog
) -> None:
    # A folder has no options: the command would be refused, so there are no names to offer.
    given = words.format("--storage-option endpoint_url=http://localhost")
    line = {"_TXLOG_COMPLETE": "complete_bash", "COMP_WORDS": f"txlog {given}", "COMP_CWORD": "5"}
    assert complete(line | {"TXLOG_ROOT": str(log.root)}) == []
    without = {"COMP_WORDS": "txlog topic describe o", "COMP_CWORD": "3"}
    assert complete(line | without | {"TXLOG_ROOT": str(log.root)}) == ["orders"]


def complete(env: dict[str, str]) -> list[str]:
    """What the shell offers as completions."""
    return run(env=env).out.split()
