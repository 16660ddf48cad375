"""The admin client: topics, consumer groups, transactions. kafka-python's words.

It only reads, or runs commands of the layers below; nothing is decided here. What it answers are
frozen values that the command line prints and a notebook can use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from txlog.clients.connection import Connection, connect
from txlog.clients.given_arguments import given_transaction
from txlog.clients.given_positions import given_names
from txlog.clients.group_description import GroupDescription, described_group
from txlog.clients.record_deletion import delete_records
from txlog.clients.topic_configuration import altered_configuration, check_configuration
from txlog.coordinator.coordinator import Coordinator
from txlog.coordinator.events import ReplayMark
from txlog.coordinator.state import Transaction
from txlog.errors import (
    IncompatibleSchema,
    InvalidConfig,
    ProducerFenced,
    TopicExists,
    UnknownGroup,
    UnknownTransaction,
    UsageError,
)
from txlog.groups.offsets_state import Pending
from txlog.log.cluster_state import unknown_topic
from txlog.log.schema import (
    KAFKA_SCHEMA,
    encode_schema,
    evolve,
    validate_schema,
)
from txlog.log.topic_events import (
    AddPartitions,
    EvolveSchema,
    check_partition_count,
)
from txlog.log.topic_log import TopicLog
from txlog.model import (
    TopicPartition,
    TransactionOutcome,
    TxId,
    validate_group_id,
    validate_topic_name,
)
from txlog.settings import TopicConfig


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. Without a schema it has Kafka's columns: key, value, headers."""

    name: str
    num_partitions: int = 1
    schema: pa.Schema | None = None
    config: Mapping[str, object] = field(default_factory=dict)
    """Dotted names of TopicConfig."""


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """Where a partition begins and ends, in offsets."""

    partition: int
    log_start_offset: int
    last_stable_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as of now."""

    name: str
    topic_id: str
    schema: pa.Schema
    schema_id: int
    config: TopicConfig
    partitions: tuple[PartitionDescription, ...]
    open_transactions: tuple[TxId, ...]


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """One transactional id as of now."""

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    instance: str
    state: str
    last_tx_id: TxId | None
    open: Transaction | None = None
    """The newest open transaction."""
    timeout_ms: int = 0
    all_open: tuple[Transaction, ...] = ()
    """All of them, oldest first: producers of half messages have several."""


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """One transaction: how it ended, or how far it is."""

    tx_id: TxId
    outcome: TransactionOutcome
    transactional_id: str
    coordinator: int
    open: Transaction | None
    """What the coordinator knows of it while it is open."""
    pending_groups: tuple[str, ...]
    """Consumer groups that have offsets set aside for it."""


FAN_OUT_TOPICS_MAX = 100
"""Up to so many topics are looked at together without trying how quickly the store answers."""
TRIED_TOPICS = 3
QUICK_MS = 5.0
"""For the quickest of these: a disk takes a tenth of that, and an object store ten times it."""

_TELLING = (
    TransactionOutcome.COMMITTED,
    TransactionOutcome.OPEN,
    TransactionOutcome.DEAD_LETTERED,
    TransactionOutcome.ABORTED,
)
"""Outcomes of one tag, what says most first."""


class Admin:
    """Manages one log. Safe to use from threads."""

    def __init__(
        self,
        root: str | Connection,
        *,
        create: bool = False,
        storage_options: Mapping[str, object] | None = None,
        log_config: Mapping[str, object] | None = None,
    ) -> None:
        """`log_config`: dotted names of LogSettings, for a log that is created. Raises what
        `connect` does."""
        self.connection = (
            root
            if isinstance(root, Connection)
            else connect(
                root, create=create, storage_options=storage_options, log_config=log_config
            )
        )

    @property
    def _cluster_topics(self) -> list[str]:
        return sorted(self.connection.cluster.state(certain=True).topics)

    # Topics.

    def create_topics(self, topics: Iterable[NewTopic]) -> None:
        """Create topics; all are checked before the first is created.

        Raises InvalidName, InvalidConfig, IncompatibleSchema, TopicExists.
        """
        checked = [(topic, *checked_topic(topic)) for topic in _given_topics(topics)]
        if len(checked) > 1:  # Of a single one its own entry decides.
            self._require_free_names([topic.name for topic, _, _ in checked])
        for topic, schema, config in checked:
            self._create_topic(topic, encode_schema(schema), config)

    def _require_free_names(self, names: list[str]) -> None:
        """Before the first is created. Raises TopicExists, InvalidConfig for a name given twice."""
        taken = sorted(set(names) & set(self._cluster_topics))
        finished = [self.connection.cluster.finish_deletion(name) for name in taken]
        if any(finished):
            taken = sorted(set(names) & set(self._cluster_topics))
        for name in names:
            if name in taken:
                raise TopicExists(
                    f"topic {name!r} exists already; use it, or choose another name.", topic=name
                )
            if names.count(name) > 1:
                raise InvalidConfig(
                    f"topic {name!r} is given {names.count(name)} times; give it once."
                )

    def _create_topic(self, topic: NewTopic, schema: str, config: TopicConfig) -> None:
        """Raises TopicExists; a name whose deletion was cut off is freed first."""
        cluster = self.connection.cluster
        try:
            cluster.create_topic(topic.name, topic.num_partitions, schema, config)
        except TopicExists:
            if not cluster.finish_deletion(topic.name):
                raise
            cluster.create_topic(topic.name, topic.num_partitions, schema, config)

    def create_topic(
        self,
        name: str,
        num_partitions: int = 1,
        schema: pa.Schema | None = None,
        config: Mapping[str, object] | None = None,
    ) -> None:
        """Create one topic. Raises as `create_topics`."""
        self.create_topics([NewTopic(name, num_partitions, schema, config or {})])

    def list_topics(self) -> list[str]:
        """Names of all topics."""
        return self._cluster_topics

    def describe_topic(self, name: str) -> TopicDescription:
        """One topic. Raises UnknownTopic."""
        return _described(self.connection.cluster.present_topic(name, certain=True))

    def describe_topics(self, names: Iterable[str] | str | None = None) -> list[TopicDescription]:
        """Several topics; all of them by default. Raises UnknownTopic for a name that is given."""
        fan_out = self.connection.runtime.fan_out
        if names is not None:
            return fan_out.run_all([partial(self.describe_topic, n) for n in given_names(names)])
        return [_described(topic) for topic in self._present(self.connection.cluster.topics())]

    def _present(self, topics: list[TopicLog]) -> list[TopicLog]:
        """Those that are there still, caught up. Of many topics on a store that answers quickly,
        one after the other: threads would spend more time on waiting for each other."""
        runtime = self.connection.runtime
        found: list[TopicLog | None] = []
        shortest_ms = QUICK_MS
        for topic in topics[:TRIED_TOPICS] if len(topics) > FAN_OUT_TOPICS_MAX else ():
            began_ms = runtime.clock.monotonic_ms()
            found.append(self._newest(topic))
            shortest_ms = min(shortest_ms, runtime.clock.monotonic_ms() - began_ms)
        calls = [partial(self._newest, topic) for topic in topics[len(found) :]]
        is_quick = shortest_ms < QUICK_MS
        found += [call() for call in calls] if is_quick else runtime.fan_out.run_all(calls)
        return [topic for topic in found if topic is not None]

    def _newest(self, topic: TopicLog) -> TopicLog | None:
        """That topic, caught up; if it was deleted, the one that has its name now."""
        if not topic.catch_up(certain=True).closed:
            return topic
        return self.connection.cluster.find_topic(topic.opened.name)

    def delete_topics(self, names: Iterable[str] | str) -> None:
        """Delete topics. Raises UnknownTopic before any is deleted."""
        state = self.connection.cluster.state(certain=True)
        doomed = [validate_topic_name(name) for name in given_names(names)]
        for name in doomed:
            if name not in state.topics:
                raise unknown_topic(name, state)
        for name in dict.fromkeys(doomed):
            self.connection.cluster.delete_topic(name)

    def create_partitions(self, name: str, total_count: int) -> None:
        """Grow a topic. Keys may go to other partitions from then on. Raises InvalidConfig."""
        check_partition_count(name, total_count)
        self.connection.cluster.present_topic(name).execute(AddPartitions(total_count))

    def alter_topic_config(self, name: str, changes: Mapping[str, object]) -> TopicConfig:
        """Change configuration values by their dotted names. Raises InvalidConfig."""
        return altered_configuration(self.connection, name, changes)

    def delete_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete records below these offsets; -1 is everything up to the last stable offset.

        Answers the log starts afterwards (Kafka's low watermarks). Raises OffsetOutOfRange before
        anything is deleted, UnknownTopic, UnknownPartition.
        """
        return delete_records(self.connection, offsets)

    def evolve_schema(self, name: str, schema: pa.Schema) -> int:
        """Make an additive change to a topic's schema; answers the schema's id.

        Raises IncompatibleSchema, naming each column that stands in the way.
        """
        topic = self.connection.cluster.present_topic(name)
        state = topic.state
        schema_id, key = state.newest_schema_id, state.config.key_column
        evolved = evolve(topic.schema(schema_id), validate_schema(schema))
        if key and evolved.field(key).type != topic.schema(schema_id).field(key).type:
            raise IncompatibleSchema(
                f"column {key!r} is the key.column of topic {name!r}: with another type its keys "
                "would go to other partitions. Leave its type as it is, or create another topic.",
                column=key,
            )
        answer: int = topic.execute(EvolveSchema(encode_schema(evolved), schema_id))
        return answer

    # Groups.

    def list_groups(self) -> list[str]:
        """Names of all consumer groups that have committed offsets, or are about to."""
        groups = self.connection.offsets.groups(certain=True)
        return sorted(name for name, group in groups.items() if group.committed or group.pending)

    def describe_group(self, group_id: str) -> GroupDescription:
        """Positions and lag of one group. Raises UnknownGroup."""
        group = self.connection.offsets.group(group_id)
        if not group.committed and not group.pending:
            raise UnknownGroup(
                f"there is no consumer group {group_id!r}; 'txlog group list' shows them.",
                group=group_id,
            )
        return described_group(self.connection, group_id, group, self.owner_of(group_id))

    def describe_groups(self) -> list[GroupDescription]:
        """All of them, by name."""
        groups = self.connection.offsets.groups(certain=True)
        found = {n: group for n, group in groups.items() if group.committed or group.pending}
        owners: dict[str, str] = {}
        for coordinator in self.connection.caught_up() if found else ():
            owners = {**coordinator.state.owners, **owners}
        return list(
            self.connection.cluster.answers(
                [
                    partial(described_group, self.connection, name, group, owners.get(name, ""))
                    for name, group in sorted(found.items())
                ]
            )
        )

    def owner_of(self, group_id: str) -> str:
        """Transactional id that owns a group (rule R12); "" if none does. Raises InvalidName."""
        validate_group_id(group_id)
        for coordinator in self.connection.caught_up():
            owner = coordinator.state.owners.get(group_id)
            if owner is not None:
                return owner
        return ""

    # Transactions.

    def list_transactions(self) -> list[TransactionListing]:
        """Every transactional id of the log, with its open transaction."""
        return sorted(
            (
                TransactionListing(
                    name,
                    coordinator.partition,
                    known.pid,
                    known.epoch,
                    known.instance,
                    str(known.state),
                    known.last_tx_id,
                    known.open[max(known.open)] if known.open else None,
                    known.timeout_ms,
                    tuple(known.open[tx_id] for tx_id in sorted(known.open)),
                )
                for coordinator in self.connection.caught_up()
                for name, known in coordinator.state.ids.items()
            ),
            key=lambda listing: listing.transactional_id,
        )

    def replay_marks(self) -> list[ReplayMark]:
        """The newest micro-batch of every Spark query."""
        return [
            mark
            for coordinator in self.connection.caught_up()
            for mark in coordinator.state.marks.values()
        ]

    def outcome(self, transaction: TxId | str) -> TransactionOutcome:
        """How a transaction ended, by its id or by its tag; of several with one tag, in different
        transaction groups, COMMITTED if one did, else OPEN if one still may."""
        if isinstance(transaction, TxId):
            return self.connection.outcome(given_transaction(transaction))
        if not isinstance(transaction, str):
            raise UsageError(f"{transaction!r:.80} is no transaction; give a TxId, or a tag.")
        asked = [partial(c.outcome_of_tag, transaction) for c in self.connection.coordinators()]
        answers = list(self.connection.cluster.answers(asked))
        return next((o for o in _TELLING if o in answers), TransactionOutcome.UNKNOWN_ID)

    def describe_transaction(self, tx_id: TxId | str) -> TransactionDescription:
        """One transaction. Raises UnknownTransaction if nobody has heard of it, or no longer."""
        tx_id = given_transaction(tx_id)
        outcome = self.connection.outcome(tx_id)
        pending = self._pending_on(tx_id)
        name, coordinator = self._owner_of(tx_id, pending)
        opened = None
        if coordinator is not None:
            known = coordinator.state.ids.get(name)
            opened = known.open.get(tx_id) if known is not None else None
        is_unheard = outcome is TransactionOutcome.OPEN and opened is None
        is_unknown = outcome is TransactionOutcome.UNKNOWN_ID or is_unheard
        if coordinator is None or (is_unknown and not pending):
            raise UnknownTransaction(
                f"no coordinator knows transaction {tx_id}; 'txlog txn list' shows those that are "
                "open.",
                tx_id=str(tx_id),
            )
        return TransactionDescription(
            tx_id, outcome, name, coordinator.partition, opened, tuple(sorted(pending))
        )

    def abort_transaction(self, tx_id: TxId | str) -> TransactionDescription:
        """Abort somebody else's transaction, end its epoch, release the offsets it set aside.

        Answers what it is afterwards. Raises UnknownTransaction, and IllegalTransition if it is
        decided: COMMIT.
        """
        tx_id = given_transaction(tx_id)
        found = self.describe_transaction(tx_id)
        coordinator = self.connection.coordinator(found.coordinator)
        with suppress(ProducerFenced):  # Its id is forgotten: it is over, but for its offsets.
            coordinator.abort(found.transactional_id, tx_id, fence=True)
        for group in found.pending_groups:
            self.connection.offsets.settle(group, tx_id)
        with suppress(UnknownTransaction):
            return self.describe_transaction(tx_id)
        return replace(found, pending_groups=())

    def _pending_on(self, tx_id: TxId) -> dict[str, Pending]:
        groups = self.connection.offsets.groups(certain=True)
        return {n: group.pending[tx_id] for n, group in groups.items() if tx_id in group.pending}

    def _owner_of(
        self, tx_id: TxId, pending: Mapping[str, Pending]
    ) -> tuple[str, Coordinator | None]:
        """Who runs it: a pend says so, also of one that the coordinator has not heard of yet."""
        for pend in pending.values():
            return pend.transactional_id, self.connection.coordinator(pend.coordinator)
        try:
            coordinator, name = self.connection.coordinator_with(tx_id)
        except UnknownTransaction:
            return "", None
        return name, coordinator


