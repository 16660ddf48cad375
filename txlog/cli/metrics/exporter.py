"""`txlog exporter`: a log's metrics for Prometheus."""

from __future__ import annotations

import importlib.util
import threading
from typing import Annotated

import typer

from txlog.cli.output.output import json_text
from txlog.cli.session import Output, Session, with_session
from txlog.client.admin.watched_log import WatchedLog
from txlog.distribution import install_command
from txlog.errors import UsageError

app = typer.Typer()

Listen = Annotated[
    str, typer.Option("--listen", metavar="HOST:PORT", help="Where Prometheus finds it.")
]


def require_prometheus() -> None:
    """Raises UsageError without the extra."""
    if importlib.util.find_spec("prometheus_client") is None:
        raise UsageError(f"metrics need prometheus-client; run {install_command('metrics')}.")


@app.command("exporter", epilog="Example: txlog exporter --listen 127.0.0.1:9308")
@with_session
def exporter(
    session: Session,
    listen: Listen = "127.0.0.1:9308",
    kafka_names: Annotated[
        bool,
        typer.Option("--kafka-names", help="Names as kafka_exporter has them: kafka_...."),
    ] = False,
    partitions: Annotated[
        bool | None,
        typer.Option(
            "--partitions/--no-partitions",
            help="A series for each partition, or sums only; by default up to 20,000 series.",
        ),
    ] = None,
) -> None:
    """Serve offsets, lag in records and seconds, and transactions to Prometheus, until Ctrl-C.

    It reads the log when it is scraped, and writes nothing. Any number may run. With -o json it
    prints its URL, as an object a line.
    """
    require_prometheus()
    from txlog.metrics.collector import LogCollector
    from txlog.metrics.server import serve_metrics

    prefix = "kafka" if kafka_names else "txlog"
    collector = LogCollector(WatchedLog(session.admin), prefix=prefix, partitions=partitions)
    url = serve_metrics(listen, [collector])
    session.say(f"Serving {url}")
    if session.options.output is Output.JSON:
        print(json_text({"url": url}), flush=True)
    threading.Event().wait()
