"""Commands on a topic, with defaults for what a test does not give."""

from typing import Any

from tests.unit.machine_without_journal import MachineHarness
from tests.unit.segments import segment
from txlog.model import Decision, TxId
from txlog.settings import TopicConfig
from txlog.topic.events import AppendBatches, TopicOpened, WriteMarker
from txlog.topic.machine import TopicMachine
from txlog.topic.state import TopicState

OPENED = TopicOpened("0123456789abcdef", "t", 3, "schema 0", TopicConfig())
COMMIT, ABORT = Decision.COMMIT, Decision.ABORT


def new_topic() -> MachineHarness[TopicState]:
    """An open topic with three partitions and no records."""
    harness = MachineHarness(TopicMachine())
    harness.run(OPENED)
    return harness


def append(
    rows: dict[int, Any], sequence: int = 0, tx: TxId | None = None, **changes: Any
) -> AppendBatches:
    """An append by producer 7, or by that of `tx`, with one base sequence for every partition."""
    pid, epoch = (tx.pid, tx.epoch) if tx is not None else (7, 0)
    values = {
        "segments": (segment(rows),),
        "pid": pid,
        "epoch": epoch,
        "tx_id": tx,
        "base_sequences": dict.fromkeys(rows, sequence),
    }
    return AppendBatches(**{**values, **changes})


def plain(rows: dict[int, Any]) -> AppendBatches:
    """An append without de-duplication."""
    return AppendBatches((segment(rows),))


def marker(tx: TxId, decision: Decision = COMMIT, **changes: Any) -> WriteMarker:
    """A marker by a producer that has no other transaction open."""
    values = {"tx_id": tx, "decision": decision, "floor": tx.number, "coordinator": 0}
    return WriteMarker(**{**values, **changes})


def ends(topic: MachineHarness[TopicState]) -> list[int]:
    """The end of each partition."""
    return [partition.next_offset for partition in topic.state.partitions]


def stable(topic: MachineHarness[TopicState]) -> list[int]:
    """The last stable offset of each partition."""
    return [topic.state.last_stable_offset(p) for p in range(len(topic.state.partitions))]
