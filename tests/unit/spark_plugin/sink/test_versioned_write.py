"""Jobs with a version, without Spark: repeats, races, and separate applications and topics."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from spark_plugin.options import WriterOptions
from spark_plugin.python_worker import NO_BATCH
from spark_plugin.sink.batch_writer import TxlogBatchWriter, commit_version, is_in_log
from spark_plugin.sink.sink_topics import Creation
from spark_plugin.sink.staging import Staging, TaskMessage, participants
from tests.logs.memory_log import MemoryLog
from tests.stores.faulty_stores import HookedStore
from tests.stores.scripted_store import ScriptedStore, unavailable
from tests.unit.spark_plugin.spark_query import FRAME, new_log
from txlog.coordinator.events import Participant
from txlog.engine.connection import Connection
from txlog.errors import TxlogError

OPTIONS = WriterOptions("memory://log", topic="even", txn_app_id="app", txn_version=7)


def staged(process: Connection, number: int) -> tuple[Participant, ...]:
    rows = pa.RecordBatch.from_pydict({"n": [number], "topic": ["even"]})
    options = replace(OPTIONS, topic=None)
    found = Staging(process, options, FRAME).add_all([rows])
    return participants([TaskMessage("", -1, "", None, found)])


def write(log: MemoryLog, number: int, options: WriterOptions = OPTIONS) -> None:
    process = log.process()
    commit_version(process, options, staged(process, number))


def decision(log: MemoryLog) -> str:
    """The entry of the next job's decision, the one after its registration."""
    journal = log.connection.cluster.layout.transactions(0)
    return journal.entry(sum(p.startswith(journal.entries) for p in log.objects()) + 1)


def numbers(log: MemoryLog) -> list[int]:
    return [row["n"] for row in log.values("even")]


def test_I10_version_is_written_once_and_lower_versions_are_skipped() -> None:
    log = new_log()
    assert not is_in_log(log.process(), OPTIONS)
    for number, version in enumerate((7, 7, 6, 8)):
        write(log, number, replace(OPTIONS, txn_version=version))
    assert numbers(log) == [0, 3]
    assert is_in_log(log.process(), replace(OPTIONS, txn_version=8))
    assert not is_in_log(log.process(), replace(OPTIONS, txn_version=9))
    log.check()


def test_version_below_the_newest_is_skipped_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """This happens after a lost checkpoint. A replay of the newest version logs no warning."""
    log = new_log()
    for number, version in enumerate((7, 7)):
        write(log, number, replace(OPTIONS, txn_version=version))
    assert caplog.messages == []
    write(log, 2, replace(OPTIONS, txn_version=3))
    assert "version 3 of application 'app' is left out: the log has version 7" in caplog.text
    assert numbers(log) == [0]


@pytest.mark.parametrize(
    "changes", [{"txn_app_id": "app/even"}, {"topic": None}, {"label": "second"}]
)
def test_versions_are_separate_per_application_topic_and_label(
    changes: dict[str, str | None],
) -> None:
    log = new_log()
    write(log, 0)
    write(log, 1, replace(OPTIONS, **changes))  # type: ignore[arg-type]
    assert numbers(log) == [0, 1]


def test_I10_job_overtaken_by_its_retry_writes_nothing() -> None:
    log = new_log()
    store = HookedStore(log.memory)
    slow = log.process(store)
    mine = staged(slow, 0)
    assert not is_in_log(slow, OPTIONS)
    store.before("create", decision(log), lambda: write(log, 1))
    commit_version(slow, OPTIONS, mine)
    assert store.is_met
    assert numbers(log) == [1]
    log.check()


def die_decided(log: MemoryLog, number: int, options: WriterOptions = OPTIONS) -> None:
    """A job that dies between its decision and its topic's marker."""
    store = ScriptedStore(log.memory)
    dying = log.process(store)
    mine = staged(dying, number)
    store.on("create", "^topics/", unavailable, holding="marker_written", times=1000)
    with pytest.raises(TxlogError):
        commit_version(dying, options, mine)


def test_I5_retry_completes_job_that_died_after_its_decision() -> None:
    """Regression: the version was in the log, its rows in no topic, and the retry did nothing."""
    log = new_log()
    die_decided(log, 0)
    assert is_in_log(log.process(), OPTIONS)
    assert numbers(log) == []
    write(log, 1)
    assert numbers(log) == [0]
    log.check()


def test_job_is_independent_of_an_application_whose_name_begins_with_its_own() -> None:
    """It may not be allowed to write the topics of that application."""
    log = new_log()
    die_decided(log, 0, replace(OPTIONS, txn_app_id="app.other"))
    store = ScriptedStore(log.memory)
    store.on("create", "^topics/even/", unavailable, times=1000)
    process = log.process(store)
    options = replace(OPTIONS, topic="odd")
    commit_version(process, options, ())
    assert is_in_log(log.process(), options)
    assert numbers(log) == []
    write(log, 1, replace(OPTIONS, txn_app_id="app.other", txn_version=8))
    assert numbers(log) == [0, 1]
    log.check()


def test_I5_overtaken_job_completes_the_decided_transaction_of_a_dead_retry() -> None:
    log = new_log()
    store = HookedStore(log.memory)
    slow = log.process(store)
    mine = staged(slow, 0)
    store.before("create", decision(log), lambda: die_decided(log, 1))
    commit_version(slow, OPTIONS, mine)
    assert store.is_met
    assert numbers(log) == [1]
    log.check()


def test_job_without_rows_records_its_version() -> None:
    log = new_log()
    commit_version(log.process(), OPTIONS, ())
    write(log, 0)
    assert numbers(log) == []


def test_later_version_creates_only_new_topic_names_by_default(
    tmp_path: Path,
) -> None:
    first = replace(OPTIONS, root=str(tmp_path / "log"))

    def opened(options: WriterOptions, batch_id: int = NO_BATCH) -> tuple[Connection, Creation]:
        return TxlogBatchWriter.for_job(options, FRAME, overwrite=False)._opened(batch_id)

    connection, allowed = opened(first)
    assert allowed is Creation.ALL
    commit_version(connection, first, ())
    later = replace(first, txn_version=8)
    assert opened(later)[1] is Creation.NEW_NAMES
    assert opened(replace(later, create_topics=True))[1] is Creation.ALL
    assert opened(replace(later, txn_app_id="another"))[1] is Creation.ALL
    assert opened(replace(first, txn_app_id=None, txn_version=None), 1)[1] is Creation.NEW_NAMES


def test_job_whose_transaction_is_committed_but_not_complete_succeeds() -> None:
    """Regression: the job failed although its rows were visible, and its repeat without a version
    stored them twice."""
    log = new_log()
    store = ScriptedStore(log.memory)
    process = log.process(store)
    mine = staged(process, 0)
    rule = store.on("create", "", unavailable, holding="transaction_completed", times=1000)
    commit_version(process, OPTIONS, mine)
    assert rule.met > 0
    assert numbers(log) == [0]
    write(log, 1, replace(OPTIONS, txn_version=8))
    assert numbers(log) == [0, 1]
    log.check()
