"""Records of a poll, all at once or one by one; positions follow what was returned.

It guards that a commit in the middle of a loop covers the current record and none after it, and
that a polled record that was not returned is polled again: nothing is lost by a `break`, by Ctrl-C,
or by a value that Python cannot represent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from txlog.client.consumer.consumer_record import ConsumerRecord, readable
from txlog.client.consumer.fetcher import PartitionFetcher
from txlog.model import TopicPartition
from txlog.topic.read.reader import FetchedBatch

Fetchers = Mapping[TopicPartition, PartitionFetcher]


@contextmanager
def kept_if_interrupted(fetchers: Callable[[], Fetchers]) -> Iterator[None]:
    """A call that ends in an exception has returned nothing: positions stay, those of new
    partitions at their beginning."""
    before = {fetcher: fetcher.position for fetcher in fetchers().values()}
    try:
        yield
    except BaseException:
        for fetcher in fetchers().values():
            fetcher.position = before.get(fetcher, fetcher.begun_at)
        raise


def all_at_once(
    taken: Iterable[tuple[PartitionFetcher, TopicPartition, FetchedBatch]],
) -> dict[TopicPartition, list[ConsumerRecord]]:
    """The records, up to an unreadable one in each partition, where its fetcher then stays.

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
    poll: Callable[[], Mapping[TopicPartition, list[ConsumerRecord]]],
    fetchers: Callable[[], Fetchers],
    is_open: Callable[[], bool],
) -> Iterator[ConsumerRecord]:
    """The records of a poll; afterwards the fetchers are past them."""
    with kept_if_interrupted(fetchers):
        polled = poll()
        reading = fetchers()
        ends = {where: reading[where].position for where in polled}
        for where, found in polled.items():
            reading[where].position = found[0].offset
    for where, found in polled.items():
        yield from _steps(reading[where], found, ends[where], is_open)


def _steps(
    fetcher: PartitionFetcher, found: list[ConsumerRecord], end: int, is_open: Callable[[], bool]
) -> Iterator[ConsumerRecord]:
    expected = found[0].offset
    for record in found:
        if fetcher.position != expected or not is_open():
            return  # The loop's body called seek(), or closed the consumer.
        fetcher.position = expected = record.offset + 1
        yield record
    if fetcher.position == expected:
        # Only aborted or compacted records are between the last one and the end of the read.
        fetcher.position = end
