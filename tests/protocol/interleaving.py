"""A random history of several processes on one log, with conditions that must hold at every step.

One seed is one history: the steps, the times of crashes and every token are drawn from it.
"""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial

from tests.protocol.sessions import (
    TIMEOUT_MS,
    HalfMessages,
    Ledger,
    MicroBatches,
    Producer,
    StaleHelper,
)
from tests.protocol.world import Process, World, visible
from tests.stores.faulty_stores import LateWrite, ProcessDied
from txlog.errors import (
    AbortableError,
    FencedError,
    IllegalTransition,
    OutcomeUnknown,
    RetriableError,
)
from txlog.model import Decision, IsolationLevel, TopicPartition, TransactionOutcome, TxId
from txlog.topic.events import AppendBatches
from txlog.verify.invariants import LogFacts, log_facts

TOPICS = ("a", "b")
SOURCE_RECORDS = 40
PROCESSES = 3
EXPECTED = (RetriableError, AbortableError, FencedError, IllegalTransition, OutcomeUnknown)
"""The errors that the protocol may answer with. InternalError and CorruptData are bugs and fail the
test."""

WEIGHTS = {
    "producer_registers": 1,
    "producer_declares": 30,
    "producer_appends": 30,
    "producer_prepares": 16,
    "producer_applies": 4,
    "producer_completes": 8,
    "producer_aborts": 3,
    "query_goes_on": 25,
    "consumer_goes_on": 25,
    "half_message_begins": 30,
    "half_message_ends": 24,
    "helper_looks_after_everything": 3,
    "helper_stalls": 6,
    "helper_comes_late": 6,
    "time_passes": 3,
    "journal_is_pruned": 3,
    "process_will_die": 4,
    "answer_will_be_lost": 3,
    "write_will_be_late": 3,
    "late_write_lands": 4,
}
STORM = {**WEIGHTS, "journal_is_pruned": 20, "write_will_be_late": 15, "late_write_lands": 15}
"""More of the events that R15 concerns: stalled writers, and journals that are pruned meanwhile."""

QUERY_SINKS, CONSUMER_SINKS = ("out1", "out2"), ("out3",)
QUERY_GROUP, CONSUMER_GROUP = "g", "h"
ALL_TOPICS = (*TOPICS, *QUERY_SINKS, *CONSUMER_SINKS)