def _given_topics(topics: object) -> list[NewTopic]:
    """Raises UsageError."""
    is_one = isinstance(topics, str | NewTopic) or not isinstance(topics, Iterable)
    found: list[NewTopic] = []
    for topic in [topics] if is_one else topics:  # type: ignore[attr-defined]
        if not isinstance(topic, NewTopic):
            raise UsageError(
                f"{topic!r:.80} is no NewTopic; give NewTopic(name, num_partitions), or call "
                "create_topic(name)."
            )
        found.append(topic)
    return found


def checked_topic(topic: NewTopic) -> tuple[pa.Schema, TopicConfig]:
    """Its schema and configuration, in the form that is stored; needs no log.

    Raises InvalidName, InvalidConfig, IncompatibleSchema.
    """
    validate_topic_name(topic.name)
    check_partition_count(topic.name, topic.num_partitions)
    schema = validate_schema(topic.schema if topic.schema is not None else KAFKA_SCHEMA)
    config = TopicConfig.from_dotted(topic.config)
    check_configuration(topic.name, schema, config)
    return schema, config


def _described(topic: TopicLog) -> TopicDescription:
    state = topic.state
    partitions = tuple(
        PartitionDescription(
            number, part.log_start, state.last_stable_offset(number), part.next_offset
        )
        for number, part in enumerate(state.partitions)
    )
    return TopicDescription(
        topic.name,
        topic.topic_id,
        topic.schema(),
        state.newest_schema_id,
        state.config,
        partitions,
        tuple(sorted(tx_id for tx_id, _ in state.open_transactions())),
    )
