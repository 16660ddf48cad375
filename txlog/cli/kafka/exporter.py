"""`txlog export --bootstrap`: topics of the log into a Kafka cluster, each record once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from txlog.cli.kafka.librdkafka import client_settings, require_librdkafka
from txlog.cli.session import Session


def export_to_kafka(
    session: Session, topics: Sequence[str], bootstrap: str, config: Path | None, *, follow: bool
) -> None:
    """Copy the topics' records to their present ends; with `follow` go on until Ctrl-C."""
    require_librdkafka()
    from txlog.kafka.copying.exporting import KafkaExport

    target = {**client_settings(config), "bootstrap.servers": bootstrap}
    copy = KafkaExport(session.admin().connection, target, topics)
    records = 0
    try:
        copy.prepare()
        while follow or not copy.is_complete:
            records += copy.step()
    finally:
        copy.close()
    session.show({"records": records, "name": copy.name}, [])
    session.say(f"Copied {records} records.")
