"""Several commands of one caller in one entry: all or nothing, or each by itself."""

import pytest

from tests.stores.faulty_stores import HookedStore
from tests.unit.journal.shelf_journal import LAYOUT, new_store, process, written
from tests.unit.journal.shelf_machine import Look, Put, Take
from txlog.errors import IllegalTransition
from txlog.journal.entry import decode_entry
from txlog.journal.machine import Together


def test_together_publishes_one_entry_and_returns_one_answer_per_command() -> None:
    store = new_store()
    answers = process(store).execute(Together((Put("a"), Look("a"), Put("b"), Put("a"))))
    assert answers == [True, True, True, False]
    assert (written(store, 0), store.get(LAYOUT.entry(1))) == (["a", "b"], None)


def test_each_command_is_decided_on_the_state_after_the_previous_ones() -> None:
    store = new_store()
    replica = process(store)
    assert replica.execute(Together((Put("a"), Put("b"), Take("a")))) == [True, True, 2]
    assert replica.state == process(store).catch_up() == ("b",)


@pytest.mark.parametrize("refused", [0, 1, 2])
def test_together_publishes_nothing_if_one_command_is_refused(refused: int) -> None:
    store = new_store()
    replica = process(store)
    commands: list[object] = [Put("a"), Put("b")]
    commands.insert(refused, Take("missing"))
    with pytest.raises(IllegalTransition, match="missing is not there"):
        replica.execute(Together(tuple(commands)))
    assert (replica.state, store.get(LAYOUT.entry(0))) == ((), None)


def test_together_decides_all_commands_again_after_a_lost_slot() -> None:
    store = HookedStore(new_store())
    other, replica = process(store), process(store)
    store.before("create", LAYOUT.entry(0), lambda: other.execute(Put("a")))
    assert replica.execute(Together((Put("a"), Put("b")))) == [False, True]
    assert written(store, 1) == ["b"]
    other.catch_up()
    store.before("create", LAYOUT.entry(2), lambda: other.execute(Take("a")))
    with pytest.raises(IllegalTransition):
        replica.execute(Together((Put("c"), Take("a"))))
    assert (store.is_met, process(store).catch_up()) == (True, ("b",))


def test_execute_each_publishes_the_other_commands_if_one_is_refused() -> None:
    store = new_store()
    replica = process(store)
    with pytest.raises(IllegalTransition):
        replica.execute_each([Put("a"), Take("missing"), Put("b")])
    assert (written(store, 0), replica.state) == (["a", "b"], ("a", "b"))
    assert replica.execute_each([Take("a"), Put("a"), Look("b")]) == [2, True, True]
    data = store.get(LAYOUT.entry(1))
    assert data is not None
    kinds = [event["type"] for event in decode_entry(data, LAYOUT.entry(1), 1)[0].events]
    assert kinds == ["thing_taken", "thing_put"]
