"""SIGKILL to a driver whose queries stand at every step of the commit: nothing lost, nothing twice.

One driver runs all the queries. Each is stopped at a step of its own, in the middle of a batch; then
every process of the driver is killed, and a second driver goes on from the checkpoints. A third one
is started beside the second, on one of its checkpoints.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pytest

from spark_plugin.batch_reader import TxlogBatchReader
from spark_plugin.datasource import TxlogDataSource
from tests.spark.drill import Drill, Driver, Job, until
from tests.spark.pausing_source import AFTER, BEFORE, COMMIT_RETURNS, Place
from tests.spark.small_log import small_log
from txlog.settings import LogSettings

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

COUNT = 20
NUMBERS = pa.schema([("n", pa.int64())])
COUNTS = pa.schema([("n", pa.int64()), ("count", pa.int64())])
MANY_JOURNALS = LogSettings(
    transaction_state_log_num_partitions=512, offsets_topic_num_partitions=512
)
"""So that no two queries share one: a process that stands still holds the journal it writes to."""

OFFSETS, TRANSACTIONS, TOPICS = "__consumer_offsets/", "transactions/", "topics/"


@dataclass(frozen=True)
class Stop:
    """Where a query is stopped, and what the log shows of its batch while it stands there."""

    name: str
    place: Place
    topics_written: int = 0
    """Of the two topics, those that show its records."""
    has_moved: bool = False
    """Whether the group's committed offsets include it."""
    has_pend: bool = True
    open: str | None = None
    """State of its transaction in the coordinator."""

    @property
    def job(self) -> Job:
        """The query."""
        return Job(self.name.replace(" ", "-"))

    @property
    def own_place(self) -> Place:
        """The place, for this query only: entries name its group, its id or its topic."""
        names = () if self.place.path == TOPICS else (f"{self.job.name}",)
        path = f"{TOPICS}{self.job.name}." if self.place.path == TOPICS else self.place.path
        return Place(self.place.moment, path, (*self.place.words, *names), self.place.number)
