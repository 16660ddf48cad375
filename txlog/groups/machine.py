"""The machine of a coordinator's journal: its transactions, and the offsets of its consumer groups.

Both are in one journal, so that a transaction's decision and its effect on a group can be in one
entry. The rules of the two parts do not know each other: each command or event belongs to one of
them, and the state has a field for each. This module stores and dispatches; it decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from txlog.coordinator.events import (
    CommitPrepared,
    CommitTogether,
    CoordinatorEvent,
    ParticipantsAdded,
    ReplayMark,
    TransactionBegun,
)
from txlog.coordinator.outcomes import OutcomeGeneration
from txlog.coordinator.rules import decide as decide_transactions
from txlog.coordinator.state import (
    OUTCOME_GENERATIONS_MAX,
    CoordinatorState,
    DeletedTopics,
    owners_of,
)
from txlog.coordinator.state import apply as apply_transactions
from txlog.coordinator.transaction import TransactionalId, transactional_ids
from txlog.errors import CorruptData
from txlog.groups.state import (
    CommittedOffset,
    GroupState,
    OffsetsEvent,
    OffsetsPended,
    OffsetsState,
    Pending,
)
from txlog.groups.state import apply as apply_offsets
from txlog.groups.state import decide as decide_offsets
from txlog.journal.codec import EventCodec, Json, SectionCodec
from txlog.journal.entry import EntryRecords
from txlog.journal.machine import Decided, SimpleMachine
from txlog.layout import is_entry, parse_number
from txlog.model import COORDINATORS_MAX, Partition, TopicPartition, TxId, validate_segment_id
from txlog.sorted_map import SortedMap
from txlog.storage.store import ByteRange
from txlog.stored import stored, stored_list
from txlog.topic.records.batch import InlineSegment, placed_segments, places_in_entries

_OFFSETS_EVENTS = get_args(OffsetsEvent)
_EVENTS = EventCodec(*get_args(CoordinatorEvent), *_OFFSETS_EVENTS)


# Rows of a snapshot.


@stored("transactional_id", name="transactional_id", known="state")
@dataclass(frozen=True, slots=True)
class _Id:
    name: str
    known: TransactionalId


@stored_list("group_owner", group="group", transactional_id="transactional_id")
@dataclass(frozen=True, slots=True)
class _Owner:
    group: str
    transactional_id: str


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


SECTIONS = SectionCodec(
    {
        "staging_horizon": 1,
        "forgotten": 1,
        "outcomes": OUTCOME_GENERATIONS_MAX + 1,
        "deleted_topics": 1,
    },
    staging_horizon=str,
    transactional_id=_Id,
    group_owner=_Owner,
    replay_mark=ReplayMark,
    forgotten=TxId,
    outcomes=str,
    deleted_topics=DeletedTopics,
    group=_GroupRow,
)
"""Sections of a snapshot. A row of `outcomes` is the text of one generation (`outcomes.py`)."""


@dataclass(frozen=True, slots=True)
class CoordinatorJournalState:
    """The state of a coordinator's journal."""

    transactions: CoordinatorState = field(default_factory=CoordinatorState)
    offsets: OffsetsState = field(default_factory=OffsetsState)


