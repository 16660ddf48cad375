"""Every command of `txlog` with arguments that it accepts, and the log and files that they name."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import typer

from tests.logs.empty_log import empty_log
from tests.unit.cli.sample_log import sample_log
from tests.unit.client.half_messages.undecided_listener import Undecided
from txlog.cli.main import app
from txlog.client.consumer.consumer import Consumer
from txlog.client.half_messages.half_message import Message
from txlog.client.half_messages.transaction_mq_producer import TransactionMQProducer
from txlog.engine.connection import Connection
from txlog.model import TransactionOutcome

EMPTY = "--root {empty} "
"""In front of a case: the log without topics."""

DELETIONS = "--config staging.retention.ms=1 --config file.delete.delay.ms=1"

CASES: dict[str, tuple[str, ...]] = {
    "topic list": ("--offsets", "", EMPTY),
    "topic describe": ("orders", "flights"),
    "topic create": ("new -p 2", EMPTY + "first --schema 'a: int32'"),
    "topic config": ("orders", "orders retention.ms=1000"),
    "topic alter": ("orders -p 3", "flights --add-column 'gate: string'"),
    "topic delete": ("orders", "orders --execute"),
    "topic delete-records": ("orders --all", "orders -p 0 --before-offset 2 --execute"),
    "topic compact": ("orders", "orders --execute"),
    "group list": ("", EMPTY),
    "group describe": ("billing", "report"),
    "group lag": ("billing --since 1h", "report --since 10m --step 1m"),
    "group reset": (
        "report --all-topics --to-earliest",
        "report --all-topics --to-latest --execute",
        "report --topic orders --to-current",
        "report --topic orders --shift-by 900",
    ),
    "group delete": ("report", "report --execute"),
    "group delete-offsets": (
        "report --topic orders",
        "report --topic orders --execute",
        "report --topic flights",
    ),
    "txn list": ("", EMPTY, "--open", EMPTY + "--open", "--half", EMPTY + "--half"),
    "txn describe": ("late-job", "2-0-0", "0-0-0"),
    "txn abort": ("2-0-0", "2-0-0 --execute"),
    "txn describe-producers": ("orders 0", "flights 0", "half-messages.dead-letter 0"),
    "txn find-hanging": ("", "--max-transaction-timeout PT0S"),
    "txn outcome": ("2-0-0", "order-2"),
    "dlq list": ("", EMPTY, "-n 1"),
    "dlq show": ("0",),
    "dlq replay": ("", EMPTY, "--execute"),
    "consume": ("orders", "orders -p 1 --from 1", "flights", "orders --format json -n 1"),
    "produce": (
        "orders {lines}",
        "orders {empty_file}",
        "orders {json} --keep-partitions --transactional-id loader",
    ),
    "sql": (
        "'select * from orders'",
        "'select carrier, count(*) from flights group by all'",
        "'select * from orders where false'",
        "'select * from orders' --file {tmp}/x.csv",
    ),
    "export": (
        "orders --file {tmp}/x.csv",
        "orders flights --folder {tmp}",
        "orders --from 900 --file {tmp}/x.arrow",
    ),
    "doctor": ("", EMPTY, "--checkpoint {checkpoint}", "--spark"),
    "drill": ("--job {failing_job} --checkpoint {tmp}/none --kills 1",),
    "verify": ("", EMPTY, "--at-rest", "--topic orders"),
    "backup": ("--to {tmp}/copy", EMPTY + "--to {tmp}/copy"),
    "restore": ("--from {empty} --root {tmp}/copy",),
    "exporter": (),
    "ui": (),
    "top": (
        "--once",
        "--once --view topics --sort offsets",
        "--once --view transactions --filter order",
        EMPTY + "--once --view queries",
    ),
    "kafka": (),
    "import kafka": (),
    "maintain": ("--once --no-vacuum", "--once " + DELETIONS, EMPTY + "--once"),
    "vacuum": ("", EMPTY, DELETIONS, "--execute " + DELETIONS, EMPTY + "--execute"),
}  # fmt: skip

ENVIRONMENT = {"JAVA_HOME": "/nowhere", "PYSPARK_PYTHON": "/nowhere"}
"""So that `doctor` answers without starting Java or another Python."""


def commands(group: Any = None, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every command of the parser with its name: `topic list`, `doctor`, ..."""
    for name, found in (group or typer.main.get_group(app)).commands.items():
        if isinstance(found, typer.core.TyperGroup):
            yield from commands(found, f"{path}{name} ")
        else:
            yield f"{path}{name}", found


def words_of(name: str, case: str, places: Mapping[str, Path]) -> list[str]:
    """The words of one case."""
    return [*name.split(), *shlex.split(case.format_map(places))]


def make_logs(folder: Path) -> None:
    """The sample log, with a dead letter, an undecided half message and a group without owner; and
    an empty log."""
    log = sample_log(folder / "log")
    half = TransactionMQProducer(
        "shop", log.connection, listener=Undecided(), transaction_timeout_ms=1,
        transaction_check_interval_ms=1, transaction_check_max=1,
    )  # fmt: skip
    half.start(check_in_background=False)
    half.send_message_in_transaction([Message("orders", b"first")], None, transaction_id="order-1")
    while log.admin.outcome("order-1") is not TransactionOutcome.DEAD_LETTERED:
        half.check()
    half.send_message_in_transaction([Message("orders", b"second")], None, transaction_id="order-2")
    half.shutdown()
    _commit_report(log.connection)
    empty_log(folder / "empty")


def _commit_report(connection: Connection) -> None:
    with Consumer(
        "orders", root=connection, group_id="report", auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:  # fmt: skip
        consumer.poll(max_records=3)
        consumer.commit()


def places_of(made: Path, tmp_path: Path) -> dict[str, Path]:
    """What the cases name: copies of both logs, and files."""
    found = {
        "root": Path(shutil.copytree(made / "log", tmp_path / "log")),
        "empty": Path(shutil.copytree(made / "empty", tmp_path / "empty")),
        "tmp": tmp_path / "out",
        "checkpoint": tmp_path / "checkpoint",
    }
    for folder in ("tmp", "checkpoint"):
        found[folder].mkdir()
    texts = {
        "lines": "one\ntwo\n",
        "empty_file": "",
        "json": '{"partition": 1, "value": "x"}\n',
        "failing_job": "raise SystemExit(3)\n",
    }
    for name, text in texts.items():
        found[name] = tmp_path / f"{name}.{'json' if name == 'json' else 'txt'}"
        found[name].write_text(text)
    return found
