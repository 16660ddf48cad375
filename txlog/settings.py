"""Every setting, with its default, unit and meaning: data, never components (no clock, no store).

Three groups: `LogSettings` are fixed when a log is created and stored in its cluster file;
`TopicConfig` belongs to a topic; `ProcessSettings` are limits of one process (I16). Kafka's dotted
names are the outside names: `max.message.bytes` is the field `max_message_bytes`.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from numbers import Real
from typing import ClassVar, TypeVar, get_type_hints

from txlog.errors import InvalidConfig
from txlog.model import COORDINATORS_MAX, as_whole_number, has_unseen_characters
from txlog.stored import stored

_type_hints = cache(get_type_hints)  # Slower than the rest of a client's construction.

SettingsT = TypeVar("SettingsT", bound="SettingsGroup")
ClientT = TypeVar("ClientT", bound=type)

COMPRESSION_TYPES = ("none", "lz4", "zstd")
_FOREIGN_COMPRESSION = {
    "uncompressed": "its name is none here",
    "producer": "batches are compressed as their topic says, whatever the producer",
    "gzip": "Arrow files support lz4 and zstd",
    "snappy": "Arrow files support lz4 and zstd",
}
"""Kafka's other values of `compression.type`, and why they are unknown here."""
LOG_APPEND_TIME = "LogAppendTime"
TIMESTAMP_TYPES = ("CreateTime", LOG_APPEND_TIME)

LONG_MAX = (1 << 63) - 1
"""Kafka's value for no limit."""


_NO_FILES = "segments are objects that are written once, and never rolled; leave it out"
_NO_REPLICAS = "the store replicates, or does not; leave it out"
_NO_TIERS = "the whole log is on its store; leave it out"
_NO_LEVELS = "compression.type is lz4 or zstd, at its default level; leave it out"
_TIME_LIMITS = "use message.timestamp.before.max.ms and message.timestamp.after.max.ms"

KAFKA_TOPIC_NAMES: Mapping[str, str] = {
    "segment.ms": _NO_FILES,
    "segment.jitter.ms": _NO_FILES,
    "segment.index.bytes": "the index is in the topic's journal; leave it out",
    "index.interval.bytes": "the index has every batch; leave it out",
    "internal.segment.bytes": "use segment.bytes, the size that small segments are merged into",
    "preallocate": _NO_FILES,
    "flush.messages": "each append is durable before it is acknowledged; leave it out",
    "flush.ms": "each append is durable before it is acknowledged; leave it out",
    "file.delete.delay.ms": "it is a setting of 'txlog maintain', which deletes; leave it out",
    "min.insync.replicas": _NO_REPLICAS,
    "unclean.leader.election.enable": _NO_REPLICAS,
    "leader.replication.throttled.replicas": _NO_REPLICAS,
    "follower.replication.throttled.replicas": _NO_REPLICAS,
    "remote.*": _NO_TIERS,
    "local.*": _NO_TIERS,
    "compression.gzip.level": _NO_LEVELS,
    "compression.lz4.level": _NO_LEVELS,
    "compression.zstd.level": _NO_LEVELS,
    "message.timestamp.difference.max.ms": _TIME_LIMITS,
    "message.format.version": "there is one format of records; leave it out",
    "message.downconversion.enable": "there is one format of records; leave it out",
}
"""Kafka's names for topics that have no meaning here, and what to do instead."""


