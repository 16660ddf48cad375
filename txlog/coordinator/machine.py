"""The coordinator's rules as a machine on a journal: codecs of its events and of its snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import get_args

from txlog.coordinator.events import CoordinatorCommand, CoordinatorEvent, ReplayMark
from txlog.coordinator.outcomes import OutcomeGeneration
from txlog.coordinator.rules import decide
from txlog.coordinator.state import CoordinatorState, apply
from txlog.coordinator.transaction import TransactionalId
from txlog.journal.codec import EventCodec, Json, SectionCodec
from txlog.journal.machine import Decided, SimpleMachine
from txlog.model import TxId, validate_segment_id
from txlog.stored import stored, stored_list

_EVENTS = EventCodec(*get_args(CoordinatorEvent))


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


SECTIONS = SectionCodec(
    staging_horizon=str,
    transactional_id=_Id,
    group_owner=_Owner,
    replay_mark=ReplayMark,
    forgotten=TxId,
    outcomes=str,
)
"""Of a snapshot. A row of outcomes is the text of a generation: see `outcomes.py`."""


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
        return SECTIONS.encode(
            {
                "staging_horizon": [state.horizon],
                "transactional_id": (_Id(*item) for item in state.ids.items()),
                "group_owner": (_Owner(*item) for item in state.owners.items()),
                "replay_mark": state.marks.values(),
                "forgotten": () if state.forgotten is None else (state.forgotten,),
                "outcomes": (OutcomeGeneration.of(found).text for found in state.outcomes),
            }
        )

    def decode_state(self, sections: Mapping[str, list[Json]]) -> CoordinatorState:
        """The state of such sections. Raises CorruptData."""
        found = SECTIONS.decode(sections)
        (horizon,) = found["staging_horizon"] or [""]
        if horizon:
            validate_segment_id(horizon)
        return CoordinatorState(
            ids={item.name: item.known for item in found["transactional_id"]},
            owners={owner.group: owner.transactional_id for owner in found["group_owner"]},
            marks={mark.key: mark for mark in found["replay_mark"]},
            horizon=horizon,
            outcomes=tuple(map(OutcomeGeneration.of_text, found["outcomes"])) or ({},),
            forgotten=max(found["forgotten"], default=None),
        )
