"""TLS and SASL, as Kafka's own clients use them."""

import asyncio
import base64
import hashlib
import hmac
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import confluent_kafka as librdkafka
import pytest
from aiokafka import AIOKafkaProducer
from hypothesis import example, given
from hypothesis import strategies as st
from kafka import KafkaConsumer, KafkaProducer
from kafka import errors as kafka
from kafka.protocol import metadata, sasl

import txlog
from tests.processes.command_line import run
from tests.processes.kafka_gateway import WAIT_S, Gateway
from tests.source_tree import ROOT
from tests.unit.kafka.raw_requests import asked, asked_alone, framed
from tests.unit.kafka.test_bad_input import memory_mb
from txlog.kafka.security import SCRAM, ScramExchange, Users

AUTHORITY = str(ROOT / "tests/certificates/authority.pem")
SERVER = str(ROOT / "tests/certificates/server.pem")
"""The certificate of 127.0.0.1, and its key."""
PASSWORD = "correct horse, battery=staple"
OTHER = "other:1\u2028mallory:x\x0cä🎈"
USERS = f"# who may connect\n\nbob:{PASSWORD}\r\neve,=:{OTHER}\n"
TLS = ("--tls-cert", SERVER, "--tls-key", SERVER)


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("users") / "users"
    path.write_text(USERS)
    return str(path)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, users: str) -> Iterator[Gateway]:
    options = ("--advertise", "127.0.0.1:0", *TLS, "--users", users)
    log = str(tmp_path_factory.mktemp("guarded") / "log")
    started = Gateway(log, *options, listen="0.0.0.0:0")
    yield started
    started.stop()
    assert not any(PASSWORD in line or "other" in line for line in started.messages)


def credentials(mechanism: str, name: str = "bob", password: str = PASSWORD) -> dict[str, object]:
    return {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": AUTHORITY,
        "sasl.mechanism": mechanism,
        "sasl.username": name,
        "sasl.password": password,
    }


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize(("name", "password"), [("bob", PASSWORD), ("eve,=", OTHER)])
def test_librdkafka_logs_in_and_produces(
    guarded: Gateway, mechanism: str, name: str, password: str
) -> None:
    config = guarded.config() | credentials(mechanism, name, password)
    producer = librdkafka.Producer(config)
    errors: list[object] = []
    producer.produce(mechanism, b"v", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(WAIT_S) == 0
    assert errors == [None]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_kafka_python_logs_in_and_reads_what_it_has_sent(guarded: Gateway, mechanism: str) -> None:
    config = {
        "bootstrap_servers": guarded.address,
        "security_protocol": "SASL_SSL",
        "ssl_cafile": AUTHORITY,
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "bob",
        "sasl_plain_password": PASSWORD,
    }
    topic = f"python-{mechanism}"
    producer = KafkaProducer(**config)
    producer.send(topic, b"v").get(WAIT_S)
    producer.close()
    consumer = KafkaConsumer(
        topic, **config, auto_offset_reset="earliest", consumer_timeout_ms=WAIT_S * 1_000
    )
    assert next(consumer).value == b"v"
    consumer.close()


def test_aiokafka_logs_in_and_produces(guarded: Gateway) -> None:
    async def sent() -> int:
        producer = AIOKafkaProducer(
            bootstrap_servers=guarded.address,
            security_protocol="SASL_SSL",
            ssl_context=ssl.create_default_context(cafile=AUTHORITY),
            sasl_mechanism="SCRAM-SHA-256",
            sasl_plain_username="bob",
            sasl_plain_password=PASSWORD,
        )
        await producer.start()
        found = await producer.send_and_wait("aiokafka", b"v")
        await producer.stop()
        return int(found.offset)

    assert asyncio.run(sent()) == 0


# Refused.


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize(("name", "password"), [("bob", "wrong"), ("mallory", PASSWORD)])
def test_wrong_name_and_wrong_password_are_refused_alike(
    guarded: Gateway, mechanism: str, name: str, password: str
) -> None:
    errors: list[librdkafka.KafkaError] = []
    config = guarded.config() | credentials(mechanism, name, password)
    client = librdkafka.Producer(config | {"error_cb": errors.append})
    before = len(guarded.messages)
    while not errors:
        client.poll(0.1)
    assert errors[0].code() == librdkafka.KafkaError._AUTHENTICATION
    assert "wrong name or password" in errors[0].str()
    del client
    lines = guarded.lines_since(before)
    assert all("wrong name or password" in line for line in lines)
    assert not any(name in line for line in lines)


def over_tls(gateway: Gateway) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=AUTHORITY)
    return context.wrap_socket(gateway.connected(), server_hostname="127.0.0.1")