@dataclass(frozen=True, slots=True)
class SettingsGroup:
    """Shared reading and writing of dotted names."""

    kind: ClassVar[str] = "setting"
    foreign: ClassVar[Mapping[str, str]] = {}
    """Kafka's names that have no meaning here, or another one: what to do instead. A name that ends
    in `.*` means all names with that prefix."""
    unset: ClassVar[tuple[str, ...]] = ()
    """Names without a value by default, which None leaves out. An empty one, such as that of an
    environment variable that is not set, is refused."""
    arguments: ClassVar[tuple[str, ...]] = ()
    """Other keywords of the client's constructor, which a misspelt name may mean."""

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The dotted names of all settings of this group."""
        return tuple(field.name.replace("_", ".") for field in fields(cls))

    @classmethod
    def from_dotted(cls: type[SettingsT], values: Mapping[str, object]) -> SettingsT:
        """Build from dotted names; strings are converted. Raises InvalidConfig."""
        _require_mapping(cls.kind, values)
        hints = _type_hints(cls)  # type: ignore[arg-type]  # A class is a good key.
        known = {name: name.replace(".", "_") for name in cls.names()}
        arguments: dict[str, object] = {}
        for name, value in values.items():
            if name not in known and (reason := cls._foreign_reason(name)):
                raise InvalidConfig(f"{cls.kind} {name!r}: {reason}.", name=name)
            if name not in known:
                near = [*known, *cls.arguments]
                raise InvalidConfig(unknown_name_message(cls.kind, name, near), name=name)
            arguments[known[name]] = _convert(cls.kind, name, value, hints[known[name]])
        return cls(**arguments)

    @classmethod
    def from_user(cls: type[SettingsT], values: Mapping[str, object]) -> SettingsT:
        """Build from keywords or dotted names, as a user gives them. Raises InvalidConfig."""
        return cls.from_dotted(cls.dotted(values))

    @classmethod
    def dotted(cls, values: Mapping[str, object]) -> dict[str, object]:
        """What a user gives, under dotted names: `group_id` is `group.id`. Raises InvalidConfig."""
        found: dict[str, object] = {}
        for given, value in values.items():
            name = given.replace("_", ".")
            if name in found:
                raise InvalidConfig(
                    f"{cls.kind} {name!r} is given twice; leave one out.", name=name
                )
            if name in cls.unset and value == "":
                raise InvalidConfig(f"{name} is empty; leave it out, or give it a name.", name=name)
            if name not in cls.unset or value is not None:
                found[name] = value
        return found

    @classmethod
    def _foreign_reason(cls, name: object) -> str:
        """What to do instead of a name of Kafka's; "" for other names."""
        text = str(name)
        prefix = text.partition(".")[0] + ".*"
        return cls.foreign.get(text, "") or cls.foreign.get(prefix, "")

    def to_dotted(self) -> dict[str, object]:
        """All values under their dotted names."""
        return {name: getattr(self, name.replace(".", "_")) for name in self.names()}

    def altered(self: SettingsT, changes: Mapping[str, object]) -> SettingsT:
        """A copy with some values changed. Raises InvalidConfig."""
        _require_mapping(self.kind, changes)
        return type(self).from_dotted({**self.to_dotted(), **changes})

    def _require_range(self, name: str, low: int, high: int | None = None) -> None:
        """Raises InvalidConfig."""
        value = getattr(self, name.replace(".", "_"))
        if value < low or (high is not None and value > high):
            limits = f"at least {low}" if high is None else f"between {low} and {high}"
            raise InvalidConfig(f"{self.kind} {name!r} is {value}; it must be {limits}.", name=name)


def with_keywords(config: type[SettingsGroup]) -> Callable[[ClientT], ClientT]:
    """The class of a client that takes these settings as `**keywords`: its signature, which `help`
    and notebooks show, has each of them with its default."""

    def shown(client: ClientT) -> ClientT:
        found = inspect.signature(client)
        own = [part for part in found.parameters.values() if part.kind is not part.VAR_KEYWORD]
        keywords = [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None if field.name.replace("_", ".") in config.unset else field.default,
                annotation=field.type,
            )
            for field in fields(config)
        ]
        signature = found.replace(parameters=[*own, *keywords])
        client.__signature__ = signature  # type: ignore[attr-defined]
        return client

    return shown


