"""Every error that txlog raises, grouped by what the caller does next::

    TxlogError                      .code (append-only), .facts
    ├── RetriableError              call again, unchanged
    │   ├── StoreUnavailable        the store did not answer in time
    │   │   └── StoreFull           no room is left; nothing was written in part
    │   ├── PublishContention       the journal slot was lost too many times
    │   ├── ConcurrentTransactions  the id's previous transaction is still being finished
    │   ├── UnstableOffsetCommit    a transaction is pending on these offsets
    │   ├── ReadBlocked             an open transaction blocks a reader before the end
    │   └── BoundaryMoved           entries were removed while they were being read
    ├── AbortableError              abort the transaction, then begin again
    │   ├── TransactionAborted      it was aborted by its owner, a timeout or an operator
    │   ├── OutOfOrderSequence      a record before this one is missing (also a RuntimeError)
    │   ├── DuplicateTransaction    one with this tag is already committed: nothing is left to do
    │   ├── CommitFailed            the group's offsets are not where this batch starts
    │   └── SegmentExpired          a staged segment fell below the staging horizon
    ├── FencedError                 close this instance; another one has taken over
    │   ├── ProducerFenced          a newer instance of the transactional id exists
    │   ├── InvalidProducerEpoch    a partition has seen a newer epoch of this producer
    │   ├── UnknownProducerId       a topic has forgotten this producer: it was silent too long
    │   └── GroupOwned              the consumer group belongs to another query
    ├── UsageError                  fix the call or the configuration (also a ValueError)
    │   ├── InvalidName             a name that is empty, too long or not a safe file name
    │   ├── InvalidConfig           unknown configuration, or an invalid value
    │   ├── InvalidOption           unknown Spark option, or an invalid value
    │   ├── InvalidRecord           the topic cannot hold this record
    │   │   └── RecordTooLarge      it is larger than `max.message.bytes`
    │   ├── UnknownTopic            no topic of that name (also a LookupError)
    │   ├── UnknownPartition        no partition of that number (also a LookupError)
    │   ├── UnknownGroup            no group of that name (also a LookupError)
    │   ├── UnknownTransaction      no coordinator has that transaction (also a LookupError)
    │   ├── TopicExists             a topic of that name exists already
    │   ├── IncompatibleSchema      the change of schema is not additive
    │   ├── IllegalTransition       not in this state (also a RuntimeError)
    │   ├── OffsetOutOfRange        below the log start or beyond the end (also a LookupError)
    │   ├── NoOffsetForPartition    the group has no offset there (also a LookupError)
    │   ├── StoreNotAtomic          the store cannot create only what is absent
    │   ├── StoreDenied             wrong credentials, no bucket or no permission
    │   ├── NotATxlog               no log here, or a newer one (also a LookupError)
    │   └── CheckpointConflict      checkpoint and group contradict each other
    ├── OutcomeUnknown              it may or may not be durable: ask again, delete nothing
    ├── CorruptData                 stored bytes are wrong: the message names the object
    │   ├── UnsupportedFormat       a newer version of the format wrote it
    │   └── MissingObject           an object that the log refers to is gone
    └── InternalError               our bug: please report it
        └── InvariantViolated       an invariant of docs/invariants.md does not hold

This module is vocabulary: every layer imports it, and it imports nothing of txlog but the removal
of secrets from texts. A message states the facts and ends with the remedy; the text may change,
`code` never does. No error contains a secret that `redact` recognises, or more than MESSAGE_MAX
characters of a text that a stranger may have stored: errors are logged, shown by Spark and sent to
other processes.
"""

from __future__ import annotations

from typing import ClassVar

from txlog.redaction import redact

MESSAGE_MAX = 8_000
"""Characters of a message, and of a text in its facts: some screens. The middle of a longer one is
left out."""


def _shown(text: str) -> str:
    half = MESSAGE_MAX // 2
    if len(text) > MESSAGE_MAX:
        text = f"{text[:half]} ... {text[-half:]}"
    return redact(text)


