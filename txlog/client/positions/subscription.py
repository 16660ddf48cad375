"""A consumer's subscription: topics by name, or every topic whose name matches. Pure.

As in Kafka, a pattern must match the whole name, and never matches internal topics.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from txlog.client.positions.position_arguments import checked_names
from txlog.errors import UsageError
from txlog.model import is_internal_topic


@dataclass(frozen=True, slots=True)
class Subscription:
    """The topics that a consumer has subscribed to."""

    topics: tuple[str, ...] = ()
    """The topics by name, or those that matched when the consumer last checked."""
    pattern: re.Pattern[str] | None = None

    def matching(self, names: Iterable[str]) -> Subscription:
        """The same pattern, with the topics that match now."""
        pattern = self.pattern
        if pattern is None:
            return self
        found = (n for n in names if not is_internal_topic(n) and pattern.fullmatch(n))
        return replace(self, topics=tuple(sorted(found)))


def subscription_to(topics: Iterable[str] | str, pattern: str | None) -> Subscription:
    """The arguments of `subscribe`. Raises UsageError."""
    names = tuple(checked_names(topics))
    if pattern is None:
        return Subscription(names)
    if names:
        raise UsageError(
            "subscribe() takes topics or a pattern, not both; put the names into the pattern, as "
            "in 'orders|payments-.*'."
        )
    return Subscription((), _compiled(pattern))


def _compiled(pattern: object) -> re.Pattern[str]:
    reason: object = f"it is {type(pattern).__name__}, not text"
    if isinstance(pattern, str):
        try:
            return re.compile(pattern)
        # The last two: a count such as {99999999999}, and parentheses nested thousands deep.
        except (re.error, OverflowError, RecursionError) as error:
            reason = error
    raise UsageError(
        f"the pattern {pattern!r:.80} is not a regular expression ({reason}); write it as "
        "'orders-.*', which must match a topic's whole name."
    )
