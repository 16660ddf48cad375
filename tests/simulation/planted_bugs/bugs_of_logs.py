"""Planted bugs about a removed or replaced log, a lost past, and foreign objects in a log.

No simulated world puts a second log in the place of its first, so only direct tests detect these.
"""

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from txlog.catalog import cluster_file
from txlog.catalog.cluster import Cluster
from txlog.catalog.state import TopicCreated
from txlog.journal import entry, machine
from txlog.journal.beginning import first_entry
from txlog.journal.boundaries import boundary
from txlog.journal.boundaries.boundary import Past, PastChecks
from txlog.journal.log_presence import LogPresence
from txlog.journal.replication import opening, replica
from txlog.journal.replication.replica import Replica
from txlog.journal.replication.run import RunReader
from txlog.layout import JournalLayout, LogLayout
from txlog.model import numbered_topic_id
from txlog.storage import memory
from txlog.storage.disk import folder_walk, local, root_folder
from txlog.topic.events import TopicOpened
from txlog.topic.machine import TopicMachine
from txlog.verify import log_audit

Patch = pytest.MonkeyPatch


def _any_folder(patch: Patch) -> None:
    """Any folder at the path counts as the log."""
    patch.setattr(root_folder.RootFolder, "_reason_gone", lambda self: "")


def _checked_before_only(patch: Patch) -> None:
    """The log's identity is checked before a write, but not after it."""

    def sync_name(self: Any, path: str, folder: int) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(root_folder.RootFolder, "require_same", lambda self: None)
            original(self, path, folder)

    original = local.LocalStore._sync_name
    patch.setattr(local.LocalStore, "_sync_name", sync_name)


def _checked_after_only(patch: Patch) -> None:
    """The log's identity is checked after a write only, when a refused write has already been
    made."""
    original = root_folder.RootFolder.require_same
    inner = local.LocalStore._sync_name
    patch.setattr(root_folder.RootFolder, "require_same", lambda self: None)

    def sync_name(self: Any, path: str, folder: int) -> None:
        with pytest.MonkeyPatch.context() as restored:
            restored.setattr(root_folder.RootFolder, "require_same", original)
            inner(self, path, folder)

    patch.setattr(local.LocalStore, "_sync_name", sync_name)


def _any_object_in_memory(patch: Patch) -> None:
    """Any object counts as the log in the memory store."""
    patch.setattr(memory.MemoryStore, "_require_same", lambda self: None)


def _links_followed(patch: Patch) -> None:
    """Symbolic links are followed, as the system does by default."""

    def follow(folder: int, path: str, flags: int) -> int:
        return local.os.open(path, flags, dir_fd=folder)

    for module in (local, root_folder, folder_walk):
        patch.setattr(module, "open_below", follow)


def _pipes_read(patch: Patch) -> None:
    """Every path that can be opened counts as a file."""
    patch.setattr(local, "stat", SimpleNamespace(S_ISREG=lambda mode: True))


def _any_size(patch: Patch) -> None:
    """Objects of any size are read."""
    for module in (local, memory):
        patch.setattr(module, "require_size", lambda path, size_bytes, place: None)


def _foreign_names(patch: Patch) -> None:
    """All objects below the boundary count as the journal's."""

    def below(store: Any, name: Callable[[int], str], limit: int) -> list[str]:
        listed = store.list_after(f"{name(0).rpartition('/')[0]}/")
        return [stored.path for stored in listed if stored.path < name(limit)]

    patch.setattr(boundary, "own_below", below)


def _names_without_id(patch: Patch) -> None:
    """Journals have the same names in every log."""
    patch.setattr(LogLayout, "cluster", lambda self: JournalLayout("cluster", self.log_id))
    patch.setattr(
        LogLayout,
        "transactions",
        lambda self, number: JournalLayout(f"transactions/{number}", self.log_id),
    )


def _any_owner(patch: Patch) -> None:
    """An entry is accepted although it names another journal."""
    for module in (entry, boundary, machine):
        patch.setattr(module, "require_own", lambda found, layout, path: None)


def _presence_never_checked(patch: Patch) -> None:
    """A bucket is assumed to hold the opened log for ever."""
    patch.setattr(LogPresence, "_is_due", lambda self: False)


def _presence_checked_each_time(patch: Patch) -> None:
    """Each write costs an additional request."""
    patch.setattr(LogPresence, "_is_due", lambda self: True)


def _raised_once(patch: Patch) -> None:
    """The error that the log is gone is raised only once."""
    patch.setattr(LogPresence, "require", lambda self: None)


def _any_past(patch: Patch) -> None:
    """The journal is assumed to keep what was read of it."""
    patch.setattr(PastChecks, "require", lambda self, past: None)


def _past_left_out_of(patch: Patch, method: str) -> None:
    original = getattr(Replica, method)

    def without(self: Any, *arguments: Any) -> Any:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(PastChecks, "require", lambda self, past: None)
            return original(self, *arguments)

    patch.setattr(Replica, method, without)