def last_message(gateway: Gateway, seen: int) -> str:
    """The one line that was logged since; waits for it."""
    [line] = gateway.lines_since(seen)
    return line


def handshake(mechanism: str) -> sasl.SaslHandshakeRequest:
    return sasl.SaslHandshakeRequest(mechanism=mechanism)


def authenticate(data: bytes) -> sasl.SaslAuthenticateRequest:
    return sasl.SaslAuthenticateRequest(auth_bytes=data)


def test_client_that_does_not_say_who_it_is_gets_nothing(guarded: Gateway) -> None:
    seen = len(guarded.messages)
    with over_tls(guarded) as client:
        versions = asked(client, metadata.ApiVersionsRequest(), 2)
        assert {17, 36} <= {one.api_key for one in versions.api_keys}
        client.sendall(framed(metadata.MetadataRequest(topics=None), 1))
        assert client.recv(1) == b""
    assert "has not said who it is" in last_message(guarded, seen)
    seen = len(guarded.messages)
    with over_tls(guarded) as client:
        client.sendall(b"\x00\x10\x00\x00")  # A frame of a megabyte.
        assert client.recv(1) == b""
    assert "a frame of 1048576 bytes" in last_message(guarded, seen)


def test_unknown_mechanism_and_wrong_order_have_kafka_s_codes(
    guarded: Gateway, gateway: Gateway
) -> None:
    with over_tls(guarded) as client:
        answer = asked(client, handshake("GSSAPI"), 1)
        assert answer.error_code == kafka.UnsupportedSaslMechanismError.errno
        assert answer.mechanisms == ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"]
        answer = asked(client, authenticate(b""), 2)
        assert answer.error_code == kafka.IllegalSaslStateError.errno
        assert client.recv(1) == b""
    with over_tls(guarded) as client:
        assert asked(client, handshake("PLAIN"), 1).error_code == 0
        login = authenticate(b"\0bob\0" + PASSWORD.encode())
        assert asked(client, login, 2).error_code == 0
        # Once is enough.
        answer = asked(client, handshake("PLAIN"), 1)
        assert answer.error_code == kafka.IllegalSaslStateError.errno
    # A gateway without users has no SASL.
    answer = asked_alone(gateway, handshake("PLAIN"), 1)
    assert answer.error_code == kafka.IllegalSaslStateError.errno


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize(
    "data", [b"", b"\0bob", b"\xff\xff\0a\0b", b"p=tls-unique,,n=bob,r=x", b"mallory\0bob\0x"]
)
def test_login_that_is_garbage_fails_with_one_line(
    guarded: Gateway, mechanism: str, data: bytes
) -> None:
    seen = len(guarded.messages)
    with over_tls(guarded) as client:
        asked(client, handshake(mechanism), 1)
        answer = asked(client, authenticate(data), 2)
        assert answer.error_code == kafka.SaslAuthenticationFailedError.errno
        assert client.recv(1) == b""
    assert last_message(guarded, seen)


def test_plain_client_at_tls_and_tls_client_at_plain_are_closed_with_one_line(
    guarded: Gateway, gateway: Gateway
) -> None:
    seen = len(guarded.messages)
    with guarded.connected() as client:
        client.sendall(framed(metadata.ApiVersionsRequest(), 2))
        assert client.recv(1_000)[:1] in (b"", b"\x15")  # Nothing, or an alert of TLS.
    assert "SSL" in last_message(guarded, seen)
    seen = len(gateway.messages)
    with pytest.raises((ssl.SSLError, ConnectionError)), over_tls(gateway):
        pass
    assert "speaks TLS" in last_message(gateway, seen)


def test_connection_with_tls_takes_little_memory(guarded: Gateway) -> None:
    with ExitStack() as stack:

        def memory_with(count: int) -> int:
            for _ in range(count):
                client = stack.enter_context(over_tls(guarded))
                assert asked(client, metadata.ApiVersionsRequest(), 2).error_code == 0
            return memory_mb(guarded)

        before = memory_with(50)
        assert memory_with(200) - before <= 200 * 64 // 1024


