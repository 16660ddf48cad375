"""What a gateway tells of a log one of whose coordinators cannot be read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kafka import errors as kafka
from kafka.protocol import admin, consumer

from tests.logs.damaged_coordinator import DamagedLog, damaged_log
from tests.processes.kafka_gateway import Gateway
from tests.unit.kafka.raw_requests import asked_alone


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> DamagedLog:
    return damaged_log(str(tmp_path_factory.mktemp("damaged") / "log"))


@pytest.fixture(scope="module")
def served(damaged: DamagedLog) -> Iterator[Gateway]:
    with Gateway(damaged.root) as started:
        yield started


def test_groups_of_others_are_listed_and_described_and_it_is_logged(
    damaged: DamagedLog, served: Gateway
) -> None:
    seen = len(served.messages)
    listed = asked_alone(served, admin.ListGroupsRequest(), 0)
    assert (listed.error_code, [one.group_id for one in listed.groups]) == (0, [damaged.good])
    assert damaged.entry.name in served.lines_since(seen)[0]
    request = admin.DescribeGroupsRequest(groups=[damaged.good, damaged.other])
    good, other = asked_alone(served, request, 6).groups
    assert (good.error_code, good.group_state) == (0, "Empty")
    assert other.error_code == kafka.KafkaStorageError.errno
    assert damaged.entry.name in other.error_message


def test_transactions_of_others_are_listed_and_described(
    damaged: DamagedLog, served: Gateway
) -> None:
    request = admin.ListTransactionsRequest(
        state_filters=[], producer_id_filters=[], duration_filter=-1
    )
    listed = asked_alone(served, request, 1)
    names = [one.transactional_id for one in listed.transaction_states]
    assert (listed.error_code, names) == (0, [damaged.good, f"{damaged.good}-hung"])
    ids = [damaged.good, damaged.other]
    described = admin.DescribeTransactionsRequest(transactional_ids=ids)
    good, other = asked_alone(served, described, 0).transaction_states
    assert (good.error_code, good.transaction_state) == (0, "CompleteCommit")
    assert other.error_code == kafka.KafkaStorageError.errno
    topics = [("t", [0])]
    [topic] = asked_alone(served, admin.DescribeProducersRequest(topics=topics), 0).topics
    assert len(topic.partitions[0].active_producers) == 4


def test_offsets_of_groups_of_others_are_committed_deleted_and_the_group_as_well(
    damaged: DamagedLog, served: Gateway
) -> None:
    for group, code in ((damaged.good, 0), (damaged.other, 15)):
        commit = consumer.OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[("t", [(0, 1, "")])],
        )
        [topic] = asked_alone(served, commit, 2).topics
        assert topic.partitions[0].error_code == code
    offsets = consumer.OffsetDeleteRequest(group_id=damaged.good, topics=[("t", [(0,)])])
    assert asked_alone(served, offsets, 0).error_code == 0
    asked_alone(served, commit, 2)
    again = consumer.OffsetCommitRequest(
        group_id=damaged.good,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[("t", [(0, 1, "")])],
    )
    asked_alone(served, again, 2)
    deletion = admin.DeleteGroupsRequest(groups_names=[damaged.good])
    [deleted] = asked_alone(served, deletion, 1).results
    assert deleted.error_code == 0
