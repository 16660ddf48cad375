"""Plays a history on one server, and returns what each step showed, in words that do not depend on
the server: offsets as numbers of records before them, values by their producers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kafka import errors
from kafka.protocol import admin, consumer, producer
from kafka.protocol.metadata import FindCoordinatorRequest

from tests.kafka.differential.history import GROUPS, IDS, PARTITIONS, Step, Where
from tests.kafka.differential.wire import Read, Wire, batch, records_of

RETRIED = {3, 6, 14, 15, 16, 51}
"""Codes after which a client asks again: the topic, its leader or the coordinator is not ready, or
a transaction is being completed."""
RETRIES_S = 10.0
TIMEOUT_MS = 60_000
SKIPPED = "skipped"
_EARLIEST, _LATEST = -2, -1
_TIMES = {"earliest": _EARLIEST, "latest": _LATEST, "time": 1}
"""The time is before all records': at a later one a broker may find a record of an aborted
transaction."""


@dataclass
class Instance:
    """A producer that has registered."""

    transactional_id: str | None
    pid: int
    epoch: int
    number: int
    sequences: dict[Where, int] = field(default_factory=dict)
    last: dict[Where, tuple[int, list[bytes]]] = field(default_factory=dict)
    sent: int = 0


@dataclass
class Member:
    """A member of a group, as it was told."""

    group: str
    member_id: str
    generation: int


class Player:
    """One history on one server."""

    def __init__(self, address: str, prefix: str) -> None:
        """`prefix` makes the names of this history its own."""
        self._wire, self._prefix = Wire(address), prefix
        self._instances: list[Instance] = []
        self._members: list[Member] = []
        self._open: dict[str, set[Where | str]] = {}
        """By transactional id: partitions and groups of its open transaction."""
        self._decided: set[str] = set()
        """Transactional ids whose last transaction may not be complete yet."""
        self._deleted: set[Where] = set()
        self._plain = 0
        kind = admin.CreateTopicsRequest.CreatableTopic
        counts = {name: 1 + max(p for n, p in PARTITIONS if n == name) for name, _ in PARTITIONS}
        topics = [
            kind(
                name=self._topic(name),
                num_partitions=count,
                replication_factor=1,
                assignments=[],
                configs=[],
            )
            for name, count in counts.items()
        ]
        answer = self._wire.ask(
            admin.CreateTopicsRequest, topics=topics, timeout_ms=TIMEOUT_MS, validate_only=False
        )
        assert not any(topic.error_code for topic in answer.topics), answer
        for key, key_type in [*((self._id(n), 1) for n in range(IDS)), *self._group_keys()]:
            self._again(
                lambda key=key, kind=key_type: (
                    self._wire.ask(FindCoordinatorRequest, key=key, key_type=kind).error_code
                )
            )

        for where in PARTITIONS:  # A broker's partitions have no leader at first.
            self._again(lambda where=where: self._listed(where, _EARLIEST)[0])

    def _group_keys(self) -> list[tuple[str, int]]:
        return [(self._group(number), 0) for number in range(GROUPS)]

    def _topic(self, name: str) -> str:
        return f"{self._prefix}-{name}"

    def _id(self, number: int) -> str:
        return f"{self._prefix}-id-{number}"

    def _group(self, number: int) -> str:
        return f"{self._prefix}-group-{number}"

    def play(self, steps: list[Step]) -> list[object]:
        """What each step showed."""
        try:
            return [getattr(self, step.name)(*step.arguments) for step in steps]
        finally:
            self._wire.close()

    @staticmethod
    def _again(call: Callable[[], int]) -> str:
        """The name of the code that the call gets once it need not be repeated."""
        deadline = time.monotonic() + RETRIES_S
        while (code := call()) in RETRIED and time.monotonic() < deadline:
            time.sleep(0.02)
        return "ok" if not code else errors.for_code(code).__name__

    # Producers.

    def register(self, number: int | None) -> object:
        """InitProducerId, of a transactional id or without one."""
        name = None if number is None else self._id(number)
        found: list[Any] = []

        def ask() -> int:
            found[:] = [self._registered(name, -1, -1)]
            return int(found[0].error_code)

        shown = self._again(ask)
        self._instances.append(
            Instance(name, found[0].producer_id, found[0].producer_epoch, len(self._instances))
        )
        if name is not None:
            self._open.pop(name, None)
        return shown

    def _registered(self, name: str | None, pid: int, epoch: int) -> Any:
        return self._wire.ask(
            producer.InitProducerIdRequest,
            transactional_id=name,
            transaction_timeout_ms=TIMEOUT_MS,
            producer_id=pid,
            producer_epoch=epoch,
        )

    def renew(self, who: int) -> object:
        """InitProducerId with the present id and epoch (KIP-360). That of an older instance is
        refused, and at a broker it fences the newer one in its open transaction, too."""
        one = self._instances[who]
        newest = [i for i in self._instances if i.transactional_id == one.transactional_id][-1]
        is_older = one is not newest
        if one.transactional_id is None or (is_older and self._open.get(one.transactional_id)):
            return SKIPPED
        found: list[Any] = []

        def ask() -> int:
            found[:] = [self._registered(one.transactional_id, one.pid, one.epoch)]
            return int(found[0].error_code)

        shown = self._again(ask)
        if shown == "ok":
            one.pid, one.epoch = found[0].producer_id, found[0].producer_epoch
            one.sequences, one.last = {}, {}
            self._open.pop(one.transactional_id, None)
        return shown

    def add(self, who: int, where: Where) -> object:
        """AddPartitionsToTxn."""
        one = self._instances[who]
        if one.transactional_id is None:
            return SKIPPED
        kind = producer.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic

        def ask() -> int:
            answer = self._wire.ask(
                producer.AddPartitionsToTxnRequest,
                v3_and_below_transactional_id=one.transactional_id,
                v3_and_below_producer_id=one.pid,
                v3_and_below_producer_epoch=one.epoch,
                v3_and_below_topics=[kind(name=self._topic(where[0]), partitions=[where[1]])],
            )
            topic = answer.results_by_topic_v3_and_below[0]
            return int(topic.results_by_partition[0].partition_error_code)

        shown = self._again(ask)
        if shown == "ok":
            self._open.setdefault(one.transactional_id, set()).add(where)
        return shown

    def append(self, who: int, where: Where, count: int, order: str) -> object:
        """Produce. `order`: the next sequence, the last batch again, or a gap. To a partition of no
        open transaction a broker answers by what it has verified before; txlog refuses it."""
        one = self._instances[who]
        if one.transactional_id and where not in self._open.get(one.transactional_id, ()):
            return SKIPPED
        sequence = one.sequences.get(where, 0)
        values = [b"%d/%d" % (one.number, one.sent + n) for n in range(count)]
        if order == "repeat":
            if where not in one.last:
                return SKIPPED
            sequence, values = one.last[where]
        elif order == "gap":
            if where not in one.last:
                return SKIPPED
            sequence += 5
        shown = self._produced(where, values, one, sequence)
        if shown == "ok" and order == "next":
            one.sent += count
            one.last[where] = sequence, values
            one.sequences[where] = sequence + count
        return shown

    def _produced(
        self, where: Where, values: list[bytes], one: Instance | None, sequence: int
    ) -> str:
        name = None if one is None else one.transactional_id
        pid, epoch = (-1, -1) if one is None else (one.pid, one.epoch)
        data = batch(values, pid, epoch, sequence, is_transactional=name is not None)
        topic = producer.ProduceRequest.TopicProduceData
        part = topic.PartitionProduceData(index=where[1], records=data)

        def ask() -> int:
            answer = self._wire.ask(
                producer.ProduceRequest,
                transactional_id=name,
                acks=-1,
                timeout_ms=TIMEOUT_MS,
                topic_data=[topic(name=self._topic(where[0]), partition_data=[part])],
            )
            return int(answer.responses[0].partition_responses[0].error_code)

        return self._again(ask)

    def produce(self, who: int, where: Where, count: int) -> object:
        """What a producer does: add the partition, if it is transactional, and append."""
        if self._instances[who].transactional_id is not None:
            added = self.add(who, where)
            if added != "ok":
                return added
        return self.append(who, where, count, "next")

    def plain(self, where: Where, count: int) -> object:
        """Produce without a producer id."""
        values = [b"plain/%d" % (self._plain + n) for n in range(count)]
        self._plain += count
        return self._produced(where, values, None, -1)

    def end(self, who: int, commits: bool) -> object:
        """EndTxn."""
        one = self._instances[who]
        if one.transactional_id is None:
            return SKIPPED
        shown = self._again(
            lambda: int(
                self._wire.ask(
                    producer.EndTxnRequest,
                    transactional_id=one.transactional_id,
                    producer_id=one.pid,
                    producer_epoch=one.epoch,
                    committed=commits,
                ).error_code
            )
        )
        if shown == "ok":
            self._open.pop(one.transactional_id, None)
            self._decided.add(one.transactional_id)
        return shown

    def _complete(self) -> None:
        """Wait for what is decided: a server completes a transaction after it has answered."""
        deadline = time.monotonic() + RETRIES_S
        while self._decided and time.monotonic() < deadline:
            answer = self._wire.ask(
                admin.DescribeTransactionsRequest, transactional_ids=sorted(self._decided)
            )
            self._decided = {
                one.transactional_id
                for one in answer.transaction_states
                if one.error_code or one.transaction_state.startswith("Prepare")
            }
            if self._decided:
                time.sleep(0.005)

    def send_offsets(self, who: int, group: int, where: Where, index: int) -> object:
        """AddOffsetsToTxn, then TxnOffsetCommit."""
        one, name = self._instances[who], self._group(group)
        if one.transactional_id is None or self._is_busy(where) or self._is_pending(name, one):
            return SKIPPED
        shown = self._again(
            lambda: int(
                self._wire.ask(
                    producer.AddOffsetsToTxnRequest,
                    transactional_id=one.transactional_id,
                    producer_id=one.pid,
                    producer_epoch=one.epoch,
                    group_id=name,
                ).error_code
            )
        )
        if shown != "ok":
            return shown
        self._open.setdefault(one.transactional_id, set()).add(name)
        return self.pend(who, group, where, index)

    def pend(self, who: int, group: int, where: Where, index: int) -> object:
        """TxnOffsetCommit, perhaps without AddOffsetsToTxn."""
        one, name = self._instances[who], self._group(group)
        if one.transactional_id is None or self._is_busy(where) or self._is_pending(name, one):
            return SKIPPED
        topic = producer.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        part = topic.TxnOffsetCommitRequestPartition(
            partition_index=where[1],
            committed_offset=self._offset_of(where, index),
            committed_leader_epoch=-1,
            committed_metadata="",
        )

        def ask() -> int:
            answer = self._wire.ask(
                producer.TxnOffsetCommitRequest,
                transactional_id=one.transactional_id,
                group_id=name,
                producer_id=one.pid,
                producer_epoch=one.epoch,
                generation_id=-1,
                member_id="",
                group_instance_id=None,
                topics=[topic(name=self._topic(where[0]), partitions=[part])],
            )
            return int(answer.topics[0].partitions[0].error_code)

        return self._again(ask)

    # Consumers.

    def commit(self, group: int, where: Where, index: int, member: int = 0) -> object:
        """OffsetCommit, of a member, or with 0 of another program."""
        name = self._group(group)
        if self._is_busy(where) or self._is_pending(name):
            return SKIPPED
        known = self._member(member)
        topic = consumer.OffsetCommitRequest.OffsetCommitRequestTopic
        part = topic.OffsetCommitRequestPartition(
            partition_index=where[1],
            committed_offset=self._offset_of(where, index),
            committed_leader_epoch=-1,
            committed_metadata="",
        )

        def ask() -> int:
            answer = self._wire.ask(
                consumer.OffsetCommitRequest,
                group_id=name,
                generation_id_or_member_epoch=known.generation,
                member_id=known.member_id,
                group_instance_id=None,
                topics=[topic(name=self._topic(where[0]), partitions=[part])],
            )
            return int(answer.topics[0].partitions[0].error_code)

        return self._again(ask)

    def member_commit(self, group: int, where: Where, index: int, member: int) -> object:
        """OffsetCommit of a member."""
        shown = self.commit(group, where, index, member)
        # A broker keeps a group without members that has offsets, and only then knows that.
        return "UnknownMemberIdError" if shown == "IllegalGenerationError" else shown

    def _member(self, number: int) -> Member:
        """The member, by its number from 1 on; 0 is a program that is none."""
        if not 0 < number <= len(self._members):
            return Member("", "", -1)
        return self._members[number - 1]

    def join(self, group: int) -> object:
        """JoinGroup and SyncGroup of a new member; others do not join again, and are out."""
        name = self._group(group)
        joined = self._joined(name, "")
        if joined.error_code == errors.MemberIdRequiredError.errno:
            joined = self._joined(name, joined.member_id)
        if joined.error_code:
            self._members.append(Member(name, joined.member_id, -1))
            return errors.for_code(joined.error_code).__name__
        known = Member(name, joined.member_id, joined.generation_id)
        self._members.append(known)
        kind = consumer.SyncGroupRequest.SyncGroupRequestAssignment
        answer = self._wire.ask(
            consumer.SyncGroupRequest,
            group_id=name,
            generation_id=known.generation,
            member_id=known.member_id,
            group_instance_id=None,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[kind(member_id=known.member_id, assignment=b"mine")],
        )
        return len(joined.members), joined.leader == known.member_id, bytes(answer.assignment)

    def _joined(self, group: str, member_id: str) -> Any:
        kind = consumer.JoinGroupRequest.JoinGroupRequestProtocol
        return self._wire.ask(
            consumer.JoinGroupRequest,
            group_id=group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=700,
            member_id=member_id,
            group_instance_id=None,
            protocol_type="consumer",
            protocols=[kind(name="range", metadata=b"")],
        )

    def heartbeat(self, member: int) -> object:
        """Heartbeat."""
        known = self._member(member)
        if not known.group:
            return SKIPPED
        answer = self._wire.ask(
            consumer.HeartbeatRequest,
            group_id=known.group,
            generation_id=known.generation,
            member_id=known.member_id,
            group_instance_id=None,
        )
        return errors.for_code(answer.error_code).__name__

    def leave(self, member: int) -> object:
        """LeaveGroup."""
        known = self._member(member)
        if not known.group:
            return SKIPPED
        kind = consumer.LeaveGroupRequest.MemberIdentity
        answer = self._wire.ask(
            consumer.LeaveGroupRequest,
            group_id=known.group,
            members=[kind(member_id=known.member_id, group_instance_id=None)],
        )
        codes = [answer.error_code, *(one.error_code for one in answer.members)]
        return [errors.for_code(code).__name__ for code in codes]

    def committed(self, group: int) -> object:
        """OffsetFetch, as numbers of records before the offset."""
        name = self._group(group)
        if self._is_pending(name) or any(self._is_busy(where) for where in PARTITIONS):
            return SKIPPED
        topic = consumer.OffsetFetchRequest.OffsetFetchRequestTopic
        deadline = time.monotonic() + RETRIES_S
        while True:
            answer = self._wire.ask(
                consumer.OffsetFetchRequest,
                group_id=name,
                topics=[
                    topic(
                        name=self._topic(t), partition_indexes=[p for n, p in PARTITIONS if n == t]
                    )
                    for t in ("a", "b")
                ],
                require_stable=True,
            )
            codes = {answer.error_code} | {
                p.error_code for t in answer.topics for p in t.partitions
            }
            if codes == {0} or time.monotonic() > deadline:
                break
            time.sleep(0.02)
        found = {
            (t.name.rsplit("-", 1)[1], p.partition_index): p.committed_offset
            for t in answer.topics
            for p in t.partitions
        }
        return codes, {
            where: None if offset < 0 else self._index_of(where, offset)
            for where, offset in sorted(found.items())
        }

    def read(self, where: Where, is_committed: bool) -> object:
        """The values, each producer's in their order; uncommitted ones only if none is open."""
        if self._is_busy(where):
            return SKIPPED
        by_producer: dict[bytes, list[int]] = {}
        for record in self._visible(where, is_committed=is_committed):
            who, number = record.value.split(b"/")
            by_producer.setdefault(who, []).append(int(number))
        if not is_committed:  # Those of aborted transactions stay in Kafka's log.
            return min(by_producer.get(b"plain", [-1]))
        return sorted(by_producer.items())

    def offsets(self, where: Where, what: str) -> object:
        """ListOffsets, as a number of records before it. By time a broker may find nothing once
        records before a transaction's marker are deleted."""
        if self._is_busy(where) or (what == "time" and where in self._deleted):
            return SKIPPED
        self._complete()
        code, offset = self._listed(where, _TIMES[what])
        if what == "time" and offset >= 0:
            offset = next((r.offset for r in self._visible(where) if r.offset >= offset), -1)
        return code, None if offset < 0 else self._index_of(where, offset)

    def delete_records(self, where: Where, index: int) -> object:
        """DeleteRecords, of all or none: which others are the first depends on when each server
        gives records of a transaction their offsets."""
        if self._is_busy(where):
            return SKIPPED
        index = 0 if not index else len(self._visible(where))
        self._deleted.add(where)
        topic = admin.DeleteRecordsRequest.DeleteRecordsTopic
        part = topic.DeleteRecordsPartition(
            partition_index=where[1], offset=self._offset_of(where, index)
        )

        def ask() -> int:
            answer = self._wire.ask(
                admin.DeleteRecordsRequest,
                topics=[topic(name=self._topic(where[0]), partitions=[part])],
                timeout_ms=TIMEOUT_MS,
            )
            return int(answer.topics[0].partitions[0].error_code)

        return self._again(ask)

    # How servers' offsets become numbers of records.

    def _is_busy(self, where: Where) -> bool:
        """Whether an open transaction has the partition: what is seen then differs, and the tables
        say how."""
        return any(where in found for found in self._open.values())

    def _is_pending(self, group: str, own: Instance | None = None) -> bool:
        name = None if own is None else own.transactional_id
        return any(group in found for other, found in self._open.items() if other != name)

    def _listed(self, where: Where, time_ms: int) -> tuple[int, int]:
        topic = consumer.ListOffsetsRequest.ListOffsetsTopic
        part = topic.ListOffsetsPartition(
            partition_index=where[1], current_leader_epoch=-1, timestamp=time_ms
        )
        answer = self._wire.ask(
            consumer.ListOffsetsRequest,
            replica_id=-1,
            isolation_level=1,
            topics=[topic(name=self._topic(where[0]), partitions=[part])],
        )
        found = answer.topics[0].partitions[0]
        return found.error_code, found.offset

    def _visible(self, where: Where, *, is_committed: bool = True) -> list[Read]:
        """All records that a consumer reads, once no decided transaction is incomplete."""
        self._complete()
        _, position = self._listed(where, _EARLIEST)
        found: list[Read] = []
        topic = consumer.FetchRequest.FetchTopic
        deadline = time.monotonic() + RETRIES_S
        while True:
            part = topic.FetchPartition(
                partition=where[1],
                current_leader_epoch=-1,
                fetch_offset=position,
                log_start_offset=-1,
                partition_max_bytes=1 << 20,
            )
            answer = self._wire.ask(
                consumer.FetchRequest,
                replica_id=-1,
                max_wait_ms=0,
                min_bytes=0,
                max_bytes=1 << 20,
                isolation_level=int(is_committed),
                session_id=0,
                session_epoch=-1,
                topics=[topic(topic=self._topic(where[0]), partitions=[part])],
                forgotten_topics_data=[],
                rack_id="",
            )
            one = answer.responses[0].partitions[0]
            assert not one.error_code, answer
            aborted = [(a.producer_id, a.first_offset) for a in one.aborted_transactions or ()]
            read, position = records_of(bytes(one.records or b""), aborted, position)
            found += read
            if position >= one.high_watermark or time.monotonic() > deadline:
                return found
            if one.last_stable_offset < one.high_watermark:
                time.sleep(0.01)

    def _offset_of(self, where: Where, index: int) -> int:
        found = self._visible(where)
        if index < len(found):
            return found[index].offset
        return found[-1].offset + 1 if found else self._listed(where, _EARLIEST)[1]

    def _index_of(self, where: Where, offset: int) -> int:
        return sum(record.offset < offset for record in self._visible(where))
