"""A look at several topics, from which a consistent cut can be found.

Each topic is read by requests of its own, so a look has as many moments as topics: in the meantime
a producer may finish a transaction, and another, which one of the states knows and the other does
not. It guards I11: what was decided since the look began is known to the state as such.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from txlog.clock import FanOut
from txlog.errors import PublishContention
from txlog.log.topic_log import TopicLog

LOOKS_MAX = 20


def look(topics: Sequence[TopicLog], fan_out: FanOut, *, certain: bool = False) -> None:
    """Catch up with all topics, so that `cut.undelivered` can tell what lies across their states.

    A topic's state remembers how transactions were decided for as long as its tail reaches back. If
    that is not to the beginning of this look, another one is made: it finds little that is new. A
    look at one topic may lag as `TopicLog.catch_up` does, unless it is to be `certain`.
    Raises PublishContention if the topics grow faster than they can be looked at.
    """
    for _ in range(LOOKS_MAX):
        known = [topic.next_slot for topic in topics]
        is_single = len(topics) < 2
        fan_out.run_all(
            [partial(topic.catch_up, certain=certain or not is_single) for topic in topics]
        )
        if is_single or all(t.state.sealed_slot < n for t, n in zip(topics, known, strict=True)):
            return
    raise PublishContention(
        f"topics {', '.join(topic.name for topic in topics)} grow faster than they can be looked "
        "at together; try again."
    )
