"""The sessions of processes on a log, one protocol step per call: a producer, a micro-batch run, a
helper."""

from dataclasses import dataclass, field

from tests.protocol.world import Process
from txlog.coordinator.coordinator import Coordinator
from txlog.coordinator.events import (
    InitProducer,
    OffsetRange,
    Participant,
    ParticipantsAdded,
    ReplayMark,
)
from txlog.coordinator.transaction import PREPARED, Transaction
from txlog.errors import IllegalTransition, OutcomeUnknown, TxlogError
from txlog.groups.state import OffsetsPended, Pending, PendingOffset
from txlog.model import Decision, TopicPartition, TransactionOutcome, TxId
from txlog.topic.events import AppendBatches

TIMEOUT_MS = 60_000


@dataclass
class Ledger:
    """The answers that processes got, to compare with the content of the log."""

    records: dict[TxId, dict[str, list[int]]] = field(default_factory=dict)
    """Transaction -> topic -> records whose append was acknowledged, in order."""
    plain: dict[str, list[int]] = field(default_factory=dict)
    """Topic -> records outside of any transaction that were acknowledged."""
    answered: dict[TxId, Decision] = field(default_factory=dict)
    """Transaction -> the answer to its commit or abort."""
    next_value: int = 0

    def value(self) -> int:
        """The value of a record that no other process writes."""
        self.next_value += 1
        return self.next_value


class Producer:
    """A transactional producer whose records go into the log while the transaction is open."""

    def __init__(self, process: Process, name: str, ledger: Ledger) -> None:
        self.process, self.name, self._ledger = process, name, ledger
        self.is_registered = False
        self._open = False
        self._decided = False
        self._number = -1
        self._declared: set[str] = set()
        self._sequences: dict[str, int] = {}
        self._unknown: tuple[str, int, AppendBatches] | None = None

    @property
    def _coordinator(self) -> Coordinator:
        return self.process.connection.coordinator_of(self.name)

    @property
    def tx_id(self) -> TxId:
        """The id of the open transaction."""
        return TxId(self._pid, self._epoch, self._number)

    def init(self) -> None:
        """Become the newest instance of the transactional id."""
        instance = self.process.connection.runtime.entropy.token()
        registration = self._coordinator.init_producer(
            InitProducer(self.name, instance, TIMEOUT_MS)
        )
        self._pid, self._epoch = registration.pid, registration.epoch
        self._number = -1
        self.is_registered, self._open, self._decided = True, False, False
        self._sequences, self._unknown = {}, None

    def declare(self, topic: str) -> None:
        """Prepare the next append: declare its partition, stage its segment."""
        if not self.is_registered or self._unknown is not None:
            return
        if not self._open or self._decided:
            # The transaction before may only be prepared: BEGIN finishes it first (R5).
            self._number += 1
            self._declared = set()
            self._open, self._decided = True, False
        self._unknown = self._new_append(topic)

    def append(self) -> None:
        """Send the prepared append; if the answer was lost, send it again unchanged."""
        if self._unknown is None:
            return
        name, value, command = self._unknown
        try:
            self.process.topic(name).execute(command)
        except OutcomeUnknown:
            raise
        except TxlogError:
            self.is_registered, self._unknown = False, None
            raise
        self._unknown = None
        self._sequences[name] = self._sequences.get(name, 0) + 1
        self._ledger.records.setdefault(self.tx_id, {}).setdefault(name, []).append(value)

    def _new_append(self, topic: str) -> tuple[str, int, AppendBatches]:
        participant = Participant(self.process.topic(topic).topic_id, topic, (0,))
        if not self._declared:
            self._coordinator.begin(self.name, self.tx_id, TIMEOUT_MS, (participant,))
        elif topic not in self._declared:
            self._coordinator.execute(ParticipantsAdded(self.name, self.tx_id, (participant,)))
        self._declared.add(topic)
        value = self._ledger.value()
        segment = self.process.stage(topic, [value])
        sequences = {0: self._sequences.get(topic, 0)}
        tx_id = self.tx_id
        command = AppendBatches((segment,), self._pid, self._epoch, tx_id, sequences)
        return topic, value, command

    def prepare(self) -> None:
        """Decide COMMIT; not while an append's outcome is unknown (R9)."""
        if self._open and self._declared and self._unknown is None:
            self._coordinator.prepare_commit(self.name, self.tx_id)
            self._ledger.answered[self.tx_id] = Decision.COMMIT
            self._decided = True

    def apply(self) -> None:
        """Write the markers; the first process to come writes them."""
        if self._decided:
            self._coordinator.apply(self.name, self.tx_id)

    def complete(self) -> None:
        """Write COMMITTED, after the markers."""
        if self._decided:
            self._coordinator.apply(self.name, self.tx_id)
            self._coordinator.execute(self._coordinator.completion(self.name, self.tx_id))
            self._open = self._decided = False

    def abort(self) -> None:
        """Decide ABORT and finish it; after an append of unknown outcome the next transaction needs
        a new epoch."""
        if self._open and not self._decided:
            tx_id = self.tx_id
            self._coordinator.abort(self.name, tx_id)
            self._ledger.answered[tx_id] = Decision.ABORT
            self._open = False
            self.is_registered = self._unknown is None


