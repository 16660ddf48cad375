"""Upkeep and audit of a log by the admin client: one pass of each.

`txlog maintain` repeats a pass; what one does is in `maintenance.py`, `vacuum.py` and
`log_audit.py`. It must not decide what may be deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from txlog.client.positions.position_arguments import checked_names
from txlog.engine.connection import Connection
from txlog.errors import UsageError
from txlog.maintenance.maintenance import Maintenance, MaintenanceReport
from txlog.maintenance.vacuum import Candidates, Vacuum, VacuumReport
from txlog.verify.log_audit import LogReport, audit_log, stored_objects


class UpkeepAdmin:
    """The part of `Admin` that maintains and checks a log."""

    connection: Connection

    def maintain(
        self,
        topics: Iterable[str] | str = (),
        *,
        vacuum: bool = True,
        config: Mapping[str, object] | None = None,
    ) -> MaintenanceReport:
        """One pass of maintenance, over all topics or these.

        It ends late transactions, finishes decided ones, applies retention, compacts, merges,
        forgets idle ids, prunes journals, and deletes what nothing refers to unless `vacuum` is
        false. Errors of single tasks are in the report. `config` has dotted names of
        ProcessSettings. Raises InvalidConfig, UnknownTopic.
        """
        process = self.connection.cluster.process.altered(config or {})
        return Maintenance(self.connection, process, checked_names(topics)).run_once(vacuum=vacuum)

    def find_unreferenced(self) -> Candidates:
        """Stored objects that nothing refers to and that are older than staging.retention.ms."""
        return self._vacuum().find_candidates()

    def delete_unreferenced(self, found: Candidates) -> VacuumReport:
        """Delete those of `found` that still nothing refers to.

        Readers may still use what was dropped a moment ago: let file.delete.delay.ms (a minute)
        pass after `find_unreferenced`. Raises UsageError for anything that it did not answer.
        """
        if not isinstance(found, Candidates):
            raise UsageError(f"{found!r:.80} is not what find_unreferenced() answers; give that.")
        return self._vacuum().sweep(found)

    def _vacuum(self) -> Vacuum:
        return Vacuum(self.connection, self.connection.cluster.process.staging_retention_ms)

    def verify(self, topics: Iterable[str] | str = ()) -> LogReport:
        """Read the whole log, or these topics, and name every damaged or missing object.

        It takes as long as reading all of it, and writes nothing. Raises UnknownTopic.
        """
        names = tuple(checked_names(topics))
        listed = () if names else stored_objects(self.connection)
        return audit_log(self.connection, names, listed)
