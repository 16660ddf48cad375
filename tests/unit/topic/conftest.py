"""The rules and the state of a topic without a journal."""

import pytest

from tests.unit.machine_without_journal import MachineHarness
from tests.unit.topic_commands import new_topic
from txlog.topic.state import TopicState


@pytest.fixture
def topic() -> MachineHarness[TopicState]:
    """A topic whose next entry has slot 1."""
    return new_topic()
