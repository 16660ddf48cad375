"""The run of a task, by properties that Spark sets and users do not; errors as Spark shows them."""

import logging
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

import pytest
from pyspark import TaskContext

from spark_plugin import python_worker
from spark_plugin.datasource import TxlogDataSource
from spark_plugin.python_worker import (
    BATCH_ID,
    CHECKPOINT_LOCATION,
    COMMITTER,
    FILTERS,
    HIDE_TRACEBACK,
    JOB_GROUP,
    JOB_TAGS,
    LOG_LEVEL,
    NO_BATCH,
    PLANNER,
    QUERY_ID,
    SETUP,
    TaskIdentity,
    called_by_spark,
    errors_of_task,
    is_for_commits,
    run_of,
    session_property,
    takes_filters,
    task_identity,
)
from spark_plugin.sink.batch_writer import TxlogBatchWriter
from spark_plugin.sink.stream_writer import TxlogStreamWriter
from spark_plugin.source.batch_reader import TxlogBatchReader
from spark_plugin.source.stream_reader import TxlogStreamReader
from txlog.distribution import VERSION
from txlog.errors import InternalError, InvalidConfig, NotATxlog, UnknownTopic

MINE, OTHER = "5bd90fb1-ad4f-45ea-83a0-e3e2dc432c13", "6834ae12-87bb-410a-a04b-0e5be6a9812a"
ROOT = f"spark-session-{MINE}-execution-root-id-12"


@pytest.mark.parametrize(
    ("job_tags", "run_id"),
    [
        (f"{ROOT},spark-session-{MINE}", MINE),
        (f"spark-session-{OTHER},{ROOT}", MINE),
        (f"mine,{ROOT},yours", MINE),
        (f"spark-session-{MINE}", f"{MINE}/group"),
        (f"spark-session-{OTHER},mine,spark-session-{MINE}", f"{MINE}/{OTHER}/group"),
        (f"my-{ROOT}", "group"),
        ("", "group"),
    ],
)
def test_R27_run_id_is_session_id_of_root_execution_tag(job_tags: str, run_id: str) -> None:
    """Without that tag, which a user may clear, the sessions and the job group identify the run."""
    assert run_of(job_tags, "group") == run_id


def test_task_belongs_to_a_batch_only_with_query_id_and_batch_id() -> None:
    assert TaskIdentity("query", "run", 0).is_of_batch
    assert not TaskIdentity("query", "run", NO_BATCH).is_of_batch
    assert not TaskIdentity("", "run", 0).is_of_batch


@pytest.fixture
def in_task(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str]], None]:
    """Puts this process, which is in none, into a task of Spark with these properties."""
    monkeypatch.setattr(TaskContext, "_taskContext", None)

    def enter(properties: dict[str, str]) -> None:
        # The constructor keeps the one object itself.
        monkeypatch.setattr(TaskContext, "_taskContext", None)
        TaskContext()._localProperties = properties

    return enter


def test_identity_of_a_task_is_in_the_properties_that_spark_sets(
    in_task: Callable[[dict[str, str]], None],
) -> None:
    in_task({QUERY_ID: "query", BATCH_ID: "7", JOB_TAGS: f"mine,{ROOT}", JOB_GROUP: "group"})
    assert task_identity() == TaskIdentity("query", MINE, 7)
    in_task({QUERY_ID: "query", BATCH_ID: "0", JOB_GROUP: "group"})
    assert task_identity() == TaskIdentity("query", "group", 0)
    in_task({})
    assert task_identity() == TaskIdentity("", "", NO_BATCH)


def test_setting_of_the_session_is_known_only_in_a_task(
    in_task: Callable[[dict[str, str]], None],
) -> None:
    assert session_property(CHECKPOINT_LOCATION) is None
    in_task({CHECKPOINT_LOCATION: "/checkpoints"})
    assert session_property(CHECKPOINT_LOCATION) == "/checkpoints"
    assert session_property("other") is None


def test_sinks_task_without_the_context_of_spark_is_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskContext, "_taskContext", None)
    with pytest.raises(InternalError, match="without Spark's task context"):
        task_identity()


