"""A limited number of outcomes is remembered, in generations; older ones are unknown."""

import json
from functools import partial

import pytest

from tests.unit.coordinator.coordinator_commands import (
    PID,
    abort,
    begin,
    commit,
    complete,
    registered,
)
from tests.unit.machine_without_journal import sections_of
from txlog.coordinator.events import TransactionBarred
from txlog.coordinator.outcomes import _TEXT_MAX, Outcome, OutcomeGeneration, tagged
from txlog.coordinator.state import (
    OUTCOME_GENERATION,
    OUTCOME_GENERATIONS_MAX,
    CoordinatorState,
    TransactionalId,
    apply,
)
from txlog.coordinator.transaction import transactional_ids
from txlog.errors import CorruptData
from txlog.groups.machine import CoordinatorJournalState, CoordinatorMachine
from txlog.model import WALL_MS_MAX, Decision, TxId

REMEMBERED = OUTCOME_GENERATION * OUTCOME_GENERATIONS_MAX


def tx(number: int) -> TxId:
    return TxId(PID, 0, number)


def test_outcome_is_remembered_by_transaction_and_by_tag() -> None:
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
    state = CoordinatorState(transactional_ids({"x": TransactionalId(PID, 0, "i", 1, 1)}))
    for number in range(REMEMBERED + 2 * OUTCOME_GENERATION + 5):
        state = apply(state, TransactionBarred("x", tx(number), 0))
    return state


def test_I16_number_of_remembered_outcomes_is_bounded(long_lived: CoordinatorState) -> None:
    assert len(long_lived.outcomes) == OUTCOME_GENERATIONS_MAX + 1
    assert sum(map(len, long_lived.outcomes)) <= REMEMBERED + OUTCOME_GENERATION


def test_newest_outcomes_are_remembered_and_the_oldest_is_dropped(
    long_lived: CoordinatorState,
) -> None:
    last = long_lived.ids["x"].begun_number
    assert all(long_lived.outcome(tx(n)) for n in range(last - REMEMBERED + 1, last + 1))
    assert long_lived.outcome(tx(0)) is None


def test_snapshot_keeps_the_outcome_generations(long_lived: CoordinatorState) -> None:
    machine, state = CoordinatorMachine(), CoordinatorJournalState(long_lived)
    assert machine.decode_state(sections_of(machine, state)) == state


SOME = {
    tx(0): Outcome(Decision.COMMIT, 5, "order"),
    tx(1): Outcome(Decision.ABORT, 9),
    tx(2): Outcome(Decision.COMMIT, 7, "", dead_letter=True),
}


def test_outcome_generation_round_trips_as_compact_text() -> None:
    text = OutcomeGeneration.of(SOME).text
    assert dict(OutcomeGeneration.of_text(text)) == SOME
    assert " " not in text


def test_tagged_finds_the_same_in_a_dict_and_in_a_generation() -> None:
    tags = ["a", "", "b", "a"]
    outcomes = {tx(n): Outcome(Decision.COMMIT, n, tag=tag) for n, tag in enumerate(tags)}
    for found in (outcomes, OutcomeGeneration.of(outcomes)):
        assert list(tagged(found, "a")) == [tx(0), tx(3)]
        assert list(tagged(found, "b")) == [tx(2)]
        assert list(tagged(found, "c")) == []


def test_generation_of_a_generation_is_the_same_object() -> None:
    generation = OutcomeGeneration.of(SOME)
    assert OutcomeGeneration.of(generation) is generation


@pytest.mark.parametrize("column", ["producer_ids", "producer_epochs", "numbers", "steps_ms"])
def test_generation_that_lacks_a_value_is_corrupt_data(column: str) -> None:
    columns = json.loads(OutcomeGeneration.of(SOME).text)
    columns[column].pop()
    with pytest.raises(CorruptData, match="outcomes that cannot be read"):
        len(OutcomeGeneration.of_text(json.dumps(columns)))


@pytest.mark.parametrize(
    ("first_ms", "is_time"), [(-1, True), (-2, False), (WALL_MS_MAX + 1, False)]
)
def test_I15_generation_with_a_time_that_no_clock_shows_is_corrupt_data(
    first_ms: int, is_time: bool
) -> None:
    """-1 stands for a time that is not known."""
    columns = json.loads(OutcomeGeneration.of(SOME).text)
    columns["steps_ms"] = [first_ms] + [0] * (len(columns["steps_ms"]) - 1)
    read = partial(len, OutcomeGeneration.of_text(json.dumps(columns)))
    if is_time:
        assert read() == len(SOME)
    else:
        with pytest.raises(CorruptData, match="a time that no clock shows"):
            read()


@pytest.mark.parametrize(("surplus", "fits"), [(0, True), (1, False)])
def test_I16_text_of_a_generation_is_bounded(surplus: int, fits: bool) -> None:
    text = OutcomeGeneration.of(SOME).text
    padded = OutcomeGeneration.of_text(text + " " * (_TEXT_MAX - len(text) + surplus))
    if fits:
        assert dict(padded) == SOME
    else:
        with pytest.raises(CorruptData, match=f"{_TEXT_MAX + 1} characters"):
            len(padded)
