"""Every event is counted by the audit, or is known to change nothing that the audit counts.

The audit counts offsets, epochs and decisions anew from the stored events. An event that it does
not know would make its facts silently wrong.
"""

import ast
from pathlib import Path
from typing import get_args

import pytest

import txlog.verify.facts
from txlog.coordinator.events import (
    CheckClaimed,
    CoordinatorEvent,
    GroupReleased,
    StagingHorizonAdvanced,
)
from txlog.groups.state import OffsetsEvent
from txlog.topic.events import (
    ChunksReplaced,
    CleanerAdvanced,
    ConfigAltered,
    HorizonAdvanced,
    IndexSealed,
    LogStartAdvanced,
    RecordsMoved,
    SchemaEvolved,
    TopicClosed,
    TopicEvent,
)

FACTS = Path(txlog.verify.facts.__file__).parent

NOT_COUNTED: set[type] = {
    # They change no offset, sequence or transaction of the topic.
    ChunksReplaced,
    CleanerAdvanced,
    ConfigAltered,
    HorizonAdvanced,
    IndexSealed,
    LogStartAdvanced,
    RecordsMoved,
    SchemaEvolved,
    TopicClosed,
    # They change no epoch, number or decision of a transaction.
    CheckClaimed,
    GroupReleased,
    StagingHorizonAdvanced,
}


def counted_in(module: str) -> set[str]:
    """The classes that the module's `match` statements name."""
    tree = ast.parse((FACTS / module).read_text())
    patterns = [node for node in ast.walk(tree) if isinstance(node, ast.MatchClass)]
    return {ast.unparse(pattern.cls) for pattern in patterns}


@pytest.mark.parametrize(
    ("module", "events"),
    [
        ("topic_facts.py", TopicEvent),
        ("coordinator_facts.py", CoordinatorEvent),
        ("offsets_facts.py", OffsetsEvent),
    ],
)
def test_audit_counts_every_event_that_changes_its_facts(module: str, events: object) -> None:
    names = {event.__name__ for event in get_args(events)}
    not_counted = {event.__name__ for event in NOT_COUNTED} & names
    assert counted_in(module) == names - not_counted
