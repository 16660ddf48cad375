"""Rows of typed topics as dead letters: every type is read back unchanged and blocks no check."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.logs.memory_log import MemoryLog
from tests.unit.client.half_messages.undecided_listener import Undecided
from txlog.client.half_messages import check_service
from txlog.client.half_messages.dead_letter import replay_letters
from txlog.client.half_messages.half_message import HalfTransaction, LocalTransactionState, Message
from txlog.client.half_messages.transaction_mq_producer import TransactionMQProducer
from txlog.model import TransactionOutcome

CASES = {
    "map of strings": (pa.map_(pa.string(), pa.string()), [("a", "b")]),
    "map of numbers": (pa.map_(pa.string(), pa.int64()), [("a", 1)]),
    "uint64": (pa.uint64(), 2**63 + 1),
    "zoned": (pa.timestamp("us", "UTC"), dt.datetime(2024, 1, 1, tzinfo=dt.UTC)),
    "duration": (pa.duration("us"), dt.timedelta(1)),
    "decimal": (pa.decimal128(38, 2), Decimal("1.50")),
    "structs": (pa.list_(pa.struct([("x", pa.int32()), ("y", pa.string())])), [{"x": 1, "y": "b"}]),
    "time": (pa.time64("us"), dt.time(1, 2)),
    "binary of a length": (pa.binary(3), b"abc"),
    "float16": (pa.float16(), 1.5),
    "nothing": (pa.map_(pa.string(), pa.int64()), None),
}


class Decided(Undecided):
    """Commits every half transaction except `poison`, which stays unknown."""

    def check_local_transaction(self, half: HalfTransaction) -> LocalTransactionState:
        is_poison = half.transaction_id == "poison"
        return LocalTransactionState.UNKNOW if is_poison else LocalTransactionState.COMMIT_MESSAGE


def started(log: MemoryLog, checks_max: int = 1) -> TransactionMQProducer:
    producer = TransactionMQProducer(
        "g", log.process(), listener=Decided(), transaction_check_max=checks_max
    )
    producer.start(check_in_background=False)
    return producer


@pytest.mark.parametrize(("kind", "value"), CASES.values(), ids=CASES)
def test_dead_letter_row_of_any_type_is_replayed_unchanged(
    log: MemoryLog, kind: pa.DataType, value: Any
) -> None:
    log.admin.create_topic("typed", 1, pa.schema([("v", kind), ("w", pa.string())]))
    producer = started(log)
    producer.send_message_in_transaction(Message("typed", {"v": value}), transaction_id="poison")
    for _ in range(3):
        log.clock.advance(40_000)
        producer.check()
    assert log.admin.outcome("poison") is TransactionOutcome.DEAD_LETTERED
    assert len(replay_letters(log.process())) == 1
    assert log.values("typed") == [{"v": value, "w": None}]


def test_headers_named_like_those_of_letters_are_kept(log: MemoryLog) -> None:
    """As of a message that was made from the record of a letter."""
    names = ("txlog.topic", "txlog.checks", "txlog.row", "mine")
    headers = [(name, name.encode()) for name in names]
    producer = started(log)
    message = Message("u", b"v", headers=headers)
    producer.send_message_in_transaction(message, transaction_id="poison")
    for _ in range(2):
        log.clock.advance(40_000)
        producer.check()
    assert log.admin.outcome("poison") is TransactionOutcome.DEAD_LETTERED
    assert len(replay_letters(log.process())) == 1
    ((record,),) = log.consumer("u").poll().values()
    assert (record.value, record.headers) == (b"v", headers)


def test_failed_dead_lettering_does_not_block_other_checks(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        raise ArithmeticError("no dead letter holds this")

    monkeypatch.setattr(check_service, "letters", fails)
    producer = started(log)
    for name in ("poison", "good", "late"):
        producer.send_message_in_transaction(Message("u", name.encode()), transaction_id=name)
        log.clock.advance(40_000)
        producer.check()
    log.clock.advance(40_000)
    producer.check()
    assert "no dead letter holds this" in caplog.text
    assert log.admin.outcome("poison") is TransactionOutcome.OPEN
    assert sorted(log.values("u")) == [b"good", b"late"]
