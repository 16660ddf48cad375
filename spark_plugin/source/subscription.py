"""The topics that a source reads: those that exist, and that fit the columns of its query.

Spark gets no offset of a topic that cannot be read, because a checkpoint keeps it permanently. With
`failOnDataLoss=false` a query continues without topics that were deleted, that its options do not
name any more, or that do not fit. It must not know offsets beyond the topics that they name.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial

import pyarrow as pa
from pyspark.sql.types import StructType

from spark_plugin.arrow_schema import common_schema, schema_difference
from spark_plugin.options import ReaderOptions
from txlog.engine.connection import Connection
from txlog.errors import CheckpointConflict, IncompatibleSchema, InvalidOption, UnknownTopic
from txlog.fan_out import in_background
from txlog.model import TopicPartition
from txlog.topic.read.cut import TopicView, catch_up_all, view_of
from txlog.topic.records.schema import is_kafka_schema
from txlog.topic.topic_log import TopicLog

log = logging.getLogger(__name__)


def subscribed_topics(
    connection: Connection,
    options: ReaderOptions,
    *,
    linearizable: bool = False,
    may_miss: bool = False,
) -> dict[str, TopicLog]:
    """The topics that the options name, caught up.

    Raises UnknownTopic for a missing topic, InvalidOption if no topic matches, UnknownPartition for
    an assigned partition that its topic does not have. With `may_miss` missing topics and
    partitions are left out, and the result may be empty.
    """
    # None for a topic that is deleted between the listing and the read.
    find: Callable[[str], TopicLog | None] = connection.cluster.find_topic
    names: Iterable[str] = options.topics
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
            "create one first, change the pattern, or wait for one with failOnMissingTopics=false."
        )
    # Again, all together: a cut over several topics compares states of one round (I11).
    catch_up_all(list(topics.values()), connection.runtime.fan_out)
    for name, partitions in () if may_miss else (options.assign or {}).items():
        topics[name].check_partition(partitions[-1])
    return topics


def views_of(topics: Mapping[str, TopicLog], options: ReaderOptions) -> list[TopicView]:
    """The present states of these topics, in the partitions that the options name."""
    return [view_of(t, (options.assign or {}).get(name)) for name, t in topics.items()]


def are_current(
    connection: Connection,
    options: ReaderOptions,
    topics: Mapping[str, TopicLog],
    *,
    linearizable: bool = False,
) -> bool:
    """Whether `topics` are exactly the topics that the options name now, and none is deleted.

    Catches up the topics and, for a pattern, the cluster, all at once.
    """
    fan_out = connection.runtime.fan_out
    if options.subscribe_pattern is None:
        named = topics.keys() >= {*options.topics}
        return named and _are_all_open(connection, topics, linearizable)
    if not topics:
        return False
    cluster = in_background(fan_out, partial(connection.cluster.state, linearizable=linearizable))
    are_open = _are_all_open(connection, topics, linearizable)
    matching = {n: t.opened.topic_id for n, t in cluster().topics.items() if options.reads(n)}
    return are_open and matching == {name: topic.topic_id for name, topic in topics.items()}


def _are_all_open(
    connection: Connection, topics: Mapping[str, TopicLog], linearizable: bool
) -> bool:
    catch_up_all(list(topics.values()), connection.runtime.fan_out, linearizable=linearizable)
    return not any(topic.state.closed for topic in topics.values())


class QuerySubscription:
    """Decides which of the subscribed topics a query reads, as topics come and go."""

    def __init__(
        self,
        options: ReaderOptions,
        schema: StructType,
        *,
        is_job: bool = False,
        has_all_columns: bool = False,
    ) -> None:
        """`is_job`: `spark.read`, which has no checkpoint. `has_all_columns`: the user chose no
        columns, so the schema has all that the topics had when the DataFrame was loaded."""
        self._is_job = is_job
        self._has_all_columns = has_all_columns
        self._options = options
        self._schema = schema
        self._differences: dict[tuple[str, int], str] = {}
        """(topic id, schema id) -> why that schema does not fit the columns; empty if it does."""
        self._warned: set[str] = set()

    def readable(
        self, topics: Mapping[str, TopicLog], read_ids: Mapping[str, str]
    ) -> dict[str, TopicLog]:
        """The topics that fit. `read_ids`: name -> id of the topics that the query has read.

        Raises IncompatibleSchema for a topic that does not fit, unless the query has not read it,
        a pattern matches it, and `failOnDataLoss` is false: then it is left out. With
        `failOnNewColumns` also for a topic that has more columns, which are not read otherwise.
        """
        found = {}
        for name, topic in topics.items():
            difference = self._difference(topic)
            if not difference:
                self._check_new_columns(topic)
                found[name] = topic
                continue
            was_read = read_ids.get(name) == topic.topic_id
            is_named = self._options.subscribe_pattern is None
            if was_read or is_named or self._options.fail_on_data_loss:
                may_be_new = not (was_read or self._options.fail_on_missing_topics)
                remedy = _NEW_TOPIC if may_be_new else _remedy(was_read, is_named)
                raise IncompatibleSchema(
                    f"topic {name!r} does not fit the columns of this query: {difference}. "
                    f"{'' if self._is_job else 'The checkpoint was not changed. '}{remedy}",
                    topic=name,
                )
            self._warn(
                f"topic {name} is left out, as it does not fit the query: {difference} "
                "(failOnDataLoss is false)"
            )
        return found

    def _check_new_columns(self, topic: TopicLog) -> None:
        schema = topic.schema()
        new = sorted({*schema.names} - {*self._schema.names})
        if not (new and self._has_all_columns) or is_kafka_schema(schema):
            return
        facts = f"topic {topic.name} has columns that this DataFrame lacks: {', '.join(new)}"
        if self._options.fail_on_new_columns:
            raise IncompatibleSchema(
                f"{facts}. They were added since it was loaded: restart the query to load them.",
                topic=topic.name,
                columns=new,
            )
        self._warn(
            f"{facts}; their values are not read until it is loaded again. "
            "failOnNewColumns=true stops the query instead"
        )

    def require_begun(
        self, connection: Connection, topics: Mapping[str, TopicLog], read_ids: Mapping[str, str]
    ) -> None:
        """With `failOnDataLoss`, refuse to continue without a topic that the query has read.

        It was deleted, even if a new topic has the name, or is not subscribed to any more. Raises
        CheckpointConflict; without `failOnDataLoss` warns once.
        """
        for name, topic_id in sorted(read_ids.items()):
            if name in topics and topics[name].topic_id == topic_id:
                continue
            remedy = "To continue without it set failOnDataLoss=false in the source"
            if name in self._options.abandoned_topics:
                continue
            if not self._options.reads(name):
                facts = f"topic {name} is not subscribed to any more; its position is kept"
                remedy = (
                    "Subscribe to it again; or, to give up its unread records, set "
                    f"abandonedTopics={name} in the source"
                )
            else:
                found = connection.cluster.find_topic(name)
                if found is not None and found.topic_id == topic_id:
                    continue
                if found is None:
                    facts = f"topic {name} was deleted, with those of its records not read yet"
                else:
                    ids = f"id {topic_id} there, {found.topic_id} here"
                    facts = f"topic {name} was deleted and created again ({ids})"
                    remedy = (
                        "To continue at the beginning of the new topic set failOnDataLoss=false "
                        "in the source"
                    )
            self._continue_without(facts, remedy, name)

    def require_assigned(self, wheres: Iterable[TopicPartition]) -> None:
        """With `failOnDataLoss`, refuse to continue without a partition that the query has read and
        `assign` does not name any more. Raises CheckpointConflict; without `failOnDataLoss` warns
        once."""
        for where in wheres if self._options.assign is not None else ():
            if self._options.reads(where.topic) and not self._options.reads_partition(where):
                facts = f"partition {where} is not assigned any more; its position is kept"
                remedy = "Assign it again; or, to continue without it, set failOnDataLoss=false"
                self._continue_without(facts, f"{remedy} in the source", where)

    def _continue_without(self, facts: str, remedy: str, where: object) -> None:
        if self._options.fail_on_data_loss:
            raise CheckpointConflict(
                f"{facts}. The checkpoint was not changed. {remedy}.", where=str(where)
            )
        self._warn(f"{facts} (failOnDataLoss is false)")

    def warn_of_missing(self, topics: Mapping[str, TopicLog]) -> None:
        """Say what a query waits for: a misspelt name would keep it waiting for ever."""
        wanted = self._options.topics or (self._options.subscribe_pattern or "",)
        is_pattern = not self._options.topics
        missing = [] if is_pattern and topics else sorted({*wanted} - topics.keys())
        if missing:
            self._warn(f"waiting for topics that do not exist yet: {', '.join(missing)}")

    def explained(self, error: UnknownTopic, read_ids: Mapping[str, str]) -> UnknownTopic:
        """The error for a missing topic, with another message if the query has read the topic."""
        name = str(error.facts.get("topic"))
        if name not in read_ids:
            return error
        return UnknownTopic(
            f"topic {name!r} was deleted since the query read it. The checkpoint was not changed: "
            "to continue without the topic set failOnDataLoss=false in the source.",
            topic=name,
        )

    def _difference(self, topic: TopicLog) -> str:
        key = (topic.topic_id, topic.state.newest_schema_id)
        if key not in self._differences:
            self._differences[key] = schema_difference(topic.schema(key[1]), self._schema)
        return self._differences[key]

    def _warn(self, text: str) -> None:
        """Log a warning once."""
        if text not in self._warned:
            self._warned.add(text)
            log.warning("%s", text)


def inferred_schema(topics: Mapping[str, TopicLog], options: ReaderOptions) -> pa.Schema:
    """The schema of a DataFrame that was loaded without one. Raises IncompatibleSchema.

    If topics that do not fit may be left out, it is the most frequent schema, of equally frequent
    ones the first by topic name; otherwise all topics must have it.
    """
    schemas = {name: topic.schema() for name, topic in topics.items()}
    if options.subscribe_pattern is None or options.fail_on_data_loss:
        return common_schema(schemas)
    texts = {name: schema.serialize().to_pybytes() for name, schema in schemas.items()}
    # Of equal counts the first one counted comes first: with sorted names it is always the same.
    ((most, _),) = Counter(texts[name] for name in sorted(texts)).most_common(1)
    return next(schemas[name] for name in sorted(texts) if texts[name] == most)


_NEW_TOPIC = (
    "If it was created since the DataFrame was loaded, restart the query to load its columns, or "
    "give the reader a schema that it fits."
)


def _remedy(was_read: bool, is_named: bool) -> str:
    """What to do about a topic that does not fit."""
    if was_read:
        return (
            "Its schema was changed since the DataFrame was loaded: restart the query to load the "
            "current columns, and cast them in the query if it needs the earlier types. If other "
            "topics of the pattern outnumber this one, give the reader a schema."
        )
    if is_named:
        return (
            "If the reader was given a schema, declare its columns as they are in the topic, and "
            "cast them in the query. Otherwise leave the topic out of 'subscribe', and read it "
            "with a reader of its own."
        )
    return (
        "Delete the topic, narrow the pattern, or set failOnDataLoss=false, which leaves out "
        "topics that do not fit; then start the query again."
    )
