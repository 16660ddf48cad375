"""Members of groups as the coordinator answers them, without a connection."""

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any

from kafka import errors
from kafka.protocol.consumer import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)

from txlog.kafka.groups import Groups
from txlog.testing.clock import SeededEntropy


def join(
    member_id: str = "",
    *,
    instance: str | None = None,
    protocols: tuple[str, ...] = ("range",),
    rebalance_ms: int = 10_000,
    version: int = 5,
) -> Any:
    kind = JoinGroupRequest.JoinGroupRequestProtocol
    request = JoinGroupRequest(
        version=version,
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=rebalance_ms,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[kind(name=name, metadata=b"") for name in protocols],
    )
    request.with_header(1, "client")
    return request


def sync(joined: Any, assignments: dict[str, bytes] | None = None) -> Any:
    kind = SyncGroupRequest.SyncGroupRequestAssignment
    given = [kind(member_id=one, assignment=what) for one, what in (assignments or {}).items()]
    return SyncGroupRequest(
        version=3,
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=None,
        assignments=given,
    )


def heartbeat(groups: Groups, joined: Any, instance: str | None = None) -> int:
    return groups.heartbeat(
        HeartbeatRequest(
            version=3,
            group_id="g",
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=instance,
        )
    )


def test_member_that_leaves_while_others_join_is_told_so() -> None:
    async def answers() -> list[int]:
        groups = Groups(SeededEntropy().token)
        ids = [(await groups.join(join())).member_id for _ in range(2)]
        joining = [asyncio.create_task(groups.join(join(member_id))) for member_id in ids]
        await asyncio.sleep(0)
        kind = LeaveGroupRequest.MemberIdentity
        gone = [kind(member_id=ids[1], group_instance_id=None)]
        groups.leave(SimpleNamespace(group_id="g", members=gone, API_VERSION=3))
        found = [(await task).error_code for task in joining]
        groups.drop("g")
        return found

    assert asyncio.run(answers()) == [0, errors.UnknownMemberIdError.errno]


def test_member_that_leaves_before_it_joins_is_forgotten() -> None:
    async def answers() -> list[int]:
        groups = Groups(SeededEntropy().token)
        given = (await groups.join(join())).member_id
        gone = [LeaveGroupRequest.MemberIdentity(member_id=given, group_instance_id=None)]
        request = SimpleNamespace(group_id="g", members=gone, API_VERSION=3)
        left = [groups.leave(request).members[0].error_code for _ in range(2)]
        return [*left, (await groups.join(join(given))).error_code]

    unknown = errors.UnknownMemberIdError.errno
    assert asyncio.run(answers()) == [0, unknown, unknown]


def test_members_of_a_group_that_another_gateway_takes_look_for_it() -> None:
    async def answers() -> list[int]:
        led = {"g"}
        groups = Groups(SeededEntropy().token, led.__contains__)
        member_id = (await groups.join(join())).member_id
        joining = asyncio.create_task(groups.join(join(member_id)))
        await asyncio.sleep(0)
        led.clear()
        groups.drop("g")
        return [(await joining).error_code, (await groups.join(join(member_id))).error_code]

    assert asyncio.run(answers()) == [errors.NotCoordinatorError.errno] * 2


def test_request_that_is_sent_again_by_another_connection_ends_the_first_one() -> None:
    """Otherwise the first connection would wait for ever, and its client's end be missed."""

    async def answers() -> list[int]:
        groups = Groups(SeededEntropy().token)
        ids = [(await groups.join(join())).member_id for _ in range(2)]
        tasks = [asyncio.create_task(groups.join(join(one))) for one in (*ids, ids[0])]
        lost, joined = await tasks[0], [await tasks[1], await tasks[2]]
        [follower] = [one for one in joined if one.leader != one.member_id]
        syncs = [asyncio.create_task(groups.sync(sync(follower))) for _ in range(2)]
        await asyncio.sleep(0)
        [leader] = [one for one in joined if one.leader == one.member_id]
        await groups.sync(sync(leader))
        found = [lost.error_code, *[(await task).error_code for task in syncs]]
        groups.drop("g")
        return found

    again = errors.RebalanceInProgressError.errno
    assert asyncio.run(answers()) == [again, again, 0]


