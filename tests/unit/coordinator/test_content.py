"""R35: a repeated commit is answered as done only if it names the same records and groups."""

from collections.abc import Callable

import pytest

from tests.logs.memory_log import MemoryLog
from tests.unit.coordinator.coordinator_commands import (
    NAME,
    PID,
    begin,
    commit,
    complete,
    registered,
)
from txlog.client.producer.producer import Producer
from txlog.coordinator.events import NO_CONTENT, ExpireTransactionalId, Participant
from txlog.coordinator.outcomes import OutcomeGeneration
from txlog.errors import ProducerFenced
from txlog.model import TxId
from txlog.topic.records.batch import Segment

TX = TxId(PID, 0, 0)
TOPIC_ID = "0123456789abcdef"


def staged(name: str) -> Participant:
    """A topic with one staged segment."""
    path = f"topics/t/{TOPIC_ID}/segments/{name}.arrow"
    return Participant(TOPIC_ID, "t", (), (Segment(path, 0, ()),))


MINE, OTHER = staged("01977420dcef8c15510563d550401e72"), staged("01977420dd515b0dc4c08bb17ffdcf31")


def content(participants: tuple[Participant, ...], groups: tuple[str, ...]) -> int:
    """The content hash of a commit that names these."""
    return commit(TX, participants=participants, groups=groups).content


def test_content_hash_depends_on_participants_and_groups() -> None:
    named = [
        content((), ()),
        content((MINE,), ()),
        content((OTHER,), ()),
        content((MINE,), ("g",)),
        content((), ("g",)),
        content((), ("h",)),
        content((Participant(TOPIC_ID, "t", (0,)),), ()),
        content((Participant(TOPIC_ID, "t", (1,)),), ()),
    ]
    assert len(set(named)) == len(named)
    assert named[0] == NO_CONTENT
    assert content((MINE,), ("g",)) == named[3]


@pytest.mark.parametrize("is_complete", [False, True])
@pytest.mark.parametrize("is_forgotten", [False, True])
def test_R35_repeated_commit_with_other_records_or_groups_is_fenced(
    is_complete: bool, is_forgotten: bool
) -> None:
    coordinator = registered()
    coordinator.run(commit(TX, participants=(MINE,), groups=("g",)))
    if is_complete or is_forgotten:
        coordinator.run(complete(TX))
    if is_forgotten:
        assert coordinator.run(ExpireTransactionalId(NAME, 9_000)) is True
    before = coordinator.state
    coordinator.run(commit(TX, participants=(MINE,), groups=("g",)))
    assert coordinator.state == before, "a repeat is done, and decides nothing"
    for participants, groups in (((OTHER,), ("g",)), ((MINE,), ()), ((), ("h",))):
        with pytest.raises(ProducerFenced, match="other records than these"):
            coordinator.run(commit(TX, participants=participants, groups=groups))


def test_R35_commit_without_content_accepts_any_repeat() -> None:
    """Any process may repeat a half transaction's commit; one in the log has named its topics."""
    coordinator = registered()
    coordinator.run(begin(TX))
    coordinator.run(commit(TX))
    coordinator.run(commit(TX, groups=("g",)))
    coordinator.run(complete(TX))
    coordinator.run(commit(TX, participants=(MINE,)))
    assert coordinator.state.outcomes[-1][TX].content == NO_CONTENT


def test_content_hash_is_kept_in_encoded_outcomes() -> None:
    coordinator = registered()
    coordinator.run(commit(TX, participants=(MINE,)))
    coordinator.run(complete(TX))
    outcomes = OutcomeGeneration.of(coordinator.state.outcomes[-1])
    assert OutcomeGeneration.of_text(outcomes.text)[TX].content == content((MINE,), ())


def copied(log: MemoryLog) -> tuple[Producer, Producer]:
    """A producer and its copy in another process, as when a running machine is copied."""
    copy, original = log.producer("a"), log.elsewhere("a")
    for name in ("_registration", "_instance", "tx_id"):
        setattr(copy._transaction, name, getattr(original._transaction, name))
    return original, copy


def complete_it(producer: Producer) -> None:
    """Wait for COMMITTED of the producer's transaction."""
    assert producer._transaction is not None
    producer._transaction.join()


@pytest.mark.parametrize("then", [lambda producer: None, complete_it], ids=["decided", "complete"])
def test_R35_commit_by_a_copied_producer_with_other_records_is_fenced(
    then: Callable[[Producer], None],
) -> None:
    log = MemoryLog(transaction_records="staged")
    log.admin.create_topic("u", 1)
    original, copy = copied(log)
    for producer, value in ((original, b"1"), (copy, b"2")):
        producer.begin_transaction()
        producer.send("u", value)
        producer.flush()
    original.commit_transaction()
    then(original)
    with pytest.raises(ProducerFenced, match="Nothing of these records was committed"):
        copy.commit_transaction()
    assert log.values("u") == [b"1"]
    log.check()
