"""A bucket that answers as it is told, at the port where a library for a service is plugged in."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from txlog.storage.object_stores.object_client import Failure, ObjectClient, Page, Pages, Unread
from txlog.storage.policy.retry import Attempts
from txlog.storage.store import ByteRange, Bytes


@dataclass
class ScriptedBucket:
    """Gives the answers that a test puts there, one a request, and notes what it was asked for.

    Where its answers end it gives the last one again.
    """

    answers: list[object]
    asked: list[tuple[object, ...]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    """Bytes that each request was said to carry, which give it more time."""
    other: ObjectClient | None = None
    """Who can list what this one cannot."""

    def first(self) -> ObjectClient:
        """It is the client that does the work."""
        return self

    def second(self) -> ObjectClient | None:
        """See `other`."""
        return self.other

    def put(self, attempts: Attempts, key: str, body: bytes, *, if_absent: bool) -> Failure | None:
        """None: stored."""
        answer = self._answer(attempts, "put", key, body, if_absent)
        assert answer is None or isinstance(answer, Failure)
        return answer

    def get(self, attempts: Attempts, key: str, bytes_max: int | None) -> bytes | Unread | Failure:
        """Bytes, whatever the limit is."""
        answer = self._answer(attempts, "get", key)
        assert isinstance(answer, bytes | Unread | Failure)
        return answer

    def get_ranges(
        self, attempts: Attempts, key: str, spans: Sequence[ByteRange]
    ) -> Sequence[Bytes | Failure]:
        """An answer for each span."""
        return [self._part(attempts, key, span) for span in spans]

    def _part(self, attempts: Attempts, key: str, span: ByteRange) -> Bytes | Failure:
        answer = self._answer(attempts, "get", key, span.start, span.length)
        assert isinstance(answer, bytes | Failure)
        return answer

    def delete(self, attempts: Attempts, key: str) -> Failure | None:
        """None: deleted."""
        answer = self._answer(attempts, "delete", key)
        assert answer is None or isinstance(answer, Failure)
        return answer

    def pages(self, prefix: str, after: str) -> Pages:
        """A listing, whose every page is an answer."""
        return _ScriptedPages(self, prefix, after)

    def page(self, attempts: Attempts, prefix: str, after: str) -> Page | Failure:
        """One of them."""
        answer = self._answer(attempts, "list", prefix, after)
        assert isinstance(answer, Page | Failure)
        return answer

    def _answer(self, attempts: Attempts, *request: object) -> object:
        self.asked.append(request)
        self.sizes.append(attempts.size_bytes)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@dataclass
class _ScriptedPages:
    bucket: ScriptedBucket
    prefix: str
    after: str

    def next(self, attempts: Attempts) -> Page | Failure:
        """See Pages.next."""
        return self.bucket.page(attempts, self.prefix, self.after)
