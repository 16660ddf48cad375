"""Producers as actors: transactional ones, with staged records or records in the log, and plain
idempotent ones.

They note their answers in the history, which is compared with the log later.
"""

from __future__ import annotations

from typing import ClassVar

from tests.simulator.actors.role import EXPECTED, TIMEOUT_MS, UNCLEAR
from tests.simulator.environment.process import SimulatedProcess
from tests.simulator.topics import ADDED, headers_of, key_of, payload, with_column
from txlog.client.producer.producer import Producer
from txlog.engine.append.producer_batch import RecordFuture
from txlog.engine.producer_config import STAGED, TRANSACTION_RECORDS
from txlog.errors import AbortableError, FencedError, SegmentExpired, StoreDenied

TRIES = 4
"""Attempts of one call before its producer is given up."""


class TransactionalProducer:
    """Writes transactions over several topics. Some are aborted, and some are left open."""

    is_reader: ClassVar[bool] = False
    is_always_restarted: ClassVar[bool] = False

    def __init__(self, name: str, transactional_id: str, topics: tuple[str, ...]) -> None:
        self.name = name
        self._id = transactional_id
        self._topics = topics
        self._values = 0
        self._sent: list[tuple[str, RecordFuture]] = []

    def live(self, process: SimulatedProcess) -> None:
        """See Role.live."""
        process.note("holds", transactional_id=self._id)
        producer: Producer | None = None
        while process.is_busy:
            producer = producer or self._registered(process)
            if producer is not None and not self._transaction(process, producer):
                producer = None
            process.sleep(1, 20_000)

    def _registered(self, process: SimulatedProcess) -> Producer | None:
        try:
            return registered(process, self._id)
        except EXPECTED:
            return None

    def _transaction(self, process: SimulatedProcess, producer: Producer) -> bool:
        """Run one transaction. Returns whether the producer can go on."""
        self._sent = []
        try:
            tx = begun(process, producer)
        except EXPECTED:
            return False
        try:
            for _ in range(process.random.randint(1, 3)):
                self._send(process, producer, tx)
        except AbortableError:
            return abort(process, producer, tx)
        except FencedError:
            return False
        except UNCLEAR:
            if process.random.random() < 0.5:
                return abort(process, producer, tx)
        if process.random.random() < 0.03:
            return False  # The transaction stays open.
        if process.random.random() < 0.2:
            return abort(process, producer, tx)
        return commit(process, producer, tx, self._sent)[1]

    def _send(self, process: SimulatedProcess, producer: Producer, tx: str) -> None:
        topic = process.random.choice(self._topics)
        values = self.values(process.random.randint(1, 3))
        values = [with_news(process, topic, value) for value in values]
        process.note("send", tx=tx, topic=topic, values=values)
        for value in values:  # A record for which `send` raises is not sent.
            self._sent.append((value, send(process, producer, topic, value)))
        if process.random.random() < 0.4:
            producer.flush()
            process.sleep(1, 5_000)

    def values(self, count: int) -> list[str]:
        """Values that no other actor writes."""
        self._values += count
        return [f"{self.name}/{number}" for number in range(self._values - count, self._values)]


class PlainProducer:
    """Writes without transactions: every flush is durable on its own."""

    is_reader: ClassVar[bool] = False
    is_always_restarted: ClassVar[bool] = False

    def __init__(self, name: str, topics: tuple[str, ...]) -> None:
        self.name = name
        self._topics = topics
        self._values = 0

    def live(self, process: SimulatedProcess) -> None:
        """See Role.live."""
        producer: Producer | None = None
        while process.is_busy:
            try:
                producer = producer or Producer(process.connection)
                self._flush(process, producer)
            except StoreDenied:
                pass  # The producer goes on after it has given up these records.
            except EXPECTED:
                producer = None
            process.sleep(1, 20_000)

    def _flush(self, process: SimulatedProcess, producer: Producer) -> None:
        topic = process.random.choice(self._topics)
        values = [f"{self.name}/{self._values + number}" for number in range(2)]
        values = [with_news(process, topic, value) for value in values]
        self._values += 2
        process.note("send", tx=None, topic=topic, values=values)
        sent = [(value, send(process, producer, topic, value)) for value in values]
        for _ in range(TRIES):
            try:
                producer.flush()
            except UNCLEAR:
                process.sleep(1, 2_000)
            else:
                note_written(process, None, sent)
                return
        raise FencedError("given up after several tries; another producer goes on.")


