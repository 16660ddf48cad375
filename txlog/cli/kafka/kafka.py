"""`txlog kafka`: Kafka's clients on a log."""

from __future__ import annotations

import asyncio
import importlib.util
import signal
from asyncio.sslproto import SSLProtocol
from contextlib import suppress
from typing import Annotated, cast

import typer

from txlog.cli.output.output import json_text
from txlog.cli.session import Output, Session, with_session
from txlog.clock import SystemEntropy
from txlog.distribution import install_command
from txlog.errors import UsageError

app = typer.Typer()

TLS_BUFFER_BYTES = 16 << 10


@app.command("kafka", epilog="Example: txlog kafka --root s3://bucket/log --listen 127.0.0.1:9092")
@with_session
def kafka(
    session: Session,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where Kafka's clients connect.")
    ] = "127.0.0.1:9092",
    advertise: Annotated[
        str | None,
        typer.Option(
            "--advertise", metavar="HOST:PORT", help="Where clients find it, if not there."
        ),
    ] = None,
    tls_cert: Annotated[
        str | None,
        typer.Option("--tls-cert", metavar="FILE", help="The certificate and its chain, in PEM."),
    ] = None,
    tls_key: Annotated[
        str | None, typer.Option("--tls-key", metavar="FILE", help="The certificate's key, in PEM.")
    ] = None,
    users: Annotated[
        str | None,
        typer.Option(
            "--users",
            metavar="FILE",
            help="Lines name:password; clients log in by PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.",
        ),
    ] = None,
    auto_create_topics: Annotated[
        bool,
        typer.Option(
            "--auto-create-topics/--no-auto-create-topics",
            help="Create a topic that a client names, as Kafka's auto.create.topics.enable.",
        ),
    ] = True,
    arrow_values: Annotated[
        bool,
        typer.Option(
            "--arrow-values",
            help="Serve topics with columns as Arrow IPC streams of one row, not as JSON.",
        ),
    ] = False,
) -> None:
    """Serve the log to Kafka's clients, until Ctrl-C.

    Any number may run: what is stored, decided and fenced is the log's. A log that does not exist
    is created. With -o json it prints its address, as an object a line.
    """
    if any(importlib.util.find_spec(name) is None for name in ("kafka", "aiokafka")):
        raise UsageError(
            f"Kafka's protocol needs kafka-python and aiokafka; run {install_command('kafka')}."
        )
    from txlog.kafka.security import Users, tls_context
    from txlog.kafka.server import Endpoint, KafkaServer

    if (tls_cert is None) is not (tls_key is None):
        raise UsageError("--tls-cert and --tls-key belong together; give both.")
    endpoint = Endpoint(
        listen,
        advertise,
        tls_context(tls_cert, tls_key) if tls_cert and tls_key else None,
        Users.read(users, SystemEntropy().token()) if users else None,
    )

    def ready(address: str) -> None:
        session.say(f"Serving Kafka's protocol at {address}")
        if session.options.output is Output.JSON:
            print(json_text({"bootstrap_servers": address}), flush=True)

    # Which asyncio keeps for each connection, otherwise 256 KB; a record of TLS has 16 KB.
    SSLProtocol.max_size = TLS_BUFFER_BYTES
    admin = session.admin(create=True)
    server = KafkaServer(
        admin, endpoint, creates_topics=auto_create_topics, arrow_values=arrow_values
    )

    async def serve() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, cast("asyncio.Task[None]", task).cancel)
        with suppress(asyncio.CancelledError):
            await server.run(ready)
        raise KeyboardInterrupt  # As every command ends that is interrupted.

    asyncio.run(serve())
