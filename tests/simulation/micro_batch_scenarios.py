"""Worlds of the Spark plugin's rules: queries that unite sources, that are sometimes configured
wrongly, that compete for one group, or that write several times in a `foreachBatch`.

`micro_batches.py` takes Spark's part. An actor with a mistake expects an error, and corrects the
mistake; the checks of histories find wrong results.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from pyspark.sql.streaming.datasource import ReadMaxRows

from spark_plugin.checkpoints.checkpoint import Checkpoint, open_checkpoint
from spark_plugin.checkpoints.offset_log import parse
from spark_plugin.option_values import OffsetPoint, OffsetSpec
from spark_plugin.options import ReaderOptions, WriterOptions
from spark_plugin.sink import batch_commit
from spark_plugin.sink.batch_commit import BatchCommitter
from spark_plugin.sink.batch_writer import ForeachCommitter
from spark_plugin.sink.staging import TaskMessage, batch_identity
from spark_plugin.source.stream_reader import TxlogStreamReader
from tests.simulation.late_queries import LateDriver, LatePlace
from tests.simulation.micro_batches import (
    COLUMNS,
    ROOT,
    Driver,
    Folder,
    ForeignDriver,
    Json,
    Place,
    Run,
    Task,
    trouble_drawn,
)
from tests.simulation.rivals import Ledger, RivalDriver
from tests.simulator.actors.bank_transfers import ConsistentCutReader
from tests.simulator.actors.producers import PlainProducer, TransactionalProducer
from tests.simulator.actors.readers import Reader
from tests.simulator.actors.role import Role
from tests.simulator.environment.process import SimulatedProcess
from tests.simulator.environment.world import Scenario
from tests.simulator.scenarios import maintenance_roles
from txlog.errors import CheckpointConflict, InvalidOption

# A query of two sources.


class Source(NamedTuple):
    """A source, and the sink of its records."""

    topic: str
    group: str
    sink: str


class UnionFolder(Folder):
    """A checkpoint with a line for each source."""

    def offset(self, batch: int) -> Any:
        """See Folder.offset: the lines, in their order."""
        data = self.files.get(f"offsets/{batch}")
        if data is None:
            return None
        parse(batch, data, "offsets")
        return [json.loads(line) for line in data.decode().splitlines()[2:]]

    def write_offset(self, batch: int, offset: Any, now_ms: int) -> None:
        """See Folder.write_offset."""
        metadata = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": now_ms})
        lines = "\n".join(json.dumps(line) for line in offset)
        self._write(f"offsets/{batch}", f"v1\n{metadata}\n{lines}")


class UnionPlace(Place):
    """See Place."""

    def lose(self) -> None:
        """See Place.lose."""
        self.losses += 1
        self.folder = UnionFolder(f"{self.name}-{self.losses}")


class UnionReader:
    """The readers of all sources, called one after the other, as by Spark."""

    def __init__(self, sources: Sequence[Source], readers: Sequence[TxlogStreamReader]) -> None:
        self.sources = sources
        self.readers = readers


class UnionDriver(Driver):
    """Runs of a query that unites sources, each with a sink of its own.

    Sometimes a run has them in another order, which Spark does not notice and the product refuses.
    Sometimes a batch repeats all lines of the previous one: Spark runs it for the watermark.
    """

    def __init__(self, name: str, place: Place, sources: Sequence[Source]) -> None:
        super().__init__(name, place, "", (), ())
        self._united = tuple(sources)

    def live(self, process: SimulatedProcess) -> None:
        """See Role.live."""
        for topic, group, sink in self._united:
            process.note("copies", group=group, sources=[topic], sinks=[sink])
        super().live(process)

    def _something_happens(self, process: SimulatedProcess) -> None:
        """Sometimes its checkpoint is lost; it is never restored."""
        if process.random.random() < 0.06 * self._place.trouble:
            self._place.lose()

    def _reader(self, process: SimulatedProcess) -> Any:
        is_swapped = process.random.random() < 0.15
        sources = self._united[::-1] if is_swapped else self._united
        readers = []
        for topic, group, _ in sources:
            options = ReaderOptions(
                ROOT,
                subscribe=(topic,),
                group_id=group,
                starting_offsets=OffsetSpec(OffsetPoint.COMMITTED),
            )
            reader = TxlogStreamReader(options, COLUMNS)
            reader._connection = process.connection
            readers.append(reader)
        return UnionReader(sources, readers)

    def _is_planned(self, process: SimulatedProcess, run: Run) -> bool:
        if run.start is not None and process.random.random() < 0.25:
            run.folder.write_offset(run.batch, run.start, process.runtime.clock.wall_ms())
            run.end = run.start
            return True
        return super()._is_planned(process, run)

    def _first(self, reader: Any) -> Any:
        return [one.initialOffset() for one in reader.readers]

    def _latest(self, process: SimulatedProcess, reader: Any, start: Any) -> Any:
        limit = ReadMaxRows(process.random.choice((1, 3, 100)))
        pairs = zip(reader.readers, start, strict=True)
        return [one.latestOffset(line, limit) for one, line in pairs]

    def _tasks(self, process: SimulatedProcess, reader: Any, start: Any, end: Any) -> list[Task]:
        if start == end:
            return [Task([], ())]  # Spark calls no source for an empty range.
        return [
            Task(self._texts(process, task), (source.sink,))
            for source, one, *lines in zip(reader.sources, reader.readers, start, end, strict=True)
            for task in one.partitions(*lines)
        ]

    def _moved(self, end: Any) -> list[tuple[str, list[list[Any]]]]:
        return []

    def _is_mistaken(self, run: Run) -> bool:
        """See Driver._is_mistaken: its sources are in another order."""
        reader: Any = run.reader
        return bool(reader.sources != self._united)

    def _is_wrong(self, error: CheckpointConflict) -> bool:
        """A query that alone commits its groups continues after its own batches."""
        says = error.facts.get("mark_says")
        return super()._is_wrong(error) or (says in ("NEXT", "SAME") and not self._place.losses)


class SelfUnionDriver(UnionDriver):
    """A union of a topic with itself, in one group.

    Records that come between the two reads of the source make the lines differ. The product refuses
    such a batch, and an operator begins a new query.
    """

    def _reader(self, process: SimulatedProcess) -> Any:
        sources = self._united
        options = ReaderOptions(
            ROOT,
            subscribe=(sources[0].topic,),
            group_id=sources[0].group,
            starting_offsets=OffsetSpec(OffsetPoint.COMMITTED),
        )
        readers = [TxlogStreamReader(options, COLUMNS) for _ in sources]
        for reader in readers:
            reader._connection = process.connection
        return UnionReader(sources, readers)

    def _commit(self, process: SimulatedProcess, run: Run) -> None:
        try:
            super()._commit(process, run)
        except CheckpointConflict:
            if run.folder is self._place.folder:
                self._place.lose()
            raise

    def _is_mistaken(self, run: Run) -> bool:
        """See Driver._is_mistaken: its lines differ."""
        end: Any = run.end
        return bool(end[0] != end[1])

    def _is_wrong(self, error: CheckpointConflict) -> bool:
        return False


# A query that is configured wrongly now and then.


class HastyDriver(Driver):
    """Its options change between runs: startingOffsets, which a query that has begun ignores;
    group.id or the sink's checkpointLocation is missing, or is that of another query."""

    def __init__(self, name: str, place: Place, other: Place, group: str, sink: str) -> None:
        super().__init__(name, place, group, ["ta"], [sink])
        self._other = other
        self._is_elsewhere = False

    def _something_happens(self, process: SimulatedProcess) -> None:
        if process.random.random() < 0.08 * self._place.trouble:
            self._place.lose()

    def _reader(self, process: SimulatedProcess) -> TxlogStreamReader:
        has_begun = self._place.folder.offset(0) is not None
        point = OffsetPoint.LATEST if has_begun else OffsetPoint.COMMITTED
        group = None if process.random.random() < 0.12 else self._group
        options = ReaderOptions(
            ROOT, subscribe=self._sources, group_id=group, starting_offsets=OffsetSpec(point)
        )
        reader = TxlogStreamReader(options, COLUMNS)
        reader._connection = process.connection
        return reader

    def _seen(self, process: SimulatedProcess, run: Run) -> Checkpoint | None:
        chance = process.random.random()
        if chance < 0.06:
            return open_checkpoint(None, process.runtime)
        self._is_elsewhere = chance < 0.16
        return (self._other if self._is_elsewhere else self._place).folder.checkpoint

    def _is_mistaken(self, run: Run) -> bool:
        """See Driver._is_mistaken: the batch is in another checkpoint, or was planned without a
        group."""
        return self._is_elsewhere or (run.end is not None and run.end["group"] is None)

    def _commit(self, process: SimulatedProcess, run: Run) -> None:
        try:
            super()._commit(process, run)
        except InvalidOption as error:
            if run.folder is self._place.folder and error.facts.get("option") == "group.id":
                self._place.lose()  # A batch planned without a group is never committed.
            raise CheckpointConflict(f"The operator reads: {error}") from error

    def _moved(self, end: Json) -> list[tuple[str, list[list[Any]]]]:
        return [] if end["group"] is None else super()._moved(end)

    def _is_wrong(self, error: CheckpointConflict) -> bool:
        return False


