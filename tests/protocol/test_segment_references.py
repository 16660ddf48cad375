"""The segments that the log refers to, queried while transactions progress."""

from itertools import count

from tests.protocol.steps import (
    NAME,
    TIMEOUT_MS,
    append,
    coordinator,
    finish,
    participant,
    prepare,
    register,
    shown,
    tx_of,
)
from tests.protocol.world import PROCESS, Process, World
from tests.stores.faulty_stores import DyingStore
from txlog.engine.connection import Connection, open_connection
from txlog.layout import is_segment
from txlog.maintenance.vacuum import references
from txlog.model import TxId


class FinishingStore(DyingStore):
    """Another process finishes a transaction just before the read with a given number."""

    def finish_before(self, read: int, finishing: tuple[Process, TxId]) -> None:
        """The process finishes the transaction before that read."""
        self.reads_left, self.finishing = read, finishing

    reads_left = -1

    def get(self, path: str) -> bytes | None:
        if self.reads_left == 0:
            finish(*self.finishing)
        self.reads_left -= 1
        return super().get(path)


def world_with_a_decision() -> tuple[World, Process, TxId, str]:
    """A transaction with one staged segment is decided, and not applied to any topic."""
    world = World()
    world.create_topics("a", "b")
    process = world.process()
    tx = tx_of(register(process, "i"))
    part = participant(process, "a", 1)
    prepare(process, tx, part, groups=())
    return world, process, tx, part.segments[0].path


def test_R18_segment_moving_from_coordinator_to_topic_is_never_missed() -> None:
    for read in count():
        world, process, tx, segment = world_with_a_decision()
        store = FinishingStore(world.store)
        looker = open_connection(store, world.runtime(), process=PROCESS)
        store.finish_before(read, (process, tx))
        assert segment in references(looker), f"finished before read {read}"
        if store.reads_left >= 0:
            break
    assert read > 4, "some of it lies between the two looks"


def unreferenced(looker: Connection) -> list[str]:
    """Existing segments without a reference."""
    stored = [stored.path for stored in looker.cluster.store.list_after("topics/")]
    return sorted(set(filter(is_segment, stored)) - references(looker))


def test_only_segments_not_named_by_the_log_are_unreferenced() -> None:
    world = World()
    world.create_topics("a", "b")
    process = world.process()
    looker = world.process().connection
    kept = tx_of(register(process, "i"))
    coordinator(process).begin(NAME, kept, TIMEOUT_MS, (participant(process, "a", logged=True),))
    append(process, "a", kept, 1)
    prepare(process, kept, groups=())
    finish(process, kept)
    assert unreferenced(looker) == []
    left = process.stage("a", [2])
    assert unreferenced(looker) == [left.path]
    process.connection.cluster.delete_topics(["a"])
    assert len(unreferenced(looker)) == 2
    assert shown(world, "b") == []
