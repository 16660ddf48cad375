"""Records of a poll, all at once or one by one, with positions that follow what was handed out.

It guards that a commit in the middle of a loop covers the record at hand and none after it, and
that a record which was polled but not handed out comes again: nothing is lost by a `break`, by
Ctrl-C, or by a value that Python cannot hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from txlog.clients.consumer_record import ConsumerRecord, readable
from txlog.clients.fetcher import PartitionFetcher
from txlog.log.reader import FetchedBatch
from txlog.model import TopicPartition


@contextmanager
def kept_if_interrupted(fetchers: Iterable[PartitionFetcher]) -> Iterator[None]:
    """What ends in an exception has handed out nothing: positions stay where they are."""
    before = [(fetcher, fetcher.position) for fetcher in fetchers]
    try:
        yield
    except BaseException:
        for fetcher, position in before:
            if fetcher.position != position:
                fetcher.seek(position)
        raise


def all_at_once(
    taken: Iterable[tuple[PartitionFetcher, TopicPartition, FetchedBatch]],
) -> dict[TopicPartition, list[ConsumerRecord]]:
    """The records, up to one that cannot be read in each partition: its fetcher stands there then.

    Raises InvalidRecord if the very first one cannot be read (as KIP-334 has it).
    """
    found: dict[TopicPartition, list[ConsumerRecord]] = {}
    stopped: set[TopicPartition] = set()
    for fetcher, where, fetched in taken:
        if where in stopped:
            continue
        records, error = readable(where.topic, fetched)
        if error is not None:
            if not records and not found:
                raise error
            fetcher.seek(int(error.facts["offset"]))  # type: ignore[call-overload]
            stopped.add(where)
        if records:
            found.setdefault(where, []).extend(records)
    return found


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
