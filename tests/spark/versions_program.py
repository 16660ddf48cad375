"""The program of docs/spark.md that writes versions; a test runs it as a user would, and kills it.

`python -m tests.spark.versions_program classic <folder>` runs it in a session of its own, which
serves Spark Connect until it is killed; `connect <folder>` runs it as a client of such a server.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from tests.docs.pages import Page
from tests.source_tree import ROOT
from tests.spark.session import small_session

PORT = "port"
DONE = "done"
"""Files in the program's folder: one has the server's port, one shows that the program has
ended."""

SERVER = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
}


def program() -> str:
    """The only program of the page with a version."""
    blocks = Page(ROOT / "docs" / "spark.md").blocks
    (found,) = [block.text for block in blocks if block.needs_spark and "txnVersion" in block.text]
    return found


def start_server(folder: Path) -> None:
    """A classic session, whose JVM is a server on the loopback interface."""
    jvm = small_session("versions", SERVER)._jvm
    assert jvm is not None
    service = getattr(jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
    port = folder / PORT
    port.with_suffix(".new").write_text(str(getattr(service, "MODULE$").server().getPort()))
    port.with_suffix(".new").rename(port)


def main(mode: str, folder: Path) -> None:
    """Run the program in that folder."""
    os.chdir(folder)
    if mode == "classic":
        start_server(folder)
    # As in a user's file: Spark Connect pickles functions of this module by value.
    exec(compile(program(), "program.py", "exec"), sys.modules["__main__"].__dict__)  # noqa: S102
    (folder / DONE).touch()
    while mode == "classic":
        time.sleep(1)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
