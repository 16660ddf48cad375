"""Several actors in one process: threads that share a connection, its replicas and their locks.

Their concurrent commands on one journal go into one entry. When the process dies, all of them die;
in the next life they share one process again.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.simulator.actors.role import Role
from tests.simulator.environment.process import SimulatedProcess


class SharedProcess:
    """The process that roles share while it lives."""

    def __init__(self) -> None:
        self._process: SimulatedProcess | None = None

    def process(self, own: SimulatedProcess) -> SimulatedProcess:
        """The shared process, or `own` if there is none."""
        if self._process is None or self._process.network.is_dead:
            self._process = own
        return self._process


class SharedProcessRole:
    """A role in a shared process."""

    is_reader = False

    def __init__(self, role: Role, shared: SharedProcess) -> None:
        self.name = role.name
        self.is_always_restarted = role.is_always_restarted
        self._role = role
        self._shared = shared

    def live(self, process: SimulatedProcess) -> None:
        """See Role.live."""
        self._role.live(self._shared.process(process))


def in_one_process(*roles: Role) -> Sequence[Role]:
    """Put these roles into one process."""
    shared = SharedProcess()
    return [SharedProcessRole(role, shared) for role in roles]
