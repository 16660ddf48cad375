"""Planted bugs that damage no stored record: an answer proves wrong, a valid call is refused, an
error is only logged, or data with a retention time is deleted at once."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from spark_plugin.sink.batch_commit import BatchCommitter
from tests.simulation.planted_bugs.mutant import Mutant, Patch
from txlog.client.half_messages import check_service
from txlog.client.half_messages.check_service import CheckService
from txlog.client.producer.producer import Producer
from txlog.engine.append.appender import Appender
from txlog.errors import InternalError, OutcomeUnknown, ProducerFenced, StoreDenied
from txlog.journal.replication import replica
from txlog.journal.replication.replica import Replica
from txlog.maintenance import expiry, maintenance
from txlog.topic.read.reader import batch_source, read_batches
from txlog.topic.state import TopicState
from txlog.topic.upkeep import compaction


def sink_without_commit(patch: Patch) -> None:
    """The sink reports a batch to Spark as committed without committing it."""
    patch.setattr(BatchCommitter, "commit", lambda self: None)


def every_commit_fenced(patch: Patch) -> None:
    """Every producer is fenced, so that none can commit: safe, and useless."""

    def commit(self: Producer) -> None:
        raise ProducerFenced("for no reason.")

    patch.setattr(Producer, "commit_transaction", commit)


def _broken(*arguments: Any, **named: Any) -> Any:
    raise InternalError("I12: broken. Please report this.")


def broken_compaction(patch: Patch) -> None:
    """Compaction fails; maintenance reports the error and continues."""
    patch.setattr(maintenance, "compact", _broken)


def broken_snapshots(patch: Patch) -> None:
    """Snapshots fail; they are best effort, so their errors are only logged."""
    patch.setattr(replica, "write_snapshot", _broken)


def broken_checks(patch: Patch) -> None:
    """Each check-back fails, and is repeated at the next check."""
    patch.setattr(check_service, "read_half", _broken)


def retention_without_age(patch: Patch) -> None:
    """The first pass deletes all stable records."""

    def expired(state: TopicState, load: Any, now_ms: int) -> dict[int, int]:
        if not state.config.is_deleted:
            return {}
        ends = {p: state.last_stable_offset(p) for p in range(len(state.partitions))}
        return {p: end for p, end in ends.items() if end > state.partitions[p].log_start}

    patch.setattr(expiry, "expired_log_starts", expired)


def tombstones_go_at_once(patch: Patch) -> None:
    """The first pass that finds a tombstone drops it: delete.retention.ms is ignored."""
    original = compaction._Pass._select

    def select(self: Any, row: Any, fetched: Any) -> Any:
        return original(self, replace(row, delete_horizon_ms=0), fetched)

    patch.setattr(compaction._Pass, "_select", select)


def tombstones_hide_nothing(patch: Patch) -> None:
    """Tombstones are removed in time, but the records that they delete stay."""

    def take_keys(self: Any, rows: Any) -> None:
        for fetched in read_batches(batch_source(self.topic, self.state), rows):
            stays = ~compaction._tombstones(fetched.batch, self.config.key_column)
            kept = fetched.batch.filter(pa.array(stays)).column(self.key_column)
            self.newest.add(fetched.partition, kept, fetched.offsets[np.flatnonzero(stays)])

    patch.setattr(compaction._Pass, "_take_keys", take_keys)


def committed_dead_lettered(patch: Patch) -> None:
    """The listener answers that the transaction is committed, but its messages become dead
    letters."""
    original = CheckService._end

    def end(self: Any, name: str, tx_id: Any, state: Any) -> None:
        if "COMMIT" not in str(state):
            return original(self, name, tx_id, state)
        opened = self._coordinator.catch_up().open_transactions()
        return self._give_up(name, next(t for _, t in opened if t.tx_id == tx_id))

    patch.setattr(CheckService, "_end", end)


def only_first_dead_lettered(patch: Patch) -> None:
    """Only one of a half transaction's messages becomes a dead letter."""
    original = check_service.letters

    def letters(connection: Any, name: str, half: Any) -> Any:
        return original(connection, name, replace(half, messages=half.messages[:1]))

    patch.setattr(check_service, "letters", letters)


def denied_is_not_stored(patch: Patch) -> None:
    """If a repeated request is denied, the first attempt counts as not carried out, too."""
    patch.setattr(Appender, "_doubted", lambda self, topic: nullcontext())


def denied_entry_is_not_made(patch: Patch) -> None:
    """An entry counts as not created if the permission to read the boundary after it is denied."""
    original = Replica._counts

    def counts(self: Any, slot: int) -> bool:
        try:
            return original(self, slot)
        except OutcomeUnknown as error:
            cause = error.__cause__
            raise cause if isinstance(cause, StoreDenied) else error from None

    patch.setattr(Replica, "_counts", counts)


OF_ANSWERS: Mapping[str, Mutant] = {
    "a sink that commits nothing": Mutant(sink_without_commit, "numbers", 0, kind="lost write"),
    "every commit is fenced": Mutant(every_commit_fenced, "producers", 1, kind="refused"),
    "compaction that fails, and is only reported": Mutant(broken_compaction, "retention", 0),
    "snapshots that fail, and are only logged": Mutant(broken_snapshots, "producers", 1),
    "check-backs that fail, and are only logged": Mutant(broken_checks, "halves", 0),
    "retention ignores the age (I12)": Mutant(retention_without_age, "retention", 4),
    "tombstones removed at once": Mutant(tombstones_go_at_once, "compacted", 14),
    "tombstones delete no records": Mutant(tombstones_hide_nothing, "compacted", 33),
    "committed half message dead-lettered": Mutant(committed_dead_lettered, "halves", 0),
    "denied retry counts as not stored (I13)": Mutant(
        denied_is_not_stored, "denied", 6, kind="lost write"
    ),
    "denied boundary read counts as no entry (I13)": Mutant(
        denied_entry_is_not_made, "denied", 6, kind="lost write"
    ),
    "only the first message dead-lettered": Mutant(
        only_first_dead_lettered, "halves", 8, kind="wrong letter"
    ),
}
