"""Records of a poll one by one, with positions that follow what was handed out.

It guards that a commit in the middle of a loop covers the record at hand and none after it, and
that a record which was polled but not handed out comes again: nothing is lost by a `break`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from txlog.clients.consumer_record import ConsumerRecord
from txlog.clients.fetcher import PartitionFetcher
from txlog.model import TopicPartition


def one_by_one(
    fetchers: Mapping[TopicPartition, PartitionFetcher],
    polled: Mapping[TopicPartition, list[ConsumerRecord]],
    is_open: Callable[[], bool],
) -> Iterator[ConsumerRecord]:
    """The records of `polled`; `fetchers` are those of its partitions, which stand past them."""
    ends = {where: fetcher.position for where, fetcher in fetchers.items()}
    for where, found in polled.items():
        fetchers[where].position = found[0].offset
    try:
        for where, found in polled.items():
            yield from _steps(fetchers[where], found, ends[where], is_open)
    finally:
        for where, fetcher in fetchers.items():
            if fetcher.position < ends[where]:
                fetcher.seek(fetcher.position)


def _steps(
    fetcher: PartitionFetcher, found: list[ConsumerRecord], end: int, is_open: Callable[[], bool]
) -> Iterator[ConsumerRecord]:
    expected = found[0].offset
    for record in found:
        if fetcher.position != expected or not is_open():
            return  # The loop's body has sought elsewhere, or closed the consumer.
        fetcher.position = expected = record.offset + 1
        yield record
    if fetcher.position == expected:
        # Only aborted or compacted records lie between the last one and the end of what was read.
        fetcher.position = end
