"""Outcomes of transactions, as far back as a coordinator keeps them.

Outcomes are kept in generations. The newest is a plain mapping; a full one never changes, is one
short text in every snapshot, and is decoded only when it is needed. So commits and the opening of a
journal cost the same after many transactions as after few. Keeps I15: a text must be exactly
`OutcomeColumns`, and I16: it has no more outcomes than a generation. It must not know how a
transaction is decided.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from txlog.errors import CorruptData
from txlog.journal.codec import decode, encode, parsed
from txlog.model import WALL_MS_MAX, Decision, Epoch, Offset, ProducerId, TransactionOutcome, TxId
from txlog.stored import stored

OUTCOME_GENERATION = 128
"""Outcomes of one generation: those that each new outcome copies, and that are forgotten
together."""

_TEXT_MAX = OUTCOME_GENERATION * 8_000
"""Characters of a generation's text. An outcome's numbers take 80, and its tag at most 12 for each
of its ID_LENGTH_MAX characters."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a transaction ended."""

    decision: Decision
    at_ms: int
    tag: str = ""
    dead_letter: bool = False
    """Whether the commit gave up a half transaction."""
    content: int = 0
    """The content of the commit; see CommitPrepared.content (R35)."""

    @property
    def transaction_outcome(self) -> TransactionOutcome:
        """The outcome in the form that clients get."""
        if self.dead_letter:
            return TransactionOutcome.DEAD_LETTERED
        is_commit = self.decision is Decision.COMMIT
        return TransactionOutcome.COMMITTED if is_commit else TransactionOutcome.ABORTED


@stored(
    "outcomes",
    pids="producer_ids",
    epochs="producer_epochs",
    numbers="numbers",
    steps_ms="steps_ms",
    aborted="aborted",
    tags="tags",
    dead_letters="dead_letters",
    contents="contents",
)
@dataclass(frozen=True, slots=True)
class OutcomeColumns:
    """A generation as columns of numbers, which take a third of the space of rows."""

    pids: tuple[ProducerId, ...]
    epochs: tuple[Epoch, ...]
    numbers: tuple[Offset, ...]
    steps_ms: tuple[int, ...]
    """The time of each outcome minus that of the previous one."""
    aborted: tuple[int, ...] = ()
    """Indexes of aborted transactions; the others were committed."""
    tags: Mapping[int, str] = field(default_factory=dict)
    """Index -> tag, of transactions that have one."""
    dead_letters: tuple[int, ...] = ()
    """Indexes of half transactions that were given up."""
    contents: tuple[int, ...] = ()
    """The content of each commit (R35); empty if no commit has one."""


class OutcomeGeneration(Mapping[TxId, Outcome]):
    """Outcomes in the order of completion; equal to any mapping with the same items."""

    __slots__ = ("_outcomes", "_tags", "_text")

    def __init__(self, outcomes: Mapping[TxId, Outcome] | None, text: str | None = None) -> None:
        self._outcomes = outcomes
        self._text = text
        self._tags: dict[str, list[TxId]] | None = None

    @classmethod
    def of(cls, outcomes: Mapping[TxId, Outcome]) -> OutcomeGeneration:
        """A generation of these outcomes. The caller does not change the mapping afterwards."""
        return outcomes if isinstance(outcomes, OutcomeGeneration) else cls(outcomes)

    @classmethod
    def of_text(cls, text: str) -> OutcomeGeneration:
        """A generation from its text, which is decoded at first use. Raises CorruptData then."""
        return cls(None, text)

    @property
    def text(self) -> str:
        """The encoded generation, for a snapshot."""
        if self._text is None:
            self._text = _encoded(self._read())
        return self._text

    def _read(self) -> Mapping[TxId, Outcome]:
        if self._outcomes is None:
            self._outcomes = _decoded(self._text or "")
        return self._outcomes

    def tagged(self, tag: str) -> Sequence[TxId]:
        """Transactions with that tag, oldest first."""
        if self._tags is None:
            self._tags = {}
            for tx_id, outcome in self._read().items():
                if outcome.tag:
                    self._tags.setdefault(outcome.tag, []).append(tx_id)
        return self._tags.get(tag, ())

    def __getitem__(self, tx_id: TxId) -> Outcome:
        return self._read()[tx_id]

    def __iter__(self) -> Iterator[TxId]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())


def tagged(outcomes: Mapping[TxId, Outcome], tag: str) -> Sequence[TxId]:
    """Transactions with that tag, oldest first. A full generation builds an index of tags once."""
    if isinstance(outcomes, OutcomeGeneration):
        return outcomes.tagged(tag)
    return [tx_id for tx_id, outcome in outcomes.items() if outcome.tag == tag]


def _encoded(outcomes: Mapping[TxId, Outcome]) -> str:
    ended = list(outcomes.values())
    times = [outcome.at_ms for outcome in ended]
    contents = tuple(outcome.content for outcome in ended)
    columns = OutcomeColumns(
        pids=tuple(tx_id.pid for tx_id in outcomes),
        epochs=tuple(tx_id.epoch for tx_id in outcomes),
        numbers=tuple(tx_id.number for tx_id in outcomes),
        # Differences have few digits, where times have thirteen.
        steps_ms=tuple(time - prior for prior, time in pairwise([0, *times])),
        aborted=tuple(at for at, one in enumerate(ended) if one.decision is Decision.ABORT),
        tags={at: one.tag for at, one in enumerate(ended) if one.tag},
        dead_letters=tuple(at for at, one in enumerate(ended) if one.dead_letter),
        # A generation without staged records and groups needs no column of zeros.
        contents=contents if any(contents) else (),
    )
    return json.dumps(encode(columns), separators=(",", ":"))


def _decoded(text: str) -> Mapping[TxId, Outcome]:
    try:
        if len(text) > _TEXT_MAX:
            raise ValueError(f"{len(text)} characters")
        columns: OutcomeColumns = decode(OutcomeColumns, parsed(text))
        if len(columns.pids) > OUTCOME_GENERATION:
            raise ValueError(f"{len(columns.pids)} outcomes")
        contents = columns.contents or (0,) * len(columns.pids)
        found = (columns.pids, columns.epochs, columns.numbers, columns.steps_ms, contents)
        rows = list(zip(*found, strict=True))
        times = list(accumulate(columns.steps_ms))
        if not all(-1 <= at_ms <= WALL_MS_MAX for at_ms in times):
            raise ValueError("a time that no clock shows")
    # RecursionError: a forged text may nest too deep for the JSON parser.
    except (CorruptData, ValueError, RecursionError) as error:
        raise CorruptData(
            f"a coordinator's snapshot holds outcomes that cannot be read ({error!s:.100}). "
            "'txlog verify' names the snapshot. Restore it from a backup, or delete it: it is "
            "rebuilt from the journal.",
        ) from error
    aborted, dead = frozenset(columns.aborted), frozenset(columns.dead_letters)
    return {
        TxId(pid, epoch, number): Outcome(
            Decision.ABORT if place in aborted else Decision.COMMIT,
            at_ms,
            columns.tags.get(place, ""),
            place in dead,
            content,
        )
        for place, ((pid, epoch, number, _, content), at_ms) in enumerate(
            zip(rows, times, strict=True)
        )
    }
