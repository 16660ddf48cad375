"""The groups' rules as a machine on a journal: codecs of its events and of its snapshots.

It must not decide anything: rules and fold are in `offsets_state.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import get_args

from txlog.groups.state import (
    CommittedOffset,
    GroupState,
    OffsetsCommand,
    OffsetsEvent,
    OffsetsState,
    Pending,
    apply,
    decide,
)
from txlog.journal.codec import EventCodec, Json, SectionCodec
from txlog.journal.machine import Decided, SimpleMachine
from txlog.model import Partition, TopicPartition, TxId
from txlog.stored import stored, stored_list

_EVENTS = EventCodec(*get_args(OffsetsEvent))


@stored_list("position", topic="topic", partition="partition", committed="committed")
@dataclass(frozen=True, slots=True)
class _Position:
    topic: str
    partition: Partition
    committed: CommittedOffset


@stored_list("pending_transaction", tx_id="tx_id", pending="pending")
@dataclass(frozen=True, slots=True)
class _PendingRow:
    tx_id: TxId
    pending: Pending


@stored("group", name="group", positions="committed", pending="pending", last_commit="last_commit")
@dataclass(frozen=True, slots=True)
class _GroupRow:
    name: str
    positions: tuple[_Position, ...]
    pending: tuple[_PendingRow, ...]
    last_commit: TxId | None = None


SECTIONS = SectionCodec(group=_GroupRow)


class OffsetsMachine(SimpleMachine):
    """The rules above as a machine on a journal."""

    def initial(self) -> OffsetsState:
        """No groups."""
        return OffsetsState()

    def decide(self, state: OffsetsState, command: OffsetsCommand) -> Decided:
        """See `decide`."""
        return decide(state, command)

    def apply(self, state: OffsetsState, event: OffsetsEvent, slot: int) -> OffsetsState:
        """See `apply`."""
        return apply(state, event, slot)

    def encode_event(self, event: OffsetsEvent) -> Json:
        """The JSON value of an event."""
        return _EVENTS.encode(event)

    def decode_event(self, value: Json) -> OffsetsEvent:
        """The event of a JSON value. Raises CorruptData."""
        event: OffsetsEvent = _EVENTS.decode(value)
        return event

    def encode_state(self, state: OffsetsState) -> Mapping[str, Iterable[Json]]:
        """Sections of a snapshot."""
        rows = [
            _GroupRow(
                name,
                tuple(_Position(*where, committed) for where, committed in group.committed.items()),
                tuple(_PendingRow(*item) for item in group.pending.items()),
                group.last_commit,
            )
            for name, group in state.groups.items()
        ]
        return SECTIONS.encode({"group": rows})

    def decode_state(self, sections: Mapping[str, list[Json]]) -> OffsetsState:
        """The state of such sections. Raises CorruptData."""
        rows: list[_GroupRow] = SECTIONS.decode(sections)["group"]
        return OffsetsState(
            {
                row.name: GroupState(
                    {TopicPartition(p.topic, p.partition): p.committed for p in row.positions},
                    {pending.tx_id: pending.pending for pending in row.pending},
                    row.last_commit,
                )
                for row in rows
            }
        )
