"""How the plugin's processes get at the log: the connection, and topics by option.

Connections are cached for each process and root, because Spark keeps its Python workers from batch
to batch; nothing depends on that cache for its correctness.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial

from spark_plugin.drill_points import DrilledStore, points_of_process
from spark_plugin.options import ReaderOptions, WriterOptions
from txlog.catalog.cluster_file import ClusterFile
from txlog.clock import Runtime, begun
from txlog.engine.connection import Connection, connect, open_connection
from txlog.errors import InvalidOption
from txlog.storage.open import open_store
from txlog.topic.read.catch_up import catch_up_all
from txlog.topic.topic_log import TopicLog


def open_log(
    options: ReaderOptions | WriterOptions,
    *,
    create: bool = False,
    cluster_file: ClusterFile | None = None,
) -> Connection:
    """The log that `root` names; without a request, by `cluster_file`, which the driver read.

    A drill stops the sink alone: a source may finish another producer's transaction, whose markers
    are not a step of the batch.

    Raises NotATxlog, StoreDenied, StoreNotAtomic.
    """
    points = points_of_process()
    if points is not None and isinstance(options, WriterOptions):
        return _drilled(os.getpid(), options.root, tuple(sorted(options.storage.items())), create)
    storage = dict(options.storage)
    return connect(options.root, create=create, storage_options=storage, cluster_file=cluster_file)


@cache
def _drilled(
    process: int, root: str, storage: tuple[tuple[str, str], ...], create: bool
) -> Connection:
    """The same for a process that a drill stops; one a process, as of `connect`."""
    runtime, points = Runtime(), points_of_process()
    store = open_store(root, runtime, dict(storage))
    return open_connection(
        store if points is None else DrilledStore(store, points), runtime, create=create
    )


def subscribed_topics(
    connection: Connection,
    options: ReaderOptions,
    *,
    linearizable: bool = False,
    may_miss: bool = False,
) -> dict[str, TopicLog]:
    """The topics that the options name, caught up: surely as of now, if that is asked for.

    Raises UnknownTopic, InvalidOption if there is none; with `may_miss` the others are left out,
    and the answer may be empty.
    """
    find: Callable[[str], TopicLog | None] = connection.cluster.find_topic
    names: Iterable[str] = options.subscribe
    if options.subscribe_pattern is not None:
        known = connection.cluster.state(linearizable=linearizable).topics
        names = sorted(filter(options.reads, known))
    elif not may_miss:
        find = partial(connection.cluster.present_topic, linearizable=linearizable)
    found = connection.runtime.fan_out.run_all([partial(find, name) for name in names])
    topics = {topic.name: topic for topic in found if topic is not None}
    if not topics and not may_miss:
        raise InvalidOption(
            f"no topic of {options.root} matches subscribePattern {options.subscribe_pattern!r}; "
            "create one first, or change the pattern."
        )
    catch_up_all(list(topics.values()), connection.runtime.fan_out)
    return topics


def are_known(
    connection: Connection,
    options: ReaderOptions,
    topics: Mapping[str, TopicLog],
    *,
    linearizable: bool = False,
) -> bool:
    """Whether `topics` are what the options name now, and all are open; brings them up to now, and
    for a pattern the cluster, all at once."""
    fan_out = connection.runtime.fan_out
    if options.subscribe_pattern is None:
        named = topics.keys() >= {*options.subscribe}
        return named and _are_all_open(connection, topics, linearizable)
    if not topics:
        return False
    asked = begun(fan_out, partial(connection.cluster.state, linearizable=linearizable))
    are_open = _are_all_open(connection, topics, linearizable)
    matching = {n: t.opened.topic_id for n, t in asked().topics.items() if options.reads(n)}
    return are_open and matching == {name: topic.topic_id for name, topic in topics.items()}


def _are_all_open(
    connection: Connection, topics: Mapping[str, TopicLog], linearizable: bool
) -> bool:
    catch_up_all(list(topics.values()), connection.runtime.fan_out, linearizable=linearizable)
    return not any(topic.state.closed for topic in topics.values())
