"""All planted bugs that only direct tests detect."""

from collections.abc import Callable, Mapping

import pytest

from tests.simulation.planted_bugs.bugs_of_carrying import BUGS_OF_CARRYING
from tests.simulation.planted_bugs.bugs_of_deletion import BUGS_OF_DELETION
from tests.simulation.planted_bugs.bugs_of_entries import BUGS_OF_ENTRIES
from tests.simulation.planted_bugs.bugs_of_logs import BUGS_OF_LOGS
from tests.simulation.planted_bugs.bugs_of_manifests import BUGS_OF_MANIFESTS
from tests.simulation.planted_bugs.bugs_of_memory import BUGS_OF_MEMORY
from tests.simulation.planted_bugs.bugs_of_metadata import BUGS_OF_METADATA
from tests.simulation.planted_bugs.bugs_of_staging import BUGS_OF_STAGING
from tests.simulation.planted_bugs.bugs_of_trust import BUGS_OF_TRUST
from tests.simulation.planted_bugs.bugs_of_waits import BUGS_OF_WAITS

DIRECT_BUGS: Mapping[str, tuple[Callable[[pytest.MonkeyPatch], None], str]] = {
    **BUGS_OF_CARRYING,
    **BUGS_OF_DELETION,
    **BUGS_OF_ENTRIES,
    **BUGS_OF_MANIFESTS,
    **BUGS_OF_MEMORY,
    **BUGS_OF_METADATA,
    **BUGS_OF_LOGS,
    **BUGS_OF_STAGING,
    **BUGS_OF_TRUST,
    **BUGS_OF_WAITS,
}
"""Planted bug -> the function that plants it, and the test that detects it."""
