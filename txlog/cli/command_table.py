"""The commands of `txlog`: the module of each, and its line in the help.

A command's module is imported when that command runs, so that `txlog --help` imports none of
them, and `txlog topic list` imports neither the plugin nor the input formats. A test compares the
lines of help with the modules. It must not know what any command does.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, MutableMapping
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand


class CommandModule(NamedTuple):
    """A command's module, and its first line of help."""

    module: str
    help: str


COMMANDS = {
    # Several modules add commands to the `app` of topic, group and txn. Named here is the one that
    # imports the others, so that all of them are registered.
    "topic": CommandModule(
        "commands.topic_records", "Topics: list, describe, create, change, delete."
    ),
    "group": CommandModule(
        "commands.group_offsets", "Consumer groups: their positions and their lag."
    ),
    "txn": CommandModule(
        "commands.txn_producers", "Transactions: list, describe, abort; how they ended."
    ),
    "dlq": CommandModule(
        "commands.dlq", "Dead letters: half messages that were never decided, and their replay."
    ),
    "consume": CommandModule(
        "commands.consume", "Print the records of a topic, from the beginning to the current end."
    ),
    "produce": CommandModule(
        "commands.produce",
        "Write records to a topic: lines of text, JSON, CSV, or Parquet and Arrow files.",
    ),
    "sql": CommandModule(
        "sql.sql", "Query topics with SQL: joins, windows, groups, all at one consistent cut."
    ),
    "export": CommandModule(
        "commands.export",
        "Copy topics to files, each transaction whole or not at all, over all topics named.",
    ),
    "import": CommandModule("kafka.importer", "Copy topics of a Kafka cluster into the log."),
    "doctor": CommandModule(
        "doctor.doctor",
        "Check Python, Java, Spark and the store, and say how to repair what is wrong.",
    ),
    "drill": CommandModule(
        "drill.drill",
        "Kill a Spark job at named points and at random, restart it, and verify the log.",
    ),
    "verify": CommandModule(
        "commands.verify",
        "Read the log and name every damaged or missing object; exit code 1 if there is one.",
    ),
    "backup": CommandModule(
        "commands.backup",
        "Copy the log to another place as it is at one moment; writers go on.",
    ),
    "restore": CommandModule(
        "commands.backup",
        "Copy a backup to --root, which must be empty, as a log with an id of its own.",
    ),
    "maintain": CommandModule(
        "commands.maintain",
        "End late transactions, delete old records, compact and merge, once or repeatedly.",
    ),
    "exporter": CommandModule(
        "metrics.exporter",
        "Serve offsets, lag in records and seconds, and transactions to Prometheus, until Ctrl-C.",
    ),
    "ui": CommandModule(
        "ui.ui",
        "Show the log on a page: groups, topics, transactions, queries, storage, until Ctrl-C.",
    ),
    "top": CommandModule(
        "top.top",
        "Show groups, topics, transactions and queries live, until q is pressed; ? lists the keys.",
    ),
    "kafka": CommandModule("kafka.kafka", "Serve the log to Kafka's clients, until Ctrl-C."),
    "vacuum": CommandModule(
        "commands.maintain",
        "Delete stored objects that nothing refers to. Without --execute it only shows them.",
    ),
}


class LazyCommands(MutableMapping[str, Any]):
    """Commands by name; each is imported at its first use."""

    def __init__(self) -> None:
        self._imported: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._imported:
            self._imported[name] = _imported(name, COMMANDS[name].module)
        return self._imported[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._imported[name] = command

    def __delitem__(self, name: str) -> None:
        del self._imported[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)

    @staticmethod
    def summaries() -> dict[str, Any]:
        """The commands with name and first line only, for the help."""
        return {name: TyperCommand(name, help=known.help) for name, known in COMMANDS.items()}


def _imported(name: str, module: str) -> Any:
    """The command of that name: a group's `app`, or one of the commands in it."""
    app: typer.Typer = importlib.import_module(f"txlog.cli.{module}").app
    # A module's Typer does not inherit the mode of the top group, which is set in main.py.
    app.rich_markup_mode = "markdown"
    group = typer.main.get_group(app)
    return group if group.name == name else group.commands[name]
