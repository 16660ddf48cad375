"""With `-o json` every command prints one JSON document, or says that it prints one a line.

The commands come from the parser: a command, a flag or an `--execute` without a case here fails.
"""

import json
import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from tests.processes.command_line import PROCESS_TIMEOUT_S, command, environment, run
from tests.unit.cli.command_cases import CASES, ENVIRONMENT, commands, words_of

LINES = ("consume",)
"""Commands that print a document a line, and say so in their help."""

UNTIL_CTRL_C = {
    "consume": "orders --follow",
    "exporter": "--listen 127.0.0.1:0 --kafka-names --no-partitions",
    "maintain": "--interval-ms 100000 --no-vacuum",
    "ui": "--listen 127.0.0.1:0",
    "kafka": "--listen 127.0.0.1:0 --no-auto-create-topics --arrow-values",
}
"""Commands that print a document a line until Ctrl-C."""

ELSEWHERE = {"import kafka": "--follow", "export": "--follow"}
"""Need a server of Kafka's protocol: tests/unit/kafka/test_importing.py."""

REFUSED = {
    "consume": ("orders --format lines", "orders --format arrow"),
    "group reset": ("report --all-topics --to-latest --export",),
}
"""Options that ask for another form than JSON."""

FAILED_CHECK = ("doctor", "drill", "txn find-hanging")
"""Commands whose exit code may be 1 here."""


def test_every_command_and_flag_has_a_case() -> None:
    parser = dict(commands())
    assert set(CASES) == set(parser)
    for name, found in parser.items():
        others = (UNTIL_CTRL_C.get(name, ""), ELSEWHERE.get(name, ""), *REFUSED.get(name, ()))
        given = {word for case in (*CASES[name], *others) for word in shlex.split(case)}
        own = [p for p in found.params if getattr(p, "rich_help_panel", "") != "Global options"]
        flags = {p.opts[0] for p in own if getattr(p, "is_flag", False)}
        off = {p.secondary_opts[0] for p in own if p.secondary_opts}
        # A switch that is on by default is covered by the cases that do not name it.
        assert (flags - {o.replace("--no-", "--") for o in off} | off) - given == set(), name
        assert "--output" in {option for p in found.params for option in p.opts}, name


@pytest.mark.parametrize(
    ("name", "case"), [(name, case) for name, cases in CASES.items() for case in cases]
)
def test_stdout_is_one_json_document(name: str, case: str, places: dict[str, Path]) -> None:
    words = words_of(name, case, places)
    done = run(*words, "-o", "json", root=places["root"], env=ENVIRONMENT)
    assert done.code in ((0, 1) if name in FAILED_CHECK else (0,)), done.err
    texts = done.out.splitlines() if name in LINES else [done.out]
    for text in texts:
        assert isinstance(json.loads(text, parse_constant=refuse), dict | list), text
        # No record of the log is so old: a time that is not known is null.
        assert '"1970-' not in text


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


KEYS_OF_COLUMNS = {"OpenTransaction": "transaction"}
"""Columns whose key in JSON has another name, because it is in an object of its own."""


@pytest.mark.parametrize(
    "name",
    ["topic list", "group list", "group reset", "group delete-offsets", "topic delete-records",
     "txn list", "txn find-hanging", "txn describe-producers", "dlq list", "export", "maintain"],
)  # fmt: skip
def test_column_of_a_table_is_a_key_in_json(name: str, places: dict[str, Path]) -> None:
    """LOG-END-OFFSET and LogEndOffset are log_end_offset; a unit may follow, as in duration_ms."""
    for case in CASES[name][:2]:
        words = words_of(name, case, places)
        text = run(*words, "-o", "json", root=places["root"]).out
        if name == "export":
            words[-1] += "-2" if "--file" in words else "/again"
            (places["tmp"] / "again").mkdir(exist_ok=True)
        header, *_ = run(*words, root=places["root"]).rows
        keys = set(re.findall(r'"(\w+)":', text))
        for column in header if keys else ():
            key = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", KEYS_OF_COLUMNS.get(column, column))
            key = key.replace("-", "_").lower()
            assert keys & {key, f"{key}_ms", f"{key}_at"}, (column, keys)


@pytest.mark.parametrize("name", sorted({*LINES, *UNTIL_CTRL_C}))
def test_help_of_a_command_that_prints_a_document_a_line_says_so(name: str) -> None:
    assert "object a line" in run(*name.split(), "--help").out


@pytest.mark.parametrize("name", UNTIL_CTRL_C)
def test_command_without_an_end_prints_one_document_a_line(
    name: str, places: dict[str, Path]
) -> None:
    run("topic", "config", "orders", "retention.ms=1000", root=places["root"])
    words = words_of(name, UNTIL_CTRL_C[name], places)
    with subprocess.Popen(
        command("--root", places["root"], *words, "-o", "json"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        first = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest, messages = process.communicate(timeout=PROCESS_TIMEOUT_S)
    assert process.returncode == 130, messages
    assert all(isinstance(json.loads(line), dict) for line in (first + rest).splitlines())


@pytest.mark.parametrize(
    ("name", "case"), [(name, case) for name, cases in REFUSED.items() for case in cases]
)
def test_json_and_another_form_contradict_each_other(
    name: str, case: str, places: dict[str, Path]
) -> None:
    done = run(*words_of(name, case, places), "-o", "json", root=places["root"])
    assert (done.code, done.out) == (2, "")
    assert "contradict each other" in json.loads(done.err)["error"]["message"]
