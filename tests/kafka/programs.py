"""Kafka's own programs, each in a JVM of its own, from the jars that `make kafka` fetches."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.source_tree import ROOT

MARKS = [pytest.mark.kafka, pytest.mark.extra, pytest.mark.slow, pytest.mark.timeout(300)]
"""Of each file with tests that start Kafka's programs."""

JARS = ROOT / ".servers" / "kafka"
"""Folders `kafka` and `spark`."""
TIMEOUT_S = 120

TOOLS = "org.apache.kafka.tools."


def java(program: str, *arguments: object) -> list[str]:
    """The command that runs a class of Kafka."""
    home = os.environ.get("JAVA_HOME")
    executable = str(Path(home, "bin/java")) if home else "java"
    options = (
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-Xmx512m",
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-Xshare:auto",
    )
    return [executable, *options, "-cp", f"{JARS}/kafka/*", program, *map(str, arguments)]


def ran(program: str, *arguments: object, stdin: str = "") -> str:
    """Run one of Kafka's tools to its end, and return what it printed."""
    done = subprocess.run(
        java(TOOLS + program, *arguments),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert not done.returncode, f"{program}: {done.stdout}\n{done.stderr}"
    return done.stdout
