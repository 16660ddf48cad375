"""How a log is named and opened, and who of its coordinators knows a transaction."""

import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.logs.empty_log import empty_log
from tests.logs.memory_log import MemoryLog
from txlog.client.admin import Admin
from txlog.clock import Runtime
from txlog.coordinator.coordinator import coordinator_number_of
from txlog.engine.connection import (
    Connection,
    connect,
    given_configuration,
    open_connection,
    require_own_place,
    writer_name,
)
from txlog.errors import (
    InvalidConfig,
    NotATxlog,
    StoreDenied,
    UnknownTransaction,
    UsageError,
)
from txlog.model import TransactionOutcome, TxId
from txlog.settings import LogSettings
from txlog.storage import MemoryStore, StoredObject
from txlog.testing.clock import manual_runtime


def test_configuration_names_the_root_and_keeps_the_rest(tmp_path: Path) -> None:
    connection = connect(str(empty_log(tmp_path / "log")))
    for root in ("a/b", tmp_path, connection):
        given: dict[str, object] = {"root": root, "acks": "all"}
        found = given_configuration(given)
        assert found == given
        found.clear()
        assert given == {"root": root, "acks": "all"}, "the caller's dict stays as it is"


@pytest.mark.parametrize("config", [None, "root", [("root", "x")], {"root": "x", 5: 1}])
def test_configuration_that_is_no_dict_is_refused(config: object) -> None:
    with pytest.raises(InvalidConfig, match="a configuration is a dict of names and values, not"):
        given_configuration(config)


@pytest.mark.parametrize("config", [{}, {"root": None}, {"root": 5}, {"root": b"x"}])
def test_configuration_without_a_root_is_refused(config: object) -> None:
    with pytest.raises(InvalidConfig, match="the configuration needs 'root'"):
        given_configuration(config)


class BytesPath:
    """A path whose form is bytes, as those of os.fsencode."""

    def __fspath__(self) -> bytes:
        return b"/tmp/x"


@pytest.mark.parametrize("root", [None, 5, b"/tmp/x", BytesPath()])
def test_root_that_is_no_text_is_refused(root: Any) -> None:
    said = f"the log's root is {root!r:.80}; give a folder or a URL"
    with pytest.raises(UsageError, match=re.escape(said)):
        connect(root)


@pytest.mark.parametrize("options", ["durable", [("durable", False)], 5])
def test_storage_options_that_are_no_dict_are_refused(tmp_path: Path, options: Any) -> None:
    with pytest.raises(UsageError, match="storage_options are .*; give a dict"):
        connect(str(tmp_path), storage_options=options, create=True)
    assert list(tmp_path.iterdir()) == []


def test_path_is_a_root_as_its_text_is(tmp_path: Path) -> None:
    root: Any = tmp_path / "log"
    assert connect(root, create=True) is connect(str(root))


def test_log_is_created_only_where_the_caller_allows_it() -> None:
    store = MemoryStore(manual_runtime())

    def refuse() -> None:
        raise UsageError("not here.")

    with pytest.raises(UsageError, match="not here"):
        open_connection(store, manual_runtime(), create=True, require_place=refuse)
    with pytest.raises(NotATxlog):
        open_connection(store, manual_runtime())
    assert list(store.list_after("")) == []
    config = {"transaction.state.log.num.partitions": 3}
    made = open_connection(store, manual_runtime(), create=True, log_config=config)
    assert len(made.coordinators()) == 3
    assert open_connection(store, manual_runtime()).cluster.log_id == made.cluster.log_id


def test_connection_cannot_be_passed_to_another_process() -> None:
    with pytest.raises(UsageError, match="this Connection cannot be copied or passed to another"):
        pickle.dumps(MemoryLog().connection)


def test_writer_is_named_by_host_and_process() -> None:
    log = MemoryLog()
    log.admin.create_topic("t", 1)
    entry = log.connection.cluster.topic("t").entry_at(0)
    assert entry is not None
    assert writer_name().encode() in entry


