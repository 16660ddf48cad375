"""RocketMQ's transactional messages (docs/guarantees.md, 0.6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import answer_lost, never_lands, unavailable
from txlog.client.half_messages.dead_letter import pending_letters, replay_letters
from txlog.client.half_messages.half_message import (
    HalfTransaction,
    LocalTransactionState,
    Message,
    SendStatus,
    TransactionSendResult,
)
from txlog.client.half_messages.transaction_mq_producer import TransactionMQProducer
from txlog.coordinator.events import StagingHorizonAdvanced
from txlog.errors import (
    CorruptData,
    DuplicateTransaction,
    IllegalTransition,
    InvalidConfig,
    StoreUnavailable,
    TransactionAborted,
    UnknownTopic,
)
from txlog.model import WALL_MS_MAX, TransactionOutcome

State = LocalTransactionState
COMMIT, ROLLBACK, UNKNOW = State.COMMIT_MESSAGE, State.ROLLBACK_MESSAGE, State.UNKNOW
TRANSACTIONS = "transactions/.*/entries"
TIMEOUT_MS, INTERVAL_MS = 6_000, 30_000


class Listener:
    """Answers what the test specifies, and records the transactions it was asked about."""

    def __init__(self, executed: Any = COMMIT, checked: Any = UNKNOW) -> None:
        self.executed = executed
        self.checked = checked
        self.executions: list[tuple[HalfTransaction, Any]] = []
        self.checks: list[HalfTransaction] = []

    def execute_local_transaction(self, half: HalfTransaction, arg: Any) -> State | None:
        self.executions.append((half, arg))
        return _answer(self.executed)

    def check_local_transaction(self, half: HalfTransaction) -> State | None:
        self.checks.append(half)
        return _answer(self.checked)


def _answer(answer: Any) -> State | None:
    if isinstance(answer, Exception):
        raise answer
    return answer  # type: ignore[no-any-return]


def started(log: MemoryLog, listener: Listener, **options: Any) -> TransactionMQProducer:
    """A live producer of the group `shop` in the first process; the test runs its checks."""
    producer = TransactionMQProducer("shop", log.connection, listener=listener, **options)
    producer.start(check_in_background=False)
    return producer


def started_elsewhere(log: MemoryLog, listener: Listener) -> TransactionMQProducer:
    """The same in another process."""
    producer = TransactionMQProducer("shop", log.process(), listener=listener)
    producer.start(check_in_background=False)
    return producer


def send(producer: TransactionMQProducer, value: bytes = b"x") -> TransactionSendResult:
    return producer.send_message_in_transaction(Message("u", value, b"k"), "the argument")


def test_producer_requires_a_listener_and_start_before_sending(log: MemoryLog) -> None:
    producer = TransactionMQProducer("shop", log.connection)
    with pytest.raises(IllegalTransition, match=r"call start\(\) first"):
        send(producer)
    with pytest.raises(InvalidConfig, match="needs a transaction listener"):
        producer.start()
    producer.set_transaction_listener(Listener())
    producer.start(check_in_background=False)
    with pytest.raises(IllegalTransition, match="started before"):
        producer.start()
    send(producer)
    assert log.values("u") == [b"x"]


def test_local_transaction_runs_with_its_arg_after_the_half_message_is_stored(
    log: MemoryLog,
) -> None:
    listener = Listener()
    seen: list[TransactionOutcome] = []

    class Looking(Listener):
        def execute_local_transaction(self, half: HalfTransaction, arg: Any) -> State | None:
            seen.append(log.admin.outcome(half.transaction_id))
            assert log.values("u") == []
            return listener.execute_local_transaction(half, arg)

    producer = started(log, Looking())
    result = send(producer)
    assert seen == [TransactionOutcome.OPEN]
    ((half, arg),) = listener.executions
    assert (half.message.value, half.message.key, arg) == (b"x", b"k", "the argument")
    assert half.transaction_id == result.transaction_id


@pytest.mark.parametrize(
    ("answer", "state", "shown"),
    [
        (COMMIT, COMMIT, [b"x"]),
        (ROLLBACK, ROLLBACK, []),
        (UNKNOW, UNKNOW, []),
        ("UNKNOWN", UNKNOW, []),
        (None, UNKNOW, []),
        (ValueError("no such account"), UNKNOW, []),
    ],
    ids=[
        "commit",
        "rollback",
        "unknow",
        "unknown is unknow",
        "null is unknow",
        "an exception is unknow",
    ],
)
def test_local_transaction_state_decides_the_outcome(
    log: MemoryLog, answer: Any, state: State, shown: list[bytes]
) -> None:
    result = send(started(log, Listener(answer)))
    assert (result.send_status, result.local_transaction_state) == (SendStatus.SEND_OK, state)
    assert log.values("u") == shown
    log.check()


FASTER = {
    "an operator rolled it back": (COMMIT, TransactionOutcome.ABORTED),
    "a check rolled it back": (COMMIT, TransactionOutcome.ABORTED),
    "its checks were used up": (COMMIT, TransactionOutcome.DEAD_LETTERED),
    "a check committed it": (ROLLBACK, TransactionOutcome.COMMITTED),
    "a check committed it as well": (COMMIT, TransactionOutcome.COMMITTED),
    "an operator rolled it back as well": (ROLLBACK, TransactionOutcome.ABORTED),
    "nothing was faster, and the store is gone": (COMMIT, TransactionOutcome.OPEN),
}


@pytest.mark.parametrize("what", FASTER)
def test_result_says_how_a_half_transaction_ended_that_was_decided_meanwhile(
    log: MemoryLog, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    returned, outcome = FASTER[what]
    checked = UNKNOW if "used up" in what else COMMIT if "committed" in what else ROLLBACK
    checker = started_elsewhere(log, Listener(checked=checked))

    class Slow(Listener):
        def execute_local_transaction(self, half: HalfTransaction, arg: Any) -> State | None:
            if "operator" in what:
                log.process_admin().abort_transaction(half.tx_id)
            elif "store" in what:
                log.store.on("create", TRANSACTIONS, unavailable, times=99)
            else:
                for _ in range(2):
                    log.clock.advance(INTERVAL_MS)
                    checker.check()
            return returned

    result = send(started(log, Slow(), transaction_check_max=1))
    assert (result.local_transaction_state, result.outcome) == (returned, outcome)
    is_refused = "as well" not in what
    assert bool(result.remark) == is_refused
    assert ("is left to a check" in caplog.text) == (outcome is TransactionOutcome.OPEN)
    assert (f"is {outcome}" in caplog.text) == (is_refused and outcome is not outcome.OPEN)
    log.store.heal()
    if outcome is not TransactionOutcome.OPEN:
        assert log.admin.outcome(result.transaction_id) is outcome
    log.check()


def test_exception_of_the_local_transaction_becomes_the_remark_of_the_result(
    log: MemoryLog,
) -> None:
    result = send(started(log, Listener(ValueError("no such account"))))
    assert result.remark == "ValueError: no such account"


@pytest.mark.parametrize("topic", ["missing", "../escape"])
def test_local_transaction_does_not_run_when_send_raises(log: MemoryLog, topic: str) -> None:
    listener = Listener()
    producer = started(log, listener)
    before = log.objects()
    with pytest.raises((UnknownTopic, ValueError)):
        producer.send_message_in_transaction(Message(topic, b"x"))
    assert listener.executions == []
    assert log.changed_since(before) == []


def test_local_transaction_does_not_run_when_the_store_is_unavailable(log: MemoryLog) -> None:
    listener = Listener()
    producer = started(log, listener)
    log.store.on("create", TRANSACTIONS, unavailable, times=100)
    with pytest.raises(StoreUnavailable):
        send(producer)
    assert listener.executions == []


@pytest.mark.parametrize("effect", [answer_lost, never_lands])
def test_flush_disk_timeout_rolls_back_without_the_local_transaction(
    log: MemoryLog, effect: Callable[..., Any]
) -> None:
    listener = Listener()
    producer = started(log, listener)
    log.store.on("create", TRANSACTIONS, effect)
    result = send(producer)
    assert result.send_status is SendStatus.FLUSH_DISK_TIMEOUT
    assert result.local_transaction_state is ROLLBACK
    assert listener.executions == []
    assert log.admin.outcome(result.tx_id) is TransactionOutcome.ABORTED
    send(producer, b"next")
    assert log.values("u") == [b"next"]
    log.check()


def test_message_carries_its_transaction_id_as_a_header(log: MemoryLog) -> None:
    producer = started(log, Listener())
    result = send(producer)
    consumer = log.consumer("u")
    ((record,),) = consumer.poll().values()
    assert record.headers == [("__transactionId__", result.transaction_id.encode())]


def test_check_commits_a_half_message_whose_commit_was_lost(log: MemoryLog) -> None:
    listener = Listener(COMMIT, checked=COMMIT)
    producer = started(log, listener)

    class Losing(Listener):
        def execute_local_transaction(self, half: HalfTransaction, arg: Any) -> State | None:
            log.store.on("create", TRANSACTIONS, unavailable, times=100)
            return COMMIT

    lossy = started(log, Losing(checked=COMMIT))
    result = send(lossy)
    assert (result.send_status, result.local_transaction_state) == (SendStatus.SEND_OK, COMMIT)
    log.store.heal()
    assert log.values("u") == []
    log.clock.sleep_ms(TIMEOUT_MS)
    assert producer.check() == 1
    assert log.values("u") == [b"x"]
    log.check()


def test_a_half_message_is_invisible_at_every_isolation_level_until_it_is_committed(
    log: MemoryLog,
) -> None:
    producer = started(log, Listener(UNKNOW))
    half = producer.send_half(Message("u", b"x"))
    assert log.values("u", isolation="read_uncommitted") == []
    other = log.producer()
    other.send("u", b"in between")
    other.flush()
    assert log.values("u") == [b"in between"]
    producer.commit(half)
    assert log.values("u") == [b"in between", b"x"]


def test_check_runs_at_a_live_producer_of_the_same_group(log: MemoryLog) -> None:
    send(started(log, Listener(UNKNOW)))
    stranger = TransactionMQProducer("other", log.process(), listener=Listener(checked=COMMIT))
    stranger.start(check_in_background=False)
    survivor = Listener(checked=COMMIT)
    producer = started_elsewhere(log, survivor)
    log.clock.sleep_ms(TIMEOUT_MS)
    assert stranger.check() == 0
    assert producer.check() == 1
    (half,) = survivor.checks
    assert (half.message.topic, half.message.value, half.message.key) == ("u", b"x", b"k")
    assert half.producer_group == "shop"
    assert log.values("u") == [b"x"]


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (COMMIT, TransactionOutcome.COMMITTED),
        (ROLLBACK, TransactionOutcome.ABORTED),
        (UNKNOW, TransactionOutcome.OPEN),
        (None, TransactionOutcome.OPEN),
        (OSError("database is down"), TransactionOutcome.OPEN),
    ],
    ids=["commit", "rollback", "unknow", "null", "an exception"],
)
def test_check_result_commits_rolls_back_or_leads_to_another_check(
    log: MemoryLog, answer: Any, outcome: TransactionOutcome
) -> None:
    listener = Listener(UNKNOW, checked=answer)
    producer = started(log, listener)
    result = send(producer)
    log.clock.sleep_ms(TIMEOUT_MS)
    producer.check()
    assert log.admin.outcome(result.transaction_id) is outcome
    log.clock.sleep_ms(INTERVAL_MS)
    producer.check()
    assert len(listener.checks) == (2 if outcome is TransactionOutcome.OPEN else 1)
    log.check()


def test_the_first_check_waits_for_the_timeout_and_the_next_for_the_interval(
    log: MemoryLog,
) -> None:
    listener = Listener(UNKNOW)
    producer = started(log, listener)
    send(producer)
    sent_ms = log.clock.wall_ms()
    asked = []
    while log.clock.wall_ms() < sent_ms + 70_000:
        if producer.check():
            asked.append(log.clock.wall_ms() - sent_ms)
        log.clock.sleep_ms(500)
    assert asked == [TIMEOUT_MS, TIMEOUT_MS + INTERVAL_MS, TIMEOUT_MS + 2 * INTERVAL_MS]
    assert len(listener.checks) == 3


def test_check_immunity_delays_the_first_check(log: MemoryLog) -> None:
    producer = started(log, Listener(UNKNOW))
    producer.send_message_in_transaction(Message("u", b"x"), check_immunity_ms=60_000)
    log.clock.sleep_ms(59_000)
    assert producer.check() == 0
    log.clock.sleep_ms(1_000)
    assert producer.check() == 1


def test_only_one_of_two_producers_of_a_group_makes_the_check(log: MemoryLog) -> None:
    one, other = Listener(UNKNOW), Listener()
    producers = [started(log, one), started_elsewhere(log, other)]
    send(producers[0])
    log.clock.sleep_ms(TIMEOUT_MS)
    assert sum(producer.check() for producer in producers) == 1
    assert len(one.checks) + len(other.checks) == 1


def test_half_transaction_never_times_out(log: MemoryLog) -> None:
    producer = started(log, Listener(UNKNOW))
    half = producer.send_half(Message("u", b"x"))
    log.clock.sleep_ms(100 * 24 * 3_600_000)
    for coordinator in log.process().coordinators():
        coordinator.maintain()
    producer.commit(half)
    assert log.values("u") == [b"x"]


def test_half_transaction_survives_producer_shutdown_and_a_newer_staging_horizon(
    log: MemoryLog,
) -> None:
    producer = started(log, Listener(UNKNOW))
    send(producer)
    producer.shutdown()
    for coordinator in log.process().coordinators():
        coordinator.execute(StagingHorizonAdvanced(f"{WALL_MS_MAX:012x}" + "f" * 20))
    log.clock.sleep_ms(TIMEOUT_MS)
    assert started_elsewhere(log, Listener(checked=COMMIT)).check() == 1
    assert log.values("u") == [b"x"]


def given_up(log: MemoryLog, messages: Message | Sequence[Message], **names: Any) -> Any:
    """A transaction that was checked twice without an answer."""
    producer = started(log, Listener(UNKNOW), transaction_check_max=2)
    result = producer.send_message_in_transaction(messages, **names)
    for _ in range(3):
        log.clock.sleep_ms(INTERVAL_MS)
        producer.check()
    return producer, result


def test_unresolved_half_message_becomes_a_dead_letter_after_the_last_check(
    log: MemoryLog,
) -> None:
    producer, result = given_up(log, Message("u", b"x", b"k", [("h", b"1")], timestamp_ms=7))
    assert log.values("u") == []
    assert log.admin.outcome(result.transaction_id) is TransactionOutcome.DEAD_LETTERED
    (letter,) = pending_letters(log.process())
    message = letter.message
    assert (message.topic, message.value, message.key) == ("u", b"x", b"k")
    assert (list(message.headers), message.timestamp_ms) == ([("h", b"1")], 7)
    assert (letter.producer_group, letter.checks) == ("shop", 2)
    assert letter.transaction_id == result.transaction_id
    assert producer.statistics().dead_lettered == 1
    log.check()


def test_dead_letter_cannot_be_committed_or_rolled_back(log: MemoryLog) -> None:
    producer = started(log, Listener(UNKNOW), transaction_check_max=1)
    half = producer.send_half(Message("u", b"x"))
    for _ in range(2):
        log.clock.sleep_ms(INTERVAL_MS)
        producer.check()
    with pytest.raises(TransactionAborted, match="dead-letter topic"):
        producer.commit(half)
    with pytest.raises(IllegalTransition):
        producer.rollback(half)
    assert log.values("u") == []


def test_dead_letters_are_replayed_once(log: MemoryLog) -> None:
    given_up(log, [Message("u", b"1"), Message("u", b"2")])
    assert len(replay_letters(log.process())) == 2
    assert replay_letters(log.process()) == []
    assert pending_letters(log.process()) == []
    assert log.values("u") == [b"1", b"2"]
    log.check()


def test_replay_of_a_typed_dead_letter_restores_its_row(log: MemoryLog) -> None:
    schema = pa.schema([("id", pa.int32()), ("amount", pa.decimal128(10, 2))])
    log.admin.create_topic("typed", 1, schema)
    row = {"id": 7, "amount": None}
    given_up(log, Message("typed", row))
    replay_letters(log.process())
    assert log.values("typed") == [row]


def test_commit_makes_a_half_message_visible_and_rollback_does_not(log: MemoryLog) -> None:
    producer = started(log, Listener())
    kept, dropped = (producer.send_half(Message("u", value)) for value in (b"kept", b"dropped"))
    producer.rollback(dropped)
    producer.commit(kept)
    producer.commit(kept)
    assert log.values("u", isolation="read_uncommitted") == [b"kept"]
    assert log.admin.outcome(kept.tx_id) is TransactionOutcome.COMMITTED
    assert log.admin.outcome(dropped.tx_id) is TransactionOutcome.ABORTED


def test_commit_after_rollback_is_refused(log: MemoryLog) -> None:
    producer = started(log, Listener())
    half = producer.send_half(Message("u", b"x"))
    producer.rollback(half)
    with pytest.raises(TransactionAborted):
        producer.commit(half)
    assert log.values("u") == []


def test_one_half_transaction_holds_messages_for_many_topics(log: MemoryLog) -> None:
    messages = [
        Message("t", b"1", partition=0),
        Message("u", b"2"),
        Message("t", b"3", partition=1),
    ]
    producer = started(log, Listener(UNKNOW))
    half = producer.send_half(messages)
    assert log.values("t", "u") == []
    producer.commit(half)
    assert log.values("t", "u") == [b"1", b"3", b"2"]
    log.check()


def test_user_supplied_transaction_id_commits_only_once(log: MemoryLog) -> None:
    listener = Listener()
    producer = started(log, listener)
    producer.send_message_in_transaction(Message("u", b"x"), transaction_id="order 17")
    with pytest.raises(DuplicateTransaction):
        started_elsewhere(log, listener).send_message_in_transaction(
            Message("u", b"again"), transaction_id="order 17"
        )
    assert len(listener.executions) == 1
    assert log.values("u") == [b"x"]


def test_statistics_count_sent_messages_by_outcome(log: MemoryLog) -> None:
    listener = Listener(COMMIT)
    producer = started(log, listener)
    send(producer)
    listener.executed = ROLLBACK
    send(producer)
    listener.executed, listener.checked = UNKNOW, COMMIT
    send(producer)
    log.clock.sleep_ms(TIMEOUT_MS)
    producer.check()
    found = producer.statistics()
    assert (found.sent, found.committed, found.rolled_back) == (3, 2, 1)
    assert (found.unknown, found.checks, found.dead_lettered) == (1, 1, 0)


def test_operator_abort_of_one_half_transaction_leaves_the_others_open(
    log: MemoryLog,
) -> None:
    producer = started(log, Listener(UNKNOW))
    one, other = (producer.send_half(Message("u", value)) for value in (b"one", b"other"))
    log.admin.abort_transaction(one.tx_id)
    producer.commit(other)
    assert producer.send_half(Message("u", b"more")).tx_id.epoch == one.tx_id.epoch
    assert log.values("u") == [b"other"]
    log.check()


@pytest.mark.parametrize("checks_max", [1, 15])
def test_check_aborts_a_half_transaction_whose_id_is_already_committed(
    log: MemoryLog, checks_max: int
) -> None:
    listener = Listener(UNKNOW, checked=COMMIT)
    producer = started(log, listener, transaction_check_max=checks_max)
    late, first = (
        producer.send_half(Message("u", value), transaction_id="order 17")
        for value in (b"late", b"first")
    )
    producer.commit(first)
    log.clock.sleep_ms(INTERVAL_MS)
    assert producer.check() == 1
    assert log.admin.outcome(late.tx_id) is TransactionOutcome.ABORTED
    assert producer.check() == 0
    assert log.values("u") == [b"first"]
    log.check()


def test_another_producer_finishes_writing_a_decided_dead_letter(log: MemoryLog) -> None:
    """The producer fails after the decision, before it writes the dead-letter topic."""
    producer = started(log, Listener(UNKNOW), transaction_check_max=1)
    result = send(producer)
    log.clock.sleep_ms(TIMEOUT_MS)
    producer.check()
    log.clock.sleep_ms(INTERVAL_MS)
    log.store.on("create", "topics/half-messages.*/entries", unavailable, times=1000)
    producer.check()
    assert log.admin.outcome(result.transaction_id) is TransactionOutcome.DEAD_LETTERED
    assert pending_letters(log.process()) == []
    started_elsewhere(log, Listener()).check()
    (letter,) = pending_letters(log.process())
    assert letter.message.value == b"x"
    log.check()


def test_replay_error_for_a_malformed_dead_letter_explains_how_to_skip_it(log: MemoryLog) -> None:
    producer, _ = given_up(log, Message("u", b"x"))
    stranger = log.producer()
    stranger.send(producer.config.dead_letter_topic, b"garbage", headers=[("txlog.topic", b"u")])
    stranger.flush()
    with pytest.raises(CorruptData, match="txlog group reset .*--to-offset 2 --execute"):
        replay_letters(log.process())
    assert log.values("u") == []


def test_send_after_shutdown_raises(log: MemoryLog) -> None:
    producer = started(log, Listener())
    producer.shutdown()
    with pytest.raises(IllegalTransition, match="shut down; open a new one"):
        send(producer)
