"""An option that is given an empty text is refused: it does not count as not given.

A script gives one if its variable is not set: `txlog topic delete orders --root "$ROOT" --execute`.
"""

from pathlib import Path

import pytest

from tests.processes.command_line import files, run
from tests.unit.cli.command_cases import CASES, ENVIRONMENT, commands, words_of
from tests.unit.cli.sample_log import SampleLog

VALUES = {"produce": {"--key", "--null-marker"}}
"""Options to which an empty text is a value."""

OPTIONS = [
    (name, option.opts[0])
    for name, found in commands()
    for option in found.params
    if option.param_type_name == "option" and not option.is_flag
]


@pytest.mark.parametrize(("name", "option"), OPTIONS)
def test_empty_option_is_refused_before_anything_is_written(
    name: str, option: str, places: dict[str, Path]
) -> None:
    before = files(places["root"].parent)
    words = words_of(name, next(reversed(CASES[name]), ""), places)
    done = run(*words, option, "", env={**ENVIRONMENT, "TXLOG_ROOT": str(places["root"])})
    if option in VALUES.get(name, ()):
        assert "is empty" not in done.err
        return
    assert (done.code, done.out) == (2, ""), done.err
    assert done.err.count("\n") == 1
    assert files(places["root"].parent) == before


def test_empty_root_before_the_command_is_refused(log: SampleLog) -> None:
    """`drill` and `doctor` can do without a log, but not if one was meant."""
    for command in ("topic list", "doctor", "drill"):
        done = run("--root", "", *command.split(), env={"TXLOG_ROOT": str(log.root)})
        assert (done.code, done.out) == (2, "")
        assert "--root is empty" in done.err
