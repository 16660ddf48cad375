"""Members of consumer groups: Kafka's classic protocol, as its GroupCoordinator runs it.

Everything here concerns who reads what now: it is in memory, and a gateway that is started again
lets the members join again. A group's offsets are the log's. It runs in the server's event loop, so
nothing needs a lock.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from kafka import errors as kafka
from kafka.protocol.consumer import JoinGroupResponse, LeaveGroupResponse, SyncGroupResponse

from txlog.kafka.security import CLIENT

SESSION_TIMEOUT_MIN_MS, SESSION_TIMEOUT_MAX_MS = 6_000, 1_800_000
"""Kafka's group.min.session.timeout.ms and group.max.session.timeout.ms."""
INITIAL_DELAY_S = 0.5
"""How long an empty group waits for more members, so that they do not rebalance at once; Kafka's
group.initial.rebalance.delay.ms is 3 s, for brokers that start with many members."""
MEMBERS_MAX = 1_000
"""Of one group."""
GROUPS_MAX = 10_000
"""With members or not; more are refused."""
_REBALANCES = int(kafka.RebalanceInProgressError.errno)


class GroupPhase(Enum):
    """The state of a group, in Kafka's words."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


@dataclass(slots=True)
class Member:
    """One member of a group."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_s: float
    rebalance_timeout_s: float
    protocols: dict[str, bytes]
    assignment: bytes = b""
    joining: asyncio.Future[Any] | None = None
    """The running JoinGroup; its result is the answer."""
    syncing: asyncio.Future[int] | None = None
    """The running SyncGroup; its result is an error code."""
    expiry: asyncio.TimerHandle | None = None


@dataclass(slots=True)
class Group:
    """One group."""

    group_id: str
    phase: GroupPhase = GroupPhase.EMPTY
    generation: int = 0
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    members: dict[str, Member] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    """Instance id of a static member -> its member id (KIP-345)."""
    pending: set[str] = field(default_factory=set)
    """Member ids that were given out, and have not joined (KIP-394)."""
    unsynced: set[str] = field(default_factory=set)
    """Ids of members that have joined this generation, and not asked for their share."""
    timer: asyncio.TimerHandle | None = None
    """Ends the rebalance: first the joins, then the wait for `unsynced`."""


