"""Offsets that a member commits while its group goes on to the next generation."""

import socket
import threading
from contextlib import closing

import pytest
from kafka import errors as kafka
from kafka.protocol import consumer, producer
from kafka.protocol.api_message import ApiMessage

import txlog
from tests.logs.memory_log import MemoryLog
from tests.processes.kafka_gateway import WAIT_S
from tests.stores.scripted_store import Call, ScriptedStore
from tests.unit.kafka.raw_requests import answered, asked, framed
from tests.unit.kafka.test_groups import join, sync
from tests.unit.kafka.test_one_log import serving

UNSTABLE = kafka.UnstableOffsetCommitError.errno


class SlowCall:
    """A call of the store that waits until the test says so."""

    def __init__(self) -> None:
        self.has_come, self.goes_on = threading.Event(), threading.Event()

    def __call__(self, call: Call) -> object:
        self.has_come.set()
        assert self.goes_on.wait(WAIT_S)
        return call()


def connected(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), WAIT_S)


def fetch(group: str) -> ApiMessage:
    return consumer.OffsetFetchRequest(group_id=group, topics=[("t", [0])], require_stable=True)


@pytest.mark.parametrize("is_transactional", [False, True])
def test_next_generation_reads_offsets_that_the_one_before_was_about_to_commit(
    log: MemoryLog, is_transactional: bool
) -> None:
    log.admin.create_topic("wide")
    with log.producer() as writer:
        for number in range(8):
            writer.send("t", b"%d" % number, partition=0)
    store, slow = ScriptedStore(log.memory), SlowCall()
    admin = txlog.Admin(log.process(store))
    with serving(admin) as address, closing(connected(address)) as member:
        joined = asked(member, join(), 3)
        assert asked(member, sync(joined), 3).error_code == 0
        member_id, generation = joined.member_id, joined.generation_id
        with closing(connected(address)) as killed:
            if is_transactional:
                init = producer.InitProducerIdRequest(
                    transactional_id="x", transaction_timeout_ms=9_000
                )
                known = asked(killed, init, 1)
                own = {
                    "transactional_id": "x",
                    "producer_id": known.producer_id,
                    "producer_epoch": known.producer_epoch,
                }
                add = producer.AddOffsetsToTxnRequest(group_id="g", **own)
                assert asked(killed, add, 1).error_code == 0
                request: ApiMessage = producer.TxnOffsetCommitRequest(
                    group_id="g",
                    member_id=member_id,
                    generation_id=generation,
                    topics=[("t", [(0, 5, -1, "")]), ("wide", [(0, 0, -1, "")])],
                    **own,
                )
            else:
                request = consumer.OffsetCommitRequest(
                    group_id="g",
                    generation_id_or_member_epoch=generation,
                    member_id=member_id,
                    topics=[("t", [(0, 5, -1, "")]), ("wide", [(0, 0, -1, "")])],
                )
            store.on("get", "topics/wide/", slow)
            killed.sendall(framed(request, 3 if is_transactional else 6))
            assert slow.has_come.wait(WAIT_S)
        again = asked(member, join(member_id), 3)
        assert again.generation_id > generation
        assert asked(member, sync(again), 3).error_code == 0
        fetching = fetch("g")
        member.sendall(framed(fetching, 7))
        with closing(connected(address)) as other:
            assert asked(other, fetch("another"), 7).error_code == 0
        slow.goes_on.set()
        [topic] = answered(member, fetching).topics
        [found] = topic.partitions
    expected = (UNSTABLE, -1) if is_transactional else (0, 5)
    assert (found.error_code, found.committed_offset) == expected
