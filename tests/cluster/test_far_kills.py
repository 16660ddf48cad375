"""SIGKILL to one Python process of a query's driver while it waits for a store 30 ms away.

The line to the store holds a request of that process, or the answer to it, and the process is
killed meanwhile; the driver lives. A request that was under way when its sender was killed may
arrive after those of the process that goes on.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace

import psutil
import pytest

from benchmarks.processes import owners
from tests.cluster.cluster import MARKS, Cluster, words
from tests.cluster.stream import Stream, stream_on
from tests.cluster.test_kills import COMMITTER, PLANNER, SOURCE, kill, of_driver
from tests.spark.drill import WAIT_S
from txlog.testing.s3_server import S3Server
from txlog.testing.tcp_proxy import HeldRequest, TcpProxy

pytestmark = MARKS

ROUND_TRIP_MS = 30.0
LOOKS_MAX = 20


@dataclass(frozen=True)
class Wait:
    """A request that a process waits for, by what it contains; `is_answered`: the server has
    carried it out."""

    path: str
    event: str = ""
    is_answered: bool = False

    def is_in(self, sent: bytes) -> bool:
        """Whether this is the request. A process reads, or stores an event."""
        verb = b"PUT" if self.event else b"GET"
        return sent.startswith(verb) and self.path.encode() in sent and self.event.encode() in sent

    @property
    def answered(self) -> Wait:
        """The same, and the answer is under way."""
        return replace(self, is_answered=True)


NEW_RECORDS, POSITION = Wait("/topics/in-a/"), Wait("/transactions/")
LOG, FIRST_LOOK = Wait("/cluster/"), Wait("/boundaries/")
REGISTERED = Wait("/transactions/", '"producer_initialised"')
DECIDED = Wait("/transactions/", '"commit_prepared"')
MARKED = [Wait(f"/topics/copy.{number}/", '"marker_written"') for number in (0, 1)]
COMPLETED = Wait("/transactions/", '"transaction_completed"')


@dataclass(frozen=True)
class Step:
    """Where a process is killed, and what follows."""

    role: str
    waits: tuple[Wait, ...]
    is_decided: bool | None = False
    """Whether the log has the batch at the kill; None: the batch goes on meanwhile."""
    is_new: bool = False
    """Whether the process has just begun, in the place of another one that was killed."""
    is_idle: bool = False
    """Whether Spark does not wait for it: it gets another process, and the query does not fail."""
    is_unread: bool = False
    """Whether the answers have arrived, and the process has not read them."""
    follows: Wait | None = None
    """The committer's request after which the process comes to its own."""
    meets: Wait | None = None
    """The requests arrive beside this one of the committer that goes on."""
    is_too_late: bool = False
    """Whether they are refused then: another entry is in their place."""


def committer(*waits: Wait, **more: bool | Wait) -> Step:
    """A step of the commit."""
    return Step(COMMITTER, waits, **more)  # type: ignore[arg-type]


STEPS = {
    "source looks for records": Step(SOURCE, (NEW_RECORDS,)),
    "source reads the group's position": Step(
        SOURCE, (POSITION,), is_decided=True, follows=DECIDED.answered
    ),
    "new source opens the group's journal": Step(SOURCE, (POSITION,), is_new=True),
    "planner reads for the next batch": Step(
        PLANNER, (Wait("/topics/copy.0/"),), None, is_idle=True
    ),
    "new planner opens the log": Step(PLANNER, (LOG,), is_new=True),
    "new planner reads a topic": Step(PLANNER, (Wait("/topics/copy.0/"),), is_new=True),
    "new committer reads the coordinator": committer(FIRST_LOOK, is_new=True),
    "before the registration": committer(REGISTERED, is_new=True),
    "registered": committer(REGISTERED.answered, is_new=True),
    "before the decision": committer(DECIDED),
    "before the decision of a new committer": committer(DECIDED, is_new=True),
    "decision arrives before the next one looks": committer(DECIDED, meets=FIRST_LOOK),
    "decision arrives before the next one registers": committer(DECIDED, meets=REGISTERED),
    "decision arrives after the next one has registered": committer(
        DECIDED, meets=REGISTERED.answered, is_too_late=True
    ),
    "decided": committer(DECIDED.answered, is_decided=True),
    "decided, and the answer is there": committer(
        DECIDED.answered, is_decided=True, is_unread=True
    ),
    "before the markers": committer(*MARKED, is_decided=True),
    "between the markers": committer(MARKED[0].answered, MARKED[1], is_decided=True),
    "after the markers": committer(*(m.answered for m in MARKED), is_decided=True),
    "markers arrive before the next one looks": committer(
        *MARKED, is_decided=True, meets=FIRST_LOOK
    ),
    "markers arrive after those of the next one": committer(
        *MARKED, is_decided=True, meets=COMPLETED, is_too_late=True
    ),
    "before COMMITTED": committer(COMPLETED, is_decided=True, is_idle=True),
    "after COMMITTED": committer(COMPLETED.answered, is_decided=True, is_idle=True),
    "COMMITTED arrives after that of the next one": committer(
        COMPLETED, is_decided=True, is_idle=True, meets=COMPLETED.answered, is_too_late=True
    ),
    "before COMMITTED of a new committer": committer(COMPLETED, is_decided=True, is_new=True),
    "after COMMITTED of a new committer": committer(
        COMPLETED.answered, is_decided=True, is_new=True
    ),
}