class TxlogError(Exception):
    """Root of the tree. `facts` has the values in the message."""

    code: ClassVar[str] = "txlog-error"
    retriable: ClassVar[bool] = False
    abortable: ClassVar[bool] = False
    fatal: ClassVar[bool] = False

    def __init_subclass__(cls, *, code: str) -> None:
        super().__init_subclass__()
        cls.code = code

    def __init__(self, message: str, **facts: object) -> None:
        shown = _shown(message)
        super().__init__(shown)
        self.message = shown
        self.facts: dict[str, object] = {
            name: _shown(fact) if isinstance(fact, str) else fact for name, fact in facts.items()
        }

    def during(self, what: str) -> TxlogError:
        """The same error, whose message says first what failed with it."""
        return type(self)(f"{what}: {self.message}", **self.facts)

    @property
    def remedy(self) -> str:
        """What to do next: the fact of that name, else the last sentence of the message."""
        known = self.facts.get("remedy")
        return known if isinstance(known, str) else self._split()[1]

    @property
    def reason(self) -> str:
        """The message without its remedy; the whole message if it is one sentence."""
        reason, remedy = self._split()
        return reason or remedy

    def _split(self) -> tuple[str, str]:
        known = self.facts.get("remedy")
        if isinstance(known, str) and self.message.endswith(known):
            return self.message.removesuffix(known).rstrip(), known
        reason, period, remedy = self.message.rpartition(". ")
        return f"{reason}{period.rstrip()}", remedy

    def __reduce__(self) -> tuple[object, ...]:
        """Errors cross process borders in Spark, so the facts must survive pickling."""
        return (_rebuild, (type(self), self.message, self.facts))


def _rebuild(kind: type[TxlogError], message: str, facts: dict[str, object]) -> TxlogError:
    return kind(message, **facts)


# Retriable: call again, unchanged.


class RetriableError(TxlogError, code="retriable"):
    """Nothing was decided; the same call may be repeated unchanged."""

    retriable = True


class StoreUnavailable(RetriableError, code="store-unavailable"):
    """The store did not answer, or refused for load, until the deadline passed."""


class StoreFull(StoreUnavailable, code="store-full"):
    """The store has no room left. Free some, then call again: nothing was written in part."""


class PublishContention(RetriableError, code="publish-contention"):
    """Other writers won every slot that this command tried for."""


class ConcurrentTransactions(RetriableError, code="concurrent-transactions"):
    """The previous transaction of this id is decided but not complete (Kafka error 51)."""


class UnstableOffsetCommit(RetriableError, code="unstable-offset-commit"):
    """A transaction is pending on the requested offsets (KIP-447, Kafka error 88)."""


class ReadBlocked(RetriableError, code="read-blocked"):
    """An open transaction before the requested end blocked the reader longer than its timeout."""


class BoundaryMoved(RetriableError, code="boundary-moved"):
    """Old journal entries were removed while they were being read; the state was opened again."""


# Abortable: abort the transaction, then begin again.


class AbortableError(TxlogError, code="abortable"):
    """This transaction cannot commit; abort it and begin the next one."""

    abortable = True


class TransactionAborted(AbortableError, code="transaction-aborted"):
    """The transaction was aborted: by its owner, by a timeout or by an operator."""


class OutOfOrderSequence(AbortableError, RuntimeError, code="out-of-order-sequence"):
    """A gap before this batch (Kafka error 45). Also a RuntimeError: an illegal state."""


class DuplicateTransaction(AbortableError, code="duplicate-transaction"):
    """A transaction with the same tag is committed: the work of this one is done."""


class CommitFailed(AbortableError, code="commit-failed"):
    """The committed offsets of the group are not where this transaction starts (invariant I6)."""


class SegmentExpired(AbortableError, code="segment-expired"):
    """A staged segment lies below the staging horizon and may be deleted: write it again (R17)."""


# Fenced: this instance is finished.


