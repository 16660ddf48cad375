"""No form of a secret is printed, raised or stored, however it enters."""

import json
import pickle
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bad_input.test_places import CarelessFileSystem
from tests.conformance.test_generic import LinkedFileSystem
from tests.processes.command_line import run
from txlog.cli.doctor.check import failed, failed_with, passed, warned
from txlog.cli.drill.drill_report import DrillResult, document, html_report, repeat_command
from txlog.cli.exit_codes import run_to_exit_code
from txlog.cli.session import GlobalOptions, Session
from txlog.client.admin import Admin
from txlog.clock import Runtime
from txlog.errors import StoreDenied, StoreNotAtomic, TxlogError, UsageError
from txlog.redaction import (
    _BARE_USER,
    _NAME_PARTS,
    _NAMED,
    _OPTION,
    _SHAPE_PARTS,
    _SHAPES,
    _USER_INFO,
    HIDDEN,
    may_match,
    redact,
    redact_arguments,
    redact_url,
)
from txlog.storage import open_store

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJlLWhlcmU"
AWS_SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYzEXAMPLE09"
ACCESS_KEY = "AKIA" + "Q3EGRIJZ7XW2MNBV"

FORMS = [
    # (a text with a secret, the secret)
    ("sftp://me:hu5h@host/log", "hu5h"),
    ("sftp://me:h@u5h@host/log", "u5h"),
    ("sftp:/me:hu5h@host/log", "hu5h"),
    ("sftp://:hu5h@host:22/log", "hu5h"),
    ("s3://AK:hu5h/x+y@bucket/log", "hu5h"),
    ("https://hu5h@host/x", "hu5h"),
    ("me:hu5h@db.example.com", "hu5h"),
    ("me:hu5h@localhost", "hu5h"),
    ("jdbc:oracle:thin:scott/hu5h@db.example.com:1521", "hu5h"),
    ("jdbc:postgresql://h/db?user=me&password=hu5h&ssl=on", "hu5h"),
    ("https://a.blob.core.windows.net/c?sv=2024&sig=hu5h%3D&se=1", "hu5h"),
    ("https://b.s3.amazonaws.com/k?X-Amz-Credential=x&X-Amz-Signature=hu5h", "hu5h"),
    ("https://b.s3.amazonaws.com/k?X-Amz-Security-Token=hu5h", "hu5h"),
    ("https://storage.googleapis.com/b/k?GoogleAccessId=x&Signature=hu5h", "hu5h"),
    ("https://host/#access_token=hu5h", "hu5h"),
    ("--conf spark.hadoop.fs.s3a.secret.key=hu5h", "hu5h"),
    ("spark.hadoop.fs.s3a.access.key=hu5h", "hu5h"),
    ("fs.azure.account.key.acc.dfs.core.windows.net=hu5h", "hu5h"),
    ("fs.azure.sas.container.account=hu5h", "hu5h"),
    ("spark.ssl.keyPassword=hu5h", "hu5h"),
    ("AWS_SECRET_ACCESS_KEY=hu5h", "hu5h"),
    ("export AWS_SESSION_TOKEN='hu5h hu5h'", "hu5h"),
    ("PGPASSWORD=hu5h psql", "hu5h"),
    ('{"key": "AK", "secret": "hu5h"}', "hu5h"),
    ('{"client_kwargs": {"aws_secret_access_key": "hu5h"}}', "hu5h"),
    (r"{\"secret\": \"hu5h\"}", "hu5h"),
    ("{'token': 'hu5h', 'anon': False}", "hu5h"),
    ('{"sse_customer_key":"hu5h"}', "hu5h"),
    ("--password hu5h", "hu5h"),
    ("--password=hu5h", "hu5h"),
    ("--db-pass hu5h", "hu5h"),
    ("-Dpassword=hu5h", "hu5h"),
    ("--token 'hu5h hu5h'", "hu5h"),
    ("Authorization: Bearer hu5h", "hu5h"),
    ("authorization=Basic aHU1aA==", "aHU1aA"),
    ("sent Bearer hu5hhu5hhu5h", "hu5h"),
    ("password: hu5h", "hu5h"),
    ("DefaultEndpointsProtocol=https;AccountName=x;AccountKey=hu5h==;E=c", "hu5h"),
    ("Endpoint=sb://x/;SharedAccessKeyName=n;SharedAccessKey=hu5h", "hu5h"),
    ("Server=x;Uid=me;Pwd=hu5h;", "hu5h"),
    ("Set-Cookie: hu5h", "hu5h"),
    ("client_secret = hu5h", "hu5h"),
    ("api-key=hu5h", "hu5h"),
    (f"found {ACCESS_KEY} there", ACCESS_KEY),
    (f"found {AWS_SECRET} there", AWS_SECRET),
    (f"found {JWT} there", JWT[-12:]),
    ("found ghp_abcdefghijklmnopqrstuvwxyz0123456789 there", "abcdefghij"),
    ("found xoxb-1234567890-abcdefghijkl there", "1234567890"),
    ("-----BEGIN RSA PRIVATE KEY-----\nMIIhu5h\n-----END RSA PRIVATE KEY-----", "MIIhu5h"),
]

