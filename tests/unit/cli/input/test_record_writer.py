"""What `txlog produce` says about records that were written before it ended, however it ended."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import answer_lost, unavailable
from txlog.cli.input.input_records import RecordBlock
from txlog.cli.input.record_writer import PROGRESS_MS, RecordWriter, Written
from txlog.cli.session import GlobalOptions, Session
from txlog.client.producer.producer import Producer
from txlog.errors import InvalidRecord, StoreUnavailable, TxlogError, UnknownPartition
from txlog.topic.write.record_preparation import BatchColumns

SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False)])
WRONG = -1
"""Stands for null in a block."""


@pytest.fixture
def log() -> MemoryLog:
    """A typed topic whose numbers may not be null."""
    log = MemoryLog()
    log.admin.create_topic("t", 2, schema=SCHEMA)
    return log


def block(*values: int, first: int = 1) -> RecordBlock:
    numbers = [None if value == WRONG else value for value in values]
    batch = pa.record_batch([pa.array(numbers, pa.int64())], names=["n"])
    return RecordBlock(batch, "numbers.csv", range(first, first + len(values)))


def writer(log: MemoryLog, **columns: str) -> RecordWriter:
    named = BatchColumns(None, columns.get("partition"), columns.get("timestamp"))
    return RecordWriter(
        Session(GlobalOptions()), log.connection.cluster.present_topic("t"), log.clock, named
    )


def said(log: MemoryLog, producer: Producer, *blocks: RecordBlock, tag: str = "") -> str:
    with pytest.raises(TxlogError) as ended:
        writer(log).write(producer, iter(blocks), tag)
    return ended.value.message


def test_written_offsets_of_a_partition_are_the_first_and_the_last() -> None:
    written = Written()
    for base_offset, count in ((-1, 2), (5, 3), (8, 1), (-1, 1)):
        written.add(base_offset, count)
    assert written == Written(7, 5, 8)
    at_zero = Written()
    at_zero.add(0, 1)
    assert at_zero == Written(1, 0, 0)


@pytest.mark.parametrize("name", [None, "job"])
def test_written_records_are_counted_by_partition(log: MemoryLog, name: str | None) -> None:
    wrote = writer(log, partition="p")
    batch = pa.record_batch([pa.array([1, 2, 3]), pa.array([1, 1, 0])], names=["n", "p"])
    producer = Producer(log.connection, transactional_id=name)
    wrote.write(producer, [RecordBlock(batch, "f", range(1, 4))] * 2, "order" if name else "")
    assert wrote.partitions == {0: Written(2, 0, 1), 1: Written(4, 0, 3)}
    assert wrote.records == 6
    assert (wrote.tx_id is None) is (name is None)
    if name:
        assert str(log.admin.outcome("order")) == "COMMITTED"


@pytest.mark.parametrize("name", [None, "job"])
@pytest.mark.parametrize(
    ("blocks", "line", "before"),
    [
        ([block(1, 2, WRONG, 4, WRONG)], 3, "Nothing is written."),
        ([block(WRONG)], 1, "Nothing is written."),
        ([block(1), block(WRONG, first=2)], 2, "1 record is written before."),
        ([block(1, 2), block(3, WRONG, first=3)], 4, "2 records are written before."),
        ([block(1), block(*range(2, 9), WRONG, first=2)], 9, "1 record is written before."),
    ],
)
def test_first_record_that_does_not_fit_is_named_with_what_is_written_before(
    log: MemoryLog, blocks: list[RecordBlock], line: int, before: str, name: str | None
) -> None:
    message = said(log, Producer(log.connection, transactional_id=name), *blocks)
    assert message.startswith(f"numbers.csv line {line}: ")
    assert message.endswith("Nothing is written." if name else before)
    count = 0 if name else sum(one.batch.num_rows for one in blocks[:-1])
    assert len(log.values("t")) == count


def test_partition_that_does_not_exist_is_named_with_its_record(log: MemoryLog) -> None:
    batch = pa.record_batch([pa.array([1, 2, 3]), pa.array([0, 1, 2])], names=["n", "p"])
    with pytest.raises(UnknownPartition, match=r"^f row 13: .*Nothing is written\.$"):
        writer(log, partition="p").write(
            log.producer(), [RecordBlock(batch, "f", range(11, 14), "row")], ""
        )


def test_records_without_an_answer_are_counted_as_unknown(log: MemoryLog) -> None:
    def blocks() -> Iterator[RecordBlock]:
        yield block(1, 2)
        log.store.on("put_new|create", "topics/t/", unavailable, times=1_000)
        yield block(3, 4, 5)

    with pytest.raises(StoreUnavailable) as ended:
        writer(log).write(log.producer(retries=0), blocks(), "")
    text = "2 records are written before; for 3 more records that is unknown."
    assert ended.value.message.endswith(text)
    log.store.heal()
    log.store.on("put_new|create", "topics/t/", unavailable, times=1_000)
    text = "Nothing is written; for 1 more record that is unknown."
    assert said(log, log.producer(retries=0), block(1)).endswith(text)


def test_commit_without_an_answer_names_the_command_that_tells_it(log: MemoryLog) -> None:
    producer = Producer(log.connection, transactional_id="job")
    log.store.on("create", "/entries/", unavailable, holding="commit_prepared", times=1_000)
    wrote = writer(log)
    with pytest.raises(StoreUnavailable) as ended:
        wrote.write(producer, [block(1)], "")
    text = f"'txlog txn outcome {wrote.tx_id}' says whether it is committed."
    assert ended.value.message.endswith(text)


def test_store_that_fails_before_the_commit_leaves_nothing(log: MemoryLog) -> None:
    producer = Producer(log.connection, transactional_id="job")
    log.store.on("put_new", "segments", unavailable, times=1_000)
    assert said(log, producer, block(1)).endswith("Nothing is written.")


@pytest.mark.parametrize(
    ("name", "text"), [(None, "2 records are written before."), ("job", "Nothing is written.")]
)
def test_interrupt_says_what_is_written(
    log: MemoryLog, name: str | None, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def blocks() -> Iterator[RecordBlock]:
        yield block(1, 2)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        writer(log).write(Producer(log.connection, transactional_id=name), blocks(), "")
    assert capsys.readouterr().err == f"Interrupted: {text}\n"
    assert len(log.values("t")) == (0 if name else 2)


@pytest.mark.parametrize("name", [None, "job"])
def test_progress_is_shown_every_two_seconds_on_a_terminal(
    log: MemoryLog,
    name: str | None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def blocks() -> Iterator[RecordBlock]:
        for wait_ms in (PROGRESS_MS, PROGRESS_MS - 1, 1, 0):
            log.clock.advance(wait_ms)
            yield block(1, 2)

    for is_terminal, lines in ((False, []), (True, ["2", "6"])):
        monkeypatch.setattr("sys.stderr.isatty", lambda found=is_terminal: found)
        writer(log).write(Producer(log.connection, transactional_id=name), blocks(), "")
        shown = capsys.readouterr().err.splitlines()
        assert shown == [f"{count} records so far ..." for count in lines]


def test_answer_that_is_lost_changes_nothing(log: MemoryLog) -> None:
    log.store.on("create", "topics/t/.*/entries/", answer_lost)
    wrote = writer(log)
    wrote.write(log.producer(), [block(1, 2)], "")
    assert wrote.records == 2


def test_invalid_record_keeps_its_class_and_facts(log: MemoryLog) -> None:
    with pytest.raises(InvalidRecord) as ended:
        writer(log).write(log.producer(), [block(WRONG)], "")
    assert isinstance(ended.value.__cause__, InvalidRecord)
    assert ended.value.facts == ended.value.__cause__.facts
