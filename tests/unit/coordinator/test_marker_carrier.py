"""What a process carries into a topic for other processes: their decided markers, nothing else."""

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from tests.protocol.steps import coordinator, finish, participant, prepare, register, shown, tx_of
from tests.protocol.world import World
from tests.unit.coordinator.coordinator_commands import (
    PID,
    TOPIC_A,
    TOPIC_B,
    abort,
    begin,
    commit,
    complete,
    registered,
)
from tests.unit.machine_without_journal import MachineHarness
from tests.unit.segments import segment
from tests.unit.topic_commands import marker, new_topic
from txlog.client.admin import Admin
from txlog.clock import ThreadBackground
from txlog.coordinator.events import Participant
from txlog.coordinator.marker_carrier import (
    ACTIVE_SLOTS,
    BROUGHT_BATCHES_MAX,
    BROUGHT_MAX,
    OPENINGS_MAX,
    MarkerCarriers,
    active_coordinators,
    markers_to_bring,
)
from txlog.coordinator.state import CoordinatorState
from txlog.coordinator.transaction import TransactionState
from txlog.errors import StoreUnavailable
from txlog.fan_out import SerialFanOut
from txlog.model import Decision, TxId
from txlog.settings import TopicConfig
from txlog.topic.events import CloseTopic, RetireProducers, TopicOpened, WriteMarker
from txlog.topic.machine import TopicMachine
from txlog.topic.state import TopicState

T = TypeVar("T")
A = "aaaaaaaaaaaaaaaa"
AT_MS = 1_000_000
STAGED = Participant(A, "t", segments=(segment({0: 2}, folder=f"topics/t/{A}"),))


@pytest.fixture
def topic() -> MachineHarness[TopicState]:
    """A topic with the id A and three partitions."""
    harness = MachineHarness(TopicMachine())
    harness.run(TopicOpened(A, "t", 3, "schema 0", TopicConfig()))
    return harness


def brought(
    topic: MachineHarness[TopicState], *states: CoordinatorState
) -> tuple[WriteMarker, ...]:
    """Markers that a process with these coordinators, numbered from 3, brings."""
    return markers_to_bring(topic.state, list(enumerate(states, 3)), AT_MS)


def concurrent(*numbers: int) -> MachineHarness[CoordinatorState]:
    """An id with these transactions open at the same time in its epoch 3."""
    known = registered(3, concurrent=True)
    for number in numbers:
        known.run(begin(TxId(PID, 3, number), participants=(STAGED,)))
    return known


def test_R44_marker_matches_the_coordinators_state_of_the_transaction(
    topic: MachineHarness[TopicState],
) -> None:
    """The floor stays below the id's open transactions, and the other topic is named."""
    known = concurrent(4, 5, 6)
    other = replace(TOPIC_B)
    known.run(commit(TxId(PID, 3, 5), participants=(other,)))
    (found,) = brought(topic, known.state)
    assert found == WriteMarker(
        tx_id=TxId(PID, 3, 5),
        decision=Decision.COMMIT,
        floor=3,
        coordinator=3,
        fence_epoch=-1,
        topic_ids=(A, other.topic_id),
        segments=STAGED.segments,
        at_ms=AT_MS,
    )


def test_R44_abort_marker_is_brought_with_its_fence_epoch(
    topic: MachineHarness[TopicState],
) -> None:
    known = concurrent(4)
    known.run(abort(TxId(PID, 3, 4), fence=True))
    (found,) = brought(topic, known.state)
    assert (found.decision, found.fence_epoch) == (Decision.ABORT, 4)


def test_R44_markers_of_one_id_are_brought_in_number_order(
    topic: MachineHarness[TopicState],
) -> None:
    known = concurrent(4, 5, 6)
    for number in (6, 4):
        known.run(commit(TxId(PID, 3, number)))
    assert [found.tx_id.number for found in brought(topic, known.state)] == [4, 6]


def test_R44_only_decided_incomplete_transactions_of_the_topic_are_brought(
    topic: MachineHarness[TopicState],
) -> None:
    known = concurrent(4)
    assert brought(topic, known.state) == ()
    elsewhere = registered(3)
    elsewhere.run(commit(TxId(PID, 3, 0), participants=(TOPIC_A,)))
    assert brought(topic, elsewhere.state) == ()
    known.run(commit(TxId(PID, 3, 4)))
    assert len(brought(topic, known.state, elsewhere.state)) == 1
    known.run(complete(TxId(PID, 3, 4)))
    assert brought(topic, known.state) == ()


def test_R44_no_marker_is_brought_to_another_incarnation_of_the_topic(
    topic: MachineHarness[TopicState],
) -> None:
    known = concurrent(4)
    known.run(commit(TxId(PID, 3, 4)))
    state = replace(topic.state, topic_id="bbbbbbbbbbbbbbbb")
    assert markers_to_bring(state, [(0, known.state)], AT_MS) == ()


