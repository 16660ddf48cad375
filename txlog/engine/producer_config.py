"""The producer's configuration, under Kafka's names (ProducerConfig). Data only."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, TypedDict

from txlog.engine import kafka_names
from txlog.errors import InvalidConfig
from txlog.model import validate_transactional_id
from txlog.settings import ProcessSettings, SettingsGroup
from txlog.topic.producer_state import RECENT_BATCHES

log = logging.getLogger(__name__)

BUFFER_BYTES_MAX = 1 << 30
"""The largest `buffer.memory`. A flush is one Arrow array for each column, and such an array holds
less than 2 GiB; the record that makes the buffer full may add to it."""

ACKS = ("all", "-1", "1", "0")
STAGED, IN_LOG = "staged", "in.log"
TRANSACTION_RECORDS = (STAGED, IN_LOG)
COMMIT_RETURNS = ("visible", "decided")
IN_FLIGHT_MAX = RECENT_BATCHES
"""The largest `max.in.flight.requests.per.connection` of an idempotent producer: as many batches as
a topic recognises again, as in Kafka."""


class ProducerKeywords(TypedDict, total=False):
    """The configuration as keywords of `Producer`: the fields of ProducerConfig."""

    transactional_id: str | None
    enable_idempotence: bool | None
    transaction_timeout_ms: int
    transaction_records: str
    commit_returns: str
    transaction_group: str
    buffer_memory: int
    acks: str | int
    retries: int
    max_in_flight_requests_per_connection: int
    delivery_timeout_ms: int


@dataclass(frozen=True, slots=True)
class ProducerConfig(SettingsGroup):
    """The configuration of one producer; `from_user` reads keywords and Kafka's dotted names."""

    kind: ClassVar[str] = "producer configuration"
    foreign: ClassVar[Mapping[str, str]] = kafka_names.PRODUCER
    unset: ClassVar[tuple[str, ...]] = ("transactional.id", "enable.idempotence")
    arguments: ClassVar[tuple[str, ...]] = (
        "key.serializer",
        "value.serializer",
        "create",
        "storage.options",
    )

    transactional_id: str = ""
    """The name of the producer across restarts; empty for a producer without transactions."""
    enable_idempotence: bool = True
    """Whether repeats of an append are acknowledged and not stored again."""
    transaction_timeout_ms: int = 60_000
    """The time after which any process may abort an open transaction."""
    transaction_records: str = STAGED
    """staged: records of an open transaction are uploaded and are in no topic before the commit; an
    open transaction delays no reader, and few writes wait for each other. in.log: they are in their
    topics at once, visible to read_uncommitted even if the transaction aborts, as in Kafka."""
    commit_returns: str = "visible"
    """When `commit_transaction` returns. visible: once all topics show the records to
    read_committed. decided: once they are committed, whichever process dies; they become visible
    shortly afterwards, as in Kafka."""
    transaction_group: str = ""
    """Transactions of one group share a coordinator; by default the transactional id. With the name
    of the consumer group whose offsets they commit, these are stored with the decision."""
    buffer_memory: int = 32 << 20
    """Bytes that `send` buffers before it writes them itself."""
    acks: str = "all"
    """all (or -1), 1 or 0. Every write is durable before it is acknowledged, whatever the value;
    but an idempotent producer requires all, as in Kafka."""
    retries: int = 2_147_483_647
    """How often an append of unknown outcome is repeated, within `append.attempts.max`. With
    enable.idempotence=false, 0 means at most once and any other value at least once."""
    max_in_flight_requests_per_connection: int = 5
    """Ignored; accepted for compatibility: a producer appends one batch after the other. An
    idempotent producer accepts at most 5, as in Kafka."""
    delivery_timeout_ms: int = 120_000
    """The time after which an append of unknown outcome is no longer repeated automatically."""

    def __post_init__(self) -> None:
        if self.transactional_id:
            validate_transactional_id(self.transactional_id)
            if not self.enable_idempotence:
                raise InvalidConfig(
                    "transactional.id needs enable.idempotence=true; leave enable.idempotence out."
                )
        for name, value, allowed in (
            ("transaction.records", self.transaction_records, TRANSACTION_RECORDS),
            ("commit.returns", self.commit_returns, COMMIT_RETURNS),
            ("acks", self.acks, ACKS),
        ):
            if value not in allowed:
                raise InvalidConfig(f"{name} is {value!r}; it must be one of {', '.join(allowed)}.")
        in_flight = self.max_in_flight_requests_per_connection
        if self.enable_idempotence and in_flight > IN_FLIGHT_MAX:
            raise InvalidConfig(
                f"max.in.flight.requests.per.connection is {in_flight}, and an idempotent producer "
                f"needs at most {IN_FLIGHT_MAX}; lower it, or set enable.idempotence=false."
            )
        if self.enable_idempotence and (conflict := self._conflict()):
            raise InvalidConfig(
                f"enable.idempotence=true needs {conflict}; change that, or leave out one of them."
            )
        self._check_numbers()

    def _conflict(self) -> str:
        """The value that an idempotent producer requires and this one lacks (KIP-679), or an empty
        text."""
        if self.acks not in ("all", "-1"):
            return f"acks=all, not {self.acks}"
        return "retries above 0" if self.retries == 0 else ""

    def _check_numbers(self) -> None:
        if self.retries < 0:
            raise InvalidConfig(f"retries is {self.retries}; it must be at least 0.")
        for name in ("max.in.flight.requests.per.connection", "delivery.timeout.ms"):
            if getattr(self, name.replace(".", "_")) < 1:
                raise InvalidConfig(f"{name} must be at least 1.")
        longest = ProcessSettings().transaction_max_timeout_ms
        if not 1 <= self.transaction_timeout_ms <= longest:
            raise InvalidConfig(
                f"transaction.timeout.ms is {self.transaction_timeout_ms}; it must be between 1 "
                f"and transaction.max.timeout.ms, {longest}."
            )
        if not 1 <= self.buffer_memory <= BUFFER_BYTES_MAX:
            raise InvalidConfig(
                f"buffer.memory is {self.buffer_memory}; it must be between 1 byte and "
                f"{BUFFER_BYTES_MAX}."
            )

    @classmethod
    def from_user(cls, values: Mapping[str, object]) -> ProducerConfig:
        """The configuration that a user gives. Without enable.idempotence the producer is
        idempotent if the other values allow it (KIP-679).

        Raises InvalidConfig for contradictory values, as Kafka's constructor does.
        """
        given = cls.dotted(values)
        given["acks"] = str(given.get("acks", "all"))
        if "enable.idempotence" in given:
            return cls.from_dotted(given)
        # First without idempotence: the constructor refuses a conflict, which here only decides the
        # default.
        without = cls.from_dotted({**given, "enable.idempotence": False, "transactional.id": ""})
        conflict = without._conflict()
        if not conflict or without.max_in_flight_requests_per_connection > IN_FLIGHT_MAX:
            return cls.from_dotted(given)  # Too many requests are refused, as in Kafka 4.
        if "transactional.id" in given:
            raise InvalidConfig(
                f"transactional.id needs an idempotent producer, and that needs {conflict}."
            )
        log.info("the producer is not idempotent, which would need %s", conflict)
        return without
