"""A walk over a journal has each event once, and the parts of a shared journal know as much."""

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import preceded_by
from txlog.settings import LogSettings
from txlog.topic.events import BatchesAppended, TopicOpened
from txlog.topic.machine import TopicMachine
from txlog.verify.facts.journal_walk import walk_journal


def test_walk_that_pruning_overtakes_has_each_event_of_the_rest_once() -> None:
    log = MemoryLog(LogSettings(journal_snapshot_entries=4, entry_records_max_bytes=0))
    log.admin.create_topic("u", 1)
    for number in range(12):
        log.producer().send("u", b"%d" % number).get()
    topic = log.process().cluster.topic("u")
    topic.catch_up()
    rule = log.store.on("get", topic.layout.entry(6), preceded_by(lambda: topic.journal.prune(3)))
    walk = walk_journal(log.store, topic.layout, TopicMachine(4))
    assert rule.met
    slots = [step.slot for step in walk.steps if isinstance(step.event, BatchesAppended)]
    assert slots == list(range(walk.audit.base_slot + 1, 13))
    assert walk.is_pruned
    assert walk.findings == []


def test_part_of_a_walk_has_the_events_of_that_part_and_the_findings_of_the_whole() -> None:
    log = MemoryLog(LogSettings(journal_snapshot_entries=4, entry_records_max_bytes=0))
    log.admin.create_topic("u", 1)
    for number in range(4):
        log.producer().send("u", b"%d" % number).get()
    layout = log.connection.cluster.topic("u").layout
    log.memory.delete(layout.entry(3))
    walk = walk_journal(log.memory, layout, TopicMachine(4))
    part = walk.part(lambda state: state.partitions, BatchesAppended)
    assert (part.base, part.state) == (walk.base.partitions, walk.state.partitions)
    assert part.state[0].next_offset == 2
    assert not part.is_whole
    part.report("I2", "p", "it is wrong")
    assert [finding.invariant for finding in walk.findings] == ["I1", "I2"]
    assert [type(step.event) for step in walk.steps[:2]] == [TopicOpened, BatchesAppended]
    assert part.steps == walk.steps[1:]
