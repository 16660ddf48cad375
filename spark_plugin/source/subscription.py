"""The topics that a stream reads: those that exist, and that fit the columns of its query.

It guards that Spark gets no offset of a topic that cannot be read, because a checkpoint keeps it
for good, and R25: a topic that was deleted is distinguished from one that another source reads.
With `failOnDataLoss=false` a query continues without topics that are gone or do not fit. It must
not know offsets beyond the topics that they name.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql.types import StructType

from spark_plugin.arrow_schema import common_schema, schema_difference
from spark_plugin.options import ReaderOptions
from txlog.engine.connection import Connection
from txlog.errors import IncompatibleSchema, UnknownTopic
from txlog.topic.topic_log import TopicLog

log = logging.getLogger(__name__)


class QuerySubscription:
    """The current topics of the options; topics of a pattern come and go."""

    def __init__(self, options: ReaderOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._fits: dict[tuple[str, int], str] = {}
        """By topic id and schema id: why that schema does not fit the columns; empty if it does."""
        self._told: set[str] = set()

    def readable(
        self, topics: Mapping[str, TopicLog], begun: Mapping[str, str]
    ) -> dict[str, TopicLog]:
        """Those that fit. `begun`: ids of the topics that the query has read, by name.

        Raises IncompatibleSchema for one that does not fit, unless it has not begun, a pattern
        matches it, and `failOnDataLoss` is false: then it is left out.
        """
        found = {}
        for name, topic in topics.items():
            difference = self._difference(topic)
            if not difference:
                found[name] = topic
                continue
            has_begun = begun.get(name) == topic.topic_id
            is_named = self._options.subscribe_pattern is None
            if has_begun or is_named or self._options.fail_on_data_loss:
                raise _misfit(name, difference, has_begun=has_begun, is_named=is_named)
            self._tell(f"topic {name} is left out, as it does not fit the query: {difference}")
        return found

    def gone(
        self, connection: Connection, topics: Mapping[str, TopicLog], begun: Mapping[str, str]
    ) -> set[str]:
        """Topics that the query has read and that no longer exist, even if another topic has the
        name; empty with `failOnDataLoss`, which refuses to continue."""
        if self._options.fail_on_data_loss:
            return set()
        missing = {n: i for n, i in begun.items() if n not in topics or topics[n].topic_id != i}
        found = {name: connection.cluster.find_topic(name) for name in sorted(missing)}
        gone = {
            name
            for name, topic in found.items()
            if topic is None or topic.topic_id != missing[name]
        }
        for name in sorted(gone):
            self._tell(f"topic {name} was deleted, with those of its records that were not read")
        return gone

    def lost(self, error: UnknownTopic, begun: Mapping[str, str]) -> UnknownTopic:
        """The error for a missing topic: it was read, or its name is wrong."""
        name = str(error.facts.get("topic"))
        if name not in begun:
            return error
        return UnknownTopic(
            f"topic {name!r} was deleted while it was read. The checkpoint is as it was: to go on "
            "without the topic set failOnDataLoss=false in the source.",
            topic=name,
        )

    def _difference(self, topic: TopicLog) -> str:
        key = (topic.topic_id, topic.state.newest_schema_id)
        if key not in self._fits:
            self._fits[key] = schema_difference(topic.schema(key[1]), self._schema)
        return self._fits[key]

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            log.warning("%s (failOnDataLoss is false)", text)


def inferred_schema(topics: Mapping[str, TopicLog], options: ReaderOptions) -> pa.Schema:
    """The schema of a DataFrame without a given one. Raises IncompatibleSchema.

    If topics that do not fit may be left out, it is the most frequent schema, of equally frequent
    ones the first by topic name; otherwise all topics must have it.
    """
    schemas = {name: topic.schema() for name, topic in topics.items()}
    if options.subscribe_pattern is None or options.fail_on_data_loss:
        return common_schema(schemas)
    texts = {name: schema.serialize().to_pybytes() for name, schema in schemas.items()}
    ((most, _),) = Counter(texts[name] for name in sorted(texts)).most_common(1)
    return next(schemas[name] for name in sorted(texts) if texts[name] == most)


def _misfit(name: str, difference: str, *, has_begun: bool, is_named: bool) -> IncompatibleSchema:
    if has_begun:
        remedy = (
            "Its schema was changed since the DataFrame was loaded: start the query again, so that "
            "it is loaded with the columns as they are now, and cast them in the query if it needs "
            "the earlier types. If other topics of the pattern outnumber it, give the reader a "
            "schema."
        )
    elif is_named:
        remedy = "Leave it out of 'subscribe', and read it by a reader of its own."
    else:
        remedy = (
            "Delete the topic, narrow the pattern, or set failOnDataLoss=false, which leaves out "
            "topics that do not fit; then start the query again."
        )
    return IncompatibleSchema(
        f"topic {name!r} does not fit the columns of this query: {difference}. The checkpoint is "
        f"as it was: no offset was handed out. {remedy}",
        topic=name,
    )
