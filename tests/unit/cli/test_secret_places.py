"""No command shows the password of a URL that a user gives in the place of a file or a root."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes.command_line import run
from txlog.cli.options.storage_options import VARIABLE

PLACES = ["ftp://me:hu5h@host/x", "file://me:hu5h@host/x", "file://me:hu5h@/x", "ftp:/me:hu5h@h/x"]
CALLS = [
    ("topic", "create", "t", "--schema", "@{}"),
    ("produce", "u", "{}"),
    ("produce", "u", "--file", "{}"),
    ("export", "u", "--to", "{}"),
    ("export", "u", "{}"),
    ("consume", "u", "--from", "@{}"),
    ("group", "reset", "g", "--to", "@{}"),
    ("--root", "{}", "topic", "list"),
    ("verify", "{}"),
    ("-v", "verify", "{}"),
    ("-o", "json", "verify", "{}"),
    ("doctor", "--root", "{}"),
    ("backup", "--to", "{}"),
    ("restore", "--from", "{}"),
    ("--storage-option", "{}", "topic", "list"),
    ("--storage-option", "a={}", "topic", "list"),
]


@pytest.mark.parametrize("words", CALLS, ids=" ".join)
@pytest.mark.parametrize("place", PLACES)
def test_password_in_a_place_is_not_shown(
    place: str, words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run("topic", "create", "u", "--partitions", 1, root=tmp_path / "log")
    given = [word.format(place) for word in words]
    found = run(*given, env={"TXLOG_ROOT": str(tmp_path / "log")})
    assert found.code != 0
    assert "hu5h" not in found.out + found.err


@pytest.mark.parametrize("place", PLACES)
def test_password_in_the_place_of_storage_options_is_not_shown(place: str, tmp_path: Path) -> None:
    found = run("topic", "list", root=tmp_path, env={VARIABLE: f"@{place}"})
    assert found.code != 0
    assert "hu5h" not in found.out + found.err