class MicroBatches:
    """Copies source offsets to one or two topics and to a group, in one commit: a query, or a
    consumer.

    Runs of one query have one transactional id, which owns the group. Consumers that share a group
    have an id each, and only the group's offsets tell them apart.
    """

    source = "src"

    def __init__(
        self, process: Process, name: str, run: str, group: str, sinks: tuple[str, ...]
    ) -> None:
        self.process, self.name, self.run = process, name, run
        self.group, self.sinks = group, sinks
        self.is_registered = False
        self._number = -1
        self._range: tuple[int, int] = (0, 0)
        self._participants: tuple[Participant, ...] = ()
        self._stage = 0

    @property
    def is_query(self) -> bool:
        """Whether it owns its group, and its batches have marks."""
        return bool(self.run)

    @property
    def _coordinator(self) -> Coordinator:
        return self.process.connection.coordinator_of(self.name)

    @property
    def tx_id(self) -> TxId:
        """The transaction of the present batch."""
        return TxId(self._pid, self._epoch, self._number)

    def init(self) -> None:
        """Register the run and the group that it owns."""
        groups = (self.group,) if self.is_query else ()
        instance = self.run or self.process.connection.runtime.entropy.token()
        registration = self._coordinator.init_producer(
            InitProducer(self.name, instance, TIMEOUT_MS, is_run=self.is_query, groups=groups)
        )
        self._pid, self._epoch = registration.pid, registration.epoch
        self._number = -1
        self.is_registered, self._stage = True, 0

    def step(self, length: int, end: int, *, waits: bool = True) -> None:
        """Run the next step of a batch of at most `length` records; the source has `end` records.

        Without `waits`, another process finishes a prepared batch when it meets it.
        """
        if not self.is_registered:
            self.init()
        elif self._stage == 0:
            self._plan(length, end)
        else:
            (self._pend, self._prepare, self._apply, self._complete)[self._stage - 1]()
            self._stage = (self._stage + 1) % 5 if waits or self._stage < 2 else 0

    def _plan(self, length: int, end: int) -> None:
        """Read the group's position, and stage the records."""
        where = TopicPartition(self.source, 0)
        found = self.process.connection.offsets.resolve_and_fetch(self.group, [where])[where]
        start = 0 if found is None else found.offset
        self._range = (start, min(start + length, end))
        if self._range[0] == self._range[1]:
            return
        values = range(*self._range)
        self._participants = tuple(
            Participant(
                self.process.topic(name).topic_id,
                name,
                segments=(self.process.stage(name, values),),
            )
            for name in self.sinks
        )
        self._number += 1
        self._stage = 1

    def _pend(self) -> None:
        topic_id = self.process.topic(self.source).topic_id
        connection, number = self.process.connection, self._coordinator.number
        offset = PendingOffset(self.source, topic_id, 0, *self._range)
        now_ms = connection.runtime.clock.wall_ms()
        pending = Pending(self.name, number, (offset,), now_ms, TIMEOUT_MS)
        connection.offsets.pend(OffsetsPended(self.group, self.tx_id, pending))

    def _prepare(self) -> None:
        mark = None
        if self.is_query:
            offsets = OffsetRange(self.group, self.source, 0, *self._range)
            mark = ReplayMark(self.name, self._range[0], (offsets,))
        self._coordinator.prepare_commit(
            self.name, self.tx_id, self._participants, (self.group,), mark
        )

    def _apply(self) -> None:
        self._coordinator.apply(self.name, self.tx_id)

    def _complete(self) -> None:
        self._coordinator.execute(self._coordinator.completion(self.name, self.tx_id))

    def give_up(self) -> None:
        """After a refusal: abort the batch if it is provably not prepared, and register again."""
        self.is_registered = False
        if self._stage:
            self._stage = 0
            try:
                self._coordinator.abort(self.name, self.tx_id)
            except IllegalTransition:
                assert self._coordinator.outcome(self.tx_id) is TransactionOutcome.COMMITTED


