"""`txlog ui`: a page over the log."""

from __future__ import annotations

import importlib.util
from typing import Annotated

import typer

from txlog.cli.output.output import json_text
from txlog.cli.session import Output, Session, with_session
from txlog.client.admin.watched_log import WatchedLog
from txlog.distribution import install_command
from txlog.errors import UsageError

app = typer.Typer()


@app.command("ui", epilog="Example: txlog ui --listen 127.0.0.1:9310")
@with_session
def ui(
    session: Session,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where the page is.")
    ] = "127.0.0.1:9310",
) -> None:
    """Show the log on a page: groups, topics, transactions, queries, storage, until Ctrl-C.

    It prints the URL, which has a token: without it nothing is shown. It only reads; where
    something should be done it shows the command. With -o json it prints the URL as an object a
    line.
    """
    if any(importlib.util.find_spec(name) is None for name in ("starlette", "uvicorn")):
        raise UsageError(f"the page needs Starlette and uvicorn; run {install_command('ui')}.")
    from txlog.ui.server import PageServer

    server = PageServer(WatchedLog(session.admin), listen)
    is_json = session.options.output is Output.JSON
    # To stdout: messages show no secrets, and this one is needed.
    print(json_text({"url": server.url}) if is_json else server.url, flush=True)
    server.run()
