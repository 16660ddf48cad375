"""Who may connect: TLS, and SASL by PLAIN and SCRAM (RFC 5802), as a broker asks for them.

Users and their passwords come from one file, which is read at the start. No password, and nothing
that is derived from one, is in an error or a message. A wrong name and a wrong password look alike.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import ssl
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafka import errors as kafka
from kafka.protocol import sasl

from txlog.errors import UsageError

if TYPE_CHECKING:
    from txlog.kafka.server import KafkaServer

PLAIN = "PLAIN"
SCRAM = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS = [*SCRAM, PLAIN]
ITERATIONS = 4_096
"""Of PBKDF2, as a broker's default. What they protect crosses the network within TLS."""
FAILED_DELAY_S = 0.1
"""A broker's connection.failed.authentication.delay.ms: guessing takes time."""
_HEADERS = ("n,", "y,")
"""How a client says that it does not bind the channel."""
_GARBAGE = (ValueError, KeyError, binascii.Error)


def tls_context(certificate: str, key: str) -> ssl.SSLContext:
    """The server's side of TLS, by files in PEM. Raises UsageError."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        # A key with a passphrase is refused; OpenSSL would ask for it at the terminal.
        context.load_cert_chain(certificate, key, password=lambda: b"")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or getattr(error, "reason", None) or "no PEM"
        raise UsageError(
            f"the certificate {certificate} with the key {key} cannot be used ({reason}); give "
            "files in PEM, the key without a passphrase."
        ) from None
    return context


class Users:
    """Names and passwords."""

    def __init__(self, passwords: Mapping[str, str], secret: str) -> None:
        """`secret` is a text that cannot be guessed."""
        self._passwords = {name: text.encode() for name, text in passwords.items()}
        self._secret = secret.encode()
        self._keys: dict[tuple[str, str], ScramKeys] = {}

    @classmethod
    def read(cls, path: str, secret: str) -> Users:
        """From lines such as `name:password`; an empty line and one that begins with # count as
        none. Raises UsageError, which shows no line."""
        passwords: dict[str, str] = {}
        try:
            # A password may have what Python takes for the end of a line.
            lines = Path(path).read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8"
            raise UsageError(f"the users' file {path} cannot be read: {reason}.") from None
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.startswith("#"):
                continue
            name, _, password = line.partition(":")
            if not name or not password or name in passwords:
                raise UsageError(
                    f"{path} line {number} is not a user; write name:password, each name once."
                )
            passwords[name] = password
        if not passwords:
            raise UsageError(f"{path} has no users; write a line name:password for each.")
        return cls(passwords, secret)

    def is_password(self, name: str, password: bytes) -> bool:
        """Whether the user has that password."""
        known = self._passwords.get(name)
        is_equal = hmac.compare_digest(self._secret if known is None else known, password)
        return is_equal and known is not None

    def scram_keys(self, name: str, hash_name: str) -> ScramKeys:
        """What proves the password. A name without one has keys that no client can know, so
        that names cannot be tried out."""
        found = self._keys.get((name, hash_name))
        if found is not None:
            return found
        salt = _hmac("sha256", self._secret, name.encode())[:16]
        password = self._passwords.get(name)
        if password is None:
            unknown = _hmac(hash_name, self._secret, salt)
            return ScramKeys(hash_name, salt, unknown, unknown)
        salted = hashlib.pbkdf2_hmac(hash_name, password, salt, ITERATIONS)
        stored = hashlib.new(hash_name, _hmac(hash_name, salted, b"Client Key")).digest()
        keys = ScramKeys(hash_name, salt, stored, _hmac(hash_name, salted, b"Server Key"))
        self._keys[name, hash_name] = keys
        return keys


@dataclass(frozen=True, slots=True)
class ScramKeys:
    """StoredKey and ServerKey of RFC 5802."""

    hash_name: str
    salt: bytes = field(repr=False)
    stored: bytes = field(repr=False)
    server: bytes = field(repr=False)


def _hmac(hash_name: str, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, hash_name)


class ScramExchange:
    """One authentication by SCRAM: two messages of the client, and the answers."""

    def __init__(self, users: Users, hash_name: str, nonce: str) -> None:
        self._users, self._hash_name, self._nonce = users, hash_name, nonce
        self._keys: ScramKeys | None = None
        self._header = self._so_far = ""

    def answer(self, message: bytes) -> tuple[bytes, bool]:
        """The answer, and whether it is the last one. Raises SaslAuthenticationFailedError, and
        ValueError or KeyError for other bytes."""
        if self._keys is None:
            return self._first(message.decode()), False
        return self._last(self._keys, message.decode()), True

    def _first(self, text: str) -> bytes:
        """Of `n,,n=name,r=nonce`. A name that the client acts for must be its own."""
        if not text.startswith(_HEADERS):
            raise ValueError("channel binding")
        _, acts_for, bare = text.split(",", 2)
        own_name, own_nonce = bare.split(",")  # No extension is known.
        name = own_name.removeprefix("n=").replace("=2C", ",").replace("=3D", "=")
        if acts_for not in ("", f"a={own_name.removeprefix('n=')}") or own_nonce[:2] != "r=":
            raise ValueError("another user, or no nonce")
        self._header = text[: -len(bare)]
        self._keys = self._users.scram_keys(name, self._hash_name)
        self._nonce = own_nonce[2:] + self._nonce
        salt = base64.b64encode(self._keys.salt).decode()
        answer = f"r={self._nonce},s={salt},i={ITERATIONS}"
        self._so_far = f"{bare},{answer}"
        return answer.encode()

    def _last(self, keys: ScramKeys, text: str) -> bytes:
        """Of `c=header,r=nonce,p=proof`."""
        without_proof, _, proof = text.rpartition(",p=")
        given = dict(part.split("=", 1) for part in without_proof.split(","))
        if base64.b64decode(given["c"], validate=True).decode() != self._header:
            raise ValueError("another header")
        message = f"{self._so_far},{without_proof}".encode()
        signature = _hmac(keys.hash_name, keys.stored, message)
        proved = base64.b64decode(proof, validate=True)
        client_key = bytes(a ^ b for a, b in zip(proved, signature, strict=True))
        stored = hashlib.new(keys.hash_name, client_key).digest()
        if not hmac.compare_digest(stored, keys.stored) or given["r"] != self._nonce:
            raise kafka.SaslAuthenticationFailedError("wrong name or password")
        return b"v=" + base64.b64encode(_hmac(keys.hash_name, keys.server, message))


@dataclass(slots=True)
class Client:
    """One connection."""

    host: str
    """As Java prints an address."""
    is_trusted: bool
    """Whether it has proved who it is, or need not."""
    is_gone: Callable[[], bool] = lambda: False
    """Whether it has closed its side; it may have done so while it waits."""
    mechanism: str = ""
    exchange: ScramExchange | None = None
    failure: str = ""
    """Why its authentication failed, if it did."""


CLIENT: ContextVar[Client] = ContextVar("CLIENT")
"""Whose request is being answered: each connection has a task of its own."""


async def handshake(server: KafkaServer, request: Any) -> Any:
    """SaslHandshake: the client names a mechanism."""
    client = CLIENT.get()
    code = 0
    if server.users is None or client.is_trusted:
        code = int(kafka.IllegalSaslStateError.errno)
    elif request.mechanism not in MECHANISMS:
        code = int(kafka.UnsupportedSaslMechanismError.errno)
    else:
        client.mechanism = request.mechanism
        client.exchange = None
    return sasl.SaslHandshakeResponse(error_code=code, mechanisms=MECHANISMS)


async def authenticate(server: KafkaServer, request: Any) -> Any:
    """SaslAuthenticate: once for PLAIN, twice for SCRAM."""
    client, response = CLIENT.get(), sasl.SaslAuthenticateResponse
    error: kafka.BrokerResponseError
    try:
        if server.users is None or client.is_trusted or not client.mechanism:
            raise kafka.IllegalSaslStateError("SaslHandshake comes first, and only once")
        answer, is_last = _answer(server, server.users, client, bytes(request.auth_bytes))
        client.is_trusted = is_last
        return response(error_code=0, error_message=None, auth_bytes=answer)
    except _GARBAGE:
        error = kafka.SaslAuthenticationFailedError(f"no message of {client.mechanism}")
    except kafka.BrokerResponseError as refused:
        error = refused
    client.failure = str(error.args[0])
    await asyncio.sleep(FAILED_DELAY_S)
    return response(error_code=error.errno, error_message=client.failure, auth_bytes=b"")


def _answer(
    server: KafkaServer, users: Users, client: Client, message: bytes
) -> tuple[bytes, bool]:
    if client.mechanism != PLAIN:
        if client.exchange is None:
            nonce = server.connection.runtime.entropy.token()
            client.exchange = ScramExchange(users, SCRAM[client.mechanism], nonce)
        return client.exchange.answer(message)
    acts_for, name, password = message.split(b"\0")
    if acts_for not in (b"", name) or not users.is_password(name.decode(), password):
        raise kafka.SaslAuthenticationFailedError("wrong name or password")
    return b"", True