# Several writes of one foreachBatch.


class ForeachDriver(ForeignDriver):
    """A query whose `foreachBatch` writes its numbers to each sink, with a label each, and
    sometimes to one more topic. A hasty one sometimes forgets a label, and adds it after the error.

    A planned batch is never lost, as the second replay test cannot tell it from another.
    """

    def __init__(self, name: str, place: Place, is_hasty: bool) -> None:
        super().__init__(name, place, "g", [], ["tx", "ty"])
        self._is_hasty = is_hasty
        self._label = ""
        self._tried: set[int] = set()

    def _something_happens(self, process: SimulatedProcess) -> None:
        """Do nothing, unless the process dies."""

    def _seen(self, process: SimulatedProcess, run: Run) -> Checkpoint | None:
        return None  # checkpointLocation is not an option of the writes.

    def _commit(self, process: SimulatedProcess, run: Run) -> None:
        every = tuple(process.random.sample(self._sinks, len(self._sinks)))
        extra = ("tz",) if process.random.random() < 0.4 else ()
        is_new = run.batch not in self._tried
        is_forgotten = self._is_hasty and is_new and process.random.random() < 0.3
        self._tried.add(run.batch)
        try:
            for sink in (*every, *extra):
                self._sinks, self._label = (sink,), every[0] if is_forgotten else sink
                super()._commit(process, run)
                process.sleep(1, 3_000)
        except InvalidOption as error:
            if not is_forgotten:
                raise
            raise CheckpointConflict(f"The operator reads: {error}") from error
        finally:
            self._sinks = ("tx", "ty")

    def _options(self, process: SimulatedProcess) -> WriterOptions:
        return replace(super()._options(process), label=self._label)

    def _committer(
        self,
        process: SimulatedProcess,
        run: Run,
        options: WriterOptions,
        checkpoint: Checkpoint | None,
        messages: Sequence[TaskMessage],
    ) -> BatchCommitter:
        identity = batch_identity(messages, run.batch)
        return ForeachCommitter(process.connection, options, checkpoint, identity, messages)

    def _is_wrong(self, error: CheckpointConflict) -> bool:
        """Whether this error is wrong: two runs on one checkpoint may only overtake each other."""
        return error.facts.get("mark_says") != "OLDER"