def _past_checked_before_only(patch: Patch) -> None:
    """The entry below is read before a write, but not after it."""
    _past_left_out_of(patch, "_counts")


def _past_checked_after_only(patch: Patch) -> None:
    """The entry below is read after a write only, when the refused entry exists."""
    _past_left_out_of(patch, "_created")


def _past_by_the_entry_below(patch: Patch) -> None:
    """A busy writer of a bucket takes its own entry above a hole for the journal's."""
    original = PastChecks._check

    def check(self: Any, past: Past) -> None:
        self._anchor = None
        original(self, past)

    patch.setattr(PastChecks, "_check", check)


def _past_by_the_last_check(patch: Patch) -> None:
    """Only the entry of the check before is read again: later ones may be lost."""
    original = PastChecks._check

    def check(self: Any, past: Past) -> None:
        with pytest.MonkeyPatch.context() as inner:
            require = PastChecks.require
            is_later = self._anchor is not None and self._anchor.next_slot < past.next_slot
            if is_later:
                inner.setattr(
                    PastChecks,
                    "require",
                    lambda self, asked: None if asked is past else require(self, asked),
                )
            original(self, past)

    patch.setattr(PastChecks, "_check", check)


def _boundary_remembered(patch: Patch) -> None:
    """A boundary that was read once covers its entries for ever."""
    patch.setattr(
        boundary,
        "_is_covered",
        lambda store, layout, past: (
            past.boundary.snapshot_slot >= past.next_slot - 1
            or boundary.read_newest(store, layout, past.boundary).snapshot_slot
            >= past.next_slot - 1
        ),
    )


def _begun_by_any_process(patch: Patch) -> None:
    """A process begins a journal without its first entry, as if it were a new one."""
    original = RunReader._require_no_hole

    def require_no_hole(self: Any, at: Any, slot: int, later: list[bytes | None]) -> None:
        if slot or any(later):
            original(self, at, slot, later)

    patch.setattr(RunReader, "_require_no_hole", require_no_hole)


def _file_before_journals(patch: Patch) -> None:
    """The log's file is written first, and coordinators are begun when they are needed."""
    patch.setattr(cluster_file, "first_entries", lambda file, runtime: {})


def _named_before_begun(patch: Patch) -> None:
    """A topic is named first, and its journal is begun then."""

    def create_topic(self: Any, name: str, partitions: int, schema: str, config: Any) -> Any:
        number = self.journal.catch_up().next_topic
        topic_id = numbered_topic_id(number, self.runtime.entropy.token())
        opened = TopicOpened(topic_id, name, partitions, schema, config)
        topic = self._new_topic_log(opened)
        self.journal.execute(TopicCreated(opened, 0))
        event = TopicMachine(self.options.snapshot_entries).encode_event(opened)
        data = first_entry(topic.layout, self.runtime, "planted", [event])
        self.store.create(topic.layout.entry(0), data)
        topic.catch_up()
        return self._known_or_kept(topic)

    patch.setattr(Cluster, "create_topic", create_topic)


def _snapshot_above_a_hole(patch: Patch) -> None:
    """A journal is opened from a snapshot whose entries are gone."""
    patch.setattr(opening, "_require_last_entry", lambda store, layout, head, boundary: None)


def _any_state(patch: Patch) -> None:
    """The state in a snapshot is believed by a process that deletes."""
    patch.setattr(Replica, "_require_rebuilt", lambda self: None)


def _any_older_state(patch: Patch) -> None:
    """The state is compared with itself: with the snapshot from which it was opened."""
    original = replica.require_rebuilt

    def require(store: Any, layout: Any, machine: Any, at: Any, slot: int, fetch: Any) -> None:
        original(store, layout, machine, at, slot + 1, fetch)

    patch.setattr(replica, "require_rebuilt", require)


def _never_torn(patch: Patch) -> None:
    """A sound journal is taken for one of the same moment as the others."""
    patch.setattr(log_audit, "has_torn", lambda coordinators, topics: False)


def _torn_at_once(patch: Patch) -> None:
    """A transaction that was decided during the audit counts as torn."""
    patch.setattr(
        log_audit._LogAudit,
        "may_be_torn",
        lambda self: log_audit.has_torn(self._coordinators, self._topic_states),
    )


_LOST = "tests/unit/maintenance/test_lost_journals.py::"
_FORGED = "tests/unit/maintenance/test_forged_states.py::"
_TORN = "tests/unit/verify/test_torn_transactions.py::"
_OPENING = "tests/unit/journal/replication/test_opening.py::"
_PAST = "tests/unit/journal/replication/test_past_checks.py::"
_ROOT = "tests/unit/storage/disk/test_local_root.py::"
_GONE = "tests/unit/engine/test_log_gone.py::"
_STORE = "tests/unit/storage/policy/test_store_wrapper.py::"
_SIZE = "tests/unit/storage/test_size_limit.py::"
_JOURNAL = "tests/unit/journal/replication/test_replica.py::"
_BUCKET = "tests/unit/engine/test_log_gone_on_a_bucket.py::"

