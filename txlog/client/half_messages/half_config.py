"""The configuration of a producer of half messages, in RocketMQ's words. Data only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from txlog.errors import InvalidConfig
from txlog.model import validate_topic_name
from txlog.settings import SettingsGroup

CHECK_MAX = 10_000


@dataclass(frozen=True, slots=True)
class HalfConfig(SettingsGroup):
    """Values of one producer; they go with each half transaction that it stores."""

    kind: ClassVar[str] = "half message configuration"

    transaction_timeout_ms: int = 6_000
    """Age of a half transaction before its first check (`transactionTimeOut`)."""
    transaction_check_interval_ms: int = 30_000
    """Time between two checks of it (`transactionCheckInterval`)."""
    transaction_check_max: int = 15
    """After this many checks it goes to the dead-letter topic (`transactionCheckMax`)."""
    dead_letter_topic: str = "half-messages.dead-letter"
    """The topic for messages of half transactions that were never decided."""

    def __post_init__(self) -> None:
        validate_topic_name(self.dead_letter_topic)
        if self.transaction_timeout_ms < 0:
            raise InvalidConfig("transaction.timeout.ms must be at least 0.")
        if self.transaction_check_interval_ms < 1:
            raise InvalidConfig("transaction.check.interval.ms must be at least 1.")
        if not 1 <= self.transaction_check_max <= CHECK_MAX:
            raise InvalidConfig(
                f"transaction.check.max is {self.transaction_check_max}; it must be between 1 and "
                f"{CHECK_MAX}."
            )