def unknown_name_message(kind: str, name: str, known: Iterable[str]) -> str:
    """'Unknown X; did you mean Y?' for settings and options alike."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    remedy = f"did you mean {near[0]!r}?" if near else f"known names: {', '.join(names)}."
    return f"unknown {kind} {name!r}; {remedy}"


def _require_mapping(kind: str, values: object) -> None:
    """Raises InvalidConfig."""
    if not isinstance(values, Mapping):
        raise InvalidConfig(f"{kind}: give a dict of names and values, not {values!r:.40}.")
    for name in values:
        if not isinstance(name, str):
            raise InvalidConfig(f"{kind}: {name!r:.40} is not a name; names are strings.")


_EXPECTED = {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}


def _convert(kind: str, name: str, value: object, wanted: object) -> object:
    if wanted is int and isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            pass
    elif wanted is int and (number := as_whole_number(value)) is not None:
        return number
    elif wanted is float and isinstance(value, Real | str) and not isinstance(value, bool):
        try:
            return float(value)
        except (ValueError, OverflowError):
            pass
    elif wanted is str and isinstance(value, str):
        return value
    elif wanted is bool and str(value).lower() in ("true", "false"):
        return str(value).lower() == "true"
    expected = _EXPECTED[wanted]  # type: ignore[index]
    raise InvalidConfig(f"{kind} {name!r} must be {expected}, not {value!r:.80}.", name=name)


@stored(
    "log_settings",
    transaction_state_log_num_partitions="transaction.state.log.num.partitions",
    journal_snapshot_entries="journal.snapshot.entries",
    boundary_trust_ms="boundary.trust.ms",
    boundary_grace_ms="boundary.grace.ms",
    entry_records_max_bytes="entry.records.max.bytes",
)
@dataclass(frozen=True, slots=True)
class LogSettings(SettingsGroup):
    """Fixed when the log is created; changing them later would move ids between journals."""

    kind: ClassVar[str] = "log setting"
    foreign: ClassVar[Mapping[str, str]] = {
        "offsets.topic.num.partitions": (
            "groups are in the coordinators' journals; use transaction.state.log.num.partitions"
        ),
    }

    transaction_state_log_num_partitions: int = 8
    """Coordinators: journals that transactional ids and consumer groups are spread over; 32 in a
    log on an object store, where transactions that are decided in one journal wait for each
    other."""
    journal_snapshot_entries: int = 64
    """A snapshot is written each time a journal has grown by this many entries."""
    boundary_trust_ms: int = 0
    """How long a process trusts a check of a journal's boundary, by its own clocks (rule R15): 12
    hours in a log that is created on an object store, where a check takes a round trip. 0: no clock
    is trusted, and each answer is checked, as always on a disk."""
    boundary_grace_ms: int = 0
    """If checks are trusted, pruned entries stay until a boundary above them is older than this by
    the store's own dates (rule R14): 7 days; at least twice `boundary.trust.ms` (rule R32)."""

    entry_records_max_bytes: int = 65_536
    """Records of an append or a transaction that take at most this many bytes ride in the entry
    that names them, which saves a request and a wait; at most so many in one entry. 0: every record
    is in a segment."""

    def __post_init__(self) -> None:
        self._require_range("transaction.state.log.num.partitions", 1, COORDINATORS_MAX)
        self._require_range("entry.records.max.bytes", 0, ENTRY_RECORDS_MAX)
        self._require_range("journal.snapshot.entries", 2, 4096)
        self._require_range("boundary.trust.ms", 0, LONG_MAX)
        twice_ms = 2 * self.boundary_trust_ms
        if not twice_ms <= self.boundary_grace_ms <= LONG_MAX:
            raise InvalidConfig(
                f"log setting 'boundary.grace.ms' is {self.boundary_grace_ms}; it must be at least "
                f"twice 'boundary.trust.ms', which is {self.boundary_trust_ms}: {twice_ms}."
            )

    @property
    def pruning_grace_ms(self) -> int:
        """How long a deleting process waits: not at all if no check is trusted."""
        return self.boundary_grace_ms if self.boundary_trust_ms else 0


FAR_COORDINATORS = 32
"""For logs that are created on an object store: sixteen busy ids seldom share a journal."""

BOUNDARY_TRUST_MS = 12 * 3_600_000
"""For logs that are created on an object store: each journal in use costs a request more in so many
hours."""

BOUNDARY_GRACE_MS = 7 * 86_400_000
"""For logs that are created on an object store. Six and a half days are left for stalled clocks,
differing dates of the store, and writes that become visible later than their date."""


ENTRY_RECORDS_MAX = 512 << 10
"""Limit of `entry.records.max.bytes`: half of an entry, so that its events fit, too."""