# The scenarios.

_TOPICS = {"ta": 2, "tb": 1, "tx": 1, "ty": 2}
_ONE = {"ta": 2, "tx": 1, "ty": 2}
_LATE = {"ta": 3, "tx": 1, "ty": 2}
_RIVALS = {"ta": 2, "tb": 1, "tx": 1, "ty": 2, "tz": 1}
_WRITTEN = {"tx": 1, "ty": 2, "tz": 1}


def _producers(*topics: str) -> list[Role]:
    producers: list[Role] = [TransactionalProducer("p", "producer", topics)]
    return [*producers, PlainProducer("plain", topics[:1])]


def _readers(*topics: str) -> list[Role]:
    return [ConsistentCutReader("auditor", topics), Reader("committed", topics, "read_committed")]


def _unions(choices: random.Random) -> Sequence[Role]:
    """Two drivers on the checkpoint of a union of two topics."""
    batch_commit._sessions.clear()  # The cache of the previous world's process.
    place = UnionPlace("query", UnionFolder("query-0"), trouble=trouble_drawn(choices))
    sources = [Source("ta", "ga", "tx"), Source("tb", "gb", "ty")]
    drivers: list[Role] = [UnionDriver(f"d{n}", place, sources) for n in (1, 2)]
    return [
        *_producers("ta", "tb"),
        *drivers,
        *_readers("tx", "ty"),
        *maintenance_roles(choices, tuple(_TOPICS), 0.3),
    ]


