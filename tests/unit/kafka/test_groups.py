"""Members of groups as the coordinator answers them, without a connection."""

import asyncio
from types import SimpleNamespace
from typing import Any

from kafka import errors
from kafka.protocol.consumer import JoinGroupRequest, LeaveGroupRequest

from txlog.kafka.groups import Groups
from txlog.testing.clock import SeededEntropy


def join(member_id: str = "") -> Any:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    request = JoinGroupRequest(
        version=5,
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        group_instance_id=None,
        protocol_type="consumer",
        protocols=[protocol],
    )
    request.with_header(1, "client")
    return request


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