@stored(
    "topic_config",
    compression_type="compression.type",
    max_message_bytes="max.message.bytes",
    key_column="key.column",
    cleanup_policy="cleanup.policy",
    retention_ms="retention.ms",
    retention_bytes="retention.bytes",
    delete_retention_ms="delete.retention.ms",
    min_compaction_lag_ms="min.compaction.lag.ms",
    max_compaction_lag_ms="max.compaction.lag.ms",
    min_cleanable_dirty_ratio="min.cleanable.dirty.ratio",
    segment_bytes="segment.bytes",
    message_timestamp_type="message.timestamp.type",
    message_timestamp_before_max_ms="message.timestamp.before.max.ms",
    message_timestamp_after_max_ms="message.timestamp.after.max.ms",
)
@dataclass(frozen=True, slots=True)
class TopicConfig(SettingsGroup):
    """Configuration of one topic, in Kafka's words where Kafka has one."""

    kind: ClassVar[str] = "topic configuration"
    foreign: ClassVar[Mapping[str, str]] = KAFKA_TOPIC_NAMES

    compression_type: str = "none"
    """none, lz4 or zstd: how record batches are compressed in segments."""
    max_message_bytes: int = 1_048_588
    """The largest record, in bytes of its values."""
    key_column: str = ""
    """Typed topics: the column whose hash chooses the partition; empty: none."""
    cleanup_policy: str = "delete"
    """delete (by `retention.*`), compact (keep the newest record of each key) or compact,delete."""
    retention_ms: int = -1
    """Records older than this may be deleted; -1: no limit."""
    retention_bytes: int = -1
    """A partition's oldest records may be deleted down to this size; -1: no limit."""
    delete_retention_ms: int = 86_400_000
    """How long a compacted topic keeps a tombstone (a record without a value) at least."""
    min_compaction_lag_ms: int = 0
    """Records younger than this are not compacted."""
    max_compaction_lag_ms: int = 9_223_372_036_854_775_807
    """Records older than this are compacted even if there are few of them."""
    min_cleanable_dirty_ratio: float = 0.5
    """Share of a topic's bytes that must be new before it is compacted again, from 0 to 1."""
    segment_bytes: int = 67_108_864
    """Target size of the segments that small ones are merged into."""
    message_timestamp_type: str = "CreateTime"
    """CreateTime: a record has the time that its sender gave it, or else the time of `send`.
    LogAppendTime: it has the time of its append, which for a staged record is its marker."""
    message_timestamp_before_max_ms: int = LONG_MAX
    """CreateTime only: how far a record's time may lie before now (Kafka's default: any)."""
    message_timestamp_after_max_ms: int = 3_600_000
    """CreateTime only: how far a record's time may lie after now (the default of Kafka 4)."""

    @property
    def is_compacted(self) -> bool:
        """Whether only the newest record of each key is kept."""
        return "compact" in _policies(self.cleanup_policy)

    @property
    def is_deleted(self) -> bool:
        """Whether records are deleted by age and size."""
        return "delete" in _policies(self.cleanup_policy)

    @property
    def is_append_time(self) -> bool:
        """Whether records get the time of their append."""
        return self.message_timestamp_type == LOG_APPEND_TIME

    def __post_init__(self) -> None:
        # As in Kafka, spaces after the comma do not matter.
        object.__setattr__(self, "cleanup_policy", ",".join(_policies(self.cleanup_policy)))
        if has_unseen_characters(self.key_column):
            raise InvalidConfig(
                f"topic configuration 'key.column' is {self.key_column!a}; no column has such a "
                "name."
            )
        self._check_cleanup()
        self._check_compression()
        self._require_range("max.message.bytes", 1, 1 << 30)
        self._check_timestamps()

    def _check_compression(self) -> None:
        if self.compression_type in COMPRESSION_TYPES:
            return
        reason = _FOREIGN_COMPRESSION.get(self.compression_type, "")
        raise InvalidConfig(
            f"topic configuration 'compression.type' is {self.compression_type!r}; it must be one "
            f"of {', '.join(COMPRESSION_TYPES)}{reason and ': '}{reason}."
        )

    def _check_timestamps(self) -> None:
        if self.message_timestamp_type not in TIMESTAMP_TYPES:
            raise InvalidConfig(
                "topic configuration 'message.timestamp.type' is "
                f"{self.message_timestamp_type!r}; it must be one of {', '.join(TIMESTAMP_TYPES)}."
            )
        for name in ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms"):
            self._require_range(name, 0, LONG_MAX)

    def _check_cleanup(self) -> None:
        policies = _policies(self.cleanup_policy)
        if len(set(policies)) != len(policies) or not set(policies) <= {"delete", "compact"}:
            raise InvalidConfig(
                f"topic configuration 'cleanup.policy' is {self.cleanup_policy!r}; it must be "
                "delete, compact or compact,delete."
            )
        for name in ("retention.ms", "retention.bytes"):
            self._require_range(name, -1, LONG_MAX)
        for name in ("delete.retention.ms", "min.compaction.lag.ms"):
            self._require_range(name, 0, LONG_MAX)
        # As in Kafka: of the two lags only this one may not be 0.
        self._require_range("max.compaction.lag.ms", 1, LONG_MAX)
        self._require_range("segment.bytes", 1024, 1 << 30)
        if not 0 <= self.min_cleanable_dirty_ratio <= 1:
            raise InvalidConfig(
                f"topic configuration 'min.cleanable.dirty.ratio' is "
                f"{self.min_cleanable_dirty_ratio}; it must be between 0 and 1."
            )


