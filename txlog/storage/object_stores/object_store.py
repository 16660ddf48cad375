"""A bucket, or a prefix in one, as a store; any service with a conditional PUT serves.

Keeps I1 by one conditional PUT an object, which `readback.py` reads back after anything but a clean
success. `retry.py` sets limits and repeats, `object_client.py` says what a failure means, and LIST
decides nothing. It must not know which client makes the requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from txlog.clock import Runtime
from txlog.errors import TxlogError
from txlog.layout import bytes_max
from txlog.storage.object_stores.object_client import (
    Failure,
    Meaning,
    ObjectClient,
    Page,
    Pages,
    Service,
    Unread,
    as_error,
)
from txlog.storage.policy.readback import PutAnswer, create_with_readback
from txlog.storage.policy.retry import Attempts, RetrySettings, call_until_answered
from txlog.storage.store import (
    Body,
    ByteRange,
    Bytes,
    Created,
    CreateResult,
    Requests,
    StoredObject,
    check_entry_body,
    check_path,
    check_prefix,
    kept_in_part,
    name_in_use,
    require_size,
    whole,
)

GAP_BYTES_MAX = 1 << 16
"""Up to this many unneeded bytes between two ranges are cheaper than another request: at 100 MB/s
they take less than a millisecond, where a request takes a round trip of 20 to 50. Batches of about
a megabyte lie between ranges of one partition, so a much larger gap would read other partitions'
records in vain."""


class ObjectStore:
    """See Store. Objects are below `prefix` in a bucket. Safe to use from threads and forks."""

    def __init__(
        self,
        service: Service,
        prefix: str,
        runtime: Runtime,
        settings: RetrySettings,
        client: Callable[[], ObjectClient],
        second: Callable[[], ObjectClient | None] = lambda: None,
    ) -> None:
        """`client` returns the client that this process may use now, because a fork may happen
        between two requests; it raises UsageError if there is none. `second` returns another client
        for a listing that the first cannot read."""
        self._service = service
        self._base = f"{prefix}/" if prefix else ""
        self._runtime = runtime
        self._settings = settings
        self._client = client
        self._second = second
        self.requests = Requests(runtime.clock.wall_ms())
        """See `requests_of` in `store.py`."""

    @property
    def url(self) -> str:
        """Scheme, bucket and prefix, without credentials."""
        return self._place("").rstrip("/")

    def create(self, path: str, data: bytes) -> CreateResult:
        check_path(path)
        check_entry_body(path, data)
        return self._create(path, data)

    def get(self, path: str) -> bytes | None:
        """See Store.get. One request."""
        check_path(path)
        attempts = self._attempts()
        return call_until_answered(self._place(path), attempts, partial(self._read, path, attempts))

    def get_ranges(self, path: str, ranges: Sequence[ByteRange]) -> list[Bytes] | None:
        """See Store.get_ranges. One request for each run of ranges that lie close together."""
        check_path(path)
        merged = merge_ranges(ranges)
        attempts = self._attempts(sum(part.length for part in merged))
        parts: dict[ByteRange, Bytes | None] = {}

        def read_missing() -> None:
            # Parts that an earlier attempt has read are not requested again.
            missing = [wanted for wanted in merged if wanted not in parts]
            self.requests.add("GET", len(missing))
            answers = self._client().get_ranges(attempts, self._base + path, missing)
            for wanted, answer in zip(missing, answers, strict=True):
                parts[wanted] = self._part(path, answer)

        call_until_answered(self._place(path), attempts, read_missing)
        found = [part for part in parts.values() if part is not None]
        return cut_ranges(ranges, list(parts), found) if len(found) == len(parts) else None

    def put_new(self, path: str, data: Body) -> None:
        """See Store.put_new. Raises InternalError on a used name."""
        check_path(path)
        body = whole(data)
        answer = self._create(path, body)
        if isinstance(answer, Created):
            return
        if body.startswith(answer.data):
            raise kept_in_part(self._place(path), len(answer.data), len(body))
        raise name_in_use(self._place(path), path)

    def replace(self, path: str, data: bytes) -> None:
        check_path(path)
        attempts = self._attempts(len(data))

        def overwrite() -> None:
            self.requests.add("PUT")
            failure = self._client().put(attempts, self._base + path, bytes(data), if_absent=False)
            if failure is not None:
                raise self._error(failure, "replace", path)

        call_until_answered(self._place(path), attempts, overwrite)

    def list_after(self, prefix: str, after: str = "") -> Iterator[StoredObject]:
        """See Store.list_after. One request for each page, made when it is needed."""
        check_prefix(prefix)
        return self._listed(prefix, after)

    def delete(self, path: str) -> None:
        check_path(path)
        attempts = self._attempts()

        def remove() -> None:
            self.requests.add("DELETE")
            failure = self._client().delete(attempts, self._base + path)
            if failure is not None and failure.meaning is not Meaning.ABSENT:
                raise self._error(failure, "delete", path)

        call_until_answered(self._place(path), attempts, remove)

    def _create(self, path: str, data: bytes) -> CreateResult:
        attempts = self._attempts(len(data))
        put = partial(self._put_answer, path, data, attempts)
        read = partial(self._read, path, attempts)
        return create_with_readback(self._place(path), data, attempts, put, read)

    def _put_answer(self, path: str, data: bytes, attempts: Attempts) -> PutAnswer:
        self.requests.add("PUT")
        failure = self._client().put(attempts, self._base + path, data, if_absent=True)
        if failure is None:
            return PutAnswer.STORED
        attempts.last_failure = failure.reason
        match failure.meaning:
            case Meaning.TAKEN:
                return PutAnswer.TAKEN
            case Meaning.NOT_REACHED:
                return PutAnswer.NOT_STORED
            case Meaning.UNCLEAR:
                return PutAnswer.UNKNOWN
            case _:
                raise self._error(failure, "create", path)

    def _read(self, path: str, attempts: Attempts) -> bytes | None:
        """One GET of the whole object."""
        self.requests.add("GET")
        answer = self._client().get(attempts, self._base + path, bytes_max(path))
        if isinstance(answer, Unread):
            require_size(path, answer.size_bytes, self._place(path))
            return None
        part = self._part(path, answer)
        return None if part is None else bytes(part)

    def _part(self, path: str, answer: Bytes | Failure) -> Bytes | None:
        """The result of a GET; None if absent. Raises StoreUnavailable, StoreDenied."""
        if not isinstance(answer, Failure):
            return answer
        match answer.meaning:
            case Meaning.ABSENT:
                return None
            case Meaning.BEYOND_END:
                return b""
            case _:
                raise self._error(answer, "read", path)

    def _listed(self, prefix: str, after: str) -> Iterator[StoredObject]:
        pages = self._pages(self._client(), prefix, after)
        while True:
            page = self._page(prefix, pages)
            if page is None:  # The other client continues after the last name that was listed.
                pages = self._pages(self._second_client(prefix), prefix, after)
                continue
            for stored in page.objects:
                path = stored.path.removeprefix(self._base)
                if path > after:  # Some services ignore the start of a listing.
                    yield StoredObject(path, stored.size_bytes, stored.modified_ms)
                    after = path
            # A page without objects need not be the last: obstore's are filtered by the prefix.
            if page.is_last:
                return

    def _pages(self, client: ObjectClient, prefix: str, after: str) -> Pages:
        return client.pages(self._base + prefix, self._base + after if after else "")

    def _page(self, prefix: str, pages: Pages) -> Page | None:
        """The next page, or None if this client cannot read it."""
        attempts = self._attempts()

        def ask() -> Page | None:
            self.requests.add("LIST")
            answer = pages.next(attempts)
            if not isinstance(answer, Failure):
                return answer
            if answer.meaning is Meaning.STRANGE_NAME:
                return None
            raise self._error(answer, "list", prefix)

        return call_until_answered(self._place(prefix), attempts, ask)

    def _second_client(self, prefix: str) -> ObjectClient:
        """Raises StoreDenied if there is none."""
        second = self._second()
        if second is None:
            failure = Failure(Meaning.STRANGE_NAME, "a name that the client cannot represent")
            raise self._error(failure, "list", prefix)
        return second

    def _attempts(self, size_bytes: int = 0) -> Attempts:
        return Attempts(self._settings, self._runtime, size_bytes)

    def _place(self, path: str) -> str:
        return f"{self._service.scheme}://{self._service.bucket}/{self._base}{path}"

    def _error(self, failure: Failure, action: str, path: str) -> TxlogError:
        return as_error(failure, action, self._place(path), self._service)


# Neighbouring ranges are read by one request. obstore's own merging is not used, because it panics
# at a merged range beyond the end.


def merge_ranges(
    ranges: Sequence[ByteRange], gap_bytes_max: int = GAP_BYTES_MAX
) -> list[ByteRange]:
    """Ranges, in order of start, that cover all `ranges`; gaps up to the limit are read too."""
    merged: list[ByteRange] = []
    for wanted in sorted(ranges, key=lambda item: (item.start, item.length)):
        if merged and wanted.start - merged[-1].end <= gap_bytes_max:
            last = merged.pop()
            merged.append(ByteRange(last.start, max(last.end, wanted.end) - last.start))
        else:
            merged.append(wanted)
    return merged


def cut_ranges(
    ranges: Sequence[ByteRange], merged: Sequence[ByteRange], parts: Sequence[Bytes]
) -> list[Bytes]:
    """The bytes of each range, in the given order, from the `parts` of the merged ranges; a range
    beyond the end is short."""
    return [_cut_one(wanted, merged, parts) for wanted in ranges]


def _cut_one(wanted: ByteRange, merged: Sequence[ByteRange], parts: Sequence[Bytes]) -> Bytes:
    for whole_range, part in zip(merged, parts, strict=True):
        if whole_range.start <= wanted.start and wanted.end <= whole_range.end:
            start = wanted.start - whole_range.start
            return memoryview(part)[start : start + wanted.length]
    raise AssertionError("merge_ranges() covers every range")
