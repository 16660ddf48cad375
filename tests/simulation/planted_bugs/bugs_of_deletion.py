"""Planted bugs in deleting or moving records, segments and whole topics."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.simulation.planted_bugs.mutant import Mutant
from txlog.client.admin import record_deletion
from txlog.client.consumer.consumer_group import GroupPositions
from txlog.coordinator import rules as coordinator_rules
from txlog.coordinator import topic_deletion
from txlog.coordinator.topic_deletion import CoordinatedDeletion
from txlog.engine.connection import Connection
from txlog.errors import MissingObject
from txlog.groups import state as offsets_state
from txlog.maintenance import expiry, maintenance, vacuum
from txlog.maintenance.vacuum import Vacuum, _stored, present_topics, staged_segments
from txlog.topic import rules as topic_rules
from txlog.topic.batch_index import IndexedBatch
from txlog.topic.read import reader
from txlog.topic.state import TopicState
from txlog.topic.topic_log import TopicLog
from txlog.topic.upkeep import compaction, retention, rewriting
from txlog.topic.upkeep.compaction import NewestKeys

Patch = pytest.MonkeyPatch


def no_R11_in_topics(patch: Patch) -> None:
    """A journal takes records after its topic was deleted."""
    patch.setattr(topic_rules, "_require_open", lambda state: None)


def no_R11_for_positions(patch: Patch) -> None:
    """A consumer's positions apply to any topic with that name."""
    original = GroupPositions.metadata
    patch.setattr(
        GroupPositions, "metadata", lambda self: replace(original(self), topic_ids={}, replaced={})
    )
    patch.setattr(offsets_state, "_check_starts", _starts_by_name)


def _starts_by_name(name: str, group: Any, offsets: Iterable[Any]) -> None:
    original = _CHECK_STARTS
    for offset in offsets:
        known = group.committed.get(offset.where)
        if known is None or known.topic_id == offset.topic_id:
            original(name, group, (offset,))


_CHECK_STARTS = offsets_state._check_starts


def no_R17(patch: Patch) -> None:
    """An append may refer to a segment below the horizon."""
    patch.setattr(topic_rules, "_require_above_horizon", lambda state, segment_id: None)


def no_horizon_for_staged(patch: Patch) -> None:
    """A PREPARE_COMMIT may refer to a segment below the horizon."""
    patch.setattr(coordinator_rules, "_check_horizon", lambda state, participants: None)


def vacuum_without_horizon(patch: Patch) -> None:
    """Vacuum deletes the segments that it found unreferenced, without a horizon before."""

    def advance(self: Vacuum, before: Any) -> tuple[frozenset[str], str]:
        roots = {topic.layout.root for topic in present_topics(self._connection)}
        return frozenset(roots), self._wanted_horizon()

    patch.setattr(Vacuum, "_advance_horizon", advance)


def no_R18(patch: Patch) -> None:
    """Topics are read before the coordinators."""

    def references(connection: Connection) -> frozenset[str]:
        stored = [path for topic in present_topics(connection) for path in _stored(topic)]
        staged = [path for one in connection.caught_up() for path in staged_segments(one.state)]
        return frozenset((*stored, *staged))

    patch.setattr(vacuum, "references", references)


def no_R19(patch: Patch) -> None:
    """A missing segment counts as damage, even if the log no longer refers to it."""

    def relocated(topic: TopicLog, row: IndexedBatch, start: int) -> list[IndexedBatch]:
        raise MissingObject(f"{row.segment} is missing.", path=row.segment)

    patch.setattr(reader, "relocated_batches", relocated)


def retention_above_the_lso(patch: Patch) -> None:
    """Age alone decides which records are deleted (I12)."""

    def bounded(connection: Any, topic: TopicLog, wanted: Mapping[int, int]) -> dict[int, int]:
        return dict(wanted)

    def expired(state: TopicState, load: Any, now_ms: int) -> dict[int, int]:
        with pytest.MonkeyPatch.context() as local:
            local.setattr(TopicState, "last_stable_offset", TopicState.end_offset)
            return _EXPIRED(state, load, now_ms)

    def decide(state: TopicState, command: Any) -> Any:
        with pytest.MonkeyPatch.context() as local:
            local.setattr(TopicState, "last_stable_offset", TopicState.end_offset)
            return _LOG_START(state, command)

    patch.setattr(expiry, "bounded_log_starts", bounded)
    patch.setattr(expiry, "expired_log_starts", expired)
    patch.setattr(topic_rules, "_decide_log_start", decide)


_EXPIRED = retention.expired_log_starts
_LOG_START = topic_rules._decide_log_start


def retention_of_the_incomplete(patch: Patch) -> None:
    """A transaction that is finished in this topic is deleted here, though not in another topic yet
    (I12)."""

    def bounded(connection: Any, topic: TopicLog, wanted: Mapping[int, int]) -> dict[int, int]:
        state = topic.catch_up(linearizable=True)
        limits = {p: min(at, state.last_stable_offset(p)) for p, at in wanted.items()}
        return {p: at for p, at in limits.items() if at > state.partitions[p].log_start}

    patch.setattr(expiry, "bounded_log_starts", bounded)
    patch.setattr(record_deletion, "bounded_log_starts", bounded)