class FencedError(TxlogError, code="fenced"):
    """Another instance has taken over; close this one."""

    fatal = True


class ProducerFenced(FencedError, code="producer-fenced"):
    """The coordinator has a newer epoch of this transactional id (Kafka error 90)."""


class InvalidProducerEpoch(FencedError, code="invalid-producer-epoch"):
    """A partition has seen a newer epoch of this producer (Kafka error 47)."""


class UnknownProducerId(FencedError, code="unknown-producer-id"):
    """A topic has forgotten this producer after `producer.id.expiration.ms` (Kafka error 59)."""


class GroupOwned(FencedError, code="group-owned"):
    """The consumer group is owned by another transactional id (rule R12)."""


# Usage: fix the call.


class UsageError(TxlogError, ValueError, code="usage"):
    """The call, an option or the configuration is wrong; nothing was written."""


class InvalidName(UsageError, code="invalid-name"):
    """A name that is empty, too long or unprintable; for a topic, one not safe as a file name."""


class InvalidConfig(UsageError, code="invalid-config"):
    """An unknown configuration name, or a value that it cannot take."""


class InvalidOption(UsageError, code="invalid-option"):
    """An unknown Spark option, or a value that it cannot take."""


class InvalidRecord(UsageError, code="invalid-record"):
    """A record that this topic cannot hold: its schema, size, key or partition is wrong."""


class RecordTooLarge(InvalidRecord, code="record-too-large"):
    """The record is larger than `max.message.bytes`."""


class UnknownTopic(UsageError, LookupError, code="unknown-topic"):
    """No topic of that name (Kafka error 3)."""


class UnknownPartition(UsageError, LookupError, code="unknown-partition"):
    """The topic has no partition of that number."""


class UnknownGroup(UsageError, LookupError, code="unknown-group"):
    """No consumer group of that name."""


class UnknownTransaction(UsageError, LookupError, code="unknown-transaction"):
    """No coordinator has that transaction or transactional id."""


class TopicExists(UsageError, code="topic-exists"):
    """A topic of that name exists already (Kafka error 36)."""


class IncompatibleSchema(UsageError, code="incompatible-schema"):
    """A schema that a topic cannot hold, or a change of it that is not additive."""


class IllegalTransition(UsageError, RuntimeError, code="illegal-transition"):
    """The method may not be called in this state (Kafka's IllegalStateException)."""


class OffsetOutOfRange(UsageError, LookupError, code="offset-out-of-range"):
    """The offset is below the log start or beyond the end (Kafka error 1)."""


class NoOffsetForPartition(UsageError, LookupError, code="no-offset-for-partition"):
    """The group has no committed offset and `auto.offset.reset` is none."""


class StoreNotAtomic(UsageError, code="store-not-atomic"):
    """The store cannot create a file only if it is absent, so it cannot contain a log."""


class StoreDenied(UsageError, code="store-denied"):
    """The store refused: wrong credentials, a missing bucket or no permission."""


class NotATxlog(UsageError, LookupError, code="not-a-txlog"):
    """There is no log at this place, or it is of a newer format version."""


class CheckpointConflict(UsageError, code="checkpoint-conflict"):
    """The checkpoint contradicts the group's offsets or the coordinator's record of the query."""


# The rest.


class OutcomeUnknown(TxlogError, code="outcome-unknown"):
    """The write may or may not be durable, now or later. Repeat the call; delete nothing (I13)."""


class CorruptData(TxlogError, code="corrupt-data"):
    """Stored bytes fail their length, checksum or format (I15). The message names the object."""

    fatal = True


class UnsupportedFormat(CorruptData, code="unsupported-format"):
    """The object was written by a newer version of the format."""


class MissingObject(CorruptData, code="missing-object"):
    """An object that the log refers to is not in the store."""


class InternalError(TxlogError, code="internal-error"):
    """A bug in txlog: please report it."""

    fatal = True


class InvariantViolated(InternalError, code="invariant-violated"):
    """One of the numbered invariants of docs/invariants.md does not hold."""
