"""Single protocol steps of a process, by name: the traces of the rules consist of them."""

from tests.protocol.world import Process, World, committed, visible
from txlog.coordinator.coordinator import Coordinator
from txlog.coordinator.events import InitProducer, Participant, Registration, ReplayMark
from txlog.groups.state import OffsetsPended, Pending, PendingOffset
from txlog.model import TxId
from txlog.topic.events import AppendBatches
from txlog.verify.invariants import check_log

TIMEOUT_MS = 60_000
NAME, GROUP = "x", "g"


def coordinator(process: Process) -> Coordinator:
    """The only coordinator of this world."""
    return process.connection.coordinator(0)


def register(process: Process, instance: str, name: str = NAME, **options: object) -> Registration:
    """Become the id's newest instance."""
    return coordinator(process).init_producer(
        InitProducer(name, instance, TIMEOUT_MS, **options),  # type: ignore[arg-type]
    )


def tx_of(registration: Registration, number: int = 0) -> TxId:
    """A transaction of that instance."""
    return TxId(registration.pid, registration.epoch, number)


def participant(process: Process, topic: str, *values: int, logged: bool = False) -> Participant:
    """A participant with staged records, or one declared for records in the log."""
    segments = () if logged else (process.stage(topic, values),)
    partitions = (0,) if logged else ()
    return Participant(process.topic(topic).topic_id, topic, partitions, segments)


def pend(process: Process, tx: TxId, start: int, end: int, name: str = NAME) -> None:
    """Pend offsets [start, end) of the source."""
    offset = PendingOffset("src", process.topic("src").topic_id, 0, start, end)
    now_ms = process.connection.runtime.clock.wall_ms()
    pending = Pending(name, 0, (offset,), now_ms, TIMEOUT_MS)
    process.connection.offsets.pend(OffsetsPended(GROUP, tx, pending))


def prepare(
    process: Process,
    tx: TxId,
    *participants: Participant,
    name: str = NAME,
    groups: tuple[str, ...] = (GROUP,),
    mark: ReplayMark | None = None,
) -> None:
    """Write PREPARE_COMMIT: from here the transaction is decided."""
    coordinator(process).prepare_commit(name, tx, participants, groups, mark)


def finish(process: Process, tx: TxId, name: str = NAME) -> None:
    """Apply a decision everywhere, and complete it."""
    coordinator(process).apply(name, tx)
    coordinator(process).execute(coordinator(process).completion(name, tx))


def append(process: Process, topic: str, tx: TxId, value: int, sequence: int = 0) -> None:
    """Append one record to the log while the transaction is open."""
    segment = process.stage(topic, [value])
    command = AppendBatches((segment,), tx.pid, tx.epoch, tx, {0: sequence})
    process.topic(topic).execute(command)


def shown(world: World, topic: str) -> list[int]:
    """The records that a new process reads at read_committed."""
    return list(visible(world.process(), topic).values())


def position(world: World) -> int | None:
    """The group's position as a new process reads it; None while a transaction is pending on it."""
    return committed(world.process(), GROUP, "src")


def is_sound(world: World) -> bool:
    """Check the invariants on every stored byte."""
    return check_log(world.store) == []