class CoordinatorMachine(SimpleMachine):
    """The rules of `coordinator/rules.py` and `groups/state.py` on one journal."""

    rows_max = SECTIONS.rows_max

    def __init__(self, count: int = COORDINATORS_MAX, decodes_all: bool = False) -> None:
        """`count` is the number of coordinators of the log. `decodes_all`: an audit also decodes
        the outcomes of a snapshot, which others decode when they are needed."""
        self._count = count
        self._decodes_all = decodes_all

    def initial(self) -> CoordinatorJournalState:
        """No transactional ids and no groups."""
        return CoordinatorJournalState()

    def decide(self, state: CoordinatorJournalState, command: Any) -> Decided:
        """Apply the rules of the part that the command belongs to."""
        if isinstance(command, CommitTogether):
            return self._decide_together(state, command)
        if isinstance(command, _OFFSETS_EVENTS):
            return decide_offsets(state.offsets, command)
        return decide_transactions(state.transactions, command)

    def _decide_together(self, state: CoordinatorJournalState, command: CommitTogether) -> Decided:
        # First: a repeat may find its offsets applied and its conditions no longer true, and a
        # fenced instance learns of the fence, whatever others did with its groups (R56).
        decided = decide_transactions(state.transactions, command.commit)
        if not decided.events:
            return decided
        events: list[Any] = []
        for other in command.others:
            found = self.decide(state, other).events
            for event in found:
                state = self.apply(state, event, 0)
            events += found
        return replace(decided, events=(*events, *decided.events))

    def apply(
        self, state: CoordinatorJournalState, event: Any, slot: int
    ) -> CoordinatorJournalState:
        """Change the part that the event belongs to. Raises CorruptData for a pend of a coordinator
        that the log does not have."""
        if isinstance(event, OffsetsPended):
            self._require_coordinator(event.pending)
        if isinstance(event, _OFFSETS_EVENTS):
            offsets = apply_offsets(state.offsets, event)
            return CoordinatorJournalState(state.transactions, offsets)
        transactions = apply_transactions(state.transactions, event)
        return CoordinatorJournalState(transactions, state.offsets)

    def place(self, event: Any, records: EntryRecords) -> Any:
        """Small records of a decision are in its entry."""
        if not isinstance(event, CommitPrepared):
            return event
        segments = [segment for one in event.participants for segment in one.segments]
        if not any(isinstance(segment, InlineSegment) for segment in segments):
            return event
        participants = tuple(
            replace(one, segments=placed_segments(one.segments, records))
            for one in event.participants
        )
        return replace(event, participants=participants)

    def places(self, event: Any) -> Iterator[tuple[str, ByteRange]]:
        """See `place`."""
        if isinstance(event, CommitPrepared | TransactionBegun | ParticipantsAdded):
            for participant in event.participants:
                yield from places_in_entries(participant.segments)

    def lowest_named(self, state: CoordinatorJournalState, default: int) -> int:
        """The lowest slot whose entry has records of a transaction that is not complete."""
        slots = (
            parse_number(segment.path)
            for _, transaction in state.transactions.open_transactions()
            for participant in transaction.participants
            for segment in participant.segments
            if is_entry(segment.path)
        )
        return min((slot for slot in slots if slot is not None), default=default)

    def encode_event(self, event: object) -> Json:
        """The JSON value of an event."""
        return _EVENTS.encode(event)

    def decode_event(self, value: Json) -> Any:
        """The event of a JSON value. Raises CorruptData."""
        return _EVENTS.decode(value)

    def encode_state(self, state: CoordinatorJournalState) -> Mapping[str, Iterable[Json]]:
        """The sections of a snapshot."""
        transactions = state.transactions
        forgotten = transactions.forgotten
        return SECTIONS.encode(
            {
                "staging_horizon": [transactions.horizon],
                "transactional_id": SECTIONS.texts("transactional_id", transactions.ids, _Id),
                "group_owner": SECTIONS.texts("group_owner", transactions.owners, _Owner),
                "replay_mark": SECTIONS.texts(
                    "replay_mark", transactions.marks, lambda _, mark: mark
                ),
                "forgotten": () if forgotten is None else (forgotten,),
                "outcomes": (OutcomeGeneration.of(each).text for each in transactions.outcomes),
                "deleted_topics": [transactions.deleted_topics],
                "group": SECTIONS.texts("group", state.offsets.groups, _row_of),
            }
        )

    def decode_state(self, sections: Mapping[str, list[Json]]) -> CoordinatorJournalState:
        """The state of a snapshot's sections. Raises CorruptData, UnsupportedFormat."""
        rows = SECTIONS.decode(sections)
        (horizon,) = rows["staging_horizon"] or [""]
        if horizon:
            validate_segment_id(horizon)
        transactions = CoordinatorState(
            ids=transactional_ids((row.name, row.known) for row in rows["transactional_id"]),
            owners=owners_of((row.group, row.transactional_id) for row in rows["group_owner"]),
            marks=SortedMap((mark.key, mark) for mark in rows["replay_mark"]),
            horizon=horizon,
            outcomes=tuple(map(OutcomeGeneration.of_text, rows["outcomes"])) or ({},),
            forgotten=max(rows["forgotten"], default=None),
            deleted_topics=next(iter(rows["deleted_topics"]), DeletedTopics()),
        )
        groups = SortedMap((row.name, _group_of(row)) for row in rows["group"])
        for group in groups.values():
            for pending in group.pending.values():
                self._require_coordinator(pending)
        for generation in transactions.outcomes if self._decodes_all else ():
            len(generation)
        return CoordinatorJournalState(transactions, OffsetsState(groups))

    def _require_coordinator(self, pending: Pending) -> None:
        if pending.coordinator >= self._count:
            raise CorruptData(
                f"pending offsets name coordinator {pending.coordinator}, and the log has "
                f"{self._count}"
            )


def _row_of(name: str, group: GroupState) -> _GroupRow:
    return _GroupRow(
        name,
        tuple(_Position(*where, committed) for where, committed in group.committed.items()),
        tuple(_PendingRow(*item) for item in group.pending.items()),
        group.last_commit,
    )


def _group_of(row: _GroupRow) -> GroupState:
    return GroupState(
        SortedMap((TopicPartition(p.topic, p.partition), p.committed) for p in row.positions),
        SortedMap((pending.tx_id, pending.pending) for pending in row.pending),
        row.last_commit,
    )
