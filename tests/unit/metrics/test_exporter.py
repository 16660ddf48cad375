"""`txlog exporter` as Prometheus sees it: the real server, its text, and the real log behind it."""

import json
import re
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tests.conformance.test_simulated_s3 import Line
from tests.processes.command_line import PROCESS_TIMEOUT_S, command, environment, run
from tests.source_tree import ROOT
from txlog import Admin, Consumer, Producer, TopicPartition
from txlog.client.admin.watched_log import WatchedLog
from txlog.clock import Runtime
from txlog.engine.connection import open_connection
from txlog.errors import UsageError
from txlog.fan_out import SerialFanOut
from txlog.metrics.collector import LogCollector
from txlog.metrics.listening import is_loopback, parsed_listen
from txlog.metrics.maintenance import MaintenanceMetrics
from txlog.metrics.server import serve_metrics
from txlog.storage.s3.s3 import S3Store

LABELS = ("consumergroup", "topic", "partition", "outcome", "kind", "operation")
GROUP = 'group "x"\\ \U0001f600'


@pytest.fixture
def root(tmp_path: Path) -> str:
    """Five records in partition 0 of two, of which the group has read two."""
    root = str(tmp_path / "log")
    Admin(root, create=True).create_topic("orders", 2)
    put(root, 5)
    with Consumer(root=root, group_id=GROUP, enable_auto_commit=False) as consumer:
        consumer.commit({TopicPartition("orders", 0): 2})
    return root


def put(root: str, count: int) -> None:
    with Producer(root) as producer:
        for _ in range(count):
            producer.send("orders", b"x", partition=0)


def scraped(text: str) -> dict[tuple[str, ...], float]:
    """(name, labels' values in the order of LABELS) -> value."""
    return {
        (sample.name, *(sample.labels[n] for n in LABELS if n in sample.labels)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def text_of(collector: LogCollector) -> str:
    registry = CollectorRegistry()
    registry.register(collector)
    return generate_latest(registry).decode()


@contextmanager
def exporter(*words: str) -> Iterator[str]:
    """The URL of a command that serves, ended by Ctrl-C."""
    with subprocess.Popen(
        command(*words), stderr=subprocess.PIPE, env=environment(), text=True
    ) as process:
        assert process.stderr is not None
        found = re.search(r"Serving (\S+)", process.stderr.readline())
        assert found
        yield found[1]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PROCESS_TIMEOUT_S)
    assert process.returncode == 130


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=PROCESS_TIMEOUT_S) as answer:
        return str(answer.read().decode())


def test_each_scrape_shows_the_log_as_it_is_then(root: str) -> None:
    with exporter("--root", root, "exporter", "--listen", "127.0.0.1:0") as url:
        first = scraped(get(url))
        put(root, 3)
        second = scraped(get(url))
    assert first["txlog_up",] == 1
    assert first["txlog_topic_partitions", "orders"] == 2
    assert first["txlog_topic_partition_current_offset", "orders", "0"] == 5
    assert first["txlog_topic_partition_oldest_offset", "orders", "0"] == 0
    assert first["txlog_consumergroup_current_offset", GROUP, "orders", "0"] == 2
    assert first["txlog_consumergroup_lag", GROUP, "orders", "0"] == 3
    assert first["txlog_consumergroup_lag_sum", GROUP, "orders"] == 3
    assert first["txlog_consumergroup_lag_seconds", GROUP, "orders", "0"] > 0
    assert first["txlog_consumergroup_lag_seconds_max", GROUP, "orders"] > 0
    assert ("txlog_consumergroup_current_offset", GROUP, "orders", "1") not in first
    assert second["txlog_topic_partition_current_offset", "orders", "0"] == 8
    assert second["txlog_consumergroup_lag", GROUP, "orders", "0"] == 6


def test_open_transactions_and_decisions_are_counted(root: str) -> None:
    admin = Admin(root)
    collector = LogCollector(WatchedLog(lambda: admin))
    with Producer(root, transactional_id="p", transaction_records="in.log") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("orders", b"x")
        producer.flush()
        found = scraped(text_of(collector))
        assert found["txlog_transactions_open",] == 1
        assert found["txlog_transaction_oldest_open_seconds",] > 0
        producer.abort_transaction()
        for _ in range(2):
            with producer.transaction():
                producer.send("orders", b"x")
    found = scraped(text_of(collector))
    assert found["txlog_transactions_open",] == 0
    assert found["txlog_transaction_oldest_open_seconds",] == 0
    assert found["txlog_transactions_total", "COMMITTED"] == 2
    assert found["txlog_transactions_total", "ABORTED"] == 1


def test_names_of_kafka_exporter_on_demand(root: str) -> None:
    found = scraped(text_of(LogCollector(WatchedLog(partial(Admin, root)), prefix="kafka")))
    assert found["kafka_consumergroup_lag", GROUP, "orders", "0"] == 3
    assert found["kafka_consumergroup_current_offset", GROUP, "orders", "0"] == 2
    assert found["kafka_topic_partition_current_offset", "orders", "0"] == 5
    assert found["kafka_topic_partition_oldest_offset", "orders", "0"] == 0
    assert found["txlog_consumergroup_lag_seconds", GROUP, "orders", "0"] > 0


