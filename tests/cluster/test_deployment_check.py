"""`txlog doctor --spark` on a cluster whose second worker lacks something."""

import socket
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.cluster import ADDRESSES, Cluster, namespace
from tests.logs.empty_log import empty_log
from tests.packaging.clean_install import python_without_txlog
from tests.processes.command_line import run
from tests.spark.environment import SPARK_ENVIRONMENT
from txlog.engine.connection import connect
from txlog.testing.s3_server import S3Server

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.extra,
    pytest.mark.spark,
    pytest.mark.s3,
    pytest.mark.slow,
    pytest.mark.timeout(900),
]

HERE = f"executor {socket.gethostname()}"


def failures(cluster: Cluster, server: S3Server, root: str) -> list[tuple[str, int]]:
    """(check, processes) of the checks that failed."""
    conf = {
        "spark.master": cluster.url,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.executor.cores": "1",
        "spark.executor.memory": "600m",
        "spark.cores.max": "2",
        "spark.ui.enabled": "false",
    }
    words = [word for item in conf.items() for word in ("--conf", "=".join(item))]
    env = SPARK_ENVIRONMENT | server.env
    done = run("doctor", "--spark", "-o", "json", "--", *words, root=root, env=env)
    assert done.out, done.err
    checks: list[dict[str, Any]] = done.json["checks"]
    (executors,) = [each for each in checks if each["check"] == "executors"]
    assert executors["found"] == f"2 at {cluster.url}"
    bad = [each for each in checks if each["status"] == "fail"]
    assert all(each["fix"] and set(each["where"]) == {HERE} for each in bad)
    assert done.code == bool(bad)
    return [(each["check"], len(each["where"])) for each in bad]


def test_executor_without_credentials_txlog_or_the_disk_is_told(tmp_path: Path) -> None:
    with (
        S3Server.start() as server,
        Cluster.start(tmp_path / "cluster", {}, workers=0) as cluster,
    ):
        connect(server.url("log"), create=True, storage_options=server.storage_options)
        cluster.start_worker(ADDRESSES[0], **server.env)
        worker = cluster.start_worker(ADDRESSES[1], AWS_EC2_METADATA_DISABLED="true")
        assert failures(cluster, server, server.url("log")) == [("log", 1)], worker.said()

        cluster.kill_worker(ADDRESSES[1])
        bare = {
            "PYTHONPATH": "",
            "TXLOG_TESTS_PYTHON": str(python_without_txlog(tmp_path / "bare")),
        }
        cluster.start_worker(ADDRESSES[1], **server.env, **bare)
        assert failures(cluster, server, server.url("log")) == [("txlog", 1)]

        cluster.kill_worker(ADDRESSES[1])
        cluster.start_worker(ADDRESSES[1], **server.env)
        assert failures(cluster, server, server.url("log")) == []
        if namespace():
            assert failures(cluster, server, empty_log(cluster.local / "log")) == [("log", 2)]
