"""Created or not: every order of answers to a conditional write leads to the correct result."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlog.errors import (
    InternalError,
    OutcomeUnknown,
    StoreDenied,
    StoreFull,
    StoreUnavailable,
    TxlogError,
)
from txlog.storage.policy.readback import PutAnswer, create_with_readback, resolve
from txlog.storage.policy.retry import Attempts, RetrySettings
from txlog.storage.store import ENTRY_BYTES_MAX, Created, CreateResult, Exists, check_entry_body
from txlog.testing.clock import manual_runtime

STORED, TAKEN = PutAnswer.STORED, PutAnswer.TAKEN
NOT_STORED, UNKNOWN = PutAnswer.NOT_STORED, PutAnswer.UNKNOWN
MINE, THEIRS = b"mine", b"theirs"
NO_ANSWER = StoreUnavailable("no answer")
DENIED = StoreDenied("denied")


@dataclass
class Script:
    """Answers to give in order; the last one is repeated."""

    puts: Sequence[PutAnswer | TxlogError]
    reads: Sequence[bytes | TxlogError | None] = (None,)
    asked: list[str] = field(default_factory=list)

    def run(self, attempts_max: int = 5) -> CreateResult:
        settings = RetrySettings(attempts_max=attempts_max)
        attempts = Attempts(settings, manual_runtime())
        return create_with_readback("the slot", MINE, attempts, self._put, self._read)

    def _put(self) -> PutAnswer:
        answer = self.puts[min(self.asked.count("put"), len(self.puts) - 1)]
        self.asked.append("put")
        if isinstance(answer, TxlogError):
            raise answer
        return answer

    def _read(self) -> bytes | None:
        answer = self.reads[min(self.asked.count("read"), len(self.reads) - 1)]
        self.asked.append("read")
        if isinstance(answer, TxlogError):
            raise answer
        return answer


def test_resolve_distinguishes_equal_other_and_absent_bytes() -> None:
    assert resolve(MINE, MINE) == Created()
    assert resolve(MINE, THEIRS) == Exists(THEIRS)
    assert resolve(MINE, None) is None


def test_a_clean_success_is_not_read_back() -> None:
    script = Script([STORED])
    assert script.run() == Created()
    assert script.asked == ["put"]


@pytest.mark.parametrize(
    ("puts", "reads", "result"),
    [
        ([TAKEN], [THEIRS], Exists(THEIRS)),
        ([TAKEN], [MINE], Created()),  # A lower layer sent it twice.
        ([UNKNOWN], [MINE], Created()),
        ([UNKNOWN], [THEIRS], Exists(THEIRS)),
        ([UNKNOWN, STORED], [None], Created()),  # Not landed, so sent again.
        ([UNKNOWN, TAKEN], [None, MINE], Created()),  # The write landed late.
        ([UNKNOWN, TAKEN], [NO_ANSWER, MINE], Created()),
        ([TAKEN, STORED], [None], Created()),  # Deleted before the read.
        ([NOT_STORED, STORED], [None], Created()),
        ([UNKNOWN, NOT_STORED], [None, MINE], Created()),
    ],
)
def test_I13_unclear_answers_are_read_back(
    puts: list[PutAnswer], reads: list[bytes | None], result: CreateResult
) -> None:
    assert Script(puts, reads).run() == result


@pytest.mark.parametrize(
    ("puts", "reads"),
    [
        ([UNKNOWN], [None]),
        ([UNKNOWN], [NO_ANSWER]),
        ([TAKEN], [NO_ANSWER]),  # The writer is unknown; it may be this one.
        ([UNKNOWN, NOT_STORED], [None]),  # The first write may still land.
        ([UNKNOWN, DENIED], [None]),
        ([UNKNOWN, StoreFull("full")], [None]),
        ([UNKNOWN], [DENIED]),
    ],
)
def test_I13_answer_that_stays_unclear_raises_OutcomeUnknown(
    puts: list[PutAnswer | TxlogError], reads: list[bytes | TxlogError | None]
) -> None:
    with pytest.raises(OutcomeUnknown, match=r"the slot.*delete nothing"):
        Script(puts, reads).run()


@pytest.mark.parametrize(
    ("puts", "error"),
    [
        ([NOT_STORED], StoreUnavailable),
        ([DENIED], StoreDenied),
        ([StoreFull("full")], StoreFull),
        ([NOT_STORED, DENIED], StoreDenied),
    ],
)
def test_write_that_certainly_stored_nothing_raises_a_definite_error(
    puts: list[PutAnswer | TxlogError], error: type[TxlogError]
) -> None:
    with pytest.raises(error):
        Script(puts).run()


@given(
    answers=st.lists(st.sampled_from(["lands", "lands, answer lost", "lost", "lands late"])),
    theirs_at=st.none() | st.integers(0, 6),
    unreadable=st.sets(st.integers(0, 6)),
)
def test_I13_result_matches_the_store_despite_lost_and_late_writes(
    answers: list[str], theirs_at: int | None, unreadable: set[int]
) -> None:
    """A simulated store loses answers and applies requests late; another writer may act at any
    time.
    """
    world = _World(answers, theirs_at, unreadable)
    attempts = Attempts(RetrySettings(attempts_max=6), manual_runtime())
    result: CreateResult | None
    try:
        result = create_with_readback("slot", MINE, attempts, world.put, world.read)
    except OutcomeUnknown:
        result = None
    world.let_everything_land()
    if result == Created():
        assert world.held == MINE
    elif isinstance(result, Exists):
        assert world.held == result.data == THEIRS


class _World:
    """One slot, which only the first write fills."""

    def __init__(self, answers: list[str], theirs_at: int | None, unreadable: set[int]) -> None:
        self.held: bytes | None = None
        self._answers = iter(answers)
        self._theirs_at = theirs_at
        self._unreadable = unreadable
        self._late: list[Callable[[], bool]] = []
        self._steps = 0

    def put(self) -> PutAnswer:
        self._step()
        match next(self._answers, "lands"):
            case "lands":
                return STORED if self._fill(MINE) else TAKEN
            case "lands, answer lost":
                self._fill(MINE)
            case "lands late":
                self._late.append(lambda: self._fill(MINE))
        return UNKNOWN

    def read(self) -> bytes | None:
        self._step()
        if self._steps in self._unreadable:
            raise StoreUnavailable("no answer")
        return self.held

    def let_everything_land(self) -> None:
        for landing in self._late:
            landing()

    def _step(self) -> None:
        if self._steps == self._theirs_at:
            self._fill(THEIRS)
        if self._late and self._steps % 2:
            self._late.pop(0)()
        self._steps += 1

    def _fill(self, data: bytes) -> bool:
        if self.held is None:
            self.held = data
            return True
        return False


@pytest.mark.parametrize("size_bytes", [0, ENTRY_BYTES_MAX + 1])
def test_empty_and_oversized_entry_bodies_are_refused(size_bytes: int) -> None:
    with pytest.raises(InternalError, match=f"{size_bytes} bytes"):
        check_entry_body("the/path", b"x" * size_bytes)
