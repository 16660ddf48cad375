"""Checks a topic's index for consistency, and against the files that it refers to.

Keeps I2, I7 and I15 for operators: `log_audit.py` reads the records; this module checks that each
chunk covers what the reference to it says, that no batch is in the index twice, that a segment's
footer names the batches that the index names, and that the segment contains no other bytes. It may
use listings: no decision depends on its result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache

from txlog.errors import CorruptData, MissingObject
from txlog.journal.audit import Finding
from txlog.layout import is_entry, is_segment
from txlog.storage.policy.read_ahead import ReadAheadStore
from txlog.storage.store import ByteRange, Store
from txlog.topic.batch_index import ChunkRef, IndexedBatch, merged_spans, spans_of_batches
from txlog.topic.records.segment_reader import footer_range, named_batches
from txlog.topic.state import TopicState
from txlog.topic.topic_log import TopicLog

BATCHES_KEPT_MAX = 1_000_000
"""Batches that are remembered, some 70 MB; then the audit forgets them and goes on. A forged index
may repeat a batch; a sound one never does."""

SEGMENTS_KEPT_MAX = 64
"""Segments whose footers are kept: the rows of a segment are neighbours in the index, except those
of segments that were written at the same time. Another read of a footer costs one request."""

ROWS_AHEAD_MAX = 64
"""Batches that are read together from a distant store, in one round trip."""

BYTES_AHEAD_MAX = 4 << 20
"""Their total size (I16): three batches of the usual size, or 64 of 64 KB."""

Report = Callable[[Finding], object]


class IndexAudit:
    """An audit of a topic's index in one state."""

    def __init__(self, store: Store, topic: TopicLog, state: TopicState, report: Report) -> None:
        self._store = store
        self._topic = topic
        self._state = state
        self._report = report
        self._sizes: dict[str, int] = {}
        try:
            for stored in store.list_after(topic.layout.segments):
                self._sizes[stored.path] = stored.size_bytes
        except CorruptData as error:
            report(Finding(topic.layout.segments, "I15", error.message))
        self._seen: set[int] = set()
        self._named = lru_cache(SEGMENTS_KEPT_MAX)(
            lambda path: named_batches(store, path, self._sizes[path])
        )

    def check_tree(self) -> None:
        """Check that chunks cover what their references say. Raises CorruptData, BoundaryMoved."""
        self._check(self._state.sealed.roots())

    def _check(self, refs: Sequence[ChunkRef]) -> None:
        for ref in refs:
            content = self._topic.chunk(self._state, ref)
            below = [part for part in content if isinstance(part, ChunkRef)]
            rows = [part for part in content if isinstance(part, IndexedBatch)]
            covered = merged_spans(below) if below else spans_of_batches(rows)
            if covered != ref.spans:
                path = self._topic.layout.chunk(ref.first_slot, ref.last_slot, ref.name)
                text = "it covers other offsets than its reference says"
                self._report(Finding(path, "I2", text))
            self._check(below)

    def read_ahead(self, rows: Iterable[IndexedBatch]) -> Iterator[IndexedBatch]:
        """The same rows, in order. If the store reads ahead, it fetches what `check_segment` and
        the reader need for several rows together. An error of `rows` is raised after the rows
        before it."""
        if not isinstance(self._store, ReadAheadStore):
            yield from rows
            return
        left = iter(rows)
        while True:
            window: list[IndexedBatch] = []
            failure: CorruptData | None = None
            try:
                _fill(window, left)
            # The rows before the damage are still checked.
            except CorruptData as error:
                failure = error
            self._store.expect_ranges(self._wanted(window))
            yield from window
            if failure is not None:
                raise failure
            if not window:
                return

    def _wanted(self, window: Sequence[IndexedBatch]) -> dict[str, list[ByteRange]]:
        """Segment or entry -> byte ranges of its batches, and of a segment's footer."""
        wanted: dict[str, list[ByteRange]] = {}
        for row in window:
            if row.record_count and (is_segment(row.segment) or is_entry(row.segment)):
                size = self._sizes.get(row.segment)
                footer = [] if size is None else [footer_range(size)]
                wanted.setdefault(row.segment, footer).append(ByteRange(row.position, row.length))
        return wanted

    def is_new(self, row: IndexedBatch) -> bool:
        """Whether this is the batch's first row; a second row is a finding (I7)."""
        key = hash((row.segment, row.position))
        if key in self._seen:
            text = f"the batch at byte {row.position} is in the index twice"
            self._report(Finding(row.segment, "I7", text))
            return False
        if len(self._seen) >= BATCHES_KEPT_MAX:
            self._seen.clear()
        self._seen.add(key)
        return True

    def check_segment(self, row: IndexedBatch) -> None:
        """Check that the segment's footer names the batch, and that its batches fill the file. A
        file that is not in the listing is left to the reader of the batch."""
        if row.segment not in self._sizes:
            return
        try:
            is_named = (row.position, row.length) in self._named(row.segment)
        except MissingObject:
            return  # It was merged and collected meanwhile, or the reader will report it.
        except CorruptData as error:
            self._report(Finding(row.segment, "I15", error.message))
            return
        if not is_named:
            text = f"its footer does not name the batch at byte {row.position} of the index"
            self._report(Finding(row.segment, "I15", text))


def _fill(window: list[IndexedBatch], rows: Iterator[IndexedBatch]) -> None:
    size_bytes = 0
    while len(window) < ROWS_AHEAD_MAX and size_bytes < BYTES_AHEAD_MAX:
        row = next(rows, None)
        if row is None:
            return
        window.append(row)
        size_bytes += row.length
