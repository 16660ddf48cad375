"""Topics that cannot hold dead letters."""

import pytest

from tests.logs.memory_log import MemoryLog
from tests.unit.client.half_messages.undecided_listener import Undecided
from txlog.client.half_messages.dead_letter import pending_letters
from txlog.client.half_messages.half_message import Message
from txlog.client.half_messages.transaction_mq_producer import TransactionMQProducer
from txlog.errors import InvalidConfig


def producer(log: MemoryLog) -> TransactionMQProducer:
    return TransactionMQProducer(
        "g",
        log.process(),
        listener=Undecided(),
        transaction_timeout_ms=0,
        transaction_check_interval_ms=1,
        transaction_check_max=1,
        dead_letter_topic="letters",
    )


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_compacted_topic_is_refused_as_dead_letter_topic(log: MemoryLog, policy: str) -> None:
    """Compaction would delete all letters of a key but the newest."""
    log.admin.create_topic("letters", config={"cleanup.policy": policy})
    with pytest.raises(InvalidConfig, match="cannot hold dead letters: it is compacted"):
        producer(log).start(check_in_background=False)


def test_messages_stay_undecided_until_dead_letter_topic_is_no_longer_compacted(
    log: MemoryLog,
) -> None:
    log.admin.create_topic("letters")
    sender = producer(log)
    sender.start(check_in_background=False)
    sender.send_half(Message("u", b"x", key=b"k"))
    log.admin.alter_topic_config("letters", {"cleanup.policy": "compact"})
    for _ in range(3):
        log.clock.now_ms += 10
        sender.check()
    assert log.values("letters") == []
    log.admin.alter_topic_config("letters", {"cleanup.policy": "delete"})
    log.clock.now_ms += 10
    sender.check()
    (letter,) = pending_letters(log.process(), "letters")
    assert letter.message.value == b"x"
