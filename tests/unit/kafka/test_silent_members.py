"""A member that is killed, or hangs, at any step of a rebalance: the group goes on soon, and
offsets of a partition are taken from one member at a time. The time of the loop jumps to the next
timer."""

import asyncio
import selectors
from collections import Counter
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import errors

from tests.unit.kafka.test_groups import heartbeat, join, sync
from txlog.kafka.groups import Groups
from txlog.testing.clock import SeededEntropy

PARTITIONS = range(6)
TIMEOUT_S = 10
"""Of a session, and of a rebalance, in `join`."""
STEPS = (
    "stable",
    "hanging",
    "hanging before SyncGroup",
    "JoinGroup sent",
    "JoinGroup answered",
    "SyncGroup sent",
)
"""One that is hanging sends heartbeats, and nothing else."""
UNKNOWN = errors.UnknownMemberIdError.errno


class Jumping(selectors.SelectSelector):
    """Waits for no timer."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        self.now_s += timeout or 0.0
        return super().select(0)


def played(test: Coroutine[Any, Any, None]) -> None:
    def new_loop() -> asyncio.AbstractEventLoop:
        selector = Jumping()
        loop = asyncio.SelectorEventLoop(selector)
        loop.time = lambda: selector.now_s  # type: ignore[method-assign]
        return loop

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(test)


class Member:
    """A consumer, until it is killed."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self.joined: Any = None
        self.owned: bytes = b""
        self.dies_at = ""
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        member_id = ""
        while True:
            self.owned = b""
            await asyncio.sleep(0.1)
            request = asyncio.create_task(self._groups.join(join(member_id)))
            await asyncio.sleep(0)
            if self.dies_at == "JoinGroup sent":
                return
            joined = await request
            member_id = "" if joined.error_code == UNKNOWN else joined.member_id
            if joined.error_code:
                continue
            self.joined = joined
            while self.dies_at == "hanging before SyncGroup":
                await asyncio.sleep(1)
                if heartbeat(self._groups, joined) == UNKNOWN:
                    return
            if self.dies_at == "JoinGroup answered":
                return
            ids = [one.member_id for one in joined.members]
            shares = {one: bytes(PARTITIONS[n :: len(ids)]) for n, one in enumerate(ids)}
            request = asyncio.create_task(self._groups.sync(sync(joined, shares)))
            await asyncio.sleep(0)
            if self.dies_at == "SyncGroup sent":
                return
            answer = await request
            if not answer.error_code:
                self.owned = answer.assignment
                while not (code := heartbeat(self._groups, joined)) or self.dies_at == "hanging":
                    await asyncio.sleep(1)
                    if self.dies_at == "stable" or (code == UNKNOWN and self.dies_at):
                        return
                member_id = "" if code == UNKNOWN else member_id

    def may_commit(self, generations_before: int = 0) -> bool:
        who = SimpleNamespace(group_id="g", member_id=self.joined.member_id, group_instance_id=None)
        return not self._groups.check_commit(self.joined.generation_id - generations_before, who)


@pytest.mark.parametrize("is_leader", [True, False])
@pytest.mark.parametrize("step", STEPS)
def test_group_goes_on_without_a_member_that_was_killed(step: str, is_leader: bool) -> None:
    async def run() -> None:
        groups = Groups(SeededEntropy().token)
        members = [Member(groups) for _ in range(3)]

        async def watch(seconds: int) -> None:
            for _ in range(4 * seconds):
                await asyncio.sleep(0.25)
                owners = Counter(
                    p for one in members if one.owned for p in one.owned if one.may_commit()
                )
                assert max(owners.values(), default=1) == 1

        await watch(5)
        leads = [one.joined.leader == one.joined.member_id for one in members]
        assert sorted(leads) == [False, False, True]
        killed = members[leads.index(is_leader)]
        killed.dies_at = step
        members.append(Member(groups))  # Which begins a rebalance.
        await watch(TIMEOUT_S + 3)
        assert killed.task.done()
        left = [one for one in members if one is not killed]
        assert sorted(b"".join(one.owned for one in left)) == [*PARTITIONS]
        assert all(one.owned and one.may_commit() for one in left)
        assert not any(one.may_commit(1) for one in left)
        assert not killed.may_commit()
        for one in members:
            one.task.cancel()
        groups.drop("g")

    played(run())


def test_static_member_that_is_started_again_before_its_share_has_no_more_time() -> None:
    async def run() -> None:
        groups = Groups(SeededEntropy().token)
        first = await groups.join(join())
        joins = [groups.join(join(first.member_id)), groups.join(join(instance="x"))]
        leader, static = await asyncio.gather(*joins)
        assert leader.leader == leader.member_id
        shares = {one.member_id: b"0" for one in leader.members}
        await groups.sync(sync(leader, shares))
        again = await groups.join(join(instance="x"))
        assert again.generation_id == static.generation_id
        passed_s = 0
        while heartbeat(groups, again, "x") != UNKNOWN:
            assert passed_s <= TIMEOUT_S
            heartbeat(groups, leader)
            await asyncio.sleep(1)
            passed_s += 1
        groups.drop("g")

    played(run())