def test_offsets_are_not_taken_before_the_partitions_are_shared_out() -> None:
    """Except in a transaction, as at a broker."""

    async def codes() -> list[int]:
        groups = Groups(SeededEntropy().token)
        joined = await groups.join(join(instance="a"))
        who = SimpleNamespace(group_id="g", member_id=joined.member_id, group_instance_id="a")
        check = partial(groups.check_commit, joined.generation_id, who)
        found = [check(), check(is_transactional=True)]
        await groups.sync(sync(joined))
        found.append(check())
        groups.drop("g")
        return found

    assert asyncio.run(codes()) == [errors.RebalanceInProgressError.errno, 0, 0]


def test_static_member_that_is_started_again_goes_on_and_no_other_one_joins_again() -> None:
    """KIP-345, for the group's leader and for another member."""

    async def run() -> None:
        groups = Groups(SeededEntropy().token)
        tasks = [asyncio.create_task(groups.join(join(instance=name))) for name in "ab"]
        joined = {name: await task for name, task in zip("ab", tasks, strict=True)}
        [leader] = [one for one in joined.values() if one.leader == one.member_id]
        shares = {joined[name].member_id: name.encode() for name in "ab"}
        assert (await groups.sync(sync(leader, shares))).error_code == 0
        for name, other in ("ab", "ba"):
            old, joined[name] = joined[name], await groups.join(join(instance=name))
            new = joined[name]
            assert (new.error_code, new.generation_id, new.members) == (0, old.generation_id, [])
            assert new.member_id not in (old.member_id, new.leader)
            answer = await groups.sync(sync(new))
            assert (answer.error_code, answer.assignment) == (0, name.encode())
            assert heartbeat(groups, joined[other], other) == 0
            assert heartbeat(groups, new, name) == 0
            assert heartbeat(groups, old, name) == errors.FencedInstanceIdError.errno
        groups.drop("g")

    asyncio.run(run())


def test_leader_is_a_member_that_waits_for_the_list_of_members() -> None:
    async def run() -> None:
        groups = Groups(SeededEntropy().token)
        first = await groups.join(join(instance="away", rebalance_ms=50))
        assert first.leader == first.member_id
        second = await groups.join(join(instance="here", rebalance_ms=50))
        assert second.leader == second.member_id
        ids = {one.member_id for one in second.members}
        assert ids == {first.member_id, second.member_id}, "a static member stays"
        groups.drop("g")

    asyncio.run(run())


def test_member_that_waits_for_its_share_is_not_silent() -> None:
    async def left_s() -> float:
        groups = Groups(SeededEntropy().token)
        tasks = [asyncio.create_task(groups.join(join(instance=name))) for name in "ab"]
        [follower] = [one for one in [await t for t in tasks] if one.leader != one.member_id]
        waiting = asyncio.create_task(groups.sync(sync(follower)))
        await asyncio.sleep(0)
        group = groups.find("g")
        assert group is not None
        expiry = group.members[follower.member_id].expiry
        assert expiry is not None
        found = expiry.when() - asyncio.get_running_loop().time()
        groups.drop("g")
        assert (await waiting).error_code == errors.NotCoordinatorError.errno
        return found

    assert asyncio.run(left_s()) > 11, "its session alone is 10 s"


def test_answer_to_a_join_is_of_its_generation_whoever_joins_next() -> None:
    async def run() -> None:
        groups = Groups(SeededEntropy().token)
        task = asyncio.create_task(groups.join(join(protocols=("range", "sticky"), version=3)))
        await asyncio.sleep(0)
        group = groups.find("g")
        assert group is not None
        groups._end(group)
        other = groups._joining(join(protocols=("sticky",), version=3))
        found = await task
        assert (found.error_code, len(found.members)) == (0, 1)
        groups.drop("g")
        assert (await other).error_code == errors.NotCoordinatorError.errno

    asyncio.run(run())
