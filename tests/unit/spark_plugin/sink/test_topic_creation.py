"""A missing topic: one that is new, or one that was deleted while the query ran."""

from collections.abc import Iterator

import pytest
from pyspark.sql.types import LongType, StructType

from spark_plugin.options import parse_writer_options
from spark_plugin.sink.sink_topics import Creation, SinkTopics, creation
from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import ScriptedStore
from txlog.engine.connection import Connection
from txlog.errors import StoreDenied, UnknownTopic
from txlog.maintenance.vacuum import Vacuum
from txlog.storage.store import StoredObject

FRAME = StructType().add("n", LongType())
OPTIONS = parse_writer_options({"path": "memory://log", "topic": "made"})


class Unlisted(ScriptedStore):
    """The store for a process without LIST permission."""

    def list_after(self, prefix: str, after: str = "") -> Iterator[StoredObject]:
        raise StoreDenied(f"may not list {prefix}; ask for that right.")


def write(connection: Connection, allowed: Creation) -> None:
    SinkTopics(connection, OPTIONS, FRAME, allowed).topic_or_new("made")


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog()


@pytest.mark.parametrize(
    ("asked", "is_later", "allowed"),
    [
        (None, False, Creation.ALL),
        (None, True, Creation.NEW_NAMES),
        (True, False, Creation.ALL),
        (True, True, Creation.ALL),
        (False, False, Creation.NONE),
        (False, True, Creation.NONE),
    ],
)
def test_allowed_creation_depends_on_option_and_later_batch(
    asked: bool | None, is_later: bool, allowed: Creation
) -> None:
    assert creation(asked, is_later=is_later) is allowed


@pytest.mark.parametrize("allowed", [Creation.ALL, Creation.NEW_NAMES])
def test_topic_with_new_name_is_created(log: MemoryLog, allowed: Creation) -> None:
    write(log.connection, allowed)
    assert log.admin.list_topics() == ["made"]


def test_created_topic_has_the_settings_that_the_sink_names(log: MemoryLog) -> None:
    given = {"path": "memory://log", "topic.max.message.bytes": "6000000", "key": "n"}
    SinkTopics(log.connection, parse_writer_options(given), FRAME, Creation.ALL).topic_or_new("big")
    config = log.admin.describe_topic("big").config
    assert (config.max_message_bytes, config.key_column) == (6_000_000, "n")


@pytest.mark.parametrize("is_swept", [False, True], ids=["as it was left", "after vacuum"])
def test_deleted_topic_is_recreated_only_with_creation_all(log: MemoryLog, is_swept: bool) -> None:
    log.admin.create_topic("made", 1)
    log.admin.delete_topics("made")
    if is_swept:
        vacuum = Vacuum(log.process(), 0)
        vacuum.sweep(vacuum.find_candidates())
    with pytest.raises(UnknownTopic, match="was deleted, .* set createTopics=true"):
        write(log.process(), Creation.NEW_NAMES)
    assert log.admin.list_topics() == []
    write(log.process(), Creation.ALL)
    assert log.admin.list_topics() == ["made"]


def test_no_topic_is_created_if_create_topics_is_false(log: MemoryLog) -> None:
    with pytest.raises(UnknownTopic, match="The sink creates none, as createTopics is false"):
        write(log.connection, Creation.NONE)
    assert log.admin.list_topics() == []


def test_without_list_permission_topic_is_created_only_with_creation_all(log: MemoryLog) -> None:
    process = log.process(Unlisted(log.memory))
    with pytest.raises(UnknownTopic, match="set createTopics=true"):
        write(process, Creation.NEW_NAMES)
    write(process, Creation.ALL)
    assert log.admin.list_topics() == ["made"]
