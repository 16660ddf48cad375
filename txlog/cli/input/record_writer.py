"""Sends blocks of records for `txlog produce`, and counts the written ones, however it ends.

An error names its record and says how many records are written: in a transaction all or none. It
must not know where records come from.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from txlog.cli.input.input_records import RecordBlock, at_place
from txlog.cli.output.output import counted
from txlog.cli.session import Session
from txlog.client.producer.producer import Producer
from txlog.client.producer.sender import may_be_retried
from txlog.clock import Clock
from txlog.engine.append.producer_batch import BatchMetadata
from txlog.errors import InvalidRecord, TxlogError, UnknownPartition
from txlog.model import TxId
from txlog.topic.topic_log import TopicLog
from txlog.topic.write.record_preparation import BatchColumns, prepared_batch

PROGRESS_MS = 2_000
"""How often a long run reports its progress, on a terminal."""


@dataclass(slots=True)
class Written:
    """Records of one partition."""

    records: int = 0
    first_offset: int | None = None
    last_offset: int | None = None

    def add(self, base_offset: int, count: int) -> None:
        """Add `count` records from that offset on; -1 if it is unknown."""
        self.records += count
        if base_offset >= 0:
            if self.first_offset is None:
                self.first_offset = base_offset
            self.last_offset = base_offset + count - 1


class RecordWriter:
    """Writes records to one topic; for one use."""

    def __init__(
        self, session: Session, topic: TopicLog, clock: Clock, columns: BatchColumns
    ) -> None:
        self.partitions: dict[int, Written] = {}
        self.tx_id: TxId | None = None
        self._session = session
        self._topic = topic
        self._clock = clock
        self._columns = columns
        self._handed_over = 0
        self._is_committing = False
        self._shown_ms = clock.monotonic_ms()

    @property
    def records(self) -> int:
        """How many records are written."""
        return sum(part.records for part in self.partitions.values())

    def write(self, producer: Producer, blocks: Iterable[RecordBlock], tag: str) -> None:
        """Send everything, in one transaction if the producer is transactional.

        Raises what sending raises; the message says how much is written.
        """
        is_transactional = bool(producer.config.transactional_id)
        try:
            with producer:
                if not is_transactional:
                    self._send_all(producer, blocks)
                    return
                producer.init_transactions()
                with producer.transaction(tag) as self.tx_id:
                    self._send_all(producer, blocks)
                    producer.flush()  # A failure up to here means that nothing is committed.
                    self._is_committing = True
        except TxlogError as error:
            text = self._left_behind(is_transactional, error)
            # Of the same class, because the class determines the exit code.
            raise type(error)(f"{error.message} {text}", **error.facts) from error
        except KeyboardInterrupt as error:
            self._session.say(f"Interrupted: {self._left_behind(is_transactional, error)}")
            raise

    def _left_behind(self, is_transactional: bool, error: BaseException) -> str:
        if is_transactional:
            is_unclear = not isinstance(error, TxlogError) or may_be_retried(error)
            # The commit may have been decided, although its answer did not arrive (I13).
            if self._is_committing and is_unclear:
                return f"'txlog txn outcome {self.tx_id}' says whether it is committed."
            return "Nothing is written."
        unknown = self._handed_over - self.records
        known = "Nothing is written" if not self.records else f"{self._count()} written before"
        if unknown > 0:
            return f"{known}; for {counted(unknown, 'more record')} that is unknown."
        return f"{known}."

    def _count(self) -> str:
        return f"{counted(self.records, 'record')} {'is' if self.records == 1 else 'are'}"

    def _send_all(self, producer: Producer, blocks: Iterable[RecordBlock]) -> None:
        for block in blocks:
            self._send(producer, block)
            self._show_progress()

    def _send(self, producer: Producer, block: RecordBlock) -> None:
        columns = self._columns
        before = self.records
        self._handed_over += block.batch.num_rows
        try:
            producer.send_batch(
                self._topic.name,
                block.batch,
                partition=columns.partition,
                timestamp=columns.timestamp,
                on_delivery=self._add,
            )
        except (InvalidRecord, UnknownPartition) as error:
            # send_batch checks the whole block before it writes any of it.
            self._handed_over = before
            raise self._located(block, error) from error

    def _add(self, _: TxlogError | None, delivered: Sequence[BatchMetadata]) -> None:
        for part in delivered:
            written = self.partitions.setdefault(part.partition, Written())
            written.add(part.base_offset, part.records)

    def _located(self, block: RecordBlock, error: TxlogError) -> TxlogError:
        """The error of the first record that the topic cannot hold, with its place."""
        low, high = 0, block.batch.num_rows
        # A block is refused as a whole; halving finds its first wrong record in a few checks.
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._refusal(block, low, middle) else (middle, high)
        return at_place(block.place(low), self._refusal(block, low, high) or error)

    def _refusal(self, block: RecordBlock, start: int, end: int) -> TxlogError | None:
        rows = block.batch.slice(start, end - start)
        try:
            prepared_batch(self._topic, rows, self._columns, self._clock.wall_ms(), 0)
        except (InvalidRecord, UnknownPartition) as error:
            return error
        return None

    def _show_progress(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._shown_ms >= PROGRESS_MS and sys.stderr.isatty():
            self._shown_ms = now_ms
            # In a transaction nothing is delivered before its commit.
            count = self.records if self.tx_id is None else self._handed_over
            self._session.say(f"{count:,} records so far ...")