def test_R44_marker_that_the_topic_has_or_cannot_apply_is_left_out(
    topic: MachineHarness[TopicState],
) -> None:
    known = concurrent(4)
    known.run(commit(TxId(PID, 3, 4)))
    assert len(brought(topic, known.state)) == 1
    for changes in (
        {"partitions": ()},
        {"schemas": ()},
        {"closed": True},
    ):
        changed = replace(topic.state, **changes)
        assert markers_to_bring(changed, [(0, known.state)], AT_MS) == ()
    topic.run(marker(TxId(PID, 3, 4), segments=STAGED.segments))
    assert brought(topic, known.state) == ()


def test_R44_no_marker_of_a_retired_producer_is_brought(topic: MachineHarness[TopicState]) -> None:
    known = concurrent(4)
    known.run(commit(TxId(PID, 3, 4)))
    topic.run(marker(TxId(PID, 2, 0)))
    topic.run(RetireProducers((PID,), 1 << 40))
    assert brought(topic, known.state) == ()


def test_I16_markers_brought_at_once_are_limited_in_number_and_batches(
    topic: MachineHarness[TopicState],
) -> None:
    known = concurrent(*range(BROUGHT_MAX + 5))
    for number in range(BROUGHT_MAX + 5):
        known.run(commit(TxId(PID, 3, number)))
    assert len(brought(topic, known.state)) == BROUGHT_MAX
    wide = segment({0: [1] * (BROUGHT_BATCHES_MAX // 2 + 1)}, folder=f"topics/t/{A}")
    known = registered(3, concurrent=True)
    for number in range(3):
        tx_id = TxId(PID, 3, number)
        known.run(commit(tx_id, participants=(Participant(A, "t", segments=(wide,)),)))
    assert len(brought(topic, known.state)) == 1


# Which coordinators.


def test_coordinator_is_active_while_the_topic_has_a_recent_marker_of_it(
    topic: MachineHarness[TopicState],
) -> None:
    assert active_coordinators(topic.state) == frozenset()
    topic.run(marker(TxId(1, 0, 0), coordinator=7))
    assert active_coordinators(topic.state) == {7}
    for number in range(ACTIVE_SLOTS):
        topic.run(marker(TxId(2, 0, number), coordinator=4))
    assert active_coordinators(topic.state) == {4}


# Rounds.


@pytest.fixture
def world() -> World:
    world = World()
    world.create_topics("a", "b")
    return world


def test_R43_a_transaction_is_complete_only_when_every_topic_has_its_marker(world: World) -> None:
    process, helper = world.process(), world.process()
    tx = tx_of(register(process, "i"))
    parts = (participant(process, "a", 1), participant(process, "b", 2))
    prepare(process, tx, *parts, groups=())
    topic = helper.topic("b")
    topic.catch_up()

    def fail() -> None:
        raise StoreUnavailable("no answer; call again.")

    helper.store.before("create", topic.layout.entry(topic.next_slot), fail)
    with pytest.raises(StoreUnavailable):
        coordinator(helper).finish("x", tx)
    known = coordinator(world.process()).catch_up().ids["x"]
    assert known.state is TransactionState.PREPARE_COMMIT
    coordinator(helper).finish("x", tx)
    assert coordinator(world.process()).catch_up().ids["x"].open == {}
    assert (shown(world, "a"), shown(world, "b")) == ([1], [2])


def test_R43_a_carrier_brings_markers_and_completes_nothing(world: World) -> None:
    process, carrier = world.process(), world.process()
    registration = register(process, "i")
    before, tx = tx_of(registration), tx_of(registration, 1)
    prepare(process, before, participant(process, "a", 0), groups=())
    finish(process, before)  # The coordinator must be known to be active.
    parts = (participant(process, "a", 1), participant(process, "b", 2))
    prepare(process, tx, *parts, groups=())
    topic = carrier.topic("a")
    topic.catch_up()
    coordinator(carrier).catch_up()
    carriers = MarkerCarriers(carrier.connection.runtime, carrier.connection.coordinators)
    topic.journal.is_carrying = True
    carriers._carry(topic)
    assert (shown(world, "a"), shown(world, "b")) == ([0, 1], [])
    known = coordinator(world.process()).catch_up().ids["x"]
    assert known.state is TransactionState.PREPARE_COMMIT
    assert not topic.journal.is_carrying, "it found nothing more"
    assert coordinator(process).write_markers("x", tx) == {
        parts[0].topic_id: {0: 1},
        parts[1].topic_id: {0: 0},
    }, "its own process finds it there, and where its records are"


def test_carrier_opens_at_most_openings_max_coordinators_at_once_and_retries(
    world: World,
) -> None:
    """Most carriers end soon, so opening all coordinators at once would be wasted."""
    process = world.process()
    topic = process.topic("a")
    topic.catch_up()
    for number in range(OPENINGS_MAX + 2):
        topic.execute(marker(TxId(50 + number, 0, 0), coordinator=number))
    opened: list[int] = []
    under_way: list[Callable[[], object]] = []

    class Later(SerialFanOut):
        def start(self, call: Callable[[], T]) -> Callable[[], T]:
            under_way.append(call)
            return call

    class Slow:
        is_open = False

        def __init__(self, number: int) -> None:
            self.number, self.journal = number, self

        def catch_up(self) -> None:
            opened.append(self.number)
            if opened.count(self.number) == 1:
                raise StoreUnavailable("no answer; call again.")
            self.is_open = True

        state = CoordinatorState()

        def look_ahead(self, count: int) -> CoordinatorState:
            return self.state

    slow = [Slow(number) for number in range(OPENINGS_MAX + 2)]
    runtime = replace(process.connection.runtime, fan_out=Later())
    carriers = MarkerCarriers(runtime, lambda: slow)  # type: ignore[return-value, arg-type]
    assert carriers._active(topic) == []
    assert carriers._active(topic) == []
    assert len(under_way) == OPENINGS_MAX
    while not all(one.is_open for one in slow):
        calls, under_way[:] = list(under_way), []
        for call in calls:
            call()
        carriers._active(topic)
    assert carriers._active(topic) == slow
    assert sorted(opened) == sorted(2 * list(range(OPENINGS_MAX + 2)))


class WonAtTheEnd:
    """A journal whose process wins a contended slot just when its carrier ends."""

    def __init__(self) -> None:
        self.on_win: Callable[[], object] | None = None
        self._is_carrying = True

    @property
    def is_carrying(self) -> bool:
        return self._is_carrying

    @is_carrying.setter
    def is_carrying(self, value: bool) -> None:
        on_win, self.on_win = self.on_win, None
        self._is_carrying = value or on_win is not None
        if on_win is not None:
            on_win()


def test_a_process_whose_entries_say_that_it_carries_has_a_carrier(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Callable[[], object]] = []
    background = SimpleNamespace(begin=begun.append)
    runtime = replace(world.process().connection.runtime, background=background)
    carriers = MarkerCarriers(runtime, list)
    monkeypatch.setattr(carriers, "_carry_on", lambda topic: None)
    topic: Any = SimpleNamespace(topic_id=A, name="a", journal=WonAtTheEnd())
    topic.journal.on_win = partial(carriers.begin, topic)
    carriers.begin(topic)
    begun[0]()
    assert (topic.journal.is_carrying, len(begun)) == (True, 2)


def test_carrier_for_which_no_thread_is_left_fails_no_command_and_makes_none_wait(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = replace(world.process().connection.runtime, background=ThreadBackground())
    carriers = MarkerCarriers(runtime, list)
    carried = threading.Event()
    monkeypatch.setattr(carriers, "_carry_on", lambda topic: carried.set())
    topic: Any = SimpleNamespace(topic_id=A, name="a", journal=SimpleNamespace(is_carrying=True))

    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as no_thread:
        no_thread.setattr(threading.Thread, "start", refused)
        carriers.begin(topic)
    assert not topic.journal.is_carrying
    carriers.begin(topic)
    assert carried.wait(20), "a later slot begins another one"


def test_R46_marker_is_refused_by_order_or_a_closed_topic_but_not_by_the_horizon() -> None:
    """A raised horizon stops no marker."""
    topic = new_topic()
    topic.state = replace(topic.state, horizon="z")
    tx = TxId(1, 0, 0)
    topic.run(marker(TxId(1, 5, 0)))
    assert topic.run(marker(TxId(2, 0, 0), segments=(segment({0: 1}),))) == {0: 0}
    assert topic.run(marker(tx)) is None, "of an epoch before"
    topic.run(CloseTopic())
    assert topic.run(marker(TxId(3, 0, 0), segments=(segment({0: 1}),))) is None


def test_R46_marker_of_a_retired_producer_is_refused_and_changes_nothing() -> None:
    """All of its transactions were complete; the topic no longer knows which."""
    topic = new_topic()
    for pid in (1, 2):
        topic.run(marker(TxId(pid, 0, 0), segments=(segment({0: 1}),)))
    topic.run(RetireProducers((1,), 1 << 40))
    before = topic.state
    late = (segment({0: 4}, "late"),)
    for number in (0, 1):
        assert topic.run(marker(TxId(1, 0, number), segments=late)) is None
    assert topic.run(marker(TxId(1, 9, 0), Decision.ABORT)) is None
    assert topic.state == before
    assert topic.run(marker(TxId(2, 0, 1), segments=late)) == {0: 2}, "of another producer"


@pytest.mark.parametrize("is_known", [True, False], ids=["old one known", "new one known"])
def test_R46_R11_marker_for_a_deleted_topic_changes_no_later_incarnation(
    world: World, is_known: bool
) -> None:
    """The decision names the old incarnation. It completes, and the other topic has its marker."""
    process, helper = world.process(), world.process()
    tx = tx_of(register(process, "i"))
    parts = (participant(process, "a", 1), participant(process, "b", 2))
    prepare(process, tx, *parts, groups=())
    if is_known:
        helper.topic("a").catch_up()
    Admin(world.process().connection).delete_topics(["a"])
    world.create_topics("a")
    if not is_known:
        helper.topic("a").catch_up()
    coordinator(helper).finish("x", tx)
    assert coordinator(world.process()).catch_up().ids["x"].open == {}
    assert (shown(world, "a"), shown(world, "b")) == ([], [2])
    recreated = world.process().topic("a")
    assert recreated.topic_id != parts[0].topic_id
    assert recreated.catch_up().producers == {}