def left_unfinished(patch: Patch) -> None:
    """Deleting records by hand does not end transactions first, so that more open ones have to be
    passed over."""
    patch.setattr(Connection, "finish_decided", lambda *_: None)


def compaction_by_the_aborted(patch: Patch) -> None:
    """A record of an aborted transaction supersedes others."""

    def read_keys(self: Any) -> int:
        with pytest.MonkeyPatch.context() as local:
            local.setattr(
                compaction,
                "live_batches",
                lambda unit, state: [replace(r, aborted=False) for r in _LIVE(unit, state)],
            )
            return _READ_KEYS(self)

    patch.setattr(compaction._Pass, "_read_keys", read_keys)


_LIVE = rewriting.live_batches
_READ_KEYS = compaction._Pass._read_keys


def compaction_across_partitions(patch: Patch) -> None:
    """The newest record of a key in any partition supersedes those in all partitions."""
    original = NewestKeys.is_newest

    def is_newest(self: Any, partition: int, keys: Any, offsets: Any) -> Any:
        newest = original(self, partition, keys, offsets)
        for other in list(self._tables):
            newest &= original(self, other, keys, offsets)
        return newest

    patch.setattr(NewestKeys, "is_newest", is_newest)


def rewriting_with_new_offsets(patch: Patch) -> None:
    """Remaining records get new, consecutive offsets (I2)."""

    def dense(row: Any, batch: Any) -> Any:
        return np.arange(row.base_offset, row.base_offset + batch.num_rows)

    patch.setattr(reader, "_checked_offsets", dense)


def merging_of_transactions(patch: Patch) -> None:
    """Batches of different transactions become one, which is attributed to the first."""
    patch.setattr(rewriting, "_identity", lambda part: ("plain", part.row.schema_id))


def producers_retired_at_once(patch: Patch) -> None:
    """A topic forgets a producer that may still have an append in flight (R11)."""

    def retirable(connection: Any, topic: TopicLog, before_ms: int) -> tuple[int, ...]:
        return tuple(topic.catch_up(linearizable=True).producers)

    def decide(state: TopicState, command: Any) -> Any:
        return _RETIRED(state, replace(command, silent_before_ms=1 << 60))

    patch.setattr(maintenance, "retirable_producers", retirable)
    patch.setattr(topic_rules, "_decide_retired", decide)
    patch.setattr(topic_rules, "holds", lambda retired, pid: False)


_RETIRED = topic_rules._decide_retired


def no_R40(patch: Patch) -> None:
    """A coordinator decides without regard to deletions."""
    patch.setattr(coordinator_rules, "require_not_deleted", lambda state, participants: None)


def closed_without_the_coordinators(patch: Patch) -> None:
    """A topic is closed at once, as if only its own writers mattered."""
    patch.setattr(CoordinatedDeletion, "begin", lambda self, topics: None)


def closed_before_the_markers(patch: Patch) -> None:
    """What was decided before is left to its own process, which finds the topic closed."""
    patch.setattr(topic_deletion, "decided_markers", lambda *of: ())


OF_DELETION: dict[str, Mutant] = {
    "without R11, deleted topic accepts records": Mutant(no_R11_in_topics, "mortals", 5),
    "without R11, positions kept by topic name": Mutant(
        no_R11_for_positions, "mortals", 111, unseen_seeds=500
    ),
    "without R11, producers retired at once": Mutant(producers_retired_at_once, "retention", 17),
    "without R40": Mutant(no_R40, "mortals", 5),
    "without R54, topic closed without the coordinators": Mutant(
        closed_without_the_coordinators, "mortals", 0
    ),
    "without R54, topic closed before the markers": Mutant(
        closed_before_the_markers, "mortals", 370
    ),
    "without R17, append not checked": Mutant(no_R17, "late-appends", 93),
    "without R17, PREPARE_COMMIT not checked": Mutant(no_horizon_for_staged, "collected", 4),
    "vacuum without horizon (R17)": Mutant(vacuum_without_horizon, "retention", 341),
    "without R19": Mutant(no_R19, "retention", 1),
    "retention above the last stable offset (I12)": Mutant(
        retention_above_the_lso, "retention", 69, 1000
    ),
    "retention deletes incomplete transactions (I12)": Mutant(
        retention_of_the_incomplete, "retention", 592, 800, beside=left_unfinished
    ),
    "compaction by aborted records (I3)": Mutant(compaction_by_the_aborted, "retention", 67),
    "compaction across partitions (I12)": Mutant(compaction_across_partitions, "retention", 1),
    "compaction renumbers offsets (I2)": Mutant(rewriting_with_new_offsets, "retention", 4),
    "batches of several transactions merged (I9)": Mutant(
        merging_of_transactions, "upkeep", 3, 800
    ),
}

BUGS_OF_DELETION: Mapping[str, tuple[Callable[[Patch], None], str]] = {
    "without R18": (
        no_R18,
        (
            "tests/protocol/test_segment_references.py::"
            "test_R18_segment_moving_from_coordinator_to_topic_is_never_missed"
        ),
    ),
}
"""Planted bug -> the function that plants it, and the test that detects it."""
