"""The offsets of consumer groups that a producer's transaction commits.

It guards the client's half of R37: offsets that were given stay here until their pend is answered,
so that the commit sends them again, and does not happen without them. It must not know records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from txlog.client.consumer.consumer_group import ConsumerGroupMetadata, pending_offsets
from txlog.client.positions.position_arguments import checked_mapping
from txlog.client.producer.sender import may_be_retried
from txlog.client.producer.staged_records import StagedRecords
from txlog.engine.connection import Connection
from txlog.engine.transaction_session import TransactionSession
from txlog.errors import TxlogError
from txlog.groups.state import PendingOffset
from txlog.model import OffsetAndMetadata, TopicPartition


class InputOffsets:
    """The offsets of one transaction. Its owner calls it from one thread at a time."""

    def __init__(
        self,
        connection: Connection,
        staged: StagedRecords,
        on_refusal: Callable[[str, Exception], None],
    ) -> None:
        """`on_refusal` is called if some are refused: then the transaction may not commit."""
        self._connection = connection
        self._staged = staged
        self._on_refusal = on_refusal
        self._unpended: deque[tuple[ConsumerGroupMetadata | str, Mapping[TopicPartition, Any]]]
        self._unpended = deque()
        self._pended: list[tuple[ConsumerGroupMetadata, tuple[PendingOffset, ...]]] = []

    @property
    def has_unpended(self) -> bool:
        """Whether offsets were given whose pend is not answered."""
        return bool(self._unpended)

    def add(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group: ConsumerGroupMetadata | str,
    ) -> None:
        """Add offsets, which `pend` sends. Raises InvalidRecord."""
        try:  # A copy: the program may change its mapping before the commit sends it again.
            self._unpended.append((group, dict(checked_mapping(offsets, "23"))))
        except Exception as error:
            self._on_refusal("a group's offsets", error)
            raise

    def pend(self, session: TransactionSession) -> None:
        """Pend the given offsets. After OutcomeUnknown or a retriable error the next call repeats
        it; raises as `pending_offsets` and `TransactionSession.pend` do."""
        while self._unpended:
            group, offsets = self._unpended[0]
            try:
                pending = pending_offsets(self._connection, offsets, group, self._staged)
                if pending:
                    name = group if isinstance(group, str) else group.group_id
                    session.pend(name, pending)
                self._staged.require_inputs()  # These checks ran beside the pend (R11).
            except Exception as error:
                if not (isinstance(error, TxlogError) and may_be_retried(error)):
                    self._on_refusal("a group's offsets", error)
                    self._unpended.popleft()
                raise
            if not isinstance(group, str):
                self._pended.append((group, pending))
            self._unpended.popleft()

    def complete(self) -> None:
        """The transaction is committed: the groups are at these offsets. May be repeated."""
        for group, pending in self._pended:
            group.committed.update({offset.where: offset.end for offset in pending})
        self._pended = []

    def clear(self) -> None:
        """Drop all offsets, because the transaction is being aborted."""
        self._unpended.clear()
        self._pended = []
