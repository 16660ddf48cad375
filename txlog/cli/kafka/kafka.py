"""`txlog kafka`: Kafka's clients on a log."""

from __future__ import annotations

import asyncio
import importlib.util
import signal
from contextlib import suppress
from typing import Annotated, cast

import typer

from txlog.cli.output.output import json_text
from txlog.cli.session import Output, Session, with_session
from txlog.distribution import install_command
from txlog.errors import UsageError

app = typer.Typer()


@app.command("kafka", epilog="Example: txlog kafka --root s3://bucket/log --listen 127.0.0.1:9092")
@with_session
def kafka(
    session: Session,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where Kafka's clients connect.")
    ] = "127.0.0.1:9092",
    auto_create_topics: Annotated[
        bool,
        typer.Option(
            "--auto-create-topics/--no-auto-create-topics",
            help="Create a topic that a client names, as Kafka's auto.create.topics.enable.",
        ),
    ] = True,
) -> None:
    """Serve the log to Kafka's clients, until Ctrl-C.

    Any number may run: what is stored, decided and fenced is the log's. A log that does not exist
    is created. With -o json it prints its address, as an object a line.
    """
    if any(importlib.util.find_spec(name) is None for name in ("kafka", "aiokafka")):
        raise UsageError(
            f"Kafka's protocol needs kafka-python and aiokafka; run {install_command('kafka')}."
        )
    from txlog.kafka.server import KafkaServer

    def ready(address: str) -> None:
        session.say(f"Serving Kafka's protocol at {address}")
        if session.options.output is Output.JSON:
            print(json_text({"bootstrap_servers": address}), flush=True)

    server = KafkaServer(session.admin(create=True), listen, creates_topics=auto_create_topics)

    async def serve() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, cast("asyncio.Task[None]", task).cancel)
        with suppress(asyncio.CancelledError):
            await server.run(ready)
        raise KeyboardInterrupt  # As every command ends that is interrupted.

    asyncio.run(serve())
