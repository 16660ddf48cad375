"""Dead letters as records of their topic: what is read of them, and how many."""

from collections.abc import Sequence

import pytest

from tests.logs.memory_log import MemoryLog
from txlog.client.half_messages.dead_letter import (
    DEAD_LETTER_TOPIC,
    DeadLetter,
    dead_letter_log,
    letter_at,
    pending_letters,
    replay_letters,
)
from txlog.client.half_messages.half_message import Message
from txlog.errors import CorruptData, OffsetOutOfRange, UnknownPartition, UnknownTopic
from txlog.model import TopicPartition
from txlog.topic.records.schema import KAFKA_SCHEMA

D0 = TopicPartition(DEAD_LETTER_TOPIC, 0)
Headers = list[tuple[str, bytes | None]]
OWN: Headers = [
    ("txlog.topic", b"u"),
    ("txlog.partition", b"0"),
    ("txlog.transaction", b"order"),
    ("txlog.producer.group", b"shop"),
    ("txlog.checks", b"15"),
]


@pytest.fixture
def letters(log: MemoryLog) -> MemoryLog:
    """The topic of dead letters, without any."""
    dead_letter_log(log.connection, DEAD_LETTER_TOPIC)
    return log


def store(log: MemoryLog, *headers: Sequence[tuple[str, bytes | None]]) -> None:
    """Letters whose values are their numbers."""
    producer = log.producer()
    for number, found in enumerate(headers):
        producer.send(
            DEAD_LETTER_TOPIC, b"%d" % number, b"key", list(found), timestamp_ms=7_000 + number
        )
    producer.flush()


def test_topic_of_dead_letters_takes_the_largest_messages(letters: MemoryLog) -> None:
    topic = letters.connection.cluster.topic(DEAD_LETTER_TOPIC)
    assert topic.state.config.max_message_bytes == 1 << 30
    assert len(topic.state.partitions) == 1
    assert topic.schema().equals(KAFKA_SCHEMA)
    assert dead_letter_log(letters.process(), DEAD_LETTER_TOPIC).topic_id == topic.topic_id


def test_letter_has_its_message_and_the_facts_of_its_half_transaction(letters: MemoryLog) -> None:
    store(letters, [("trace", b"1"), *OWN])
    (letter,) = pending_letters(letters.process())
    message = Message("u", b"0", b"key", (("trace", b"1"),), 0, 7_000)
    assert letter == DeadLetter(message, "order", "shop", 15, D0, 0)
    assert letter_at(letters.process(), D0, 0) == letter


def test_letter_with_an_empty_fact_is_read(letters: MemoryLog) -> None:
    store(letters, [(k, None if k == "txlog.producer.group" else v) for k, v in OWN])
    assert pending_letters(letters.process())[0].producer_group == ""


@pytest.mark.parametrize("nth", range(len(OWN)))
def test_record_that_lacks_a_fact_is_no_letter(letters: MemoryLog, nth: int) -> None:
    store(letters, OWN, [pair for number, pair in enumerate(OWN) if number != nth])
    for call in (pending_letters, replay_letters):
        with pytest.raises(CorruptData, match="offset 1 of .* is not a dead letter") as refused:
            call(letters.process())
        assert refused.value.facts["offset"] == 1
        assert f"--topic {DEAD_LETTER_TOPIC}:0 --to-offset 2 --execute" in refused.value.message
    assert letters.values("u") == []


def test_letters_are_listed_and_replayed_oldest_first_up_to_the_limit(letters: MemoryLog) -> None:
    store(letters, *[OWN] * 5)
    process = letters.process()
    assert [letter.offset for letter in pending_letters(process, limit=2)] == [0, 1]
    assert [letter.offset for letter in replay_letters(process, limit=2)] == [0, 1]
    assert letters.values("u") == [b"0", b"1"]
    assert [letter.offset for letter in pending_letters(process)] == [2, 3, 4]
    assert letter_at(process, D0, 1).offset == 1
    assert len(replay_letters(process, limit=3)) == 3
    assert replay_letters(process) == []
    assert letters.values("u") == [b"%d" % number for number in range(5)]
    letters.check()


def test_thousand_letters_are_listed_and_replayed_at_once(letters: MemoryLog) -> None:
    store(letters, *[OWN] * 1_001)
    assert len(pending_letters(letters.process())) == 1_000
    assert len(replay_letters(letters.process())) == 1_000
    assert len(pending_letters(letters.process())) == 1


def test_replayed_message_keeps_its_key_headers_partition_and_time(letters: MemoryLog) -> None:
    to_last = [(k, b"1" if k == "txlog.partition" else v) for k, v in OWN]
    to_last[0] = ("txlog.topic", b"t")
    store(letters, [("trace", b"1"), *to_last])
    replay_letters(letters.process())
    (record,) = letters.consumer("t").poll()[TopicPartition("t", 1)]
    assert (record.key, record.value, record.timestamp) == (b"key", b"0", 7_000)
    assert record.headers == [("trace", b"1")]


def test_letter_that_does_not_exist_is_refused(letters: MemoryLog) -> None:
    store(letters, OWN)
    for offset in (1, 99):
        with pytest.raises(OffsetOutOfRange, match=f"no dead letter at offset {offset}"):
            letter_at(letters.process(), D0, offset)
    with pytest.raises(UnknownPartition):
        letter_at(letters.process(), TopicPartition(DEAD_LETTER_TOPIC, 1), 0)
    for call in (pending_letters, replay_letters):
        with pytest.raises(UnknownTopic):
            call(letters.process(), "missing")


def test_letters_of_another_topic_are_a_group_of_their_own(letters: MemoryLog) -> None:
    store(letters, OWN)
    dead_letter_log(letters.connection, "other.letters")
    letters.producer().send("other.letters", b"x", headers=OWN).get()
    assert len(replay_letters(letters.process(), "other.letters")) == 1
    assert len(pending_letters(letters.process())) == 1
    assert letters.admin.list_groups() == ["other.letters.replay"]


def test_replay_whose_message_has_no_topic_changes_nothing(letters: MemoryLog) -> None:
    store(letters, OWN, [("txlog.topic", b"gone"), *OWN[1:]])
    with pytest.raises(UnknownTopic):
        replay_letters(letters.process())
    assert letters.values("u") == []
    assert len(pending_letters(letters.process())) == 2
