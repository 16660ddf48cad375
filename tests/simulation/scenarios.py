"""The scenarios of the product's core, and that of the Spark plugin's pure parts."""

import random
from collections.abc import Mapping, Sequence

from spark_plugin.option_values import OffsetPoint, OffsetSpec
from spark_plugin.options import ReaderOptions
from spark_plugin.sink import batch_commit
from spark_plugin.source.stream_reader import TxlogStreamReader
from tests.simulation.micro_batch_scenarios import OF_MICRO_BATCHES
from tests.simulation.micro_batches import (
    COLUMNS,
    ROOT,
    Driver,
    Folder,
    ForeignDriver,
    Place,
    trouble_drawn,
)
from tests.simulation.slow_queries import OF_SLOW_QUERIES
from tests.simulator.actors.bank_transfers import ConsistentCutReader
from tests.simulator.actors.maintenance_actors import (
    WIDENING_DUTIES,
    MaintenanceActor,
    MaintenanceJob,
)
from tests.simulator.actors.producers import PlainProducer, TransactionalProducer
from tests.simulator.actors.readers import Reader
from tests.simulator.actors.role import Role
from tests.simulator.environment.process import SimulatedProcess
from tests.simulator.environment.world import Scenario
from tests.simulator.scenarios import LARGE, maintenance_roles
from tests.simulator.scenarios import SCENARIOS as CORE
from txlog.errors import CheckpointConflict, OffsetOutOfRange

_TOPICS = {"ta": 2, "tx": 1, "ty": 2}


def _queries(choices: random.Random) -> Sequence[Role]:
    """Two drivers on one checkpoint, and sometimes a query that takes their group over."""
    batch_commit._sessions.clear()  # The cache of the previous world's process.
    place = Place("query", Folder("query-0"), trouble=trouble_drawn(choices))
    other = Place("other", Folder("other-0"), losses=1)
    roles: list[Role] = [
        TransactionalProducer("p", "producer", ("ta",)),
        PlainProducer("plain", ("ta",)),
        Driver("d1", place, "g", ["ta"], ["tx", "ty"]),
        Driver("d2", place, "g", ["ta"], ["tx", "ty"]),
        ConsistentCutReader("auditor", ("tx", "ty")),
        Reader("committed", tuple(_TOPICS), "read_committed"),
        *maintenance_roles(choices, tuple(_TOPICS)),
    ]
    if choices.random() < 0.3:
        roles.append(Driver("d3", other, "g", ["ta"], ["tx", "ty"]))
    return roles


_COUNTED = {"tx": 1, "ty": 2}


def _numbers(choices: random.Random) -> Sequence[Role]:
    """A source of numbers, two drivers on it, and a checkpoint that is sometimes restored."""
    batch_commit._sessions.clear()
    place = Place("query", Folder("query-0"), trouble=trouble_drawn(choices))
    return [
        ForeignDriver("d1", place, "g", [], ["tx", "ty"]),
        ForeignDriver("d2", place, "g", [], ["tx", "ty"]),
        ConsistentCutReader("auditor", ("tx", "ty")),
        Reader("committed", tuple(_COUNTED), "read_committed"),
        *maintenance_roles(choices, tuple(_COUNTED)),
    ]


_AGING = {"da": 2, "tx": 1, "dy": 2}


class AgingDriver(Driver):
    """Its source deletes old records, read or not. A run either fails then or continues without
    them (`failOnDataLoss`); the operator changes that option after the error."""

    def __init__(self, name: str, place: Place) -> None:
        super().__init__(name, place, "g", ["da"], ["tx", "dy"])
        self._fails = True

    def _reader(self, process: SimulatedProcess) -> TxlogStreamReader:
        options = ReaderOptions(
            ROOT,
            subscribe=self._sources,
            group_id=self._group,
            starting_offsets=OffsetSpec(OffsetPoint.COMMITTED),
            fail_on_data_loss=self._fails,
        )
        reader = TxlogStreamReader(options, COLUMNS)
        reader._connection = process.connection
        self._fails = process.random.random() < 0.5
        return reader

    def _run(self, process: SimulatedProcess) -> None:
        try:
            super()._run(process)
        except OffsetOutOfRange as error:
            process.note("maintained", tasks=["data loss told"])
            raise CheckpointConflict(f"The operator reads: {error}") from error


def _aging(choices: random.Random) -> Sequence[Role]:
    """Two drivers on a checkpoint, whose source and one of whose sinks delete old records."""
    batch_commit._sessions.clear()
    place = Place("query", Folder("query-0"), trouble=trouble_drawn(choices))
    topics = tuple(_AGING)
    return [
        TransactionalProducer("p", "producer", ("da",)),
        PlainProducer("plain", ("da",)),
        AgingDriver("d1", place),
        AgingDriver("d2", place),
        MaintenanceJob("keeper"),
        MaintenanceActor("deleter", ("da",), ("delete_records", *WIDENING_DUTIES)),
        Reader("committed", topics, "read_committed"),
    ]


SCENARIOS: Mapping[str, Scenario] = {
    **CORE,
    **OF_MICRO_BATCHES,
    **OF_SLOW_QUERIES,
    "aging": Scenario("aging", _AGING, _aging, requests_max=500),
    "numbers": Scenario("numbers", _COUNTED, _numbers, requests_max=340),
    "queries": Scenario("queries", _TOPICS, _queries, requests_max=240),
    "large-queries": Scenario("large-queries", _TOPICS, _queries, 240, entry_batches_max=LARGE),
}
