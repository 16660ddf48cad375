"""The admin client, with kafka-python's names: what an operator may read and change.

It only reads, or runs commands of the layers below; it decides nothing, least of all what may be
deleted. It returns frozen values, for the command line and for notebooks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from txlog.client.admin.group_moves import GroupMoves
from txlog.client.admin.groups import GroupAdmin
from txlog.client.admin.history import HistoryAdmin
from txlog.client.admin.topics import TopicAdmin
from txlog.client.admin.transaction_book import TransactionBook
from txlog.client.admin.transactions import TransactionAdmin
from txlog.client.html_table import html_table
from txlog.client.positions.position_arguments import checked_names
from txlog.engine.connection import Connection, InOneProcess, connect
from txlog.errors import TxlogError, UsageError
from txlog.maintenance.maintenance import Maintenance, MaintenanceReport
from txlog.maintenance.vacuum import Candidates, Vacuum, VacuumReport
from txlog.redaction import redact
from txlog.verify.log_audit import LogReport, audit_log, stored_objects


class Admin(TopicAdmin, GroupAdmin, TransactionAdmin, HistoryAdmin, InOneProcess):
    """Manages one log. Safe to use from threads."""

    def __init__(
        self,
        root: str | Connection,
        *,
        create: bool = False,
        storage_options: Mapping[str, object] | None = None,
        log_config: Mapping[str, object] | None = None,
    ) -> None:
        """`log_config`: dotted names of LogSettings, for a log that is created. Raises what
        `connect` does."""
        self.connection = connect(
            root, create=create, storage_options=storage_options, log_config=log_config
        )
        self._book = TransactionBook(self.connection)
        self._moves = GroupMoves(self.connection.runtime)
        self._unreferenced = Candidates()
        """What the last pass of maintenance has found for the next one."""

    def _repr_html_(self) -> str:
        """The topics, in a notebook; of a log that cannot be read, why."""
        title = f"Log at {redact(self.connection.cluster.store.url)}"
        try:
            return html_table(title, ("topic",), [(name,) for name in self.list_topics()])
        except TxlogError as error:
            return html_table(title, (type(error).__name__,), [(redact(str(error)),)])

    def maintain(
        self,
        topics: Iterable[str] | str = (),
        *,
        vacuum: bool = True,
        config: Mapping[str, object] | None = None,
    ) -> MaintenanceReport:
        """One pass of maintenance, over all topics or these.

        It ends late transactions, finishes decided ones, applies retention, compacts, merges,
        forgets idle ids, and prunes journals. Unless `vacuum` is false it finds unreferenced
        objects, and deletes those that an earlier pass of this Admin has found
        file.delete.delay.ms ago. The report has the errors of single tasks. `config` has dotted
        names of ProcessSettings. Raises InvalidConfig, UnknownTopic.
        """
        process = self.connection.cluster.process.altered(config or {})
        names = checked_names(topics)
        maintenance = Maintenance(self.connection, process, names, self._unreferenced)
        try:
            return maintenance.run_once(vacuum=vacuum)
        finally:
            self._unreferenced = maintenance.candidates

    def vacuum(
        self, *, execute: bool = False, config: Mapping[str, object] | None = None
    ) -> VacuumReport:
        """Delete stored objects that nothing refers to, as `txlog vacuum` does; unless `execute`,
        only find them.

        Before it deletes, it waits file.delete.delay.ms (a minute) for readers to move on, and
        checks again. `config` has dotted names of ProcessSettings. Raises InvalidConfig.
        """
        process = self.connection.cluster.process.altered(config or {})
        vacuum = Vacuum(self.connection, process.staging_retention_ms)
        found = vacuum.find_candidates()
        if not execute or found.is_empty:
            return VacuumReport(found)
        self.connection.runtime.clock.sleep_ms(process.file_delete_delay_ms)
        return vacuum.sweep(found)

    def find_unreferenced(self) -> Candidates:
        """Unreferenced objects that are older than staging.retention.ms."""
        return self._vacuum().find_candidates()

    def delete_unreferenced(self, found: Candidates) -> VacuumReport:
        """Delete those of `found` that are still unreferenced.

        Readers may still use objects that have just become unreferenced: wait
        file.delete.delay.ms (a minute) after `find_unreferenced`. Raises UsageError for a value
        that `find_unreferenced` did not return.
        """
        if not isinstance(found, Candidates):
            raise UsageError(
                f"{found!r:.80} was not returned by find_unreferenced(); pass its result."
            )
        return self._vacuum().sweep(found)

    def _vacuum(self) -> Vacuum:
        return Vacuum(self.connection, self.connection.cluster.process.staging_retention_ms)

    def verify(self, topics: Iterable[str] | str = ()) -> LogReport:
        """Read the whole log, or these topics, and name every damaged or missing object.

        It writes nothing. Raises UnknownTopic.
        """
        names = tuple(checked_names(topics))
        listed = () if names else stored_objects(self.connection)
        return audit_log(self.connection, names, listed)
