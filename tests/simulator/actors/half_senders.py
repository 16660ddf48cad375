"""Half messages as actors: a local transaction, its messages, and check-backs by any live sender.

As in real programs only the local database survives a sender's death. The sender writes it in
`execute_local_transaction`; the producer that gets a check-back later reads it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from tests.simulator.actors.producers import with_news
from tests.simulator.actors.role import EXPECTED, UNCLEAR
from tests.simulator.environment.process import SimulatedProcess
from tests.simulator.topics import payload
from txlog.client.half_messages.check_service import half_transactions
from txlog.client.half_messages.half_message import (
    HalfTransaction,
    LocalTransactionState,
    Message,
    SendStatus,
)
from txlog.client.half_messages.transaction_mq_producer import TransactionMQProducer
from txlog.errors import DuplicateTransaction

CHECK_MS = 5_000
CHECKS_MAX = 4
LAST_CHECKS_MAX = 60
"""Passes over open half messages that a sender makes at the end. With more it is stuck."""


@dataclass(slots=True)
class LocalDatabase:
    """Results of the local transactions of a group, by transaction id."""

    ended: dict[str, LocalTransactionState] = field(default_factory=dict)


class HalfSender:
    """A producer of a group: it sends, and answers check-backs for all senders of the group."""

    is_reader: ClassVar[bool] = False
    is_always_restarted: ClassVar[bool] = True

    def __init__(
        self, name: str, group: str, topics: tuple[str, ...], database: LocalDatabase
    ) -> None:
        self.name = name
        self._group = group
        self._topics = topics
        self._database = database
        self._sent = 0
        self._process: SimulatedProcess | None = None

    def live(self, process: SimulatedProcess) -> None:
        """See Role.live."""
        self._process = process
        producer: TransactionMQProducer | None = None
        while process.is_busy:
            try:
                producer = producer or self._started(process)
                self._send(process, producer)
                producer.check()
            except EXPECTED:
                producer = producer if process.random.random() < 0.7 else None
            process.sleep(1, 20_000)
        self._check_to_the_end(process, producer or self._started(process))

    def _started(self, process: SimulatedProcess) -> TransactionMQProducer:
        producer = TransactionMQProducer(
            self._group,
            process.connection,
            listener=self,
            transaction_timeout_ms=process.random.choice((500, 5_000)),
            transaction_check_interval_ms=CHECK_MS,
            transaction_check_max=CHECKS_MAX,
        )
        producer.start(check_in_background=False)
        return producer

    def _send(self, process: SimulatedProcess, producer: TransactionMQProducer) -> None:
        """Run one local transaction with one to three messages; again if it was not stored."""
        self._sent += 1
        name = f"{self.name}-{self._sent}"
        tx = f"{self._group}/{name}"
        chosen = [process.random.choice(self._topics) for _ in range(process.random.randint(1, 3))]
        texts = [
            with_news(process, topic, f"{name}.{number}") for number, topic in enumerate(chosen)
        ]
        for topic, text in zip(chosen, texts, strict=True):
            process.note("send", tx=tx, topic=topic, values=[text])
        process.note("staged", tx=tx)
        process.note("committing", tx=tx, values=texts)
        messages = [
            Message(topic, payload(topic, text)) for topic, text in zip(chosen, texts, strict=True)
        ]
        for _ in range(2):
            try:
                result = producer.send_message_in_transaction(messages, transaction_id=name)
            except DuplicateTransaction:
                return  # It was stored after all, and a check-back has committed it.
            except UNCLEAR:
                continue
            if result.send_status is SendStatus.SEND_OK:
                return

    def execute_local_transaction(
        self, half: HalfTransaction, arg: Any
    ) -> LocalTransactionState | None:
        """The local transaction. It is durable at once; its answer may come late or never."""
        process = self._process
        if process is None:
            raise RuntimeError("a local transaction without a process.")
        chance = process.random.random()
        if chance < 0.1:
            return LocalTransactionState.UNKNOW  # It was never begun, and its state stays unknown.
        is_commit = chance < 0.8
        decided = (
            LocalTransactionState.COMMIT_MESSAGE
            if is_commit
            else LocalTransactionState.ROLLBACK_MESSAGE
        )
        name = half.transaction_id
        decided = self._database.ended.setdefault(name, decided)
        process.note("local", tx=f"{self._group}/{name}", decision=str(decided))
        if process.random.random() < 0.2:
            process.sleep(1, 20_000)
        return self._answer(half, decided if process.random.random() < 0.8 else None)

    def check_local_transaction(self, half: HalfTransaction) -> LocalTransactionState | None:
        """The answer from the database; UNKNOWN for a transaction that it lacks."""
        return self._answer(half, self._database.ended.get(half.transaction_id))

    def _answer(
        self, half: HalfTransaction, state: LocalTransactionState | None
    ) -> LocalTransactionState | None:
        if state is not None and self._process is not None:
            tx = f"{self._group}/{half.transaction_id}"
            self._process.note("answered", tx=tx, answer=str(state))
        return state

    def _check_to_the_end(self, process: SimulatedProcess, producer: TransactionMQProducer) -> None:
        coordinator = process.connection.coordinator_of(self._group)
        for _ in range(LAST_CHECKS_MAX):
            producer.check()
            if not list(half_transactions(coordinator, self._group)):
                return
            process.sleep(CHECK_MS, 2 * CHECK_MS)
        process.note("stuck", topics=self._topics, isolation="half transactions")
