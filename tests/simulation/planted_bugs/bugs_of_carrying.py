"""Planted bugs in writing entries for other processes: without R43, R44, R46, or a wait's bound."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from tests.simulation.planted_bugs.mutant import Patch
from txlog.coordinator import marker_carrier
from txlog.coordinator.coordinator import Coordinator
from txlog.errors import StoreUnavailable
from txlog.journal.replication import replica
from txlog.topic import rules as topic_rules
from txlog.topic.events import WriteMarker


def without_R43(patch: Patch) -> None:
    """A topic that did not answer is left to another process, and the transaction counts as
    complete."""
    original = Coordinator._write_markers

    def write(self: Coordinator, transaction: Any, floor: int) -> Any:
        found: dict[str, Any] = {}
        for participant in transaction.participants:
            alone = replace(transaction, participants=(participant,))
            try:
                found |= original(self, alone, floor)
            except StoreUnavailable:
                continue
        return found

    patch.setattr(Coordinator, "_write_markers", write)


def without_R44(patch: Patch) -> None:
    """Each marker finishes all numbers up to the producer's newest one."""
    original = marker_carrier.decided_markers

    def decided(topic_id: str, number: int, state: Any, now_ms: int) -> Iterator[WriteMarker]:
        highest = {known.pid: known.begun_number for known in state.ids.values()}
        for marker in original(topic_id, number, state, now_ms):
            yield replace(marker, floor=highest[marker.tx_id.pid])

    patch.setattr(marker_carrier, "decided_markers", decided)


def without_R46(patch: Patch) -> None:
    """A decided transaction is refused if its segment is older than the horizon by now."""
    original = topic_rules._decide_marker

    def decide(state: Any, command: WriteMarker) -> Any:
        topic_rules._check_segments(state, command.segments)
        return original(state, command)

    patch.setattr(topic_rules, "_decide_marker", decide)


def _without_a_bound(patch: Patch) -> None:
    """A command waits as long as any carrier writes."""
    patch.setattr(
        replica,
        "leaves_to_carrier",
        lambda known, since_ms, looks, now_ms, trip_ms: (
            known is not None and known.carries and looks < 150
        ),
    )


_RULES = "tests/unit/coordinator/test_marker_carrier.py::"
_JOURNAL = "tests/unit/journal/replication/test_carrier_rules.py::"

BUGS_OF_CARRYING: Mapping[str, tuple[Callable[[Patch], None], str]] = {
    "without R43": (
        without_R43,
        f"{_RULES}test_R43_a_transaction_is_complete_only_when_every_topic_has_its_marker",
    ),
    "without R44": (
        without_R44,
        f"{_RULES}test_R44_marker_matches_the_coordinators_state_of_the_transaction",
    ),
    "without R46": (
        without_R46,
        f"{_RULES}test_R46_marker_is_refused_by_order_or_a_closed_topic_but_not_by_the_horizon",
    ),
    "waiting for a carrier without a limit (I16)": (
        _without_a_bound,
        f"{_JOURNAL}test_I16_command_waiting_for_a_dead_carrier_publishes_after_carried_ms",
    ),
}
"""Planted bug -> the function that plants it, and the test that detects it."""
