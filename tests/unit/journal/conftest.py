"""The clocks of several machines."""

import pytest

from tests.unit.journal.trusting_process import MachineClocks


@pytest.fixture
def clocks() -> MachineClocks:
    """The clocks of all machines and of the store, unless a test sets others."""
    return MachineClocks()