class Interleaving:
    """Three processes: each has a producer, a run of the one query, a consumer and a helper."""

    def __init__(self, choices: random.Random) -> None:
        """`choices` makes every choice, from a seed or through hypothesis."""
        self.random = choices
        self.trace: list[str] = []
        self.counts: Counter[str] = Counter()
        self.world = World()
        self.ledger = Ledger()
        self.runs = 0
        self.leader = 0
        self.late: list[LateWrite] = []
        self.seen: dict[str, dict[int, int]] = {}
        self.shown: dict[str, dict[int, int]] = {}
        self.decisions: dict[TxId, Decision] = {}
        self.world.create_topics(MicroBatches.source, *ALL_TOPICS)
        source = self.world.process()
        segment = source.stage(MicroBatches.source, range(SOURCE_RECORDS))
        source.topic(MicroBatches.source).execute(AppendBatches((segment,)))
        self.processes = [self.world.process() for _ in range(PROCESSES)]
        # Two instances of one id, which fence each other, and one of another id.
        self.producers = [
            Producer(process, f"id {index % 2}", self.ledger)
            for index, process in enumerate(self.processes)
        ]
        self.queries = [self._new_run(process) for process in self.processes]
        self.consumers = [
            self._consumer(process, index) for index, process in enumerate(self.processes)
        ]
        self.helpers = [StaleHelper(process) for process in self.processes]
        # The first two share an id, as two instances of one service do.
        self.halves = [
            HalfMessages(process, f"half {index // 2}", self.ledger)
            for index, process in enumerate(self.processes)
        ]

    def run(self, steps: int, check_every: int, weights_by_name: Mapping[str, int]) -> None:
        """Run this many steps, then finish the history."""
        names, weights = list(weights_by_name), list(weights_by_name.values())
        for number in range(steps):
            (name,) = self.random.choices(names, weights)
            index = self.random.randrange(PROCESSES)
            self.trace.append(f"{name} {index}")
            getattr(self, name)(index)
            if number % check_every == 0:
                self.everything_holds()
        self.finish()

    def _new_run(self, process: Process) -> MicroBatches:
        self.runs += 1
        return MicroBatches(process, "query", f"run {self.runs}", QUERY_GROUP, QUERY_SINKS)

    def _consumer(self, process: Process, index: int) -> MicroBatches:
        return MicroBatches(process, f"consumer {index}", "", CONSUMER_GROUP, CONSUMER_SINKS)

    # Steps.

    def producer_registers(self, index: int) -> None:
        self._try(index, self.producers[index].init)

    def producer_declares(self, index: int) -> None:
        producer = self.producers[index]
        if not producer.is_registered and self.random.random() < 0.2:
            self._try(index, producer.init)
        self._try(index, lambda: producer.declare(self.random.choice(TOPICS)))

    def producer_appends(self, index: int) -> None:
        self._try(index, self.producers[index].append)

    def producer_prepares(self, index: int) -> None:
        self._try(index, self.producers[index].prepare)

    def producer_applies(self, index: int) -> None:
        self._try(index, self.producers[index].apply)

    def producer_completes(self, index: int) -> None:
        self._try(index, self.producers[index].complete)

    def producer_aborts(self, index: int) -> None:
        self._try(index, self.producers[index].abort)

    def query_goes_on(self, index: int) -> None:
        # Mostly one run: runs that fence each other all the time commit nothing.
        if self.random.random() < 0.05:
            self.leader = index
        index = index if self.random.random() < 0.1 else self.leader
        refused = self._batch_goes_on(index, self.queries[index])
        if isinstance(refused, FencedError):
            self.queries[index] = self._new_run(self.processes[index])

    def consumer_goes_on(self, index: int) -> None:
        self._batch_goes_on(index, self.consumers[index])

    def _batch_goes_on(self, index: int, batches: MicroBatches) -> Exception | None:
        length, waits = self.random.randint(1, 3), self.random.random() < 0.8
        step = partial(batches.step, length, SOURCE_RECORDS, waits=waits)
        refused = self._try(index, step)
        if refused:
            self._try(index, batches.give_up)
        return refused

    def half_message_begins(self, index: int) -> None:
        self._half(index, partial(self.halves[index].begin, self.random.choice(TOPICS)))

    def half_message_ends(self, index: int) -> None:
        choice, waits = self.random.randrange(9), self.random.random() < 0.7
        decision = self.random.choice([Decision.COMMIT, Decision.COMMIT, Decision.ABORT])
        self._half(index, partial(self.halves[index].end, choice, decision, waits=waits))

    def _half(self, index: int, step: Callable[[], object]) -> None:
        refused = self._try(index, step)
        if isinstance(refused, FencedError | AbortableError):
            self.halves[index].give_up()

    def helper_looks_after_everything(self, index: int) -> None:
        self._try(index, self._maintain(self.processes[index]))

    def _maintain(self, process: Process) -> Callable[[], object]:
        return lambda: [c.maintain() for c in process.connection.coordinators()]

    def time_passes(self, index: int) -> None:
        self.world.clock.advance(self.random.choice([1, TIMEOUT_MS // 2, TIMEOUT_MS + 1]))

    def helper_stalls(self, index: int) -> None:
        self._try(index, self.helpers[index].remember)

    def helper_comes_late(self, index: int) -> None:
        self._try(index, lambda: self.helpers[index].apply_late(self.random.randrange(9)))

    def journal_is_pruned(self, index: int) -> None:
        connection, keep = self.processes[index].connection, self._keep()
        journal = self.random.choice([*ALL_TOPICS, "transactions"])
        if journal == "transactions":
            self._try(index, lambda: connection.coordinator(0).journal.prune(keep))
        else:
            self._try(index, lambda: self.processes[index].topic(journal).journal.prune(keep))

    def _keep(self) -> int:
        return self.random.randint(0, 3)

    # Faults.

    def process_will_die(self, index: int) -> None:
        self.processes[index].store.die_at(self._keep(), after=self.random.random() < 0.5)

    def answer_will_be_lost(self, index: int) -> None:
        self.processes[index].store.next_entry_is_lost = True

    def write_will_be_late(self, index: int) -> None:
        self.processes[index].store.next_entry_is_late = True

    def late_write_lands(self, index: int) -> None:
        if self.late:
            self.late.pop(self.random.randrange(len(self.late))).land()

    def _try(self, index: int, step: Callable[[], object]) -> Exception | None:
        """The refusal, if the protocol refused; a process that dies is replaced by a new one."""
        process = self.processes[index]
        try:
            step()
        except ProcessDied:
            self.counts["died"] += 1
            self._replace(index)
        except EXPECTED as error:
            self.counts[type(error).__name__] += 1
            return error
        finally:
            self.late.extend(process.store.late)
            process.store.late.clear()
        return None

    def _replace(self, index: int) -> None:
        process = self.world.process()
        self.processes[index] = process
        self.producers[index] = Producer(process, self.producers[index].name, self.ledger)
        self.queries[index] = self._new_run(process)
        self.consumers[index] = self._consumer(process, index)
        self.helpers[index] = StaleHelper(process)
        self.halves[index] = HalfMessages(process, self.halves[index].name, self.ledger)

    # Conditions that must hold.

    def everything_holds(self) -> None:
        facts = log_facts(self.world.store)
        assert facts.all_findings() == []
        self._check_decisions(facts)
        reader = self.world.process()
        for name in ALL_TOPICS:
            self._check_topic(reader, name, facts)
        self._check_batches(reader, QUERY_GROUP, QUERY_SINKS)
        self._check_batches(reader, CONSUMER_GROUP, CONSUMER_SINKS)

    def _check_decisions(self, facts: LogFacts) -> None:
        """I4: decisions never change, and agree with the answers that processes got."""
        now = {
            tx_id: known.decision
            for tx_id, known in facts.coordinators[0].transactions.items()
            if known.decision is not None
        }
        for tx_id, decision in {**self.decisions, **self.ledger.answered}.items():
            assert now.get(tx_id) in (decision, None if decision is Decision.ABORT else decision)
        self.decisions = now

    def _check_topic(self, reader: Process, name: str, facts: LogFacts) -> None:
        """I2, I3: offsets are dense and fixed; visible records are committed, and stay visible."""
        stored = visible(reader, name, IsolationLevel.READ_UNCOMMITTED)
        assert sorted(stored) == list(range(len(stored)))
        assert stored.items() >= self.seen.get(name, {}).items()
        self.seen[name] = stored
        shown = visible(reader, name)
        assert shown.items() >= self.shown.get(name, {}).items()
        self.shown[name] = shown
        topic = next(t for t in facts.topics.values() if t.name == name)
        values = list(shown.values())
        for tx_id, records in self.ledger.records.items():
            found = [value for value in values if value in records.get(name, ())]
            is_in = self.decisions.get(tx_id) is Decision.COMMIT and topic.is_finished(tx_id)
            # I7: each acknowledged record is visible once, in order, up to the LSO.
            assert found == (records.get(name, [])[: len(found)] if is_in else [])
        if name in TOPICS:
            # R9: a record is never visible if its append was not acknowledged.
            acknowledged = [v for r in self.ledger.records.values() for v in r.get(name, ())]
            assert set(values) <= set(acknowledged)

    def _check_batches(self, reader: Process, name: str, sinks: tuple[str, ...]) -> None:
        """I5, I6, I10: each source record is once in each sink, and all up to the group's
        position."""
        group = reader.connection.offsets.group(name)
        at = group.committed.get(TopicPartition(MicroBatches.source, 0))
        position = 0 if at is None else at.offset
        for sink in sinks:
            values = list(self.shown[sink].values())
            assert values == list(range(len(values)))
            assert len(values) >= position

    def finish(self) -> None:
        """A later process finishes all transactions, and the query continues at its position."""
        while self.late:
            self.late.pop().land()
        self.world.clock.advance(TIMEOUT_MS + 1)
        last = self.world.process()
        for _ in range(2):
            self._maintain(last)()
        state = last.connection.coordinator(0).catch_up()
        assert list(state.open_transactions()) == []
        self.everything_holds()
        self._check_all_is_shown(last)
        self._run_to_the_end(last)
        self.everything_holds()

    def _check_all_is_shown(self, last: Process) -> None:
        """I5, also across topics: a committed transaction is visible as a whole."""
        for tx_id, records in self.ledger.records.items():
            outcome = last.connection.outcome(tx_id)
            for name, values in records.items():
                shown = [value for value in self.shown[name].values() if value in values]
                assert shown == (values if outcome is TransactionOutcome.COMMITTED else [])
        for name in TOPICS:
            topic = last.topic(name)
            assert list(topic.catch_up().open_transactions()) == []

    def _run_to_the_end(self, last: Process) -> None:
        for batches in (self._new_run(last), self._consumer(last, 0)):
            for _ in range(6 * SOURCE_RECORDS):
                batches.step(7, SOURCE_RECORDS)
            for sink in batches.sinks:
                assert list(visible(last, sink).values()) == list(range(SOURCE_RECORDS))
