"""Partitions, offsets and metadata of callers are accepted if every process can read them back."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.logs.memory_log import MemoryLog
from txlog.client.positions.position_arguments import (
    OFFSET_METADATA_BYTES_MAX,
    checked_names,
    checked_offset,
    checked_offsets,
    checked_partitions,
    checked_position,
    checked_time,
    checked_timeout,
    checked_transaction,
)
from txlog.errors import InvalidName, InvalidRecord, OffsetOutOfRange, TxlogError, UsageError
from txlog.model import OffsetAndMetadata, TopicPartition, TxId

U0 = TopicPartition("u", 0)

Call = Callable[[MemoryLog, TopicPartition, object], object]


def test_one_partition_stands_for_a_list_of_it() -> None:
    wanted = [U0, TopicPartition("t", 1)]
    assert checked_partitions(wanted) == wanted
    assert checked_partitions(U0) == [U0]
    (found,) = checked_partitions([("u", np.int64(0))])
    assert (found, type(found), type(found.partition)) == (U0, TopicPartition, int)
    for refused in ("u", b"u", 5, None, ["u"], [("u",)], [(0, "u")], ("u", 0)):
        with pytest.raises(InvalidRecord, match="is not a"):
            checked_partitions(refused)


def test_one_name_stands_for_a_list_of_it() -> None:
    assert checked_names("u") == ["u"]
    assert checked_names(iter(["u", "t"])) == ["u", "t"]
    with pytest.raises(InvalidName, match="is not the name of a topic"):
        checked_names(["u", 5])
    for refused in (b"u", 5, None):
        with pytest.raises(InvalidRecord, match="is not a list of names"):
            checked_names(refused)


def test_mapping_is_shown_by_an_example_of_its_own() -> None:
    assert checked_offsets({("u", 0): np.int64(5)}) == {U0: 5}
    with pytest.raises(InvalidRecord, match=r"as in \{TopicPartition\('orders', 0\): 23\}\."):
        checked_offsets([(U0, 5)])


def test_transaction_is_an_id_or_its_text() -> None:
    for accepted in (TxId(0, 0, 0), TxId(2**63 - 1, 0, 7)):
        assert checked_transaction(accepted) is accepted
        assert checked_transaction(str(accepted)) == accepted
    parts: list[Any] = [True, 1.0, "1", None, -1, 2**63]
    for refused in (None, 7, (2, 0, 0), *(TxId(1, 0, part) for part in parts)):
        with pytest.raises(UsageError, match="is not a transaction; give a TxId"):
            checked_transaction(refused)


def test_time_to_wait_is_a_number_of_milliseconds() -> None:
    for accepted in (0, 2.5, np.float64(7), 2**63 - 1):
        found = checked_timeout(accepted)
        assert (found, type(found)) == (float(accepted), float)
    for refused in (-1, float("nan"), True, "5", None, 2.0**64):
        with pytest.raises(UsageError, match="give milliseconds from 0 to"):
            checked_timeout(refused)


def test_metadata_may_have_the_limit_in_bytes() -> None:
    at = OffsetAndMetadata(3, "é" * (OFFSET_METADATA_BYTES_MAX // 2))
    assert checked_position(U0, at) == at
    assert checked_position(U0, 3) == OffsetAndMetadata(3)
    half = "\ud800" * (OFFSET_METADATA_BYTES_MAX // 3)
    assert checked_position(U0, OffsetAndMetadata(3, half)).metadata == half
    for refused in (at.metadata + "x", None, b"x"):
        with pytest.raises(InvalidRecord, match="the metadata of the offset of u-0"):
            checked_position(U0, OffsetAndMetadata(3, refused))  # type: ignore[arg-type]


def test_time_is_one_that_a_record_can_have() -> None:
    for accepted in (0, 2**63 - 1, np.int64(5)):
        assert checked_time("the time", accepted) == accepted
    for refused in (-1, 2**63):
        with pytest.raises(InvalidRecord, match="the time must be milliseconds since 1970"):
            checked_time("the time", refused)


def test_offset_is_one_that_a_partition_can_have() -> None:
    for accepted in (0, 2**63 - 1, np.int64(5)):
        assert checked_offset("the offset", accepted) == accepted
    for refused in (-1, 2**63):
        with pytest.raises(OffsetOutOfRange, match="the offset is .*; offsets begin at 0"):
            checked_offset("the offset", refused)


@pytest.fixture
def filled(log: MemoryLog) -> MemoryLog:
    """A log whose topic `u` has five records."""
    for number in range(5):
        log.producer().send("u", b"%d" % number).get()
    return log


def delete(log: MemoryLog, where: TopicPartition, offset: object) -> object:
    return log.admin.delete_records({where: offset})  # type: ignore[dict-item]


def commit(log: MemoryLog, where: TopicPartition, offset: object) -> object:
    log.consumer("u", group_id="g").commit({where: offset})  # type: ignore[dict-item]
    return {where: committed(log).offset}


def commit_in_a_transaction(log: MemoryLog, where: TopicPartition, offset: object) -> object:
    producer = log.producer("a")
    producer.begin_transaction()
    producer.send_offsets_to_transaction({where: offset}, "g")  # type: ignore[dict-item]
    producer.commit_transaction()
    return {where: committed(log).offset}


def committed(log: MemoryLog) -> OffsetAndMetadata:
    """The committed position of `g` in `u`, as a newly opened process reads it."""
    at = log.process().offsets.group("g").committed[U0]
    return OffsetAndMetadata(at.offset, at.metadata)


CALLS = [delete, commit, commit_in_a_transaction]


@pytest.mark.both_ways
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("offset", [4 / 2, True, np.bool_(True), np.float64(2), "2", None])
def test_non_integer_offset_is_refused_before_any_write(
    filled: MemoryLog, call: Call, offset: object
) -> None:
    objects = filled.objects()
    with pytest.raises(InvalidRecord, match="offset of u-0 must be a whole number"):
        call(filled, U0, offset)
    changed = [path for path in filled.changed_since(objects) if "transactions" not in path]
    assert changed == []
    assert filled.values("u") == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.both_ways
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("partition", [False, 0.0, "0", None])
def test_non_integer_partition_is_refused(filled: MemoryLog, call: Call, partition: object) -> None:
    with pytest.raises(InvalidRecord, match="partition of 'u' must be a whole number"):
        call(filled, TopicPartition("u", partition), 2)  # type: ignore[arg-type]
    assert filled.values("u") == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.both_ways
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", [int, np.int64, np.uint8])
def test_numpy_integers_are_accepted(
    filled: MemoryLog, call: Call, kind: Callable[[int], int]
) -> None:
    assert call(filled, TopicPartition("u", kind(0)), kind(2)) == {U0: 2}
    assert filled.elsewhere().send("u", b"5").get().offset == 5, "others can still write"
    filled.check()


@pytest.mark.both_ways
@pytest.mark.parametrize("call", [commit, commit_in_a_transaction])
@pytest.mark.parametrize("note", [None, 7, b"note", "x" * 4097, "\N{EURO SIGN}" * 1366])
def test_offset_metadata_that_is_not_text_or_too_long_is_refused(
    filled: MemoryLog, call: Call, note: object
) -> None:
    commit(filled, U0, OffsetAndMetadata(1, "before"))
    with pytest.raises(InvalidRecord, match="the metadata of the offset of u-0"):
        call(filled, U0, OffsetAndMetadata(2, note))  # type: ignore[arg-type]
    assert committed(filled) == (1, "before")
    filled.check()


@pytest.mark.both_ways
@pytest.mark.parametrize("call", [commit, commit_in_a_transaction])
@pytest.mark.parametrize("note", ["", "x" * OFFSET_METADATA_BYTES_MAX, "\ud800 \0\n" * 512])
def test_offset_metadata_up_to_size_limit_is_stored(
    filled: MemoryLog, call: Call, note: str
) -> None:
    call(filled, U0, OffsetAndMetadata(2, note))
    assert committed(filled) == (2, note)
    filled.check()


@pytest.mark.both_ways
def test_producer_recovers_from_invalid_offset_by_aborting(filled: MemoryLog) -> None:
    producer = filled.producer("a")
    for wrong in (2.0, OffsetAndMetadata(2, None)):  # type: ignore[arg-type]
        producer.begin_transaction()
        with pytest.raises(TxlogError):
            producer.send_offsets_to_transaction({U0: wrong}, "g")  # type: ignore[dict-item]
        producer.abort_transaction()
    producer.begin_transaction()
    producer.send("u", b"5")
    producer.send_offsets_to_transaction({U0: 2}, "g")
    producer.commit_transaction()
    assert committed(filled) == (2, "")
    assert filled.values("u")[-1] == b"5"
