"""One world: the history of one scenario and one seed.

It puts the parts together: the service with a log, the roles with their processes, faults until the
work is done, then rest, and a reader of the final state. It must not check anything: see
`history_checks.py` and `invariants.py`.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import pyarrow as pa

from tests.simulator.actors.maintenance_actors import create_again
from tests.simulator.actors.role import TIMEOUT_MS, Role
from tests.simulator.environment.faults import (
    LOST_MS_MAX,
    Faults,
    calmed,
    drawn,
    length_drawn,
)
from tests.simulator.environment.final_state import note_final_state
from tests.simulator.environment.logged_errors import logged_errors_checked
from tests.simulator.environment.network import Network, ProcessDied
from tests.simulator.environment.process import EPOCH_MS, SimulatedProcess
from tests.simulator.environment.scheduler import TURNS_MAX, Scheduler
from tests.simulator.environment.service import SimulatedS3
from tests.simulator.environment.world_state import WorldState
from tests.simulator.topics import (
    ADDED,
    config_of,
    is_mortal,
    is_typed,
    schema_of,
)
from txlog.catalog.cluster import open_cluster
from txlog.catalog.cluster_file import ClusterFile, encode_cluster_file, first_entries
from txlog.client.admin import Admin
from txlog.clock import Runtime
from txlog.engine.append.appender import ENTRY_BATCHES_MAX
from txlog.engine.connection import Connection
from txlog.errors import UnknownPartition, UnknownTopic
from txlog.fan_out import SerialFanOut
from txlog.journal.entry import FORMAT_VERSION
from txlog.layout import CLUSTER_FILE
from txlog.settings import LogSettings, ProcessSettings
from txlog.storage.memory import MemoryStore
from txlog.testing.clock import ManualClock, SeededEntropy

REST_MS = 4 * TIMEOUT_MS
"""Time that a world rests after its last work, longer than every timeout."""

PROBE_POLLS_MAX = 6
"""Polls for which a reader of a pruned journal may lag."""

LIVES_MAX = 6
"""Lives of a role. Roles that are always restarted have more."""

LOG_ID = "10" * 16
"""Settings of the log that each world begins with."""

NEVER_MS = 1 << 60

DATES_APART_MS = 4_000
"""Difference of the dates that the servers of one store give."""

BOUNDARY_TRUST_MS = 5_000
BOUNDARY_GRACE_MS = BOUNDARY_TRUST_MS + LOST_MS_MAX + DATES_APART_MS + 1_000
"""The grace of the log: as long as faults of these worlds require, and no longer (rule R15)."""

LIVES_AMONG_MORTALS_MAX = 50
"""The same, where a deleted topic ends lives."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """The roles and topics of a kind of world."""

    name: str
    topics: Mapping[str, int]
    """Name -> partitions."""
    roles: Callable[[random.Random], Sequence[Role]]
    requests_max: int = 170
    """Number of requests until faults stop and no new work is begun. Some seeds have several times
    as many."""
    begin: Callable[[Connection], None] | None = None
    """Prepares the log before the history, if set."""
    faults: Callable[[random.Random], Faults] = drawn
    """Draws the faults of a world."""
    log_presence_interval_ms: int = NEVER_MS
    """How often processes check whether their log still exists. Logs are deleted in some worlds
    only."""
    boundary_trust_ms: int = 0
    """How long processes trust a boundary check; entries below a boundary are then deleted after
    BOUNDARY_GRACE_MS. By default they check each time."""
    entry_batches_max: Sequence[int] = (ENTRY_BATCHES_MAX,)
    """Of how many stored batches an entry has the names, drawn by seed: a larger transaction has
    manifests."""


INLINE_BYTES = (0, 900, 1 << 16)
"""`entry.records.max.bytes`, drawn by seed: no records in entries, some, and nearly all."""


@dataclass(slots=True)
class World:
    """The world of one seed. `run` may be called once."""

    scenario: Scenario
    seed: int
    faults: Faults | None = None
    """Faults in place of those that the seed draws."""
    state: WorldState = field(init=False)
    roles: Sequence[Role] = field(init=False)
    length: int = field(init=False)
    """How many times as long as usual the history is."""
    _working: int = field(init=False, default=0)
    _reading: int = field(init=False, default=0)
    _limits: ProcessSettings = field(init=False, default_factory=ProcessSettings)
    _named_max: int = field(init=False, default=ENTRY_BATCHES_MAX)

    def __post_init__(self) -> None:
        choices = random.Random(f"{self.scenario.name}/{self.seed}")
        scheduler = Scheduler(choices)
        inline = random.Random(f"{self.scenario.name}/{self.seed}/inline")
        settings = LogSettings(
            entry_records_max_bytes=inline.choice(INLINE_BYTES),
            transaction_state_log_num_partitions=choices.choice((1, 2)),
            journal_snapshot_entries=choices.choice((2, 3, 4, 8)),
            boundary_trust_ms=self.scenario.boundary_trust_ms,
            boundary_grace_ms=BOUNDARY_GRACE_MS if self.scenario.boundary_trust_ms else 0,
        )
        large = random.Random(f"{self.scenario.name}/{self.seed}/large")
        self._named_max = large.choice(self.scenario.entry_batches_max)
        self._limits = ProcessSettings(
            publish_attempts_max=30,
            boundary_probe_polls=choices.choice((1, 2, PROBE_POLLS_MAX)),
            log_presence_interval_ms=self.scenario.log_presence_interval_ms,
            catch_up_window_max=4,
            append_attempts_max=3,
            finish_attempts_max=6,
        )
        shape = random.Random(f"{self.scenario.name}/{self.seed}/shape")
        self.length = length_drawn(shape)
        topics = tuple(self.scenario.topics.items())
        objects = _new_log(settings, topics, self.scenario.begin, shape.random() < 0.3)
        dates = random.Random(f"{self.scenario.name}/{self.seed}/dates")
        apart_ms = DATES_APART_MS if self.scenario.boundary_trust_ms else 0
        clock = _ServiceClock(scheduler, dates, apart_ms)
        runtime = Runtime(clock, SeededEntropy(), SerialFanOut())
        service = SimulatedS3(runtime, objects)
        scheduler.turns_max = TURNS_MAX * self.length
        drawn_faults = calmed(self.scenario.faults(choices), self.length, shape)
        faults = drawn_faults if self.faults is None else self.faults
        self.state = WorldState(
            scheduler, service, faults, self.scenario.requests_max * self.length
        )
        self.roles = self.scenario.roles(choices)

    def run(self) -> None:
        """Run the whole history."""
        scheduler = self.state.scheduler
        for role in self.roles:
            if role.is_reader:
                self._reading += 1
            else:
                self._working += 1
            scheduler.spawn(role.name, self._lives(role), scheduler.random.uniform(0, 100))
        scheduler.spawn("rest", self._rest)
        scheduler.on_failure = lambda who, text: self.state.note(who, "failure", text=text)
        with logged_errors_checked(self.state):
            scheduler.run()
        if scheduler.was_endless:
            self.state.note("world", "failure", text="the history does not come to an end")

    def process(self, name: str) -> SimulatedProcess:
        """A new process."""
        seed = f"{self.scenario.name}/{self.seed}/{name}"
        return SimulatedProcess(Network(self.state, name), seed, self._limits, self._named_max)

    def fingerprint(self) -> str:
        """SHA-256 of all events and all stored objects: equal for equal seeds."""
        digest = hashlib.sha256()
        for line in self.state.history.lines():
            digest.update(line.encode())
        digest.update(json.dumps(self.state.trace).encode())
        store = self.state.service.store
        for found in store.list_after(""):
            digest.update(found.path.encode() + (store.get(found.path) or b""))
        return digest.hexdigest()

    def _lives(self, role: Role) -> Callable[[], None]:
        def live() -> None:
            life = 0
            try:
                while not self._is_over(role, self.process(f"{role.name}#{life}")):
                    life += 1
                    if life >= self._lives_max and not role.is_always_restarted:
                        return
                    self.state.scheduler.sleep(self.state.log_uniform(1, 60_000))
            finally:
                if role.is_reader:
                    self._reading -= 1
                else:
                    self._working -= 1

        return live

    def _is_over(self, role: Role, process: SimulatedProcess) -> bool:
        """Whether that life ended properly."""
        try:
            role.live(process)
        except ProcessDied:
            process.note("died")
            return False
        except (UnknownTopic, UnknownPartition) as error:
            if not any(map(is_mortal, self.scenario.topics)):
                raise
            process.note("ended", text=error.message)
            return False
        return True

    @property
    def _lives_max(self) -> int:
        is_mortal_world = any(map(is_mortal, self.scenario.topics))
        lives = LIVES_AMONG_MORTALS_MAX if is_mortal_world else LIVES_MAX
        return lives * self.length

    # After the work is done.

    def _rest(self) -> None:
        scheduler = self.state.scheduler
        while self._working or self.state.under_way or self.state.is_busy:
            scheduler.sleep(1_000)
        scheduler.sleep(REST_MS)
        self._maintain()
        self.state.is_draining = True
        while self._reading:
            scheduler.sleep(1_000)
        # Its name seeds its random numbers: with another name each seed gives another history.
        note_final_state(self.process("judge"), self.scenario.topics)

    def _maintain(self) -> None:
        """Run maintenance as a cron job does. Twice, because a transaction that a clock ahead of
        time has begun is not late the first time."""
        process = self.process("maintenance")
        for _ in range(2):
            for coordinator in process.connection.coordinators():
                coordinator.maintain()
            process.runtime.clock.sleep_ms(REST_MS)
        for topic in filter(is_mortal, self.scenario.topics):
            create_again(Admin(process.connection), topic)


class _ServiceClock:
    """Dates the stored objects: each server of the store has its own clock."""

    def __init__(self, scheduler: Scheduler, choices: random.Random, apart_ms: float) -> None:
        self._scheduler = scheduler
        self._random = choices
        self._off_ms = [choices.uniform(-apart_ms / 2, apart_ms / 2) for _ in range(3)]

    def wall_ms(self) -> int:
        """See Clock.wall_ms."""
        return int(EPOCH_MS + self._scheduler.now_ms + self._random.choice(self._off_ms))

    def monotonic_ms(self) -> float:
        """See Clock.monotonic_ms."""
        return self._scheduler.now_ms

    def boot_ms(self) -> float:
        """See Clock.boot_ms."""
        return self._scheduler.now_ms

    def sleep_ms(self, duration_ms: float) -> None:
        """A service does not sleep."""


def forget_logs() -> None:
    """Create all logs again: a log that was created with a planted bug must not be reused."""
    _new_log.cache_clear()


@cache
def _new_log(
    settings: LogSettings,
    topics: tuple[tuple[str, int], ...],
    begin: Callable[[Connection], None] | None,
    is_evolved: bool,
) -> Mapping[str, bytes]:
    """The objects of a log with these topics. Created once: every world begins with a copy."""
    runtime = Runtime(ManualClock(EPOCH_MS), SeededEntropy("log"), SerialFanOut())
    store = MemoryStore(runtime)
    file = ClusterFile(FORMAT_VERSION, LOG_ID, 0, settings, "{}")
    for path, data in first_entries(file, runtime).items():
        store.create(path, data)
    store.create(CLUSTER_FILE, encode_cluster_file(file))
    admin = Admin(Connection(open_cluster(store, runtime, writer="start")))
    for name, partitions in topics:
        admin.create_topic(name, partitions, schema_of(name), config_of(name))
        if is_evolved and is_typed(name) and not is_mortal(name):
            admin.evolve_schema(name, schema_of(name).append(pa.field(ADDED[0], pa.int64())))
    if begin is not None:
        begin(admin.connection)
    return {found.path: store.get(found.path) or b"" for found in store.list_after("")}
