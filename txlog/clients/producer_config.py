"""The producer's configuration, in Kafka's words (ProducerConfig). Data only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from txlog.errors import InvalidConfig
from txlog.model import validate_transactional_id
from txlog.settings import ProcessSettings, SettingsGroup

BUFFER_BYTES_MAX = 1 << 30
"""One flush becomes one Arrow array a column, and such an array holds less than 2 GiB."""


@dataclass(frozen=True, slots=True)
class ProducerConfig(SettingsGroup):
    """Values of one producer; `from_dotted` reads Kafka's dotted names."""

    kind: ClassVar[str] = "producer configuration"

    transactional_id: str = ""
    """Names the producer across restarts; empty: not transactional."""
    enable_idempotence: bool = True
    """Repeats of an append are acknowledged and not stored."""
    transaction_timeout_ms: int = 60_000
    """After so long an open transaction may be aborted by anyone."""
    transaction_group: str = ""
    """Transactions of one group share a coordinator; by default the transactional id."""
    buffer_memory: int = 32 << 20
    """Bytes that `send` collects before it writes them itself."""

    def __post_init__(self) -> None:
        if self.transactional_id:
            validate_transactional_id(self.transactional_id)
            if not self.enable_idempotence:
                raise InvalidConfig(
                    "transactional.id needs enable.idempotence=true; leave enable.idempotence out."
                )
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
