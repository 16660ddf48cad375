"""docs/kafka-users.md, row by row: where txlog behaves differently from Kafka 4.2, and where it
agrees.

Kafka's behaviour was observed on a broker with its Java clients and cannot be shown here. A check
in this file, or a test elsewhere, shows what txlog does. A row without either fails, and so does a
check whose row has left the page.
"""

import re

import pyarrow as pa
import pytest

from tests.docs.pages import Page
from tests.logs.memory_log import MemoryLog
from tests.semantics.kafka_calls import CALLS
from tests.semantics.kafka_rows import (
    DAY_MS,
    LATE0,
    U0,
    Check,
    pending,
    put,
    refuses,
    shows_in,
    values,
)
from tests.source_tree import ROOT, modules
from txlog.engine.producer_config import IN_LOG, STAGED
from txlog.errors import (
    AbortableError,
    InvalidRecord,
    NoOffsetForPartition,
    OffsetOutOfRange,
    ProducerFenced,
    ReadBlocked,
    UnknownGroup,
)
from txlog.maintenance.maintenance import Maintenance
from txlog.model import TopicPartition

_TEST = re.compile(r"^def (test_\w+)", re.MULTILINE)
PAGE = Page(ROOT / "docs" / "kafka-users.md")
TABLES = (
    "## What differs",
    "Differences that a comparison with a Kafka 4.2 broker and its Java clients found:",
    "As in Kafka, although it may be unexpected:",
)
"""The line above each table."""

ELSEWHERE: dict[str, str] = {
    "a topic that is deleted and made again while it is read": (
        "test_R11_auto_committing_consumer_continues_in_the_recreated_topic"
    ),
    "`retention.ms` of records that are not in order of time": (
        "test_expired_record_behind_a_retained_one_is_kept"
    ),
    "`message.timestamp.type=LogAppendTime` in a transaction": (
        "test_times_of_staged_records_are_the_markers_and_do_not_fall"
    ),
    "brokers keep the log": (
        "test_control_records_go_to_the_coordinator_and_data_straight_to_its_topic"
    ),
    "markers take offsets: gaps, and a lag that counts them": (
        "test_markers_are_never_returned_and_take_no_offset"
    ),
    "idempotent producers know the last five batches": "test_I7_repeat_of_any_age_is_recognised",
    "records of an open transaction are in the log, and those of an aborted one stay there": (
        "test_open_staged_transaction_is_invisible_and_blocks_no_reader"
    ),
    "a commit returns with the decision, and records show a moment later": (
        "test_commit_returns_after_decision_and_before_markers"
    ),
    "`max.in.flight` requests, `linger.ms`, `batch.size`": (
        "test_unsupported_kafka_producer_option_error_suggests_remedy"
    ),
    "a failed commit: only the same call again": (
        "test_outcome_reports_open_committed_aborted_and_unknown_transactions"
    ),
    "a decided transaction waits for its coordinator, or its next leader": (
        "test_decided_transaction_commits_despite_outage_timeout_and_new_instance"
    ),
    "transactions time out by a broker's clock": (
        "test_blocked_reader_aborts_a_timed_out_transaction"
    ),
    "one marker per partition: partitions show a commit one after the other": (
        "test_one_marker_commits_all_partitions_of_a_topic_at_once"
    ),
    "zombie commits: generation check": (
        "test_I6_only_one_of_two_transactional_group_instances_commits"
    ),
    "a commit answers for each partition": (
        "test_I16_pend_too_large_for_one_entry_is_refused_with_the_limit"
    ),
    "refused offsets are an error of `sendOffsetsToTransaction`": (
        "test_I6_commit_after_another_instance_of_the_group_is_refused"
    ),
    "errors are numbers and classes": "test_codes_are_pinned_and_unique",
    "`acks`, replication, `min.insync.replicas`": "test_committed_means_durable_and_acknowledged",
    "ACLs, SASL, quotas": "test_record_denied_before_storage_fails_and_is_not_stored",
    "brokers delete and compact": ("test_records_older_than_retention_ms_are_deleted_oldest_first"),
    "the active segment is not compacted; `delete` may take records of an open transaction": (
        "test_I12_retention_stops_at_the_last_stable_offset"
    ),
    "read at `read_uncommitted` by default": "test_read_uncommitted_is_the_default",
    "`kafka-consumer-groups` shows partitions with a committed offset, or a member": (
        "test_lag_is_unknown_without_committed_offset_unless_partition_is_empty"
    ),
    "Spark's source commits no offsets; a lost checkpoint begins at `startingOffsets`": (
        "test_lost_checkpoint_repeats_no_record_of_idle_partition"
    ),
    "Spark's `failOnDataLoss=false` skips what is gone": (
        "test_incompatible_topic_is_skipped_with_one_warning_without_fail_on_data_loss"
    ),
}
"""The first cell of a row -> the test that shows it."""