def _late(choices: random.Random) -> Sequence[Role]:
    """Two drivers on one checkpoint of a query that begins at the end of its topics."""
    batch_commit._sessions.clear()
    place = LatePlace("query", Folder("query-0"), trouble=trouble_drawn(choices))
    drivers: list[Role] = [LateDriver(f"d{n}", place) for n in (1, 2)]
    return [
        *_producers("ta"),
        *drivers,
        *_readers("tx", "ty"),
        *maintenance_roles(choices, tuple(_LATE), 0.2),
    ]


def _self_unions(choices: random.Random) -> Sequence[Role]:
    """Two drivers on the checkpoint of a union of a topic with itself."""
    batch_commit._sessions.clear()
    place = UnionPlace("query", UnionFolder("query-0"), trouble=trouble_drawn(choices))
    sources = [Source("ta", "g", "tx"), Source("ta", "g", "ty")]
    drivers: list[Role] = [SelfUnionDriver(f"d{n}", place, sources) for n in (1, 2)]
    return [
        *_producers("ta"),
        *drivers,
        *_readers("tx", "ty"),
        *maintenance_roles(choices, tuple(_ONE), 0.3),
    ]


def _hasty(choices: random.Random) -> Sequence[Role]:
    """Two queries, each with its own group, and two operators who make mistakes in their
    options."""
    batch_commit._sessions.clear()
    one = Place("one", Folder("one-0"), losses=1, trouble=trouble_drawn(choices))
    two = Place("two", Folder("two-0"), losses=1, trouble=trouble_drawn(choices))
    drivers: list[Role] = [
        HastyDriver("d1", one, two, "g", "tx"),
        HastyDriver("d2", two, one, "h", "ty"),
    ]
    return [
        *_producers("ta"),
        *drivers,
        *_readers("tx", "ty"),
        *maintenance_roles(choices, tuple(_ONE), 0.3),
    ]


def _rivals(choices: random.Random) -> Sequence[Role]:
    """Two runs on one checkpoint, and another query of their group, on their topic or another
    one."""
    batch_commit._sessions.clear()
    ledger = Ledger()
    place = Place("query", Folder("query-0"), trouble=trouble_drawn(choices))
    other = Place("other", Folder("other-0"))
    may_take_over = choices.random() < 0.5
    copies = ("ta", ("tx", "ty"))
    of_other = choices.choice((copies, ("tb", ("tz",))))
    drivers: list[Role] = [
        RivalDriver("d1", place, copies, ledger),
        RivalDriver("d2", place, copies, ledger),
        RivalDriver("d3", other, of_other, ledger, may_take_over),
    ]
    return [
        PlainProducer("plain", ("ta", "tb")),
        *drivers,
        ConsistentCutReader("auditor", ("tx", "ty", "tz")),
        *maintenance_roles(choices, tuple(_RIVALS), 0.2),
    ]


def _foreach(choices: random.Random) -> Sequence[Role]:
    """A driver of a query that writes several times a batch; two drivers, or a hasty one."""
    batch_commit._sessions.clear()
    place = Place("query", Folder("query-0"))
    is_hasty = choices.random() < 0.5
    names = ("d1",) if is_hasty else ("d1", "d2")
    drivers: list[Role] = [ForeachDriver(name, place, is_hasty) for name in names]
    return [*drivers, *_readers("tx", "ty"), *maintenance_roles(choices, tuple(_WRITTEN), 0.3)]


OF_MICRO_BATCHES: Mapping[str, Scenario] = {
    "foreach": Scenario("foreach", _WRITTEN, _foreach, requests_max=340),
    "hasty": Scenario("hasty", _ONE, _hasty, requests_max=300),
    "latest": Scenario("latest", _LATE, _late, requests_max=300),
    "rivals": Scenario("rivals", _RIVALS, _rivals, requests_max=700),
    "self-unions": Scenario("self-unions", _ONE, _self_unions, requests_max=300),
    "unions": Scenario("unions", _TOPICS, _unions, requests_max=340),
}
