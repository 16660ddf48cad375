"""The coordinator's rules as a machine on a journal: codecs of its events and of its snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from txlog.coordinator.events import (
    AbortPrepared,
    CheckClaimed,
    CommitPrepared,
    CoordinatorCommand,
    CoordinatorEvent,
    GroupReleased,
    ParticipantsAdded,
    ProducerInitialised,
    ReplayMark,
    StagingHorizonAdvanced,
    TransactionalIdExpired,
    TransactionBarred,
    TransactionBegun,
    TransactionCompleted,
)
from txlog.coordinator.outcomes import OutcomeGeneration
from txlog.coordinator.rules import decide
from txlog.coordinator.state import CoordinatorState, TransactionalId, apply
from txlog.journal.codec import EventCodec, Json, decode, encode
from txlog.journal.machine import Decided, SimpleMachine
from txlog.model import TxId, validate_segment_id

_EVENTS = EventCodec(
    ProducerInitialised,
    TransactionBegun,
    ParticipantsAdded,
    CommitPrepared,
    CheckClaimed,
    AbortPrepared,
    TransactionBarred,
    TransactionCompleted,
    StagingHorizonAdvanced,
    GroupReleased,
    TransactionalIdExpired,
)


@dataclass(frozen=True, slots=True)
class _Id:
    name: str
    known: TransactionalId


@dataclass(frozen=True, slots=True)
class _Owner:
    __compact__ = True
    group: str
    transactional_id: str


class CoordinatorMachine(SimpleMachine):
    """See `rules.py` and `state.py`."""

    def initial(self) -> CoordinatorState:
        """No transactional ids."""
        return CoordinatorState()

    def decide(self, state: CoordinatorState, command: CoordinatorCommand) -> Decided:
        """See `rules.py`."""
        return decide(state, command)

    def apply(
        self, state: CoordinatorState, event: CoordinatorEvent, slot: int
    ) -> CoordinatorState:
        """See `state.py`."""
        return apply(state, event, slot)

    def encode_event(self, event: CoordinatorEvent) -> Json:
        """The JSON value of an event."""
        return _EVENTS.encode(event)

    def decode_event(self, value: Json) -> CoordinatorEvent:
        """The event of a JSON value. Raises CorruptData."""
        event: CoordinatorEvent = _EVENTS.decode(value)
        return event

    def encode_state(self, state: CoordinatorState) -> Mapping[str, Iterable[Json]]:
        """Sections of a snapshot."""
        return {
            "horizon": [state.horizon],
            "id": [encode(_Id(*item)) for item in state.ids.items()],
            "owner": [encode(_Owner(*item)) for item in state.owners.items()],
            "mark": [encode(mark) for mark in state.marks.values()],
            "forgotten": [] if state.forgotten is None else [encode(state.forgotten)],
            "outcomes": [OutcomeGeneration.of(found).text for found in state.outcomes],
        }

    def decode_state(self, sections: Mapping[str, list[Json]]) -> CoordinatorState:
        """The state of such sections. Raises CorruptData."""
        (horizon,) = decode(tuple[str, ...], sections.get("horizon", [""]))
        if horizon:
            validate_segment_id(horizon)
        ids = [decode(_Id, row) for row in sections.get("id", ())]
        owners = [decode(_Owner, row) for row in sections.get("owner", ())]
        marks = [decode(ReplayMark, row) for row in sections.get("mark", ())]
        forgotten = [decode(TxId, row) for row in sections.get("forgotten", ())]
        outcomes: tuple[str, ...] = decode(tuple[str, ...], sections.get("outcomes", []))
        return CoordinatorState(
            ids={item.name: item.known for item in ids},
            owners={owner.group: owner.transactional_id for owner in owners},
            marks={mark.key: mark for mark in marks},
            horizon=horizon,
            outcomes=tuple(map(OutcomeGeneration.of_text, outcomes)) or ({},),
            forgotten=max(forgotten, default=None),
        )