class Groups:
    """The groups whose members this gateway serves."""

    def __init__(
        self, new_token: Callable[[], str], leads: Callable[[str], bool] = lambda _: True
    ) -> None:
        """`new_token` makes the part of a member id that cannot be guessed. `leads` tells whether
        this gateway leads a group."""
        self._new_token = new_token
        self._leads = leads
        self._groups: dict[str, Group] = {}
        self._commits: set[tuple[str, Future[Any]]] = set()
        """Commits under way, in threads, each with its group."""

    def groups(self) -> list[Group]:
        """All groups with members."""
        return [group for group in self._groups.values() if group.members]

    def find(self, group_id: str) -> Group | None:
        """The group, if it has members."""
        group = self._groups.get(group_id)
        return group if group is not None and group.members else None

    def drop(self, group_id: str) -> None:
        """Another gateway leads the group, or a new term begins: its members join again."""
        group = self._groups.pop(group_id, None)
        if group is None:
            return
        for member in list(group.members.values()):
            self._drop(group, member, kafka.NotCoordinatorError.errno)
        if group.timer is not None:
            group.timer.cancel()

    # Requests.

    async def join(self, request: Any) -> Any:
        """JoinGroup: answered when all members have joined, or their time is over."""
        try:
            joining = self._joining(request)
        except _NewMember as new:
            return refused_join(kafka.MemberIdRequiredError.errno, new.member_id)
        except kafka.BrokerResponseError as error:
            return refused_join(error.errno, request.member_id)
        return await joining

    def _joining(self, request: Any) -> asyncio.Future[Any]:
        if not request.group_id:
            raise kafka.InvalidGroupIdError("a group needs a name")
        if not self._leads(request.group_id):
            raise kafka.NotCoordinatorError("another gateway leads the group")
        timeout_ms = request.session_timeout_ms
        if not SESSION_TIMEOUT_MIN_MS <= timeout_ms <= SESSION_TIMEOUT_MAX_MS:
            raise kafka.InvalidSessionTimeoutError(f"session.timeout.ms {timeout_ms}")
        protocols = {one.name: bytes(one.metadata) for one in request.protocols}
        group = self._groups.get(request.group_id)
        if group is None:
            if request.member_id:
                raise kafka.UnknownMemberIdError("the group has no members here")
            if len(self._groups) >= GROUPS_MAX:
                self._groups = {n: g for n, g in self._groups.items() if g.members or g.pending}
            if len(self._groups) >= GROUPS_MAX:
                raise kafka.GroupMaxSizeReachedError(f"{GROUPS_MAX} groups")
            group = self._groups[request.group_id] = Group(request.group_id)
        if not protocols or not self._are_compatible(group, request.protocol_type, protocols):
            raise kafka.InconsistentGroupProtocolError("no protocol that all members have")
        is_restart = not request.member_id and request.group_instance_id in group.instances
        member = self._member(group, request, protocols)
        # Its earlier request came by a connection that is lost.
        _answer(member.joining, refused_join(_REBALANCES, member.member_id))
        joining = asyncio.get_running_loop().create_future()
        is_stable = group.phase is GroupPhase.STABLE
        if is_restart and is_stable and _voted(group) == group.protocol:
            joining.set_result(_joined(group, member))  # It goes on with what it had (KIP-345).
            self._keep_alive(group, member)
            return joining
        member.joining = joining
        self._keep_alive(group, member)
        if group.phase is GroupPhase.PREPARING_REBALANCE:
            self._end_if_complete(group)
        else:
            self._prepare(group)
        return joining

    def _member(self, group: Group, request: Any, protocols: dict[str, bytes]) -> Member:
        """The joining member. Raises UnknownMemberIdError, FencedInstanceIdError, and _NewMember
        for one that has to join with an id first."""
        member_id, instance = request.member_id, request.group_instance_id
        client_id = request.header.client_id or ""
        known = group.instances.get(instance) if instance is not None else None
        assignment = b""
        if instance is not None and known is not None and member_id not in ("", known):
            raise kafka.FencedInstanceIdError(f"another member has the instance id {instance!r}")
        if not member_id:
            if len(group.members) + len(group.pending) >= MEMBERS_MAX:
                raise kafka.GroupMaxSizeReachedError(f"{MEMBERS_MAX} members")
            member_id = f"{instance or client_id or 'member'}-{self._new_token()}"
            if instance is None and request.API_VERSION >= 4:
                group.pending.add(member_id)
                forget = group.pending.discard
                session_s = request.session_timeout_ms / 1_000
                asyncio.get_running_loop().call_later(session_s, forget, member_id)
                raise _NewMember(member_id)
            if known is not None:  # A static member that was started again replaces itself.
                assignment = group.members[known].assignment
                if known in group.unsynced:
                    group.unsynced.add(member_id)
                self._drop(group, group.members[known], kafka.FencedInstanceIdError.errno)
        elif member_id not in group.members and member_id not in group.pending:
            raise kafka.UnknownMemberIdError(f"member {member_id!r}")
        group.pending.discard(member_id)
        rebalance_ms = request.rebalance_timeout_ms or -1
        if rebalance_ms < 0:
            rebalance_ms = request.session_timeout_ms
        member = group.members.get(member_id)
        if member is None:
            client = CLIENT.get(None)
            host = "" if client is None else client.host
            member = Member(member_id, instance, client_id, host, 0.0, 0.0, protocols, assignment)
            group.members[member_id] = member
            if instance is not None:
                group.instances[instance] = member_id
        member.session_timeout_s = request.session_timeout_ms / 1_000
        member.rebalance_timeout_s = rebalance_ms / 1_000
        member.protocols = protocols
        group.protocol_type = request.protocol_type
        return member

    @staticmethod
    def _are_compatible(group: Group, protocol_type: str, protocols: dict[str, bytes]) -> bool:
        others = list(group.members.values())
        if not others:
            return True
        shared = set(protocols).intersection(*(other.protocols for other in others))
        return group.protocol_type == protocol_type and bool(shared)

    async def sync(self, request: Any) -> Any:
        """SyncGroup: answered when the leader has sent the assignment."""
        group = self._groups.get(request.group_id)
        code = self._code(request.group_id, request.generation_id, request)
        if code or group is None:
            return SyncGroupResponse(error_code=code, assignment=b"")
        member = group.members[request.member_id]
        group.unsynced.discard(member.member_id)
        if group.phase is GroupPhase.COMPLETING_REBALANCE:
            _answer(member.syncing, _REBALANCES)
            member.syncing = asyncio.get_running_loop().create_future()
            self._keep_alive(group, member)
            if member.member_id == group.leader:
                self._assign(group, request.assignments)
            code = await member.syncing
        elif group.phase is GroupPhase.PREPARING_REBALANCE:
            code = _REBALANCES
        self._keep_alive(group, member)
        assignment = member.assignment if not code else b""
        return SyncGroupResponse(error_code=code, assignment=assignment)

    def _assign(self, group: Group, assignments: Any) -> None:
        given = {one.member_id: bytes(one.assignment) for one in assignments}
        group.phase = GroupPhase.STABLE
        for member in group.members.values():
            member.assignment = given.get(member.member_id, b"")
            _answer(member.syncing, 0)

    def heartbeat(self, request: Any) -> int:
        """The code for a Heartbeat."""
        group = self._groups.get(request.group_id)
        code = self._code(request.group_id, request.generation_id, request)
        if code or group is None:
            return code
        self._keep_alive(group, group.members[request.member_id])
        if group.phase is GroupPhase.PREPARING_REBALANCE:
            return _REBALANCES
        return 0

    def leave(self, request: Any) -> Any:
        """LeaveGroup, of one member or several."""
        group = self._groups.get(request.group_id)
        named = request.members if request.API_VERSION >= 3 else [request]
        answers = []
        for one in named:
            code = kafka.UnknownMemberIdError.errno
            instance = getattr(one, "group_instance_id", None)
            member_id = one.member_id
            if group is not None:
                if instance is not None and not member_id:
                    member_id = group.instances.get(instance, "")
                member = group.members.get(member_id)
                if member is not None:
                    self._drop(group, member, kafka.UnknownMemberIdError.errno)
                    self._rebalance(group)
                    code = 0
                elif member_id in group.pending:
                    group.pending.discard(member_id)
                    code = 0
            answers.append(
                LeaveGroupResponse.MemberResponse(
                    member_id=one.member_id, group_instance_id=instance, error_code=code
                )
            )
        if request.API_VERSION >= 3:
            return LeaveGroupResponse(error_code=0, members=answers)
        return LeaveGroupResponse(error_code=answers[0].error_code)

    def check_commit(self, generation: int, request: Any, *, is_transactional: bool = False) -> int:
        """The code for a commit of offsets by a member; other programs may commit while the group
        has none, and at any time in a transaction, as at a broker."""
        is_member = generation >= 0 or bool(request.member_id)
        if not is_member and (is_transactional or self.find(request.group_id) is None):
            return 0 if self._leads(request.group_id) else int(kafka.NotCoordinatorError.errno)
        code = self._code(request.group_id, generation, request)
        if code or is_transactional:
            return code
        # Its partitions may be another member's as soon as the leader has sent the assignment.
        is_between = self._groups[request.group_id].phase is GroupPhase.COMPLETING_REBALANCE
        return _REBALANCES if is_between else 0

    def note_commit(self, group_id: str, commit: Future[Any]) -> None:
        """A commit that was checked is under way, whether or not its client waits for it."""
        noted = group_id, commit
        self._commits.add(noted)
        commit.add_done_callback(lambda _: self._commits.discard(noted))

    async def commits_noted(self, group_id: str) -> None:
        """Wait for the commits under way: one may be of the generation before, whose partitions
        another member has now. A broker stores a commit before the group goes on."""
        # A copy: the threads take from it.
        noted = [commit for group, commit in list(self._commits) if group == group_id]
        if noted:
            await asyncio.wait([asyncio.wrap_future(commit) for commit in noted])

    def _code(self, group_id: str, generation: int, request: Any) -> int:
        if not self._leads(group_id):
            return int(kafka.NotCoordinatorError.errno)
        group, instance = self._groups.get(group_id), request.group_instance_id
        if group is None or request.member_id not in group.members:
            known = None if group is None or instance is None else group.instances.get(instance)
            error = kafka.FencedInstanceIdError if known else kafka.UnknownMemberIdError
            return int(error.errno)
        if generation != group.generation:
            return int(kafka.IllegalGenerationError.errno)
        return 0

    # Rebalancing.

    def _prepare(self, group: Group) -> None:
        """Ask all members to join again."""
        is_new = group.phase is GroupPhase.EMPTY
        for member in group.members.values():
            _answer(member.syncing, _REBALANCES)
        group.phase = GroupPhase.PREPARING_REBALANCE
        self._call_later(group, self._end, INITIAL_DELAY_S if is_new else math.inf)
        if not is_new:
            self._end_if_complete(group)

    @staticmethod
    def _call_later(
        group: Group, end: Callable[[Group], None], delay_max_s: float = math.inf
    ) -> None:
        """End what members have to do now, once the most patient one has waited long enough."""
        if group.timer is not None:
            group.timer.cancel()
        longest_s = max(member.rebalance_timeout_s for member in group.members.values())
        delay_s = min(longest_s, delay_max_s)
        group.timer = asyncio.get_running_loop().call_later(delay_s, end, group)

    def _end_if_complete(self, group: Group) -> None:
        is_initial = group.generation == 0
        if not is_initial and all(m.joining is not None for m in group.members.values()):
            self._end(group)

    def _end(self, group: Group) -> None:
        """The members that have joined are the next generation."""
        for member in list(group.members.values()):
            # A static member stays until its session ends (KIP-345).
            if member.joining is None and member.instance_id is None:
                self._drop(group, member, kafka.UnknownMemberIdError.errno)
        group.generation += 1
        if not group.members:
            group.phase = GroupPhase.EMPTY
            return
        group.protocol = _voted(group)
        # One that waits for the list of members: a static one may be away.
        joined = [m.member_id for m in group.members.values() if m.joining is not None]
        if group.leader not in joined:
            group.leader = next(iter(joined), "")
        group.phase = GroupPhase.COMPLETING_REBALANCE
        group.unsynced = set(joined)
        self._call_later(group, self._drop_unsynced)
        for member in group.members.values():
            joining, member.joining = member.joining, None
            self._keep_alive(group, member)
            _answer(joining, _joined(group, member))

    def _drop_unsynced(self, group: Group) -> None:
        """One that sends heartbeats only has partitions, and does not read them; or it is the
        leader, for which the others wait."""
        late = [member for name, member in group.members.items() if name in group.unsynced]
        for member in late:
            self._drop(group, member, kafka.UnknownMemberIdError.errno)
        if late:
            self._rebalance(group)

    def _rebalance(self, group: Group) -> None:
        """A member is gone."""
        if not group.members:
            if group.timer is not None:
                group.timer.cancel()
                group.timer = None
            group.phase = GroupPhase.EMPTY
            group.generation += 1
        elif group.phase is GroupPhase.PREPARING_REBALANCE:
            self._end_if_complete(group)
        else:
            self._prepare(group)

    def _drop(self, group: Group, member: Member, code: int) -> None:
        del group.members[member.member_id]
        if member.instance_id is not None:
            del group.instances[member.instance_id]
        if member.expiry is not None:
            member.expiry.cancel()
        _answer(member.joining, refused_join(code, member.member_id))
        _answer(member.syncing, code)

    def _keep_alive(self, group: Group, member: Member) -> None:
        if member.expiry is not None:
            member.expiry.cancel()
        timeout_s = max(member.session_timeout_s, 0.0)
        # It waits for the others, and sends nothing meanwhile.
        if any(one is not None and not one.done() for one in (member.joining, member.syncing)):
            timeout_s += max(m.rebalance_timeout_s for m in group.members.values())
        loop = asyncio.get_running_loop()
        member.expiry = loop.call_later(timeout_s, self._expire, group, member)

    def _expire(self, group: Group, member: Member) -> None:
        if group.members.get(member.member_id) is member:
            self._drop(group, member, kafka.UnknownMemberIdError.errno)
            self._rebalance(group)


class _NewMember(Exception):
    """A member has to join again with this id (KIP-394)."""

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id


def _voted(group: Group) -> str:
    """The protocol that most members prefer, of those that all have."""
    votes = Counter(next(iter(m.protocols)) for m in group.members.values())
    shared = set.intersection(*(set(m.protocols) for m in group.members.values()))
    return max(sorted(shared), key=lambda name: votes[name])


def _joined(group: Group, member: Member) -> Any:
    """The answer to a JoinGroup: the leader gets the list of the members."""
    shown = group.members if member.member_id == group.leader else {}
    return JoinGroupResponse(
        error_code=0,
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=group.leader,
        member_id=member.member_id,
        members=[
            JoinGroupResponse.JoinGroupResponseMember(
                member_id=one.member_id,
                group_instance_id=one.instance_id,
                metadata=one.protocols[group.protocol],
            )
            for one in shown.values()
        ],
    )


def refused_join(code: int, member_id: str) -> Any:
    """The answer to a JoinGroup that failed."""
    return JoinGroupResponse(
        error_code=code,
        generation_id=-1,
        protocol_name="",
        leader="",
        member_id=member_id,
        members=[],
    )


def _answer(waiting: asyncio.Future[Any] | None, answer: Any) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(answer)
