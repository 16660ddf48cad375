"""A query's Spark checkpoint, as its sink reads it: the query's id and each batch's offsets.

It guards R1 (a batch is the bytes of its `offsets/<batch>`, compared by digest) and R24 (the id in
the checkpoint is the query's). `offset_log.py` interprets the files. No decision depends on a
listing: the newest batch is compared with the one that Spark passes to `commit` (I14).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from spark_plugin.checkpoints.checkpoint_files import (
    LOCAL_FILE_SYSTEM,
    CheckpointFiles,
    LocalFiles,
    locate,
    open_files,
)
from spark_plugin.checkpoints.offset_log import BatchRange, OffsetFile, batch_range, parse
from spark_plugin.source.offsets import NEW_CHECKPOINT
from txlog.clock import FanOut, Runtime, SerialFanOut, begun
from txlog.errors import CheckpointConflict, CorruptData, InvalidOption

OFFSETS = "offsets"
COMMITS = "commits"
METADATA = "metadata"


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The batch of a writer: what tasks carry and `commit` compares (rule R1)."""

    batch_id: int
    digest: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint folder. Every method reads the files again; nothing is cached."""

    url: str
    files: CheckpointFiles
    fan_out: FanOut = field(default_factory=SerialFanOut)
    """Reads several files at once if each takes a round trip."""

    def query_id(self) -> str:
        """The query's id. Raises CheckpointConflict if there is none, CorruptData if damaged."""
        where = f"{self.url}/{METADATA}"
        data = self.files.read(METADATA)
        if data is None:
            raise CheckpointConflict(
                f"{where} is missing: this is not the query's checkpoint, or the driver does not "
                "see it under this path. Give checkpointLocation as a full URL; "
                f"if the checkpoint is lost, {NEW_CHECKPOINT}.",
                where=where,
            )
        try:
            query_id = json.loads(data)["id"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise _damaged(where) from error
        if not isinstance(query_id, str) or not query_id:
            raise _damaged(where)
        return query_id

    def require_query(self, query_id: str) -> None:
        """Refuse the checkpoint of another query (rule R24). Raises CheckpointConflict."""
        found = self.query_id()
        if found != query_id:
            raise CheckpointConflict(
                f"the checkpoint at {self.url} is of query {found}, but the records come from "
                f"query {query_id}: the sink sees another folder than Spark does. Give "
                "checkpointLocation as a full URL.",
                found=found,
                query_id=query_id,
            )

    def plan(self) -> BatchPlan:
        """The newest batch that Spark has planned. Raises CheckpointConflict if there is none."""
        newest = self.newest_batch()
        if newest is None:
            raise CheckpointConflict(
                f"{self.url}/{OFFSETS} contains no batch, though Spark is running one: the sink "
                "sees another folder than Spark does. Give checkpointLocation as a full URL.",
                where=self.url,
            )
        return BatchPlan(newest, self.offsets(newest).digest)

    def require_plan(self, plan: BatchPlan, *read: str) -> None:
        """Refuse a batch whose file has another digest than the one that its tasks ran for (R1).

        `read`: digests of earlier reads, which must be the same. Raises CheckpointConflict.
        """
        now = self.offsets(plan.batch_id).digest
        if {now, *read} != {plan.digest}:
            raise CheckpointConflict(
                f"{self.url}/{OFFSETS}/{plan.batch_id} was rewritten while the batch ran: "
                "another run of this query uses the checkpoint. Stop one of the two; nothing of "
                "this batch was committed.",
                batch_id=plan.batch_id,
            )

    def newest_batch(self) -> int | None:
        """The highest number in `offsets`."""
        return max(self._batches(OFFSETS), default=None)

    def newest_commit(self) -> int | None:
        """The highest number in `commits`: the last batch that Spark counts as done."""
        return max(self._batches(COMMITS), default=None)

    def offsets(self, batch_id: int) -> OffsetFile:
        """The file `offsets/<batch_id>`. Raises CheckpointConflict if missing, CorruptData."""
        where = f"{self.url}/{OFFSETS}/{batch_id}"
        data = self.files.read(f"{OFFSETS}/{batch_id}")
        if data is None:
            raise CheckpointConflict(
                f"{where} is missing, so it is unknown what the batch reads. If files of the "
                f"checkpoint were deleted, restore them, or {NEW_CHECKPOINT}.",
                where=where,
                batch_id=batch_id,
            )
        return parse(batch_id, data, where)

    def batch_range(self, batch_id: int, log_id: str) -> BatchRange:
        """The ranges that the batch advances in the log (R23), by its file and the one before.

        Raises CheckpointConflict, CorruptData.
        """
        batches = [batch_id, batch_id - 1] if batch_id > 0 else [batch_id]
        files = self.fan_out.run_all([partial(self.offsets, number) for number in batches])
        previous = files[1] if batch_id > 0 else None
        return batch_range(files[0], previous, log_id, f"{self.url}/{OFFSETS}/{batch_id}")

    def range_of(
        self, query_id: str, batch_id: int, log_id: str, plan: BatchPlan | None = None
    ) -> BatchRange:
        """The same, if the checkpoint is that query's (R24), and the tasks ran for this batch by
        this plan (R1). All files are read at once."""
        if plan is not None and plan.batch_id != batch_id:
            raise CheckpointConflict(
                f"the tasks ran batch {batch_id}, but the newest plan in the checkpoint was "
                f"{plan.batch_id} when their writer was made: another run of this query uses the "
                "checkpoint, or the sink sees another folder than Spark does. Stop one of the two.",
                batch_id=batch_id,
                planned=plan.batch_id,
            )
        own = begun(self.fan_out, partial(self.require_query, query_id))
        ranged = begun(self.fan_out, partial(self.batch_range, batch_id, log_id))
        # Its error first: the offsets of another query's checkpoint mean nothing (R24).
        own()
        batch = ranged()
        if plan is not None:
            # Compared after the files were read: they, and the batch before, are of this plan.
            self.require_plan(plan, batch.digest)
        return batch

    def _batches(self, folder: str) -> list[int]:
        # Spark's temporary and checksum files begin with a dot.
        names = self.files.list_names(folder)
        return [int(name) for name in names if name.isascii() and name.isdigit()]


def open_checkpoint(
    location: str | None,
    runtime: Runtime,
    *,
    default_file_system: str = LOCAL_FILE_SYSTEM,
    storage_options: Mapping[str, object] | None = None,
) -> Checkpoint:
    """The checkpoint at `checkpointLocation`. Reads nothing yet.

    Raises InvalidOption if the option is not given (R22: a location in the session's configuration
    is not visible here), or names a file system that txlog cannot read.
    """
    if location is None:
        raise InvalidOption(
            "the sink needs the query's own option checkpointLocation: it reads the batch's "
            "offsets there, and cannot see a location that only the session's configuration "
            "spark.sql.streaming.checkpointLocation sets. Add .option('checkpointLocation', ...) "
            "to writeStream.",
            option="checkpointLocation",
        )
    place = locate(location, default_file_system)
    files = open_files(place, runtime, storage_options)
    # A disk answers faster than a thread starts.
    if isinstance(files, LocalFiles):
        return Checkpoint(place.url, files)
    return Checkpoint(place.url, files, runtime.fan_out)


def _damaged(where: str) -> CorruptData:
    return CorruptData(
        f"{where} is not what Spark writes there; the checkpoint is damaged. Restore it, or "
        f"{NEW_CHECKPOINT}.",
        where=where,
    )