@pytest.mark.parametrize(
    ("modules", "is_committer", "has_filters"),
    [
        ((), False, False),
        ((COMMITTER,), True, False),
        ((PLANNER,), False, False),
        ((COMMITTER, PLANNER), False, False),
        ((FILTERS,), False, True),
    ],
)
def test_purpose_of_a_process_is_known_by_the_modules_of_spark_in_it(
    modules: tuple[str, ...],
    is_committer: bool,
    has_filters: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in (PLANNER, COMMITTER, FILTERS):
        monkeypatch.delitem(sys.modules, name, raising=False)
    for name in modules:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    assert (is_for_commits(), takes_filters()) == (is_committer, has_filters)


def test_module_that_a_process_runs_counts_as_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (PLANNER, COMMITTER, FILTERS):
        monkeypatch.delitem(sys.modules, name, raising=False)
    main = ModuleType("__main__")
    main.__spec__ = ModuleSpec(COMMITTER, None)
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert is_for_commits()
    assert not takes_filters()


def test_error_of_a_task_names_its_host_and_keeps_its_class_and_facts() -> None:
    host = f"on host {socket.gethostname()}"
    with pytest.raises(UnknownTopic, match=host) as raised, errors_of_task():
        raise UnknownTopic("there is no topic 't'; create it.", topic="t")
    assert raised.value.facts["topic"] == "t"
    with pytest.raises(NotATxlog) as lost, errors_of_task():
        raise NotATxlog("the log is gone. Put it back.", reason="no folder.", root="/log")
    assert lost.value.message.startswith(f"{host} (no folder): this executor does not see")
    assert lost.value.facts["root"] == "/log"
    with pytest.raises(NotATxlog) as absent, errors_of_task():
        raise NotATxlog("there is no log at /log. Create one.")
    assert absent.value.message.startswith(f"{host} (there is no log at /log): this executor")
    with pytest.raises(KeyError), errors_of_task():
        raise KeyError("a bug is not changed")


# What a user sees of an error.

NEVER_FAIL = {"name", "stop", "abort", "getDefaultReadLimit"}
"""Methods that only return a value or log a line."""


@pytest.mark.parametrize(
    "kind",
    [
        TxlogDataSource,
        TxlogBatchReader,
        TxlogStreamReader,
        TxlogBatchWriter,
        TxlogStreamWriter,
    ],
)
def test_each_method_that_spark_calls_shows_the_message_of_its_errors_first(kind: type) -> None:
    sparks = {name for base in kind.__mro__[1:-1] for name in vars(base) if name[0] != "_"}
    hooks = {name: method for name, method in vars(kind).items() if name in sparks - NEVER_FAIL}
    assert hooks
    assert [name for name, method in hooks.items() if not hasattr(method, "__wrapped__")] == []


class Hooks:
    """Methods as Spark calls them."""

    @called_by_spark
    def schema(self, error: Exception) -> None:
        """Fail at once."""
        raise error

    @called_by_spark
    def read(self, error: Exception) -> Iterator[int]:
        """Fail between two records."""
        yield 1
        raise error


def exhaust(error: Exception) -> None:
    for _ in Hooks().read(error):
        pass


@pytest.mark.parametrize("call", [Hooks().schema, exhaust])
def test_error_of_a_hook_keeps_type_facts_and_cause_and_its_traceback_is_logged(
    call: Callable[[Exception], None], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "spark_plugin")
    given = UnknownTopic("there is no topic 't'; create it.", topic="t")
    given.__cause__ = KeyError("t")
    with pytest.raises(UnknownTopic) as raised:
        call(given)
    assert raised.value is given
    assert isinstance(raised.value.__cause__, KeyError)
    (line,) = caplog.records
    assert line.exc_info is not None
    assert line.exc_info[1] is given


def test_process_without_a_main_module_is_not_of_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a program that embeds Python."""
    for main in (SimpleNamespace(), SimpleNamespace(__spec__=None)):
        monkeypatch.setitem(sys.modules, "__main__", main)  # type: ignore[arg-type]
        assert python_worker._main_module() == ""


def test_traceback_stays_visible_in_a_process_that_is_not_of_spark() -> None:
    with pytest.raises(UnknownTopic):
        Hooks().schema(UnknownTopic("there is no topic 't'; create it."))
    assert HIDE_TRACEBACK not in os.environ


@pytest.mark.parametrize(
    ("error", "hidden"),
    [
        (KeyError("x"), None),
        (InternalError("a bug. Please report this."), None),
        (UnknownTopic("there is no topic 't'; create it."), "1"),
    ],
)
def test_process_of_spark_shows_only_the_message_of_an_error_that_is_no_bug(
    error: Exception, hidden: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = ModuleType("__main__")
    main.__spec__ = ModuleSpec("pyspark.daemon", None)
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setenv(HIDE_TRACEBACK, "so that it is removed again")
    monkeypatch.delenv(HIDE_TRACEBACK)
    with pytest.raises(type(error)):
        Hooks().schema(error)
    assert os.environ.get(HIDE_TRACEBACK) == hidden


IN_A_PROCESS_OF_SPARK = """
import logging, os, sys
from importlib.machinery import ModuleSpec
sys.modules["__main__"].__spec__ = ModuleSpec("pyspark.daemon", None)
from spark_plugin import python_worker
from txlog.errors import InternalError, UnknownTopic

@python_worker.called_by_spark
def fail(error):
    raise error

for error in (KeyError("x"), InternalError("Please report this."), UnknownTopic("no topic 't'")):
    try:
        fail(error)
    except Exception:
        print(type(error).__name__, os.environ.get(python_worker.HIDE_TRACEBACK))
print(*(logging.getLogger(name).level for name in (None, "txlog", "spark_plugin")))
"""


def test_traceback_of_a_bug_stays_visible_and_log_level_is_given_by_the_environment() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", IN_A_PROCESS_OF_SPARK],
        env={**os.environ, LOG_LEVEL: "debug"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.split("\n") == [
        "KeyError None",
        "InternalError None",
        "UnknownTopic 1",
        f"{logging.WARNING} {logging.DEBUG} {logging.DEBUG}",
        "",
    ]
    assert ran.stderr.count("fail failed\nTraceback (most recent call last):") == 2


SETS_UP = """
import sys
from importlib.machinery import ModuleSpec
sys.modules["__main__"].__spec__ = ModuleSpec("pyspark.daemon", None)
from spark_plugin.python_worker import called_by_spark

def set_up():
    print("set up")

@called_by_spark
def hook():
    print("hook")

sys.modules["tracing"] = sys.modules["__main__"]
for _ in range(2):
    hook()
"""


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("tracing:set_up", ["set up", "hook", "hook"]),
        ("", ["hook", "hook"]),
        ("tracing:nothing", "which cannot be imported"),
        ("no.such.module:set_up", "No module named 'no'"),
        ("tracing", "which cannot be imported"),
        (":", "which cannot be imported"),
    ],
)
def test_function_that_the_environment_names_is_called_once_before_the_first_hook(
    name: str, printed: list[str] | str
) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", SETS_UP],
        env={**os.environ, SETUP: name},
        capture_output=True,
        text=True,
        check=False,
    )
    if isinstance(printed, list):
        assert (ran.stdout.split("\n")[:-1], ran.stderr) == (printed, "")
    else:
        assert printed in ran.stderr
        assert "InvalidConfig: on host" in ran.stderr
        assert ran.stdout == ""


@pytest.mark.parametrize(
    "kind", [TxlogBatchReader, TxlogStreamReader, TxlogBatchWriter, TxlogStreamWriter]
)
def test_executor_with_another_version_refuses_what_the_driver_sends(kind: type) -> None:
    """Before it looks at a field: here one whose class the executor does not have."""
    sent = kind.__new__(kind)
    vars(sent).update(known=7)
    assert vars(pickle.loads(pickle.dumps(sent))) == {"known": 7}
    vars(sent).update(unknown=UnknownTopic)
    data = pickle.dumps(sent).replace(b"UnknownTopic", b"UnknownSince")
    with pytest.raises(InvalidConfig, match=f"executor has txlog {VERSION}, and the driver has 9"):
        pickle.loads(data.replace(VERSION.encode(), b"9.8.7"))
