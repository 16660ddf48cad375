"""Groups of very many partitions, whose positions do not fit in one entry of a journal (I16)."""

import pytest

from tests.logs.memory_log import MemoryLog
from tests.source_tree import ROOT
from txlog.client.admin.offset_reset import OffsetReset
from txlog.errors import UsageError
from txlog.groups.state import (
    OFFSETS_BYTES_MAX,
    UNCHECKED,
    OffsetsPended,
    Pending,
    PendingOffset,
    in_parts,
)
from txlog.layout import parse_number
from txlog.model import PARTITIONS_MAX, TopicPartition, TxId

ID = "0123456789abcdef"
SOME = 13_000
"""Partitions whose positions fit in one entry, as docs/cli.md and docs/kafka-users.md say."""


@pytest.fixture
def log() -> MemoryLog:
    """A log without the topics: no code reads them for a group's positions."""
    return MemoryLog()


def positions(
    count: int, end: int = 5, note: str = "", topic: str = ""
) -> tuple[PendingOffset, ...]:
    """Positions of `count` partitions, in two topics if one cannot have as many."""
    name = topic or "orders.of-a-region.and-its-parts"
    names = (name, f"{name[:-1]}2")
    places = ((names[n // PARTITIONS_MAX], n % PARTITIONS_MAX) for n in range(count))
    return tuple(PendingOffset(t, ID, p, UNCHECKED, end, note) for t, p in places)


def pend(log: MemoryLog, offsets: tuple[PendingOffset, ...]) -> None:
    pending = Pending("x", 0, offsets, log.clock.wall_ms(), 60_000)
    log.connection.offsets.pend(OffsetsPended("g", TxId(1, 0, 0), pending))


def entries(log: MemoryLog) -> int:
    """The number of entries in the coordinators' journals, beside the first ones."""
    paths = [path for path in log.objects() if "transactions/" in path and "/entries/" in path]
    return sum(parse_number(path) != 0 for path in paths)


def committed(log: MemoryLog) -> dict[TopicPartition, int]:
    """The positions of `g` as a newly opened process reads them."""
    found = log.process().offsets.group("g").committed
    return {where: at.offset for where, at in found.items()}


@pytest.mark.parametrize(("count", "made"), [(1, 1), (SOME, 1), (16_000, 3)])
def test_I16_commit_of_many_partitions_is_split_into_entries_as_needed(
    log: MemoryLog, count: int, made: int
) -> None:
    log.connection.offsets.commit("g", positions(count))
    assert committed(log) == {offset.where: 5 for offset in positions(count)}
    assert entries(log) == made


def test_empty_commit_is_a_single_empty_part() -> None:
    assert list(in_parts(())) == [()]


@pytest.mark.parametrize("note", ["\0" * 4096, "\N{GRINNING FACE}" * 1024, '"' * 4096])
def test_I16_parts_fit_in_an_entry_with_any_metadata(log: MemoryLog, note: str) -> None:
    offsets = positions(600, note=note, topic="t" * 249)
    log.connection.offsets.commit("g", offsets)
    assert len(committed(log)) == 600


def test_I16_pend_too_large_for_one_entry_is_refused_with_the_limit(
    log: MemoryLog,
) -> None:
    before = log.objects()
    with pytest.raises(UsageError, match="in 16000 partitions take .* 990000 can be committed"):
        pend(log, positions(16_000))
    assert log.changed_since(before) == []
    pend(log, positions(10_000))
    with pytest.raises(UsageError, match="in 16000 partitions"):
        pend(log, positions(16_000)[8_000:])  # Together with those of the first pend.
    assert len(log.process().offsets.group("g").pending[TxId(1, 0, 0)].offsets) == 10_000


def test_I16_pend_just_within_the_limit_fits_in_an_entry_with_longest_names(
    log: MemoryLog,
) -> None:
    owner, note = "\N{GRINNING FACE}" * 512, "x" * 4000

    def pended(count: int) -> bool:
        group, tx_id = f"{count}".rjust(249, "g"), TxId(1, 0, count)
        try:
            offsets = positions(count, note=note)
            pending = Pending(owner, 0, offsets, log.clock.wall_ms(), 60_000)
            log.connection.offsets.pend(OffsetsPended(group, tx_id, pending))
        except UsageError:
            return False
        return True

    taken = [pended(count) for count in range(230, 250)]
    most = 230 + taken.index(False) - 1
    assert taken == sorted(taken, reverse=True)
    assert most == OFFSETS_BYTES_MAX // 4_068, "each takes 68 bytes beside its note"


def test_I16_offset_reset_too_large_for_one_entry_is_refused(log: MemoryLog) -> None:
    resets = [OffsetReset(at.where, ID, None, 7, 7) for at in positions(16_000)]
    before = log.objects()
    with pytest.raises(UsageError, match="fewer partitions at once"):
        log.admin.reset_group("g", resets)
    assert log.changed_since(before) == []
    log.admin.reset_group("g", resets[:SOME])
    assert list(committed(log).values()) == [7] * SOME


@pytest.mark.parametrize("page", ["cli.md", "kafka-users.md"])
def test_docs_state_how_many_partitions_are_committed_atomically(page: str) -> None:
    assert f"some {SOME:,}" in (ROOT / "docs" / page).read_text()


def test_I16_deletion_of_many_positions_is_split_into_entries(
    log: MemoryLog,
) -> None:
    offsets = positions(7_000, topic="t" * 249)
    log.connection.offsets.commit("g", offsets)
    before = entries(log)
    log.connection.offsets.delete_offsets("g", tuple(at.where for at in offsets[1:]))
    assert committed(log) == {offsets[0].where: 5}
    assert entries(log) == before + 3