@dataclass
class Far:
    """A query whose processes are far from the store; the test is near."""

    stream: Stream
    line: TcpProxy

    def failures(self) -> list[str]:
        """Why the query has failed so far; its driver has started it again each time."""
        folder = self.stream.driver.folder
        count = len(list(folder.glob("jobs.failed-*")))
        return [(folder / f"jobs.failed-{number}").read_text() for number in range(count)]

    def hold(self, wait: Wait, role: str, *, but: int = 0) -> HeldRequest:
        """Hold the next such request of a process with this role, except for one process."""

        def is_meant(port: int, sent: bytes) -> bool:
            if not wait.is_in(sent):
                return False
            pid = pid_of(port)
            return pid != but and role in words(psutil.Process(pid))

        return self.line.hold(is_meant, is_answer=wait.is_answered)

    def stop(self, step: Step) -> tuple[int, list[HeldRequest]]:
        """Send new records, and stop the process at the step; its id, and what it waits for."""
        self.line.logged()
        first = [self.hold(step.follows, COMMITTER)] if step.follows else []
        held = [] if first else [self.hold(wait, step.role) for wait in step.waits]
        if step.is_new:
            # Not the daemon that forks them, which has the same command.
            kill(p for p in of_driver(self.stream, step.role) if not p.children())
        self.stream.put()
        for one in first:
            self.reached(one)
            held = [self.hold(wait, step.role) for wait in step.waits]
            one.release()
        (pid,) = {pid_of(self.reached(one)) for one in held}
        if step.is_unread:
            os.kill(pid, signal.SIGSTOP)
            assert [b" 200 " in arrival(one) for one in held] == [True]
        return pid, held

    def reached(self, held: HeldRequest) -> int:
        """The port of the process that waits for what is held."""
        try:
            return held.reached.result(WAIT_S)
        except TimeoutError:
            met = [f"{one.port} {one.verb} {one.path}" for one in self.line.logged()]
            lines = "\n".join((*met, *self.failures()))
            pytest.fail(f"no such request came within {WAIT_S} s, only:\n{lines}")

    def is_decided(self) -> bool:
        """Whether the log has all batches up to the end of the input."""
        positions = self.stream.log.positions(self.stream.name, is_decided=True).values()
        return all(at == end for at, end in positions)


def pid_of(port: int) -> int:
    """The process whose open connection has this port."""
    # Linux may leave out a line of its list of connections while the list changes.
    found = next(filter(None, (owners([port]) for _ in range(LOOKS_MAX))))
    return int(found[port].split()[1])


def arrival(held: HeldRequest) -> bytes:
    """Let a request or an answer arrive; the start of the answer."""
    held.release()
    return held.answered.result(WAIT_S)


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Far]:
    """The query has processed two batches; its driver starts it again whenever it fails."""
    folder = tmp_path_factory.mktemp("far")
    with (
        S3Server.start() as near,
        TcpProxy(near.endpoint_url) as line,
        stream_on(Cluster(folder, near.env), near, folder, partitions=2) as stream,
    ):
        line.delay(ROUND_TRIP_MS)
        stream.put()
        stream.server = replace(near, endpoint_url=line.endpoint_url)
        stream.start({"spark.master": "local[2,2]"}, starts_max=3 * len(STEPS))
        stream.server = near
        # With its second batch a planner opens the log again, to create nothing any more.
        stream.settle()
        stream.put()
        stream.settle()
        yield Far(stream, line)


@pytest.mark.parametrize("name", STEPS)
def test_I5_I6_I10_process_of_the_driver_killed_while_it_waits(far: Far, name: str) -> None:
    step, stream = STEPS[name], far.stream
    stream.settle()
    failures = len(far.failures())
    pid, held = far.stop(step)
    met = far.hold(step.meets, COMMITTER, but=pid) if step.meets else None
    kill([psutil.Process(pid)])
    assert step.is_decided in (None, far.is_decided())
    stream.put()
    if met is not None:
        far.reached(met)
        status = b" 412 " if step.is_too_late else b" 200 "
        assert {status in arrival(one) for one in held} == {True}
        met.release()
    for one in held:
        one.drop()
    stream.settle()
    kills = 0 if step.is_idle else 1 + (step.is_new and step.role == SOURCE)
    # docs/troubleshooting.md, "Symptoms".
    told = "(Broken pipe)? SQLSTATE" if step.role == SOURCE else "Python worker exited unexpectedly"
    said = [
        bool(re.search(f"terminated with exception: {told}", text))
        for text in far.failures()[failures:]
    ]
    assert said == [True] * kills
    stream.judge()
