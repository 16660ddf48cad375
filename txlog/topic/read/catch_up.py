"""Catching up with several topics, so that a consistent cut can be found.

The topics are read at different times. Between two of these reads a producer may finish one
transaction and begin another, which one state then contains and the other does not. It guards I11:
each state still has the decisions of all transactions that were decided since the round began.
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
    """Catch up with all topics, so that `cut.partly_applied` compares their states.

    A topic's state has the decisions of transactions as far back as its tail. If the tail does not
    reach back to the beginning of this round, another round follows, which finds few new entries.
    A single topic may lag as `TopicLog.catch_up` may, unless `linearizable`. Raises
    PublishContention if the topics grow faster than they can be read.
    """
    for _ in range(ROUNDS_MAX):
        known = [topic.next_slot for topic in topics]
        is_single = len(topics) < 2
        # A topic that lags behind its pruned journal would lack transactions that the others have
        # had time to forget, so that no comparison finds them (R15).
        fan_out.run_all(
            [
                partial(topic.catch_up, linearizable=linearizable or not is_single)
                for topic in topics
            ]
        )
        # A topic that has sealed slots of this round may have forgotten decisions of this round.
        if is_single or all(t.state.sealed_slot < n for t, n in zip(topics, known, strict=True)):
            return
    raise PublishContention(
        f"topics {', '.join(topic.name for topic in topics)} grow faster than they can be read "
        "together; try again."
    )