HERE: dict[str, Check] = {}
"""The first cell of a row -> its check below."""

shows = shows_in(HERE)


# Differences.


@shows("members of a group share partitions, with rebalancing")
def all_partitions(log: MemoryLog) -> None:
    both = [log.consumer("t", group_id="g") for _ in range(2)]
    assert [len(consumer.assignment()) for consumer in both] == [2, 2]


@shows("`sendOffsetsToTransaction(offsets, groupMetadata)`")
def group_name_without_metadata(log: MemoryLog) -> None:
    put(log, U0)
    log.consumer(group_id="g").commit({U0: 2})
    pending(log, 1).commit_transaction()
    assert log.consumer(group_id="g").committed(U0) == 1


@shows("`retention.ms` is 7 days")
def kept_for_ever(log: MemoryLog) -> None:
    assert log.admin.describe_topic("u").config.retention_ms == -1


@shows("offsets of groups expire after 7 days")
def offsets_stay(log: MemoryLog) -> None:
    log.consumer(group_id="g").commit({U0: 0})
    log.clock.advance(30 * DAY_MS)
    assert Maintenance(log.process()).run_once().failures == []
    assert log.admin.list_groups() == ["g"]


@shows("records are bytes")
def typed(log: MemoryLog) -> None:
    log.admin.create_topic("n", 1, pa.schema([("n", pa.int64())]))
    log.producer().send("n", {"n": 7}).get()
    assert log.values("n") == [{"n": 7}]


# The same as in Kafka.


@shows("`assign` and `subscribe` before the topic or partition exists")
def consumer_before_topic(log: MemoryLog) -> None:
    by_name, by_partition = log.consumer("late"), log.consumer()
    by_partition.assign([LATE0, TopicPartition("t", 2)])
    assert values(by_name) == values(by_partition) == []
    log.admin.create_topic("late")
    log.admin.create_partitions("t", 3)
    put(log, LATE0, 1)
    put(log, TopicPartition("t", 2), 1)
    assert (values(by_name), values(by_partition)) == ([b"0"], [b"0", b"0"])


@shows("a consumer that starts while offsets are pending")
def starts_while_pending(log: MemoryLog) -> None:
    put(log, U0)
    producer = pending(log, 1)
    consumer = log.consumer("u", group_id="g")
    assert values(consumer) == []
    producer.commit_transaction()
    assert values(consumer) == [b"1"]


@shows("`auto.offset.reset=none` without a committed offset")
def seek_where_reset_is_none(log: MemoryLog) -> None:
    put(log, U0)
    consumer = log.consumer("u", group_id="g", auto_offset_reset="none")
    refuses(NoOffsetForPartition, consumer.poll, lambda: consumer.position(U0))
    consumer.seek(U0, 1)
    assert values(consumer) == [b"1"]


@shows("`seek` outside of the log")
def sought_outside(log: MemoryLog) -> None:
    put(log, U0)
    for reset, expected in (("earliest", [b"0", b"1"]), ("latest", [])):
        consumer = log.consumer("u", auto_offset_reset=reset)
        consumer.seek(U0, 1_000)
        assert consumer.position(U0) == 1_000
        assert (values(consumer), consumer.position(U0)) == (expected, 2)
    consumer = log.consumer("u", auto_offset_reset="none")
    consumer.seek(U0, 1_000)
    refuses(OffsetOutOfRange, consumer.poll, lambda: consumer.seek(U0, -1))


@shows("`committed` of an unknown topic or partition")
def unknown_committed(log: MemoryLog) -> None:
    consumer = log.consumer(group_id="g")
    assert [consumer.committed(w) for w in (LATE0, TopicPartition("u", 9))] == [None, None]


@shows("`describe_group` of an unknown group")
def unknown_group(log: MemoryLog) -> None:
    refuses(UnknownGroup, lambda: log.admin.describe_group("g"))


