"""A limited number of outcomes is remembered, in generations; older ones are unknown."""

import json

import pytest

from tests.unit.coordinator.coordinator_commands import (
    PID,
    abort,
    begin,
    commit,
    complete,
    registered,
)
from txlog.coordinator.events import TransactionBarred
from txlog.coordinator.outcomes import Outcome, OutcomeGeneration, tagged
from txlog.coordinator.state import (
    OUTCOME_GENERATION,
    OUTCOME_GENERATIONS_MAX,
    CoordinatorState,
    TransactionalId,
    apply,
)
from txlog.errors import CorruptData
from txlog.groups.shared_journal import SharedMachine, SharedState
from txlog.model import Decision, TxId

REMEMBERED = OUTCOME_GENERATION * OUTCOME_GENERATIONS_MAX


def tx(number: int) -> TxId:
    return TxId(PID, 0, number)


def test_how_a_transaction_ended_is_remembered() -> None:
    coordinator = registered()
    for number, decide in enumerate((abort, abort, commit)):
        coordinator.run(begin(tx(number), tag=f"tag {number % 2}"))
        coordinator.run(decide(tx(number)))
        assert coordinator.state.outcome(tx(number)) is None
        coordinator.run(complete(tx(number)))
    outcomes = [coordinator.state.outcome(tx(number)) for number in range(3)]
    assert [o.decision if o else None for o in outcomes] == [
        Decision.ABORT,
        Decision.ABORT,
        Decision.COMMIT,
    ]
    assert coordinator.state.outcome(tx(3)) is None
    newest = coordinator.state.outcome_of_tag("tag 0")
    assert newest is not None
    assert newest[0] == tx(2)
    assert coordinator.state.outcome_of_tag("tag 7") is None


@pytest.fixture(scope="module")
def long_lived() -> CoordinatorState:
    """The state after somewhat more transactions than it remembers."""
    state = CoordinatorState({"x": TransactionalId(PID, 0, "i", 1, 1)})
    for number in range(REMEMBERED + 2 * OUTCOME_GENERATION + 5):
        state = apply(state, TransactionBarred("x", tx(number), 0))
    return state


def test_I16_the_memory_of_outcomes_is_bounded(long_lived: CoordinatorState) -> None:
    assert len(long_lived.outcomes) == OUTCOME_GENERATIONS_MAX + 1
    assert sum(map(len, long_lived.outcomes)) <= REMEMBERED + OUTCOME_GENERATION


def test_the_last_so_many_outcomes_are_known_at_least(long_lived: CoordinatorState) -> None:
    last = long_lived.ids["x"].begun_number
    assert all(long_lived.outcome(tx(n)) for n in range(last - REMEMBERED + 1, last + 1))
    assert long_lived.outcome(tx(0)) is None


def test_a_snapshot_keeps_the_generations(long_lived: CoordinatorState) -> None:
    machine, state = SharedMachine(), SharedState(long_lived)
    sections = {name: list(rows) for name, rows in machine.encode_state(state).items()}
    assert machine.decode_state(sections) == state


SOME = {
    tx(0): Outcome(Decision.COMMIT, 5, "order"),
    tx(1): Outcome(Decision.ABORT, 9),
    tx(2): Outcome(Decision.COMMIT, 7, "", dead_letter=True),
}


def test_a_generation_is_read_as_it_was_written() -> None:
    text = OutcomeGeneration.of(SOME).text
    assert dict(OutcomeGeneration.of_text(text)) == SOME
    assert " " not in text


def test_a_full_generation_finds_by_tag_what_any_other_finds() -> None:
    tags = ["a", "", "b", "a"]
    outcomes = {tx(n): Outcome(Decision.COMMIT, n, tag=tag) for n, tag in enumerate(tags)}
    for found in (outcomes, OutcomeGeneration.of(outcomes)):
        assert list(tagged(found, "a")) == [tx(0), tx(3)]
        assert list(tagged(found, "b")) == [tx(2)]
        assert list(tagged(found, "c")) == []


def test_a_generation_is_taken_over_as_it_is() -> None:
    generation = OutcomeGeneration.of(SOME)
    assert OutcomeGeneration.of(generation) is generation


@pytest.mark.parametrize("column", ["producer_ids", "producer_epochs", "numbers", "steps_ms"])
def test_a_generation_that_lacks_a_value_is_damaged(column: str) -> None:
    columns = json.loads(OutcomeGeneration.of(SOME).text)
    columns[column].pop()
    with pytest.raises(CorruptData, match="outcomes that cannot be read"):
        len(OutcomeGeneration.of_text(json.dumps(columns)))
