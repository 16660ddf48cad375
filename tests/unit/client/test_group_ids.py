"""Names of consumer groups, as in Kafka: spaces, slashes, colons, any script."""

import pytest

from tests.logs.memory_log import MemoryLog
from txlog.errors import InvalidName
from txlog.model import TopicPartition

U0 = TopicPartition("u", 0)
NAMES = (
    "a group",
    "team/app",
    "urn:app:1",
    "../../cluster",
    "\u00fcber-\u65e5\u672c",
    'a "quoted\\" id',
    "x" * 300,
    "\U0001f600" * 512,
    " leading",
)


@pytest.mark.both_ways
@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_group_id_of_any_printable_text_is_supported(log: MemoryLog, name: str) -> None:
    log.producer().send("u", b"x").get()
    with log.consumer("u", group_id=name) as consumer:
        consumer.poll()
        consumer.commit()
    assert log.consumer("u", group_id=name).committed(U0) == 1
    producer = log.producer("p")
    producer.begin_transaction()
    producer.send_offsets_to_transaction({U0: 0}, name)
    producer.commit_transaction()
    log.connection.coordinator(
        log.connection.offsets.coordinator_number_of(name)
    ).journal.snapshot()
    described = log.process().offsets.group(name)
    assert described.committed[U0].offset == 0
    assert log.admin.list_groups() == [name]
    assert log.admin.describe_group(name).lag == 1
    assert all(name not in path for path in log.objects())
    log.check()


@pytest.mark.parametrize("name", ["", " ", "\n", "a\nb", "a\x00", "\ud800", "\u202eabc", "x" * 513])
def test_invalid_group_id_is_refused(log: MemoryLog, name: str) -> None:
    before = log.objects()
    with pytest.raises(InvalidName):
        log.admin.describe_group(name)
    with pytest.raises(InvalidName):
        log.connection.offsets.group(name)
    assert log.changed_since(before) == []


def test_committed_is_none_for_uncommitted_or_unknown_partitions(log: MemoryLog) -> None:
    """As in Kafka; an error would concern the topic, while the call is about the group."""
    consumer = log.consumer(group_id="g")
    for where in (U0, TopicPartition("u", 9), TopicPartition("nope", 0)):
        assert consumer.committed(where) is None
