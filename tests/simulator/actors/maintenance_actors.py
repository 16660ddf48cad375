"""Maintenance, as actors: pruning, vacuum, compaction, more partitions, more columns.

Other features that remove or move stored data get an actor like this one: with a method for each
kind of work, which the process draws at random again and again.
"""

from __future__ import annotations

from contextlib import suppress
from typing import ClassVar

import pyarrow as pa

from tests.simulator.actors.role import EXPECTED, Recurring
from tests.simulator.environment.process import SimulatedProcess
from tests.simulator.topics import ADDED, config_of, is_typed, schema_of
from txlog.client.admin import Admin
from txlog.coordinator.transaction import PREPARED
from txlog.errors import (
    IncompatibleSchema,
    InvalidConfig,
    OffsetOutOfRange,
    TopicExists,
    UnknownTopic,
)
from txlog.maintenance.maintenance import Maintenance
from txlog.maintenance.vacuum import Vacuum
from txlog.model import TopicPartition
from txlog.settings import ProcessSettings
from txlog.topic.upkeep.compaction import CompactionLimits, compact
from txlog.topic.upkeep.merging import merge_segments

PARTITIONS_MAX = 4

LIMITS = ProcessSettings(
    publish_attempts_max=30,
    finish_attempts_max=6,
    staging_retention_ms=2_000,
    file_delete_delay_ms=500,
    journal_retention_entries=4,
)
"""Settings of maintenance, so short that it does all of its work within a world's time."""


_HARMLESS = (
    "prune_topic",
    "prune_coordinator",
    "prune_cluster",
    "maintain",
    "add_partition",
    "evolve",
)
"""Duties that delete no record."""

WIDENING_DUTIES = ("add_partition", "evolve")
"""Duties that make topics wider."""


class MaintenanceActor(Recurring):
    """Does one duty after the other. Some are done twice, as there may be two such actors."""

    def __init__(
        self,
        name: str,
        topics: tuple[str, ...],
        duties: tuple[str, ...] = _HARMLESS,
        pause_max_ms: float = 5_000,
    ) -> None:
        """`duties` are names of methods."""
        super().__init__(name)
        self._topics = topics
        self._duties = duties
        self.pause_ms = (10, pause_max_ms * len(duties))

    def turn(self, process: SimulatedProcess) -> None:
        """Do one of its duties."""
        getattr(self, process.random.choice(self._duties))(process)

    def prune_topic(self, process: SimulatedProcess) -> None:
        """Prune old entries of a topic."""
        topic = process.connection.cluster.topic(process.random.choice(self._topics))
        _note_pruned(process, topic.journal.prune(process.random.randint(0, 3)))

    def prune_coordinator(self, process: SimulatedProcess) -> None:
        """Prune old entries of a coordinator."""
        coordinator = process.random.choice(process.connection.coordinators())
        _note_pruned(process, coordinator.journal.prune(process.random.randint(0, 3)))

    def prune_cluster(self, process: SimulatedProcess) -> None:
        """Prune old entries of the cluster's journal."""
        _note_pruned(
            process, process.connection.cluster.journal.prune(process.random.randint(0, 3))
        )

    def maintain(self, process: SimulatedProcess) -> None:
        """Finish decided transactions, and abort late ones."""
        for coordinator in process.connection.coordinators():
            coordinator.maintain()

    def add_partition(self, process: SimulatedProcess) -> None:
        """Add a partition to a topic."""
        name = process.random.choice(self._topics)
        cluster = process.connection.cluster
        count = len(cluster.present_topic(name).state.partitions)
        if count >= PARTITIONS_MAX:
            return
        try:
            Admin(process.connection).create_partitions(name, count + 1)
        except InvalidConfig as error:  # Another actor was faster. The number only grows.
            if len(cluster.present_topic(name, linearizable=True).state.partitions) <= count:
                process.note("failure", text=f"one partition more is refused: {error}")
            return
        process.note("maintained", tasks=["new partition"])

    def evolve(self, process: SimulatedProcess) -> None:
        """Add a column to a typed topic."""
        name = process.random.choice(list(filter(is_typed, self._topics)))
        column = pa.field(process.random.choice(ADDED), pa.int64())
        cluster = process.connection.cluster
        before = cluster.present_topic(name).schema()
        if column.name in before.names:
            return
        try:
            Admin(process.connection).evolve_schema(name, before.append(column))
        except IncompatibleSchema as error:  # Another actor added another column first.
            if cluster.present_topic(name, linearizable=True).schema() == before:
                process.note("failure", text=f"one column more is refused: {error}")
            return
        after = cluster.present_topic(name, linearizable=True).schema()
        if not {*before.names, column.name} <= set(after.names):
            text = f"{name} had {before.names}, got {column.name}, and has {after.names}"
            process.note("failure", text=text)
        process.note("maintained", tasks=["new column"])

    def compact(self, process: SimulatedProcess) -> None:
        """Compact a topic, and remove expired tombstones."""
        topic = process.connection.cluster.present_topic(process.random.choice(self._topics))
        settings = process.connection.cluster.process
        limits = CompactionLimits(settings.compaction_keys_max, settings.batch_bytes)
        compact(topic, process.runtime.clock.wall_ms(), limits)

    def delete_records(self, process: SimulatedProcess) -> None:
        """Delete the oldest records of a partition."""
        name = process.random.choice(self._topics)
        state = process.connection.cluster.present_topic(name, linearizable=True).state
        partition = process.random.randrange(len(state.partitions))
        low, high = state.partitions[partition].log_start, state.last_stable_offset(partition)
        where = TopicPartition(name, partition)
        offset = process.random.randint(low, high)
        process.note("deleting", topic=name, partition=partition, offset=offset)
        with suppress(OffsetOutOfRange):  # Records of incomplete transactions are kept.
            Admin(process.connection).delete_records({where: offset})

    def recreate(self, process: SimulatedProcess) -> None:
        """Delete a topic, and create one of its name after a while."""
        name = process.random.choice(self._topics)
        admin = Admin(process.connection)
        with suppress(UnknownTopic):
            admin.delete_topics([name])
            process.sleep(1, 5_000)
        create_again(admin, name)


