"""Reading of several partitions at the same time, where a request takes a round trip.

It guards I16: together they read no more than one poll may. It must not know whose poll it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from txlog.client.consumer.fetcher import PartitionFetcher, PartitionRead
from txlog.clock import FanOut
from txlog.errors import StoreUnavailable, TxlogError
from txlog.topic.read.reader import DECODED_FETCH_BYTES_MAX

FETCHED_TOGETHER_MAX = 16
"""Partitions that are read at the same time."""


def fill_together(
    fetchers: Sequence[PartitionFetcher], fan_out: FanOut, records: int, stored_bytes_max: int
) -> None:
    """Read what comes next of as many partitions, in this order, as it takes for so many records;
    if nothing at all is at hand.

    Records that cannot be read are left to the reader of that partition alone, which gets the
    error. Raises StoreUnavailable if that is the error of all partitions.
    """
    if any(fetcher.has_at_hand for fetcher in fetchers):
        return
    hungry: list[PartitionFetcher] = []
    for fetcher in fetchers:
        if fetcher.is_hungry() and records > 0 and len(hungry) < FETCHED_TOGETHER_MAX:
            hungry.append(fetcher)
            records -= fetcher.pending
    if len(hungry) < 2:
        return
    stored_bytes = max(1, stored_bytes_max // len(hungry))
    decoded_bytes = DECODED_FETCH_BYTES_MAX // len(hungry)
    reads = fan_out.run_all([partial(_tried, f, stored_bytes, decoded_bytes) for f in hungry])
    failures = [read for read in reads if isinstance(read, StoreUnavailable)]
    if len(failures) == len(hungry):
        raise failures[0]
    for fetcher, read in zip(hungry, reads, strict=True):
        if isinstance(read, PartitionRead):
            fetcher.adopt(read)


def _tried(
    fetcher: PartitionFetcher, stored_bytes: int, decoded_bytes: int
) -> PartitionRead | TxlogError:
    try:
        return fetcher.read(stored_bytes, decoded_bytes)
    except TxlogError as error:
        return error