class HalfMessages:
    """Several transactions of one instance, open at once, each a staged record (R7)."""

    def __init__(self, process: Process, name: str, ledger: Ledger) -> None:
        self.process, self.name, self._ledger = process, name, ledger
        self._registered = False
        self._open: dict[TxId, Participant] = {}

    @property
    def _coordinator(self) -> Coordinator:
        return self.process.connection.coordinator_of(self.name)

    def init(self) -> None:
        """Become the newest instance of the transactional id."""
        instance = self.process.connection.runtime.entropy.token()
        registration = self._coordinator.init_producer(
            InitProducer(self.name, instance, TIMEOUT_MS, concurrent=True)
        )
        self._pid, self._epoch = registration.pid, registration.epoch
        self._number = -1
        self._registered, self._open = True, {}

    def begin(self, topic: str) -> None:
        """Begin another half message."""
        if not self._registered:
            self.init()
            return
        self._number += 1
        tx_id = TxId(self._pid, self._epoch, self._number)
        value = self._ledger.value()
        segment = self.process.stage(topic, [value])
        self._coordinator.begin(self.name, tx_id, TIMEOUT_MS)
        self._ledger.records[tx_id] = {topic: [value]}
        topic_id = self.process.topic(topic).topic_id
        self._open[tx_id] = Participant(topic_id, topic, segments=(segment,))

    def end(self, choice: int, decision: Decision, *, waits: bool) -> None:
        """Commit one, or roll it back; without `waits` only decide."""
        if not self._open:
            return
        tx_id = sorted(self._open)[choice % len(self._open)]
        if decision is Decision.COMMIT:
            self._coordinator.prepare_commit(self.name, tx_id, (self._open[tx_id],))
        else:
            self._coordinator.prepare_abort(self.name, tx_id)
        self._ledger.answered[tx_id] = decision
        if waits:
            self._coordinator.finish(self.name, tx_id)
        del self._open[tx_id]

    def give_up(self) -> None:
        """After a refusal: start over with a new epoch."""
        self._registered = False


class StaleHelper:
    """A process that read a decided transaction, stalled, and applies it long after its end."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self._remembered: list[tuple[Transaction, int]] = []

    def remember(self) -> None:
        """Record the transactions that are decided and not complete now."""
        state = self.process.connection.coordinator(0).catch_up()
        for name, found in state.open_transactions():
            if found.state in PREPARED:
                self._remembered.append((found, state.ids[name].floor(found.tx_id)))

    def apply_late(self, choice: int) -> None:
        """Apply one of these, as it was then."""
        if self._remembered:
            transaction, floor = self._remembered.pop(choice % len(self._remembered))
            coordinator = self.process.connection.coordinator(0)
            coordinator._write_markers(transaction, floor)
            coordinator._end_offsets(transaction)