def create_again(admin: Admin, name: str) -> None:
    """Create a topic of that name if there is none."""
    with suppress(TopicExists):
        admin.create_topic(name, 1, schema_of(name), config_of(name))


class MaintenanceJob:
    """Runs the log's own maintenance, pass after pass: merging, retention, compaction, vacuum."""

    is_reader: ClassVar[bool] = False
    is_always_restarted: ClassVar[bool] = True

    def __init__(self, name: str) -> None:
        self.name = name

    def live(self, process: SimulatedProcess) -> None:
        """See Role.live."""
        maintenance: Maintenance | None = None
        while process.is_busy:
            process.sleep(10, 30_000)
            try:
                maintenance = maintenance or Maintenance(process.connection, LIMITS)
                if process.random.random() < 0.7:
                    merge_often(process)
                if process.random.random() < 0.3:
                    prune_often(process)
                report = maintenance.run_once()
                process.sleep(1_000, 10_000)
                report.actions.extend(maintenance.vacuum_once().actions)
            except EXPECTED:
                continue
            done = sorted({action.task for action in report.actions if not action.is_failure})
            process.note("maintained", tasks=done)
            if process.random.random() < 0.2:
                process.network.die()  # The job ends. Another process runs the next one.


class VacuumActor(Recurring):
    """Vacuums all the time, with a very short retention of unreferenced objects."""

    pause_ms = (10, 500)

    def __init__(self, name: str, retention_ms: int) -> None:
        super().__init__(name)
        self._retention_ms = retention_ms

    def turn(self, process: SimulatedProcess) -> None:
        """Find candidates, and sweep them soon afterwards."""
        vacuum = Vacuum(process.connection, self._retention_ms)
        found = vacuum.find_candidates()
        process.sleep(1, 200)
        if vacuum.sweep(found).objects:
            process.note("maintained", tasks=["vacuum"])


def merge_often(process: SimulatedProcess) -> None:
    """Merge segments long before it is worthwhile."""
    cluster = process.connection.cluster
    names = sorted(cluster.state().topics)
    if not names:  # All topics are deleted for now.
        return
    topic = cluster.present_topic(process.random.choice(names))
    found = merge_segments(topic, cluster.process.batch_bytes, segments_min=2)
    if found.segments_after:
        process.note("maintained", tasks=["merging"])


def prune_often(process: SimulatedProcess) -> None:
    """Prune journals long before it is worthwhile: maintenance itself prunes every few thousand
    entries."""
    connection = process.connection
    names = sorted(connection.cluster.state().topics)
    keep = process.random.randint(0, 6)
    for name in names:
        _note_pruned(process, connection.cluster.present_topic(name).journal.prune(keep, 3))
    for coordinator in connection.coordinators():
        _note_pruned(process, coordinator.journal.prune(keep, 3))
    _note_pruned(process, connection.cluster.journal.prune(keep, 3))


def _note_pruned(process: SimulatedProcess, entries: int) -> None:
    if entries:
        process.note("maintained", tasks=["pruning"])


class Straggler(Recurring):
    """Finds a decided transaction, pauses, and applies it long after others have finished it."""

    pause_ms = (5, 500)

    def turn(self, process: SimulatedProcess) -> None:
        """Apply the decisions that it found, after a pause."""
        connection = process.connection
        for coordinator in connection.coordinators():
            state = coordinator.catch_up()
            for name, met in list(state.open_transactions()):
                if met.state in PREPARED:
                    floor = state.ids[name].floor(met.tx_id)
                    process.sleep(10, 60_000)
                    coordinator._write_markers(met, floor)
                    coordinator._end_offsets(met)