PLAIN = [
    "there is no topic 'orders' in s3://bucket/log. Create it with 'txlog topic create orders'.",
    "http://127.0.0.1:9000/bucket/prefix",
    "abfss://container@account.dfs.core.windows.net/log",
    "segment topics/small/e530b13d62e4e7c2/segments/01a2008ea168df3f98e7033e6e12d9a1.arrow",
    "config 'key.column' is 'carrier'; message.timestamp.type=CreateTime",
    "txlog group reset sorter --topic orders:0 --to-offset 800 --execute",
    "/srv/Data2026/teams/Billing/orders/log/part1",
    "the record with key=b'bob' at 2026-11-21T21:37:11.181Z",
    "option 'storage.secret' does not exist",
]

USER_INFO = "linked://me:hu5h@"
"""In front of an absolute path: a password in a URL, as users write it for fsspec's protocols."""


@pytest.fixture
def secret_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A root with a password in its URL, on a file system that accepts it."""

    class WithUser(LinkedFileSystem):
        protocol = "linked"

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            return str(super()._strip_protocol(path.replace("me:hu5h@", "").partition("?")[0]))

    fsspec.register_implementation("linked", WithUser, clobber=True)
    yield f"{USER_INFO}{tmp_path}/log"
    fsspec.register_implementation("linked", LinkedFileSystem, clobber=True)


@pytest.mark.parametrize(("text", "secret"), FORMS)
def test_secret_is_hidden_in_errors_and_printed_output(
    text: str, secret: str, capsys: pytest.CaptureFixture[str]
) -> None:
    error = UsageError(f"the call was {text}\nand failed.", given=text, number=3)
    again = pickle.loads(pickle.dumps(error))
    for it in (error, again):
        assert secret not in f"{it} {it!r} {it.message} {it.facts}"
        assert it.facts["number"] == 3

    def fail(raised: Exception) -> None:
        raise raised

    for raised in (error, ValueError(text), OSError(5, text)):
        for as_json in (False, True):
            run_to_exit_code(lambda raised=raised: fail(raised), as_json=as_json)
    Session(GlobalOptions()).say(text)
    out, err = capsys.readouterr()
    assert err.count(HIDDEN) >= 7
    assert secret not in out + err


@pytest.mark.parametrize(("text", "secret"), FORMS)
def test_secret_is_hidden_in_doctor_and_drill_reports(text: str, secret: str) -> None:
    checks = [passed("x", text), warned("x", text, text), failed("x", text, text)]
    checks.append(failed_with("x", TxlogError(f"{text}. {text}")))
    assert secret not in str(checks)
    split = [] if "\n" in text else shlex.split(text)  # A PEM's lines are never single words.
    for words in (
        [text],
        split,
        ["--unknown", text],
        ["-x", text],
        [f"--unknown={text}"],
    ):
        again = repeat_command(text, {"--checkpoint": text}, words)
        result = DrillResult(redact_url(text), "job", 1, 1.0, (), (), again, redact(text))
        assert secret not in again + html_report(result) + json.dumps(document(result))


@pytest.mark.parametrize(
    "pattern",
    [_NAMED, _OPTION, _SHAPES, _USER_INFO, _BARE_USER],
    ids=["named", "option", "shapes", "user info", "bare user"],
)
@given(data=st.data())
def test_prefilter_accepts_every_text_that_a_pattern_matches(
    pattern: re.Pattern[str], data: st.DataObject
) -> None:
    """`redact` skips the slow patterns for a text that has no part of their matches."""
    text = data.draw(st.from_regex(pattern))
    if pattern in (_USER_INFO, _BARE_USER):
        assert "@" in text
    else:
        assert may_match(text, _SHAPE_PARTS if pattern is _SHAPES else _NAME_PARTS)


@pytest.mark.parametrize(("text", "secret"), FORMS)
def test_redaction_is_idempotent(text: str, secret: str) -> None:
    assert HIDDEN in redact(text)
    assert redact(redact(text)) == redact(text)
    assert redact_url(redact_url(text)) == redact_url(text)
    assert secret not in redact_url(text)


@pytest.mark.parametrize("text", PLAIN)
def test_text_without_secrets_is_unchanged(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("job.py --root s3://b/l --zone hu5h", "job.py --root s3://b/l --zone ***"),
        ("-phu5h -p hu5h --x=hu5h r", "-p*** -p *** --x=*** r"),
        ("--flag --root r", "--flag --root r"),
        ("--flag --other hu5h in.csv", "--flag --other *** in.csv"),
        ("--x -hu5h --topic t", "--x *** --topic t"),
        ("-password hu5h r", "-p*** *** r"),
        ("secret = hu5h r", "secret = *** r"),
        ("--conf spark.x=1 --conf a.token=hu5h", "--conf spark.x=1 --conf a.token=***"),
        ("- r", "- r"),
    ],
)
def test_redact_arguments_shows_values_of_known_options_only(words: str, shown: str) -> None:
    assert redact_arguments(words.split()) == shown.split()


@pytest.mark.parametrize("part", ["pass", "a", ".-", "a@", "s3://", "s3://a:b", "token='", "a.key"])
def test_redaction_of_a_long_text_takes_linear_time(part: str) -> None:
    """The test's time limit is the check: a quadratic search would take minutes."""
    redact(part * (400_000 // len(part)))


def test_a_password_in_the_url_of_a_root_is_neither_stored_nor_printed(
    secret_root: str, tmp_path: Path
) -> None:
    url = f"{secret_root}?token=hu5h"
    made = run("topic", "create", "orders", root=url)
    assert made.code == 0, made.err
    log = tmp_path / "log"
    assert (log / "txlog.json").exists()
    stored = b"".join(path.read_bytes() for path in log.rglob("*") if path.is_file())
    assert b"hu5h" not in stored
    assert f"linked://{HIDDEN}@".encode() in stored
    commands = [
        ("topic", "list"),
        ("topic", "describe", "nothing"),
        ("topic", "create", "orders"),
        ("verify",),
        ("doctor",),
        ("maintain", "--once"),
        ("group", "describe", "nothing"),
        ("consume", "nothing"),
    ]
    for words in commands:
        for form in ("table", "json"):
            done = run(*words, "-v", "-o", form, root=url, env={"JAVA_HOME": "/nowhere"})
            assert "hu5h" not in made.out + made.err + done.out + done.err, words


@pytest.mark.parametrize("kind", ["chained", "careless", "no log", "unopened"])
def test_refused_root_is_reported_without_its_password(
    kind: str, tmp_path: Path, secret_root: str
) -> None:
    class Refusing(LinkedFileSystem):
        def __init__(self, **_: object) -> None:
            raise OSError("login of me with hu5h failed")

    fsspec.register_implementation("careless", CarelessFileSystem, clobber=True)
    fsspec.register_implementation("refusing", Refusing, clobber=True)
    url = {
        "chained": f"simplecache::{secret_root}",
        "careless": f"careless://me:hu5h@{tmp_path}/log",
        "no log": secret_root,
        "unopened": f"refusing://me:hu5h@{tmp_path}/log",
    }[kind]
    done = run("topic", "list", "-v", root=url)
    assert done.code in (2, 3, 5)
    assert "hu5h" not in done.out + done.err
    with pytest.raises(TxlogError) as caught:
        Admin(url)
    assert "hu5h" not in f"{caught.value} {caught.value.facts}"
    if kind == "unopened":
        with pytest.raises(StoreDenied, match="Check the host"):
            open_store(url, Runtime())
    if kind == "chained":
        with pytest.raises(StoreNotAtomic):
            open_store(url, Runtime())