def test_messages_of_another_login_prove_nothing() -> None:
    users, first = Users({"bob": PASSWORD}, "secret"), b"n,,n=bob,r=client"

    def logged_in(nonce: str, last: bytes = b"") -> bytes:
        """What the client has sent at last."""
        exchange = ScramExchange(users, "sha256", nonce)
        challenge, _ = exchange.answer(first)
        if not last:
            salted = hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), *salt_of(challenge))
            key = hmac.digest(salted, b"Client Key", "sha256")
            last = b"c=biws,r=client" + nonce.encode()
            signed = b",".join((first[3:], challenge, last))
            signature = hmac.digest(hashlib.sha256(key).digest(), signed, "sha256")
            proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
            last += b",p=" + base64.b64encode(proof)
        assert exchange.answer(last)[1]
        return last

    def salt_of(challenge: bytes) -> tuple[bytes, int]:
        _, salt, count = challenge.decode().split(",")
        return base64.b64decode(salt[2:]), int(count[2:])

    sent = logged_in("one")
    logged_in("one", sent)
    for last in (sent, sent.replace(b"clientone", b"clienttwo")):
        with pytest.raises(kafka.SaslAuthenticationFailedError):
            logged_in("two", last)


EXCHANGED = Users({"bob": PASSWORD}, "secret")
TEXT = st.text(alphabet="nrcpamy=,bo\0\xe4🎈0A", max_size=40).map(str.encode) | st.binary(
    max_size=40
)


@given(hash_name=st.sampled_from([*SCRAM.values()]), messages=st.lists(TEXT, max_size=3))
@example(hash_name="sha256", messages=[b"n,,n=bob,r=x", b"c=biws,r=xnonce,p="])
@example(hash_name="sha256", messages=[b"n,,n=bob,r=x", b"c=biws,r=xnonce,p=" + b"A" * 43 + b"="])
def test_no_garbage_is_taken_for_a_proof(hash_name: str, messages: list[bytes]) -> None:
    exchange = ScramExchange(EXCHANGED, hash_name, "nonce")
    for message in messages:
        try:
            _, is_last = exchange.answer(message)
        except (ValueError, KeyError, kafka.SaslAuthenticationFailedError):
            return
        assert not is_last


# The command.


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--listen", "0.0.0.0:0"), "--users"),
        (("--listen", "192.0.2.1:0", *TLS), "--users"),
        (("--listen", "192.0.2.1:0", "--users", "{users}"), "--tls-cert"),
        (("--listen", "0.0.0.0:0", *TLS, "--users", "{users}"), "--advertise"),
        (("--listen", "[::]:0", *TLS, "--users", "{users}"), "--advertise"),
        (("--advertise", "here"), "HOST:PORT"),
        (TLS[:2], "give both"),
        (TLS[2:], "give both"),
        (("--tls-cert", AUTHORITY, "--tls-key", AUTHORITY), "cannot be used"),
        (("--tls-cert", "absent.pem", "--tls-key", SERVER), "No such file"),
        (("--tls-cert", SERVER, "--tls-key", "{locked}"), "without a passphrase"),
        (("--users", "absent"), "No such file"),
        (("--users", "{empty}"), "has no users"),
        (("--users", "{twice}"), "line 2"),
        (("--users", "{nameless}"), "line 1"),
        (("--users", "{binary}"), "UTF-8"),
    ],
)
def test_gateway_that_could_not_be_safe_is_refused_with_what_to_do(
    tmp_path: Path, users: str, options: tuple[str, ...], said: str
) -> None:
    files = {name: str(tmp_path / name) for name in ("empty", "twice", "nameless", "binary")}
    (tmp_path / "empty").write_text("# none\n")
    (tmp_path / "twice").write_text("a:hidden-1\na:hidden-2\n")
    (tmp_path / "nameless").write_text("hidden-3\n")
    (tmp_path / "binary").write_bytes(b"a:\xff\n")
    locked = tmp_path / "locked.pem"
    encrypt = ["openssl", "pkey", "-aes128", "-passout", "pass:x", "-in", SERVER, "-out"]
    subprocess.run([*encrypt, str(locked)], check=True, capture_output=True)
    filled = [one.format(users=users, locked=locked, **files) for one in options]
    log = tmp_path / "log"
    refused = run("kafka", *filled, root=log)
    assert (refused.code, refused.out) == (2, "")
    assert said in refused.err
    assert "hidden" not in refused.err
    assert PASSWORD not in refused.err
    assert not log.exists()


def test_address_that_is_advertised_is_told_to_clients(tmp_path: Path) -> None:
    own = Gateway(str(tmp_path / "log"), "--advertise", "kafka.example:19092")
    assert own.address == "kafka.example:19092"
    own.stop()


def test_log_that_a_guarded_gateway_made_is_the_log(guarded: Gateway) -> None:
    assert txlog.Admin(guarded.root).verify().findings == []
