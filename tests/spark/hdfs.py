"""HDFS of Spark's Hadoop version on the loopback interface; `make servers` fetches its jars."""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from tests.source_tree import ROOT
from tests.spark.environment import JAVA

JARS = ROOT / ".servers" / "jars"
START_TIMEOUT_S = 120


@contextmanager
def hdfs(folder: Path) -> Iterator[str]:
    """Its URL: a name node and a data node, which keep their files in `folder`.

    Raises RuntimeError if it does not start.
    """
    folder.mkdir()
    details, log = folder / "details.json", folder / "server.log"
    own = [JARS / f"{name}.jar" for name in ("hadoop-client-minicluster", "junit-jupiter-api")]
    jars = ":".join(map(str, [*own, f"{Path(pyspark.__file__).parent}/jars/*"]))
    command = [JAVA or "java", "-Xmx300m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    command += [f"-Dtest.build.data={folder}", "-cp", jars]
    command += ["org.apache.hadoop.test.MiniDFSClusterManager", "-datanodes", "1", "-format"]
    command += ["-nnport", "0", "-writeDetails", str(details)]
    with log.open("wb") as output:
        server = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output)
    try:
        yield f"hdfs://127.0.0.1:{_port(server, details, log)}"
    finally:
        server.terminate()
        server.wait(START_TIMEOUT_S)
        shutil.rmtree(folder)


def _port(server: subprocess.Popen[bytes], details: Path, log: Path) -> int:
    deadline = time.monotonic() + START_TIMEOUT_S
    while server.poll() is None and time.monotonic() < deadline:
        try:
            return int(json.loads(details.read_text())["namenode_port"])
        except (OSError, ValueError):  # Not written yet, or half of it.
            time.sleep(0.1)
    raise RuntimeError(f"HDFS did not start: {log.read_text()[-2000:]}")
