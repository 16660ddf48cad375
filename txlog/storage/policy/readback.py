"""Conditional creates, repeated and read back until it is clear whether they were carried out.

Keeps I1 and I13. The HTTP client or the network may send a conditional write again, and then
"exists" can mean this caller's own write; an answer may be lost; a write may land after its caller
gave up. So every answer but a clean success leads to a read. Equal bytes are the caller's, because
every body carries a random token; other bytes are another writer's. Absence proves nothing, because
the write may still land: the same bytes are sent to the same name again. It must not know a
protocol.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from txlog.errors import OutcomeUnknown, StoreUnavailable, TxlogError
from txlog.storage.policy.retry import Attempts
from txlog.storage.store import Created, CreateResult, Exists


class PutAnswer(Enum):
    """The answer of the store to one conditional write."""

    STORED = "stored"
    """A clean success."""

    TAKEN = "taken"
    """The name is in use, which may be due to this very write (HTTP 412)."""

    NOT_STORED = "not stored"
    """Certainly without effect: the store was not reached, or asks for a repeat (HTTP 409)."""

    UNKNOWN = "unknown"
    """It may have been stored, or may still be: no answer, or a server failure."""


def resolve(data: bytes, found: bytes | None) -> CreateResult | None:
    """The result of a write of `data`, according to a read after it; None if the read proves
    nothing."""
    if found is None:
        return None
    return Created() if found == data else Exists(found)


def create_with_readback(
    place: str,
    data: bytes,
    attempts: Attempts,
    put: Callable[[], PutAnswer],
    read: Callable[[], bytes | None],
) -> CreateResult:
    """Write `data` if absent, as often as `attempts` allows, until it is clear whose object has the
    name.

    `put` and `read` make one request each; `read` raises StoreUnavailable if there is no answer.
    Raises StoreUnavailable if certainly nothing was stored, OutcomeUnknown if that is unclear, and
    what `put` or `read` raises otherwise, as long as no earlier request can have stored anything.
    """
    perhaps_stored = False
    try:
        for _ in attempts:
            answer = put()
            if answer is PutAnswer.STORED:
                return Created()
            # After an unclear attempt even this answer leads to a read: the earlier write may land.
            if answer is PutAnswer.NOT_STORED and not perhaps_stored:
                continue
            # Also after TAKEN: until the object is read, it may be this call's own (I13).
            perhaps_stored = True
            result = resolve(data, _read_or_none(read))
            if result is not None:
                return result
    except TxlogError as error:
        # A refusal of this attempt says nothing about an earlier one, which may still land.
        if perhaps_stored:
            raise _unknown(place, error.message) from error
        raise
    if perhaps_stored:
        raise _unknown(place, attempts.summary())
    raise StoreUnavailable(
        f"{place} was not created: {attempts.summary()}. Call again; check that the store can be "
        "reached.",
        place=place,
    )


def _read_or_none(read: Callable[[], bytes | None]) -> bytes | None:
    """The object, or None. An unanswered read proves as little as absence."""
    try:
        return read()
    except StoreUnavailable:
        return None


def _unknown(place: str, reason: str) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"outcome unknown: {place} may exist, now or later: {reason}. Repeat the call with the "
        "same content; delete nothing.",
        place=place,
    )