def test_sums_alone_without_partitions_and_for_too_many(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sums_only = scraped(text_of(LogCollector(WatchedLog(partial(Admin, root)), partitions=False)))
    monkeypatch.setattr("txlog.metrics.collector.SERIES_MAX", 3)
    too_many = scraped(text_of(LogCollector(WatchedLog(partial(Admin, root)))))
    for found in (sums_only, too_many):
        assert found["txlog_consumergroup_lag_sum", GROUP, "orders"] == 3
        assert not any("partition_" in name or name.endswith("_lag") for name, *_ in found)
    asked = scraped(text_of(LogCollector(WatchedLog(partial(Admin, root)), partitions=True)))
    assert ("txlog_consumergroup_lag", GROUP, "orders", "0") in asked


def of_bucket(line: Line) -> LogCollector:
    runtime = Runtime(line.clock, fan_out=SerialFanOut())
    store = S3Store("bucket", "log", runtime, requests=line)
    admin = Admin(open_connection(store, runtime, create=True))
    return LogCollector(WatchedLog(lambda: admin))


def test_requests_of_the_exporter_to_a_bucket_are_counted() -> None:
    line = Line()
    found = scraped(text_of(of_bucket(line)))
    for operation in ("get", "put", "list", "delete"):
        sent = sum(request.method.startswith(operation) for request in line.sent)
        assert found["txlog_store_requests_total", operation.upper()] == sent
    assert found["txlog_store_requests_total", "GET"] > 0


def test_log_that_is_gone_is_down_and_the_server_lives(root: str) -> None:
    collector = LogCollector(WatchedLog(partial(Admin, root)))
    shutil.move(root, f"{root}-away")
    assert scraped(text_of(collector)) == {("txlog_up",): 0}
    shutil.move(f"{root}-away", root)
    assert scraped(text_of(collector))["txlog_up",] == 1


def test_maintenance_serves_its_passes(root: str) -> None:
    with exporter(
        "--root", root, "maintain", "--interval-ms", "100000", "--listen", "127.0.0.1:0"
    ) as url:
        while not (found := scraped(get(url)))["txlog_maintenance_passes_total",]:
            pass
    assert found["txlog_maintenance_last_success_timestamp_seconds",] > 1e9
    assert found["txlog_maintenance_failures_total",] == 0


def test_failed_pass_is_no_success() -> None:
    metrics = MaintenanceMetrics()
    metrics.count_pass(5_000, 0)
    metrics.count_pass(9_000, 2)
    values = {sample.name: sample.value for m in metrics.collect() for sample in m.samples}
    assert values["txlog_maintenance_last_success_timestamp_seconds"] == 5
    assert values["txlog_maintenance_failures_total"] == 2
    assert values["txlog_maintenance_passes_total"] == 2


@pytest.mark.parametrize(
    "text",
    ["9308", "host", ":9308", "h:x", "h:70000", "h:-1", "h:\N{ARABIC-INDIC DIGIT THREE}", ""],
)
def test_bad_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="write HOST:PORT"):
        parsed_listen(text)


def test_port_in_use_says_so_before_anything_is_served(root: str) -> None:
    url = serve_metrics("127.0.0.1:0", [])
    address = url.removeprefix("http://").removesuffix("/metrics")
    done = run("exporter", "--listen", address, root=root)
    assert (done.code, done.out) == (2, "")
    assert "Choose another port" in done.err


def test_other_machines_are_warned_of(root: str, caplog: pytest.LogCaptureFixture) -> None:
    assert [is_loopback(h) for h in ("127.0.0.9", "::1", "localhost", "0.0.0.0", "example")] == [
        True, True, True, False, False,
    ]  # fmt: skip
    serve_metrics("127.0.0.1:0", [])
    assert caplog.records == []
    serve_metrics("0.0.0.0:0", [])
    assert "other machines see" in caplog.text


def test_maintain_once_has_nothing_to_serve(root: str) -> None:
    done = run("maintain", "--once", "--listen", "127.0.0.1:0", root=root)
    assert (done.code, "leave --once out" in done.err) == (2, True)


def test_dashboard_and_alerts_ask_for_names_that_are_exported(root: str) -> None:
    dashboard = json.loads((ROOT / "docs" / "grafana" / "txlog.json").read_text())
    page = (ROOT / "docs" / "operations.md").read_text()
    alerts = set(re.findall(r"txlog_\w+", page)) - {"txlog_job"}
    assert len(alerts) >= 5
    asked = alerts | {
        name
        for panel in dashboard["panels"]
        for target in panel["targets"]
        for name in re.findall(r"txlog_\w+", target["expr"])
    }
    registry = CollectorRegistry()
    registry.register(LogCollector(WatchedLog(partial(Admin, root))))
    registry.register(of_bucket(Line()))
    registry.register(MaintenanceMetrics())
    exported = {name for name, *_ in scraped(generate_latest(registry).decode())}
    assert asked <= exported
    assert len(asked) >= 10