BUGS_OF_LOGS: Mapping[str, tuple[Callable[[Patch], None], str]] = {
    "any folder at the path counts as the log": (
        _any_folder,
        f"{_ROOT}test_calls_after_log_is_gone_or_replaced_are_refused_and_write_nothing",
    ),
    "log identity checked before a write only": (
        _checked_before_only,
        f"{_ROOT}test_write_has_unknown_outcome_if_log_changes_after_publish",
    ),
    "log identity checked after a write only": (
        _checked_after_only,
        f"{_ROOT}test_calls_after_log_is_gone_or_replaced_are_refused_and_write_nothing",
    ),
    "log identity not checked in memory": (
        _any_object_in_memory,
        f"{_STORE}test_memory_store_bound_to_a_log_writes_nothing_once_that_is_gone",
    ),
    "symbolic links are followed": (
        _links_followed,
        f"{_ROOT}test_symlinks_below_the_root_are_not_followed",
    ),
    "pipes are read": (
        _pipes_read,
        f"{_ROOT}test_named_pipe_in_place_of_object_does_not_block",
    ),
    "objects of any size are read": (
        _any_size,
        f"{_SIZE}test_sparse_file_of_100_GiB_is_refused_by_its_size",
    ),
    "foreign files are pruned": (
        _foreign_names,
        f"{_GONE}test_pruning_and_maintenance_keep_foreign_files_beside_the_logs_own",
    ),
    "journal names without the log's id": (
        _names_without_id,
        f"{_BUCKET}test_writes_before_detection_do_not_reach_the_replacement_log",
    ),
    "entries of other logs accepted": (
        _any_owner,
        f"{_JOURNAL}test_I15_entry_of_another_journal_or_log_is_corrupt_data",
    ),
    "log presence on a bucket never checked": (
        _presence_never_checked,
        f"{_BUCKET}test_cluster_file_is_read_once_per_presence_interval",
    ),
    "log presence on a bucket checked at each write": (
        _presence_checked_each_time,
        f"{_BUCKET}test_cluster_file_is_read_once_per_presence_interval",
    ),
    "error that the log is gone raised only once": (
        _raised_once,
        f"{_BUCKET}test_producer_of_deleted_log_fails_for_good_after_presence_interval",
    ),
    "without R62": (
        _any_past,
        f"{_PAST}test_R62_write_is_refused_and_changes_nothing_once_past_is_taken_away",
    ),
    "entry below read before a write only (R62)": (
        _past_checked_before_only,
        f"{_PAST}test_R62_write_while_past_is_taken_away_is_not_acknowledged",
    ),
    "entry below read after a write only (R62)": (
        _past_checked_after_only,
        f"{_PAST}test_R62_write_is_refused_and_changes_nothing_once_past_is_taken_away",
    ),
    "own entry above a hole counts as the past (R62)": (
        _past_by_the_entry_below,
        f"{_PAST}test_R62_distant_writer_is_refused_within_the_interval",
    ),
    "only the past of the last check is read (R62)": (
        _past_by_the_last_check,
        f"{_PAST}test_R62_backup_that_is_newer_than_the_last_check_is_noticed",
    ),
    "remembered boundary covers a lost entry (R62)": (
        _boundary_remembered,
        f"{_PAST}test_R62_older_backup_is_noticed_although_the_newest_entries_were_pruned",
    ),
    "without R63": (
        _begun_by_any_process,
        f"{_LOST}test_R63_coordinator_without_its_beginning_is_lost",
    ),
    "log's file written before its journals (R63)": (
        _file_before_journals,
        f"{_LOST}test_R63_log_has_the_first_entries_of_all_its_journals_once_it_has_its_file",
    ),
    "topic named before its journal is begun (R63)": (
        _named_before_begun,
        f"{_LOST}test_R63_interrupted_creation_leaves_no_topic_and_harms_no_other",
    ),
    "snapshot above lost entries is used (R63)": (
        _snapshot_above_a_hole,
        f"{_OPENING}test_R63_snapshot_above_the_last_entry_is_refused",
    ),
    "without R64": (
        _any_state,
        f"{_FORGED}test_R64_maintenance_deletes_nothing_by_a_forged_topic_state",
    ),
    "state rebuilt from its own snapshot (R64)": (
        _any_older_state,
        f"{_FORGED}test_R64_pruning_keeps_the_entries_that_show_a_forged_state",
    ),
    "torn transactions not looked for (I5)": (
        _never_torn,
        f"{_TORN}test_I5_transaction_that_a_copy_has_in_one_journal_only_is_found",
    ),
    "transaction decided during an audit counts as torn": (
        _torn_at_once,
        f"{_TORN}test_transaction_decided_during_the_audit_is_not_torn",
    ),
}
"""Planted bug -> the function that plants it, and the test that detects it."""
