"""The consumer's configuration, in Kafka's words (ConsumerConfig). Data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, TypedDict

from txlog.client.positions.listed_offsets import AutoOffsetReset
from txlog.engine import kafka_names
from txlog.errors import InvalidConfig
from txlog.model import IsolationLevel, validate_group_id
from txlog.settings import SettingsGroup

_FROM_ZERO_UP = ("auto.commit.interval.ms", "fetch.max.bytes", "metadata.max.age.ms")
_FROM_ONE_UP = (
    "max.poll.records",
    "fetch.interval.ms",
    "fetch.interval.max.ms",
    "fetch.max.in.flight",
)


class ConsumerKeywords(TypedDict, total=False):
    """The configuration as keywords of `Consumer`: the fields of ConsumerConfig."""

    group_id: str | None
    isolation_level: str
    auto_offset_reset: str
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    max_poll_records: int
    fetch_max_bytes: int
    metadata_max_age_ms: int
    fetch_interval_ms: int
    fetch_interval_max_ms: int
    fetch_max_in_flight: int


@dataclass(frozen=True, slots=True)
class ConsumerConfig(SettingsGroup):
    """Values of one consumer; `from_user` reads keywords and Kafka's dotted names."""

    kind: ClassVar[str] = "consumer configuration"
    foreign: ClassVar[Mapping[str, str]] = kafka_names.CONSUMER
    unset: ClassVar[tuple[str, ...]] = ("group.id",)
    arguments: ClassVar[tuple[str, ...]] = ("storage.options",)

    group_id: str = ""
    """The consumer group whose offsets are used; empty for none."""
    isolation_level: str = "read_uncommitted"
    """read_committed or read_uncommitted (Kafka's default)."""
    auto_offset_reset: str = "latest"
    """Where to begin without a committed offset: earliest, latest, none, or by_duration:PT1H (the
    first record that is not older)."""
    enable_auto_commit: bool = True
    """Commit positions at `poll` every `auto.commit.interval.ms`, and at `close`."""
    auto_commit_interval_ms: int = 5_000
    """How often `poll` commits positions; with 0 each one does."""
    max_poll_records: int = 500
    """Maximum of records that one `poll` returns."""
    fetch_max_bytes: int = 52_428_800
    """Maximum of stored bytes that one `poll` reads; it always reads one batch."""
    metadata_max_age_ms: int = 300_000
    """How often `poll` searches for new topics that match a subscribed pattern."""
    fetch_interval_ms: int = 10
    """On a distant store: the shortest time between two requests of a waiting `poll` for a topic's
    next entry. It grows to a hundredth of the time since the last new entry."""
    fetch_interval_max_ms: int = 200
    """The longest time between two such requests."""
    fetch_max_in_flight: int = 4
    """Maximum of such requests in flight, of all topics together."""

    def __post_init__(self) -> None:
        if self.group_id:
            validate_group_id(self.group_id)
        if self.isolation_level not in list(IsolationLevel):
            raise InvalidConfig(
                f"isolation.level is {self.isolation_level!r}; it must be read_committed or "
                "read_uncommitted."
            )
        AutoOffsetReset.parse(self.auto_offset_reset)
        for name in _FROM_ZERO_UP + _FROM_ONE_UP:
            least = 0 if name in _FROM_ZERO_UP else 1
            if getattr(self, name.replace(".", "_")) < least:
                raise InvalidConfig(f"{name} must be at least {least}.")