def registered(process: SimulatedProcess, transactional_id: str) -> Producer:
    """A registered producer. Whether it stages records is drawn, so that instances of one id, and
    processes that find their transactions, have to deal with both ways."""
    producer = Producer(
        process.connection,
        transactional_id=transactional_id,
        transaction_timeout_ms=TIMEOUT_MS,
        transaction_records=process.random.choice(TRANSACTION_RECORDS),
    )
    producer.init_transactions()
    return producer


def begun(process: SimulatedProcess, producer: Producer) -> str:
    """Begin the next transaction."""
    tx = str(producer.begin_transaction())
    if producer.config.transaction_records == STAGED:
        process.note("staged", tx=tx)
    return tx


def with_news(process: SimulatedProcess, topic: str, value: str) -> str:
    """The text of a record. In a topic with more columns, half of the records fill one of them."""
    log = process.connection.cluster.topic(topic)
    columns = [name for name in ADDED if log.state.schemas and name in log.schema().names]
    if not columns or process.random.random() < 0.5:
        return value
    return with_column(value, process.random.choice(columns))


def send(process: SimulatedProcess, producer: Producer, topic: str, value: str) -> RecordFuture:
    """Send one record, to any partition that this process knows."""
    partitions = len(process.connection.cluster.topic(topic).state.partitions) or 1
    key = key_of(topic, value)
    return producer.send(
        topic,
        payload(topic, value),
        None if key is None else key.encode(),
        headers_of(topic, value),
        partition=process.random.randrange(partitions),
    )


def note_written(
    process: SimulatedProcess, tx: str | None, sent: list[tuple[str, RecordFuture]]
) -> None:
    """Note the acknowledged places of the records."""
    records = [
        [found.topic, found.partition, found.offset, value]
        for value, found in ((value, future.get()) for value, future in sent)
    ]
    process.note("written", tx=tx, records=records)


def commit(
    process: SimulatedProcess, producer: Producer, tx: str, sent: list[tuple[str, RecordFuture]]
) -> tuple[bool, bool]:
    """Commit, and repeat the call while the outcome is unknown.

    Returns whether it is known to be committed, and whether the producer can go on.
    """
    process.note("committing", tx=tx, values=[value for value, _ in sent])
    for _ in range(TRIES):
        try:
            producer.commit_transaction()
        except UNCLEAR:
            process.sleep(1, 2_000)
        except FencedError:
            process.note("commit", tx=tx, answer="failed")
            return False, False
        except AbortableError as error:
            answer = "expired" if isinstance(error, SegmentExpired) else "failed"
            process.note("commit", tx=tx, answer=answer)
            return False, abort(process, producer, tx)
        else:
            process.note("commit", tx=tx, answer="ok")
            note_written(process, tx, sent)
            return True, True
    process.note("commit", tx=tx, answer="unknown")
    return False, False


def abort(process: SimulatedProcess, producer: Producer, tx: str) -> bool:
    """Abort, and repeat the call while the outcome is unknown. Returns whether the producer can go
    on."""
    for _ in range(TRIES):
        try:
            producer.abort_transaction()
        except UNCLEAR:
            process.sleep(1, 2_000)
        except EXPECTED:
            break
        else:
            process.note("abort", tx=tx, answer="ok")
            return True
    process.note("abort", tx=tx, answer="unknown")
    return False
