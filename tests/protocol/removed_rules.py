"""Rules of the protocol, each removed by substituting the code that one would write without it."""

from typing import Any

import pytest

from tests.protocol.sessions import Producer
from txlog.coordinator import rules
from txlog.coordinator.coordinator import Coordinator
from txlog.coordinator.events import TransactionBarred
from txlog.coordinator.transaction import TransactionalId
from txlog.errors import TransactionAborted
from txlog.groups import machine, offsets
from txlog.groups import state as offsets_state
from txlog.groups.state import PendingApplied
from txlog.journal.machine import Decided
from txlog.journal.replication.replica import Replica
from txlog.model import Decision, TxId
from txlog.topic import rules as topic_rules
from txlog.topic.producer_state import ProducerStateEntry

Patch = pytest.MonkeyPatch


def without_R15_for_writers(patch: Patch) -> None:
    """The process that created an entry assumes that it counts."""
    patch.setattr(Replica, "_counts", lambda self, slot: True)


def without_R15_for_readers(patch: Patch) -> None:
    """A process that finds an entry takes it for the next one."""

    def catch_up(
        self: Replica[Any],
        found: bytes | None = None,
        *,
        linearizable: bool = False,
        reads_on: bool = True,
    ) -> None:
        self._open()
        for entry, crc32 in self._reader.read(self._at, found, reads_on).entries:
            self._ingest(entry, crc32)

    patch.setattr(Replica, "_catch_up", catch_up)


def without_I7(patch: Patch) -> None:
    """Everything that a producer sends is stored."""
    patch.setattr(topic_rules, "repeated_offset", lambda *arguments: None)


def without_R3_release_before_abort(patch: Patch) -> None:
    """A blocking pend that is not committed is released without asking a coordinator."""

    def resolved(
        self: offsets.GroupOffsets, group: str, tx_id: TxId, pending: Any, may_abort: bool = False
    ) -> bool:
        self._coordinator(pending.coordinator).finish(pending.transactional_id, tx_id)
        self.release_pending(group, tx_id)
        return True

    patch.setattr(offsets.GroupOffsets, "_resolved", resolved)


def without_R3_bar(patch: Patch) -> None:
    """The abort of an unknown transaction leaves no trace."""
    original = rules._decide_abort

    def decide(state: Any, command: Any) -> Decided:
        decided = original(state, command)
        is_bar = any(isinstance(event, TransactionBarred) for event in decided.events)
        return Decided() if is_bar else decided

    patch.setattr(rules, "_decide_abort", decide)


def without_R5_before_begin(patch: Patch) -> None:
    """A transaction begins while the one before it is only prepared."""

    def require(name: str, known: Any, tx_id: TxId) -> None:
        if tx_id.number <= known.begun_number:
            raise TransactionAborted(f"{tx_id} is over.")

    patch.setattr(rules, "_require_next", require)


def without_R5_before_init(patch: Patch) -> None:
    """A new epoch does not wait for prepared transactions."""
    patch.setattr(rules, "_require_nothing_prepared", lambda name, known: None)


def without_R6_in_topics(patch: Patch) -> None:
    """A topic skips a marker only if it belongs to the last transaction."""

    def is_last(self: ProducerStateEntry, tx_id: TxId) -> bool:
        last = self.last
        return last is not None and (last.epoch, last.number) == (tx_id.epoch, tx_id.number)

    patch.setattr(ProducerStateEntry, "is_finished", is_last)


def without_R6_in_groups(patch: Patch) -> None:
    """A group applies every pending offset."""
    original = offsets_state.decide

    def decide(state: Any, command: Any) -> Decided:
        pending = state.group(command.group).pending
        if isinstance(command, PendingApplied) and pending and command.tx_id not in pending:
            other = next(iter(pending))
            return Decided((PendingApplied(command.group, other, command.at_ms),), True)
        return original(state, command)

    patch.setattr(machine, "decide_offsets", decide)


def without_R7(patch: Patch) -> None:
    """A marker says that every number up to its own is finished."""
    patch.setattr(TransactionalId, "floor", lambda self, tx_id: tx_id.number)


def without_R8(patch: Patch) -> None:
    """Offsets are applied before the topics are."""
    original = Coordinator.apply

    def apply(self: Coordinator, transactional_id: str, tx_id: TxId) -> Any:
        found = self._prepared(transactional_id, tx_id)
        if found is None:
            return {}
        for group in found[0].groups:
            if found[0].decision is Decision.COMMIT:
                self._offsets.apply_pending(group, tx_id)
        return original(self, transactional_id, tx_id)

    patch.setattr(Coordinator, "apply", apply)


def without_R9(patch: Patch) -> None:
    """Commits although an append's outcome is unknown, as if it had not been sent."""
    original = Producer.prepare

    def prepare(self: Producer) -> None:
        self._unknown = None
        original(self)

    patch.setattr(Producer, "prepare", prepare)


def without_R10_record(patch: Patch) -> None:
    """A marker is recorded only if its producer has an open transaction."""
    original = topic_rules._decide_marker

    def decide(state: Any, command: Any) -> Decided:
        producer = state.producers.get(command.tx_id.pid)
        is_idle = producer is None or producer.open is None
        return Decided() if is_idle and not command.segments else original(state, command)

    patch.setattr(topic_rules, "_decide_marker", decide)


def without_R10_refusal(patch: Patch) -> None:
    """Records of a finished transaction are accepted."""
    original = topic_rules._check_producer

    def check(state: Any, producer: Any, command: Any) -> None:
        try:
            original(state, producer, command)
        except TransactionAborted:
            return

    patch.setattr(topic_rules, "_check_producer", check)


def without_I6_compare(patch: Patch) -> None:
    """A pend does not check the group's position."""
    patch.setattr(offsets_state, "_check_starts", lambda *arguments: None)


def without_I6_pending(patch: Patch) -> None:
    """A pend does not check for other pending offsets."""
    patch.setattr(offsets_state, "_check_not_pending", lambda *arguments: None)


def without_I8(patch: Patch) -> None:
    """The coordinator accepts every epoch."""
    patch.setattr(rules, "_check_epoch", lambda *arguments: None)
