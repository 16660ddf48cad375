"""Storage options of the command line reach the store, and their values are never printed."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from spark_plugin.drill import numbers_job
from tests.processes.command_line import run
from tests.unit.cli.sample_log import SampleLog
from txlog.cli.options.storage_options import VARIABLE, storage_options
from txlog.cli.session import GlobalOptions
from txlog.errors import InvalidOption

SECRET = "hu5hhu5h"


@pytest.mark.parametrize(
    ("given", "variable", "found"),
    [
        ([], "", {}),
        (["a=1"], "", {"a": "1"}),
        (["a=true", "b=false", "c=null"], "", {"a": True, "b": False, "c": None}),
        (["a=x=y"], "", {"a": "x=y"}),
        (["a="], "", {"a": ""}),
        (['a={"b": 2}'], "", {"a": {"b": 2}}),
        (["a.b=2", "a.c=3"], "", {"a": {"b": "2", "c": "3"}}),
        (["a.b=2"], '{"a": {"c": 3}, "d": 4}', {"a": {"b": "2", "c": 3}, "d": 4}),
        (["a=1"], '{"a": 2}', {"a": "1"}),
    ],
)
def test_options_from_arguments_and_variable_are_merged(
    given: list[str], variable: str, found: dict[str, object]
) -> None:
    assert storage_options(given, {VARIABLE: variable}) == found


def test_variable_may_name_a_file_that_holds_the_options(tmp_path: Path) -> None:
    file = tmp_path / "storage.json"
    file.write_text(json.dumps({"secret": SECRET}))
    assert storage_options(["key=k"], {VARIABLE: f"@{file}"}) == {"secret": SECRET, "key": "k"}


@pytest.mark.parametrize(
    ("given", "variable"),
    [
        ([SECRET], ""),
        ([f"={SECRET}"], ""),
        ([f".a={SECRET}"], ""),
        ([f"a={{{SECRET}"], ""),
        ([], SECRET),
        ([], f'["{SECRET}"]'),
        ([], f'{{"secret": "{SECRET}'),
        ([], "@/no/such/file"),
    ],
)
def test_invalid_option_error_does_not_reveal_the_value(given: list[str], variable: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        storage_options(given, {VARIABLE: variable})
    assert SECRET not in f"{caught.value} {caught.value.facts}"
    words = [word for text in given for word in ("--storage-option", text)]
    done = run(*words, "topic", "list", "-v", root="/nowhere", env={VARIABLE: variable})
    assert done.code == 2
    assert SECRET not in done.out + done.err
    assert "--storage-option" in done.err or VARIABLE in done.err


def test_options_before_and_after_the_command_reach_the_store(log: SampleLog) -> None:
    assert run("--storage-option", "durable=false", "topic", "list", root=log.root).code == 0
    wrong = run("topic", "list", "--storage-option", f"durabel={SECRET}", root=log.root)
    assert (wrong.code, SECRET in wrong.err) == (2, False)
    assert "no storage option 'durabel'" in wrong.err
    both = run(
        *("--storage-option", "durable=false", "topic", "list"),
        *("--storage-option", "nonsense=1"),
        root=log.root,
    )
    assert "no storage option 'nonsense'" in both.err


@pytest.mark.parametrize(
    "words",
    [
        ("topic", "list"),
        ("topic", "create", "x"),
        ("group", "list"),
        ("txn", "list"),
        ("consume", "orders"),
        ("produce", "orders", "/dev/null"),
        ("export", "orders", "--folder", "/tmp"),
        ("verify",),
        ("maintain", "--once"),
        ("vacuum",),
        ("backup", "--to", "/nowhere"),
        ("restore", "--from", "/nowhere"),
        ("dlq", "list"),
        ("doctor", "--checkpoint", "/nowhere"),
        ("drill",),
    ],
)
def test_every_command_passes_storage_options_to_the_store(
    words: tuple[str, ...], log: SampleLog
) -> None:
    done = run(*words, root=log.root, env={VARIABLE: '{"nonsense": 1}'})
    assert done.code == 2
    assert "no storage option 'nonsense'" in done.err


def test_doctor_passes_storage_options_to_the_store(log: SampleLog) -> None:
    variables = {VARIABLE: '{"nonsense": 1}', "JAVA_HOME": "/nowhere"}
    done = run("doctor", "-o", "json", root=log.root, env=variables)
    (store,) = (check for check in done.json["checks"] if check["check"] == "store")
    assert "no storage option 'nonsense'" in store["found"]


def test_storage_options_are_not_in_repr_of_global_options() -> None:
    assert SECRET not in repr(GlobalOptions(storage_option=(f"secret={SECRET}",)))


def test_drilled_job_reads_storage_options_from_its_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = {"endpoint_url": "http://x", "anon": True, "client_kwargs": {"a": "B"}}
    monkeypatch.setenv(VARIABLE, json.dumps(options))
    assert numbers_job.storage_options() == {
        "storage.endpoint_url": "http://x",
        "storage.anon": "true",
        "storage.client_kwargs": '{"a": "B"}',
    }
    monkeypatch.delenv(VARIABLE)
    assert numbers_job.storage_options() == {}


class Recorder(BaseHTTPRequestHandler):
    """An S3 service without objects that keeps the headers of its requests."""

    headers_seen: list[dict[str, str]]

    def do_GET(self) -> None:
        self.headers_seen.append({name.lower(): value for name, value in self.headers.items()})
        body = b"<Error><Code>NoSuchKey</Code></Error>"
        self.send_response(404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *values: object) -> None:
        pass


@contextmanager
def recording_service() -> Iterator[tuple[str, list[dict[str, str]]]]:
    seen: list[dict[str, str]] = []
    handler = type("Handler", (Recorder,), {"headers_seen": seen})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", seen
        server.shutdown()


def test_sse_customer_key_options_are_sent_as_request_headers() -> None:
    key = "k" * 32
    with recording_service() as (endpoint, seen):
        done = run(
            *("topic", "list", "--storage-option", f"endpoint_url={endpoint}"),
            *("--storage-option", "s3_additional_kwargs.SSECustomerAlgorithm=AES256"),
            root="s3://bucket/log",
            env={
                VARIABLE: json.dumps(
                    {"key": "a", "secret": SECRET, "s3_additional_kwargs": {"SSECustomerKey": key}}
                )
            },
        )
    assert done.code == 3, done.err
    assert SECRET not in done.out + done.err
    assert key not in done.out + done.err
    name = "x-amz-server-side-encryption-customer"
    assert seen[0][f"{name}-algorithm"] == "AES256"
    assert seen[0][f"{name}-key"]
