"""`txlog import kafka`: topics of a Kafka cluster, each record once, and groups to the record."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from txlog.cli.kafka.librdkafka import client_settings, require_librdkafka
from txlog.cli.session import Session, with_session

app = typer.Typer(
    name="import", no_args_is_help=True, help="Copy topics of a Kafka cluster into the log."
)

EXAMPLES = """Examples:

txlog import kafka --bootstrap broker:9092 --topics orders,payments --groups billing

txlog import kafka --bootstrap broker:9092 --topics orders --follow
"""

_BETWEEN_GROUPS_MS = 5_000.0


@app.callback()
def importing() -> None:
    """Copy topics of a Kafka cluster into the log."""


@app.command("kafka", epilog=EXAMPLES)
@with_session
def import_kafka(
    session: Session,
    bootstrap: Annotated[
        str, typer.Option("--bootstrap", metavar="HOST:PORT,...", help="Kafka's brokers.")
    ],
    topics: Annotated[str, typer.Option("--topics", metavar="NAME,...", help="Topics to copy.")],
    groups: Annotated[
        str | None,
        typer.Option("--groups", metavar="NAME,...", help="Groups whose offsets to copy."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with records to come, until Ctrl-C.")
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(
            "--command-config", metavar="FILE", help="Settings of the client, such as SASL's."
        ),
    ] = None,
) -> None:
    """Copy topics of a Kafka cluster into the log, each record once, and groups' offsets.

    It may be killed at any time, and goes on where it was. A topic keeps its name and partitions,
    and nothing else may write to it meanwhile. Groups are at the same record here.
    """
    require_librdkafka()
    from txlog.kafka.copying.importing import KafkaImport

    source = {**client_settings(config), "bootstrap.servers": bootstrap}
    admin = session.admin(create=True)
    copy = KafkaImport(admin, source, _names(topics), _names(groups or ""))
    clock = admin.connection.runtime.clock
    records, groups_ms = 0, clock.monotonic_ms()
    try:
        copy.prepare()
        while follow or not copy.is_complete:
            records += copy.step()
            if follow and clock.monotonic_ms() - groups_ms > _BETWEEN_GROUPS_MS:
                copy.copy_groups()
                groups_ms = clock.monotonic_ms()
        copy.copy_groups()
    finally:
        copy.close()
    session.show({"records": records, "name": copy.name}, [])
    session.say(f"Copied {records} records.")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
