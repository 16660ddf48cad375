"""Joins neighbouring byte ranges into one request, and cuts its answer up again.

Pure arithmetic, for stores where a request costs more than a few unneeded bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from txlog.storage.store import ByteRange, Bytes

GAP_BYTES_MAX = 1 << 16
"""Up to this many unneeded bytes between two ranges are cheaper than another request."""


@dataclass(frozen=True, slots=True)
class Span:
    """`length` bytes from `start`, which one request reads."""

    start: int
    length: int

    @property
    def end(self) -> int:
        """First byte after it."""
        return self.start + self.length

    @property
    def last(self) -> int:
        """Last byte to request. HTTP has no empty range: then one byte is read, and cut off."""
        return max(self.end - 1, self.start)


def merge(ranges: Sequence[ByteRange], gap_bytes_max: int = GAP_BYTES_MAX) -> list[Span]:
    """The spans, in order of start, that cover all `ranges`; gaps up to the limit are read too."""
    spans: list[Span] = []
    for wanted in sorted(ranges, key=lambda item: (item.start, item.length)):
        end = wanted.start + wanted.length
        if spans and wanted.start - spans[-1].end <= gap_bytes_max:
            last = spans.pop()
            spans.append(Span(last.start, max(last.end, end) - last.start))
        else:
            spans.append(Span(wanted.start, wanted.length))
    return spans


def cut(ranges: Sequence[ByteRange], spans: Sequence[Span], parts: Sequence[Bytes]) -> list[Bytes]:
    """The bytes of each range, in their given order; a range beyond the end is short."""
    return [_cut_one(wanted, spans, parts) for wanted in ranges]


def _cut_one(wanted: ByteRange, spans: Sequence[Span], parts: Sequence[Bytes]) -> Bytes:
    for span, part in zip(spans, parts, strict=True):
        if span.start <= wanted.start and wanted.start + wanted.length <= span.end:
            start = wanted.start - span.start
            return memoryview(part)[start : start + wanted.length]
    raise AssertionError("merge() covers every range")