# Places.


class UnlistableStore(MemoryStore):
    """A bucket of which this process may read objects, and not list them."""

    def list_after(self, prefix: str, after: str = "") -> Iterator[StoredObject]:
        raise StoreDenied("not allowed", path=prefix)


def test_place_that_may_not_be_listed_is_taken_as_empty() -> None:
    store = UnlistableStore(manual_runtime())
    store.put_new("notes.txt", b"mine")
    require_own_place("memory://x", store, manual_runtime(), None)


@pytest.mark.parametrize(
    ("name", "is_foreign"),
    [
        (".hidden", False),
        (".hidden/x", True),
        ("a/.hidden", True),
        ("lost+found", False),
        ("a/lost+found/x/y", False),
        ("a/.DS_Store", False),
        (".gitignore", False),
        ("a/.gitignore", False),
        ("probes/x", False),
        ("probes", True),
        ("topics/stray", True),
        ("notes.txt", True),
    ],
)
def test_files_of_other_programs_are_told_from_harmless_ones(name: str, is_foreign: bool) -> None:
    store = MemoryStore(manual_runtime(), "x")
    store.put_new(name, b"?")
    if not is_foreign:
        require_own_place("memory://x", store, manual_runtime(), None)
        return
    with pytest.raises(UsageError, match=f"contains files that belong to no log, such as '{name}'"):
        require_own_place("memory://x", store, manual_runtime(), None)


def test_existing_log_needs_no_place() -> None:
    log = MemoryLog()
    log.memory.put_new("notes.txt", b"mine")
    require_own_place("memory://x", log.memory, manual_runtime(), None)


def test_logs_above_are_looked_for_with_the_same_storage_options(tmp_path: Path) -> None:
    root = empty_log(tmp_path / "log")
    for options in (None, {"durable": False}):
        with pytest.raises(UsageError, match=f"is within the log at {root}, which") as refused:
            Admin(f"{root}/a/b", create=True, storage_options=options)
        assert refused.value.facts["url"] == f"{root}/a/b"
    runtime, store = Runtime(), MemoryStore(manual_runtime())
    # Options that no store takes: the places above cannot be opened, and are skipped.
    require_own_place(f"{root}/a", store, runtime, {"no such option": 1})


# Coordinators.


def test_each_id_belongs_to_one_coordinator_which_is_opened_once() -> None:
    log = MemoryLog(LogSettings(transaction_state_log_num_partitions=5))
    connection = log.connection
    coordinators = connection.coordinators()
    assert [one.number for one in coordinators] == list(range(5))
    assert connection.coordinators() == coordinators
    assert list(connection.caught_up()) == coordinators
    for name in ("a", "b", "order", "ä"):
        assert connection.coordinator_of(name) is coordinators[coordinator_number_of(name, 5)]


def test_transaction_is_found_in_whichever_coordinator_has_it() -> None:
    log = MemoryLog(LogSettings(transaction_state_log_num_partitions=5))
    log.admin.create_topic("t", 1)
    process: Connection = log.process()
    found = set()
    for name in "abcdefgh":
        with log.producer(name) as producer, producer.transaction() as tx_id:
            producer.send("t", b"x")
        assert process.outcome(tx_id) is TransactionOutcome.COMMITTED
        coordinator, known = process.coordinator_with(tx_id)
        assert (known, coordinator) == (name, process.coordinator_of(name))
        found.add(coordinator.number)
    assert len(found) > 2
    absent = TxId(1 << 40, 0, 0)
    assert process.outcome(absent) is TransactionOutcome.UNKNOWN_ID
    with pytest.raises(
        UnknownTransaction, match=f"no coordinator knows transaction {absent}"
    ) as no:
        process.coordinator_with(absent)
    assert no.value.facts["tx_id"] == str(absent)
