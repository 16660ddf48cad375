"""A query that begins at the end of topics with old records, and loses its checkpoint.

Its group has a position in every partition from the beginning, even where it had nothing to read
yet: after a loss the query continues from the committed offsets, and copies no older record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from spark_plugin.option_values import OffsetPoint, OffsetSpec
from spark_plugin.options import ReaderOptions, WriterOptions
from spark_plugin.source.offsets import from_json
from spark_plugin.source.stream_reader import TxlogStreamReader
from tests.simulation.micro_batches import COLUMNS, ROOT, Driver, Place, Run
from tests.simulator.environment.process import SimulatedProcess


@dataclass
class LatePlace(Place):
    """A place whose checkpoint is lost only after its first batch was committed: before that a new
    start is at the end."""

    has_begun: bool = False


class LateDriver(Driver):
    """Runs of such a query. Spark runs its first batch even if there is nothing new.

    It has its own transactional id, so that it keeps the group when its checkpoint is lost.
    """

    batches_max: ClassVar[int] = 2

    def __init__(self, name: str, place: LatePlace) -> None:
        super().__init__(name, place, "g", ["ta"], ["tx", "ty"])
        self._late_place = place

    def live(self, process: SimulatedProcess) -> None:
        """See Role.live."""
        process.sleep(1_000, 60_000)
        super().live(process)

    def _something_happens(self, process: SimulatedProcess) -> None:
        if self._late_place.has_begun and process.random.random() < 0.3 * self._place.trouble:
            self._place.lose()

    def _reader(self, process: SimulatedProcess) -> TxlogStreamReader:
        point = OffsetPoint.COMMITTED if self._place.losses else OffsetPoint.LATEST
        options = ReaderOptions(
            ROOT,
            subscribe=self._sources,
            group_id=self._group,
            starting_offsets=OffsetSpec(point),
        )
        reader = TxlogStreamReader(options, COLUMNS)
        reader._connection = process.connection
        return reader

    def _is_planned(self, process: SimulatedProcess, run: Run) -> bool:
        if run.batch > 0:
            return super()._is_planned(process, run)
        start = self._first(run.reader)
        run.end = None
        end: Any = self._latest(process, run.reader, start)
        run.folder.write_offset(0, end, process.runtime.clock.wall_ms())
        run.end = end
        if run.folder.query_id.endswith("-0"):
            begun = from_json(end, "plan").ranges
            starts = [[*where, moved.start] for where, moved in begun.items()]
            process.note("began", group=self._group, starts=starts)
        return True

    def _commit(self, process: SimulatedProcess, run: Run) -> None:
        super()._commit(process, run)
        self._late_place.has_begun = True

    def _options(self, process: SimulatedProcess) -> WriterOptions:
        return WriterOptions(ROOT, transactional_id="copier")