def _policies(text: str) -> list[str]:
    """The policies of a `cleanup.policy`; Kafka takes spaces after the comma, too."""
    return [policy.strip() for policy in text.split(",")]


@dataclass(frozen=True, slots=True)
class ProcessSettings(SettingsGroup):
    """Limits of one process. Every wait, retry and batch has one (I16)."""

    kind: ClassVar[str] = "setting"

    publish_attempts_max: int = 200
    """Slots that one command may lose before it gives up with PublishContention. Of sixteen
    processes that race on a disk, each loses ten slots for one that it wins."""
    publish_batch_max: int = 256
    """Commands of one process that go into one journal entry (group commit). An entry takes more of
    usual size; each command is decided again after a lost slot."""
    boundary_probe_polls: int = 16
    """A replica reads the boundary once in this many polls that find no new entry (rule R15). Until
    then it may lag behind pruning; each read is one request."""
    log_presence_interval_ms: int = 5_000
    """Least time between two checks of a process that writes to a bucket that the log exists. What
    it writes between the removal of the log and the next check is lost with the log."""
    catch_up_window_max: int = 32
    """Entries fetched at once by a replica that lags behind: as many as a process has threads for
    requests."""
    batch_bytes: int = 1_250_000
    """Target size of one record batch in a segment."""
    append_attempts_max: int = 5
    """How often an append of unknown outcome is sent again with the same sequences. Each attempt
    may take the store's deadline, 30 seconds; `delivery.timeout.ms` ends the attempts, too."""
    finish_attempts_max: int = 50
    """How often one call tries to finish a decided transaction of another process: for about 40
    seconds with the back-off. Then it raises an error, and the next call tries again."""
    finish_backoff_ms: int = 20
    """First wait between such attempts; it doubles up to a second."""
    completion_linger_ms: int = 10
    """How long the completion of a transaction waits for the producer's next transaction, to share
    its entries: offsets with its pending ones, COMMITTED with its PREPARE_COMMIT."""
    transaction_timeout_ms: int = 60_000
    """`transaction.timeout.ms` of producers that do not set it (Kafka's default)."""
    transaction_max_timeout_ms: int = 900_000
    """The longest `transaction.timeout.ms` that is accepted (Kafka's broker default)."""
    transactional_id_expiration_ms: int = 604_800_000
    """Maintenance removes a transactional id that was unused for this long (Kafka's default)."""
    producer_id_expiration_ms: int = 86_400_000
    """Maintenance removes an idempotent producer from a topic if it wrote nothing for this long."""
    staging_retention_ms: int = 86_400_000
    """Vacuum deletes only older segments, so that a task may take this long until its commit."""
    file_delete_delay_ms: int = 60_000
    """Vacuum deletes objects that two checks, this long apart, found unreferenced."""
    journal_retention_entries: int = 1_024
    """Maintenance keeps this many of the newest entries of each journal, so that a process that
    lags by fewer reads on without opening the journal anew."""
    compaction_keys_max: int = 1_000_000
    """Keys that one pass of compaction holds in memory; other keys wait for the next pass. A
    million keys of 20 bytes take about 50 MB."""

    def __post_init__(self) -> None:
        for name in self.names():
            self._require_range(name, 1)
