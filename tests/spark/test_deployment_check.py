"""`txlog doctor --spark` on executors that are processes of their own."""

import socket
from pathlib import Path

import pytest

from tests.logs.empty_log import empty_log
from tests.processes.command_line import run
from tests.spark.environment import QUICK_JVM, SPARK_ENVIRONMENT

CONF = {
    "spark.master": "local-cluster[2,1,1024]",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK_JVM,
    "spark.ui.enabled": "false",
}


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_driver_and_each_executor_tell_what_they_see_and_leave_nothing(tmp_path: Path) -> None:
    root = empty_log(tmp_path / "log")
    before = sorted(Path(root).rglob("*"))
    words = [word for item in CONF.items() for word in ("--conf", "=".join(item))]
    env = SPARK_ENVIRONMENT | {"SPARK_WORKER_DIR": str(tmp_path / "work")}
    secret = ("--storage-option", "durable=false")
    done = run("doctor", "--spark", *secret, "-o", "json", "--", *words, root=root, env=env)
    assert done.code == 0, done.out + done.err
    assert done.err == ""
    told = {(each["check"], len(each["where"])): each for each in done.json["checks"]}
    host = socket.gethostname()
    for name in ("Python", "packages", "txlog", "log", "write", "store's clock", "file system"):
        assert told[name, 1]["where"] == [f"driver {host}"]
        assert told[name, 2]["where"] == [f"executor {host}"] * 2
        assert told[name, 2]["status"] == "ok"
    assert [path for path in sorted(Path(root).rglob("*")) if path.is_file()] == [
        path for path in before if path.is_file()
    ]
