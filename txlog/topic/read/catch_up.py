"""Catching up with several topics, so that a consistent cut can be found.

Each topic is read by its own requests, so a round has as many moments as topics: in the meantime a
producer may finish a transaction, and begin another, which one of the states contains and the other
does not. It guards I11: transactions that were decided since the round began are marked as such.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from txlog.clock import FanOut
from txlog.errors import PublishContention
from txlog.topic.topic_log import TopicLog

ROUNDS_MAX = 20


def catch_up_all(
    topics: Sequence[TopicLog], fan_out: FanOut, *, linearizable: bool = False
) -> None:
    """Catch up with all topics, so that `cut.undelivered` can find what crosses their states.

    A topic's state remembers how transactions were decided as far back as its tail reaches. If that
    is not to the beginning of this round, another one follows, which finds little that is new. One
    topic alone may lag like `TopicLog.catch_up`, unless it is `linearizable`.
    Raises PublishContention if the topics grow faster than they can be read.
    """
    for _ in range(ROUNDS_MAX):
        known = [topic.next_slot for topic in topics]
        is_single = len(topics) < 2
        fan_out.run_all(
            [
                partial(topic.catch_up, linearizable=linearizable or not is_single)
                for topic in topics
            ]
        )
        if is_single or all(t.state.sealed_slot < n for t, n in zip(topics, known, strict=True)):
            return
    raise PublishContention(
        f"topics {', '.join(topic.name for topic in topics)} grow faster than they can be read "
        "together; try again."
    )
