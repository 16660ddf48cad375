"""R17: a writer that refers to a staged segment during a vacuum is refused, or its segment
stays."""

from collections.abc import Callable
from typing import TypeAlias

import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import Call, Effect, ScriptedStore, preceded_by, unavailable
from txlog.client.half_messages.half_message import Message
from txlog.client.half_messages.half_store import stage
from txlog.engine.transaction_session import TransactionSession
from txlog.errors import SegmentExpired, StoreUnavailable
from txlog.journal.beginning import first_entry
from txlog.maintenance.vacuum import Vacuum
from txlog.topic.events import AppendBatches

DAY_MS = 86_400_000
NAME = "slow"

Step: TypeAlias = Callable[["Slow"], None]


class Slow:
    """A writer that staged a record of `u` long ago and is about to refer to it."""

    def __init__(self, log: MemoryLog) -> None:
        self.connection = log.process()
        self.session = TransactionSession(self.connection, NAME, timeout_ms=1_000)
        self.session.register("instance")
        self.tx_id = self.session.begin()
        self.staged = stage(self.connection, [Message("u", b"slow")], str(self.tx_id))
        self.coordinator = self.connection.coordinator_of(NAME)
        log.clock.advance(DAY_MS + 1)

    def append(self) -> None:
        """Refer to the segment in the topic's journal, without a transaction."""
        (participant,) = self.staged
        self.connection.cluster.topic("u").execute(AppendBatches(participant.segments))

    def decide(self) -> None:
        """Refer to the segment in its coordinator's journal; the topic gets the marker later."""
        self.coordinator.prepare_commit(NAME, self.tx_id, self.staged)

    def journal_of(self, step: Step) -> str:
        """The journal to which the step writes the reference."""
        return (
            "topics/u/"
            if step is Slow.append
            else f"transactions/.*/{self.coordinator.number}/entries"
        )


STEPS = pytest.mark.parametrize("step", [Slow.append, Slow.decide])


def horizon_is_raised(log: MemoryLog, slow: Slow, step: Step, effect: Effect) -> int:
    """Run a vacuum during which `step` runs as it raises the horizon of the journal that `step`
    writes to. Returns the number of deleted objects."""
    store = ScriptedStore(log.memory)
    collector = Vacuum(log.process(store), DAY_MS)
    found = collector.find_candidates()
    assert len(found.objects) == 1
    raised = store.on("create", slow.journal_of(step), effect, holding="horizon_advanced")
    deleted = collector.sweep(found).objects
    assert raised.met == 1
    return deleted


@STEPS
def test_R17_segment_referenced_just_before_the_horizon_rises_is_kept(
    log: MemoryLog, step: Step
) -> None:
    slow = Slow(log)
    assert horizon_is_raised(log, slow, step, preceded_by(lambda: step(slow))) == 0
    slow.coordinator.maintain()
    assert log.values("u") == [b"slow"]
    log.check()


@STEPS
def test_R17_reference_to_a_segment_just_after_the_horizon_rises_is_refused(
    log: MemoryLog, step: Step
) -> None:
    slow = Slow(log)

    def raised(call: Call) -> object:
        result = call()
        with pytest.raises(SegmentExpired):
            step(slow)
        return result

    assert horizon_is_raised(log, slow, step, raised) == 1
    slow.coordinator.maintain()
    assert log.values("u") == []
    log.check()


def test_R17_horizon_recorded_only_in_topics_allows_no_deletion(log: MemoryLog) -> None:
    """The vacuum that raised the horizon was interrupted; the next one keeps more."""
    slow = Slow(log)
    store = ScriptedStore(log.memory)
    collector = Vacuum(log.process(store), DAY_MS)
    found = collector.find_candidates()
    store.on("create", "transactions/", unavailable, times=100)
    with pytest.raises(StoreUnavailable):
        collector.sweep(found)
    patient = Vacuum(log.process(), 2 * DAY_MS)
    assert patient.find_candidates().is_empty
    assert patient.sweep(found).objects == 0
    slow.decide()
    slow.coordinator.maintain()
    assert log.values("u") == [b"slow"]
    log.check()


def test_R63_creation_that_is_withdrawn_between_listing_and_reading_is_not_damage(
    log: MemoryLog,
) -> None:
    """Of two processes that create a topic, the second one removes its first entry."""
    layout = log.connection.cluster.layout.topic("v", "00000009deadbeef")
    path = layout.entry(0)
    log.memory.put_new(path, first_entry(layout, log.process().runtime, "test"))
    store = ScriptedStore(log.memory)

    def withdrawn(call: Call) -> object:
        log.memory.delete(path)
        return call()

    rule = store.on("get", path, withdrawn)
    assert Vacuum(log.process(store), DAY_MS).find_candidates().topics == ()
    assert rule.met == 1