@shows("offsets that are sent after an abort, without `seek` back")
def not_sought_back(log: MemoryLog) -> None:
    put(log, U0, 4)
    consumer, producer = log.consumer("u", group_id="g"), log.producer("p")
    for seeks_back, read in ((True, [b"0", b"1", b"0", b"1"]), (False, [b"2", b"3"])):
        found: list[bytes] = []
        for end in (producer.abort_transaction, producer.commit_transaction):
            producer.begin_transaction()
            (records,) = consumer.poll(max_records=2 if seeks_back else 1).values()
            found += [record.value for record in records]
            position = {U0: consumer.position(U0)}
            producer.send_offsets_to_transaction(position, consumer.group_metadata())
            end()
            if seeks_back and end == producer.abort_transaction:
                consumer.seek(U0, consumer.committed(U0) or 0)
        assert found == read
    assert consumer.committed(U0) == 4


@shows("negative times, of records and to look for")
def negative_times(log: MemoryLog) -> None:
    consumer = log.consumer("u")
    refuses(
        InvalidRecord,
        lambda: log.producer().send("u", b"x", timestamp_ms=-1),
        lambda: consumer.offsets_for_times({U0: -1}),
    )


@shows("`delete_records` right after a commit has returned")
def delete_at_once(log: MemoryLog) -> None:
    producer = log.producer("p")
    with producer.transaction():
        producer.send("u", b"x")
    assert log.admin.delete_records({U0: 1}) == {U0: 1}


@shows("records that are deleted when a consumer has learned of them")
def deleted_and_learned_of(log: MemoryLog) -> None:
    put(log, U0)
    consumer = log.consumer("u")
    assert consumer.end_offsets([U0]) == {U0: 2}
    log.admin.delete_records({U0: 2})
    assert set(values(consumer)) <= {b"0", b"1"}
    assert (values(consumer), consumer.position(U0)) == ([], 2)


@shows("`begin_transaction` after another instance has taken over")
def fenced_at_begin(log: MemoryLog) -> None:
    for fails in (
        lambda producer: producer.flush(),
        lambda producer: producer.send_offsets_to_transaction({U0: 0}, "g"),
        lambda producer: producer.commit_transaction(),
    ):
        producer = log.producer("p", transaction_records=STAGED)
        log.elsewhere("p")
        producer.begin_transaction()
        producer.send("u", b"x")
        refuses(ProducerFenced, lambda p=producer, fails=fails: fails(p))


@shows("`auto.commit.interval.ms=0`, `fetch.max.bytes=0`")
def zeros_of_a_consumer(log: MemoryLog) -> None:
    put(log, U0)
    options = {"auto_commit_interval_ms": 0, "fetch_max_bytes": 0, "enable_auto_commit": True}
    consumer = log.consumer("u", group_id="g", **options)
    assert [values(consumer) for _ in range(3)] == [[b"0"], [b"1"], []]
    assert consumer.committed(U0) == 2


@shows("an empty `poll` at `read_committed`")
def empty_poll_behind_open_transaction(log: MemoryLog) -> None:
    producer = log.producer("p", transaction_records=IN_LOG)
    producer.begin_transaction()
    producer.send("u", b"open").get()
    put(log, U0)
    consumer = log.consumer("u", isolation_level="read_committed")
    assert values(consumer) == []
    refuses(ReadBlocked, lambda: list(consumer.read_to_end(timeout_ms=10)))


# The page.

CHECKS = {**HERE, **CALLS}


def test_rows_of_the_page_and_checks_match_one_to_one() -> None:
    on_page = [row[0] for heading in TABLES for row in PAGE.rows(heading)]
    assert len(on_page) == len(set(on_page))
    assert sorted(on_page) == sorted([*ELSEWHERE, *HERE, *CALLS])


def test_the_page_has_a_reason_for_each_difference() -> None:
    assert [row[0] for row in PAGE.rows(TABLES[1]) if not row[-1]] == []


@pytest.mark.parametrize("row", CHECKS)
def test_txlog_behaves_as_the_row_describes(log: MemoryLog, row: str) -> None:
    CHECKS[row](log)
    log.check()


def test_every_test_listed_in_ELSEWHERE_exists() -> None:
    known = {name for module in modules("tests") for name in _TEST.findall(module.text)}
    assert [name for name in ELSEWHERE.values() if name not in known] == []


def test_commit_after_a_failed_serialization_raises_an_abortable_error(log: MemoryLog) -> None:
    producer = log.producer("p", value_serializer=lambda value: value.encode())
    producer.begin_transaction()
    refuses(AttributeError, lambda: producer.send("u", 5))
    refuses(AbortableError, producer.commit_transaction)
