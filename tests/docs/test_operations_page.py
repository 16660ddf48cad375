"""The services of docs/operations.md run as the page has them, and end when they are asked to.

The commands of the page are run with their arguments; only the log's place and the port are those
of the test.
"""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from tests.docs.pages import Page
from tests.logs.empty_log import empty_log
from tests.processes.command_line import PROCESS_TIMEOUT_S, command, environment, run
from tests.source_tree import ROOT
from txlog import Admin, Consumer, Producer
from txlog.errors import NotATxlog

pytestmark = pytest.mark.slow

PAGE = Page(ROOT / "docs" / "operations.md")
ROOT_ON_PAGE = "s3://bucket/log"
GRACE_S = 30
"""Kubernetes' terminationGracePeriodSeconds, unless a manifest has another one."""
FIRST_PROCESS = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child")


def unit() -> Mapping[str, str]:
    """The section [Service] of the page's unit."""
    (text,) = (block.text for block in PAGE.blocks if block.info == "ini")
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(text)
    return parser["Service"]


def manifests() -> dict[str, Any]:
    """Kind -> the page's manifest."""
    found = [yaml.safe_load(block.text) for block in PAGE.blocks if block.info == "yaml"]
    return {manifest["kind"]: manifest for manifest in found}


def container(kind: str) -> Any:
    spec = manifests()[kind]["spec"]
    pod = spec["jobTemplate"]["spec"] if kind == "CronJob" else spec
    (found,) = pod["template"]["spec"]["containers"]
    return found


def words_of(line: Sequence[str], root: Path) -> list[str]:
    """The installed command in place of the page's, on this log and a free port."""
    program, *words = line
    assert Path(program).name == "txlog"
    own = [str(root) if word == ROOT_ON_PAGE else re.sub(r":\d+$", ":0", word) for word in words]
    return command(*own)


def as_first_process(line: Sequence[str]) -> list[str]:
    """The command as the first process of a container, whose kernel ignores signals that it does
    not handle; as any other process, on a system that refuses it."""
    asked = subprocess.run([*FIRST_PROCESS, "true"], capture_output=True, check=False)
    return [*FIRST_PROCESS, *line] if asked.returncode == 0 else list(line)


@contextmanager
def service(line: Sequence[str], **variables: str) -> Iterator[tuple[str, Callable[[], int]]]:
    """A command that serves: its URL, and what ends it by SIGTERM and returns its exit code."""
    with subprocess.Popen(
        line, env=environment(**variables), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        found = None
        while found is None:  # Another address than loopback is warned of first.
            said = process.stderr.readline()
            assert said, "it has ended"
            found = re.search(r"Serving http://[^:/]+:(\d+)", said)

        def end() -> int:
            children = psutil.Process(process.pid).children()
            (children[0] if children else process).send_signal(signal.SIGTERM)
            return process.wait(GRACE_S)

        try:
            yield f"http://127.0.0.1:{found[1]}", end
        finally:
            process.kill()


def answer(url: str) -> tuple[int, str]:
    with urllib.request.urlopen(url, timeout=PROCESS_TIMEOUT_S) as found:
        return found.status, found.read().decode()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = Path(empty_log(tmp_path / "log"))
    Admin(str(root)).create_topic("orders")
    with Producer(str(root)) as producer:
        producer.send("orders", b"x")
    return root


def test_unit_runs_maintenance_until_it_is_stopped_and_that_is_no_failure(root: Path) -> None:
    line = words_of(shlex.split(unit()["ExecStart"]), root)
    with service(line, TXLOG_ROOT=str(root)) as (url, end):
        assert "txlog_maintenance_passes_total" in answer(f"{url}/metrics")[1]
        assert end() == int(unit()["SuccessExitStatus"])
    assert run("verify", root, "--at-rest").code == 0


def test_cron_job_makes_one_pass_and_fails_if_a_task_fails(root: Path) -> None:
    line = words_of(container("CronJob")["command"], root)
    done = subprocess.run(line, env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, "fail" in done.stdout) == (0, False)
    for journal in (root / "topics" / "orders").rglob("*"):
        if journal.is_file():
            journal.write_bytes(b"damaged")
    failed = subprocess.run(line, env=environment(), capture_output=True, text=True, check=False)
    assert failed.returncode == 1
    assert "orders" in failed.stdout + failed.stderr


def test_deployment_is_alive_by_its_probe_and_ends_within_the_grace(root: Path) -> None:
    found = container("Deployment")
    probe, (port,) = found["livenessProbe"]["httpGet"], found["ports"]
    assert port == {"name": probe["port"], "containerPort": 9308}
    assert f":{port['containerPort']}" in found["command"][-1]
    spec = manifests()["Deployment"]["spec"]
    assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    with service(as_first_process(words_of(found["command"], root))) as (url, end):
        assert answer(url + probe["path"])[0] == 200
        assert "txlog_up 1.0" in answer(f"{url}/metrics")[1]
        assert end() == 130


def test_backup_beside_a_writer_is_restored_and_verified_and_the_stale_writer_refused(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the commands of docs/maintenance.md, as they are."""
    page = Page(ROOT / "docs" / "maintenance.md")
    (lines,) = (block.text for block in page.blocks if "txlog backup" in block.text)
    admin, is_over, written = Admin(str(root)), threading.Event(), threading.Event()
    admin.create_topic("payments")
    producer = Producer(str(root), transactional_id="shop")
    producer.init_transactions()

    def write() -> None:
        while not is_over.is_set():
            with producer.transaction():
                for topic in ("orders", "payments"):
                    producer.send(topic, b"sold")
            written.set()

    writer = threading.Thread(target=write)
    writer.start()
    assert written.wait(PROCESS_TIMEOUT_S)
    monkeypatch.chdir(tmp_path)
    try:
        for line in lines.splitlines():
            done = run(*shlex.split(line)[1:], env={"TXLOG_ROOT": str(root)})
            assert done.code == 0, done.err
    finally:
        is_over.set()
        writer.join()
    restored = tmp_path / "restored"
    orders, payments = (count(restored, name) for name in ("orders", "payments"))
    assert orders - 1 == payments >= 1
    shutil.move(root, tmp_path / "lost")
    shutil.move(restored, root)
    producer.begin_transaction()
    producer.send("orders", b"stale")
    with pytest.raises(NotATxlog):
        producer.commit_transaction()
    assert count(root, "orders") == orders


def count(root: Path, topic: str) -> int:
    with Consumer(topic, root=str(root), auto_offset_reset="earliest") as consumer:
        return len(list(consumer.read_to_end()))
