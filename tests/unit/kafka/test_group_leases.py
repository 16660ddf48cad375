"""Which gateway leads a group, between two processes on one log in memory."""

import pytest
from kafka.errors import NotCoordinatorError

from tests.logs.memory_log import MemoryLog
from txlog.client.consumer.consumer_group import pending_offsets
from txlog.errors import CommitFailed
from txlog.groups.state import PendingOffset
from txlog.kafka.gateways import LEASE_MS, Gateways, home_of
from txlog.kafka.group_leases import LEADER, GroupLeases
from txlog.kafka.producers import Producers
from txlog.model import OffsetAndMetadata, TopicPartition

A, B = "127.0.0.1:1", "127.0.0.1:2"
WHERE = TopicPartition("t", 0)


def leases(log: MemoryLog, address: str) -> GroupLeases:
    process = log.process()
    return GroupLeases(process, Gateways(process, lambda: address))


def taken(one: GroupLeases) -> None:
    assert one.leader("g") == one._gateways.own_address()
    term = one.take("g")
    assert term is not None
    one.hold("g", term)


def offsets(log: MemoryLog, end: int) -> tuple[PendingOffset, ...]:
    return pending_offsets(log.connection, {WHERE: end}, "g")


def committed(log: MemoryLog) -> int | None:
    at = log.process().offsets.group("g").committed.get(WHERE)
    return None if at is None else at.offset


def test_group_is_led_by_one_gateway_until_that_is_silent(log: MemoryLog) -> None:
    a, b = leases(log, A), leases(log, B)
    taken(a)
    assert (b.leader("g"), b.take("g")) == (A, None)
    log.clock.advance(LEASE_MS - 1)
    assert not a._gateways.renew()
    assert (b.leader("g"), b.take("g")) == (A, None)
    log.clock.advance(LEASE_MS + 1)
    taken(b)
    b._gateways.renew()
    assert a._gateways.renew()  # So it knows that others may have taken its groups.
    assert (a.leader("g"), a.take("g")) == (B, None)


def test_gateway_that_is_asked_who_leads_a_group_writes_nothing(log: MemoryLog) -> None:
    a, b = leases(log, A), leases(log, B)
    before = log.objects()
    assert (a.leader("g"), b.leader("g")) == (A, B)  # Who is asked first, takes it.
    assert log.changed_since(before) == []
    taken(b)
    assert a.leader("g") == B


def test_gateway_that_ends_leaves_its_groups_at_once(log: MemoryLog) -> None:
    a, b = leases(log, A), leases(log, B)
    taken(a)
    a._gateways.release()
    taken(b)
    log.check()


def test_gateway_started_again_at_its_address_takes_its_groups_in_a_new_term(
    log: MemoryLog,
) -> None:
    before, after = leases(log, A), leases(log, A)
    taken(before)
    taken(after)
    with pytest.raises(NotCoordinatorError):
        before.commit("g", offsets(log, 0))


def test_commit_of_a_gateway_that_was_replaced_is_refused_and_changes_nothing(
    log: MemoryLog,
) -> None:
    with log.producer() as producer:
        for value in (b"1", b"2"):
            producer.send("t", value, partition=0)
    a, b = leases(log, A), leases(log, B)
    taken(a)
    a.commit("g", offsets(log, 1))
    assert b.take("g") is None
    log.clock.advance(LEASE_MS + 1)
    taken(b)
    assert a.leads("g")  # As it believes.
    with pytest.raises(NotCoordinatorError):
        a.commit("g", offsets(log, 2))
    assert committed(log) == 1
    assert not a.leads("g")
    b.commit("g", offsets(log, 2))
    assert committed(log) == 2
    log.check()


def test_transaction_offsets_of_a_gateway_that_was_replaced_are_refused(log: MemoryLog) -> None:
    a, b = leases(log, A), leases(log, B)
    taken(a)
    condition = a.condition("g")
    assert b.take("g") is None
    log.clock.advance(LEASE_MS + 1)
    taken(b)
    elsewhere, here = Producers(log.process()), Producers(log.process())
    known = elsewhere.register("id", 60_000, -1, -1)
    who = ("id", known.pid, known.epoch)
    elsewhere.session(*who).add(set(), "g")
    with pytest.raises(CommitFailed):
        here.pend(who, "g", {WHERE: OffsetAndMetadata(0)}, condition)
    assert not log.process().offsets.group("g").pending


def test_transaction_of_one_gateway_commits_offsets_that_another_one_pends(log: MemoryLog) -> None:
    b = leases(log, B)
    taken(b)
    elsewhere, here = Producers(log.process()), Producers(log.process())
    known = elsewhere.register("id", 60_000, -1, -1)
    who = ("id", known.pid, known.epoch)
    elsewhere.session(*who).add(set(), "g")
    here.pend(who, "g", {WHERE: OffsetAndMetadata(0, "note")}, b.condition("g"))
    elsewhere.session(*who).end(commits=True)
    at = log.process().offsets.shown("g").committed[WHERE]
    assert (at.offset, at.metadata) == (0, "note")
    log.check()


def test_group_without_offsets_of_its_own_shows_none(log: MemoryLog) -> None:
    taken(leases(log, A))
    assert log.process_admin().describe_group("g").partitions == ()
    assert LEADER in log.process().offsets.group("g").committed


def test_gateways_are_listed_while_they_are_heard_of(log: MemoryLog) -> None:
    a, b = (Gateways(log.process(), lambda at=at: at) for at in (A, B))
    assert a.live() == [A]
    assert b.live() == a.live() == [A, B]
    log.clock.advance(LEASE_MS + 1)
    assert a.renew()  # It was late itself.
    assert a.live() == [A]
    b.release()
    assert b.live() == [A, B]
    b.release()
    assert Gateways(log.process(), lambda: A).live() == [A]


def test_client_has_one_gateway_and_clients_share_them() -> None:
    homes = [home_of(f"client-{number}", [A, B]) for number in range(100)]
    assert 30 < homes.count(A) < 70
    assert homes == [home_of(f"client-{number}", [B, A]) for number in range(100)]
    moved = {
        (before, now)
        for number, before in enumerate(homes)
        if (now := home_of(f"client-{number}", [A, B, "127.0.0.1:3"])) != before
    }
    assert moved == {(A, "127.0.0.1:3"), (B, "127.0.0.1:3")}


def test_client_is_served_by_gateways_of_one_kind(log: MemoryLog) -> None:
    a = Gateways(log.process(), lambda: A, "tls-json")
    b = Gateways(log.process(), lambda: B, "json")
    a.live()
    assert b.live() == [A, B]
    assert b.peers() == [B]
    a.live()
    assert a.peers() == [A]
