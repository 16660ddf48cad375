"""A bucket that gives scripted answers in place of a service's client library."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from txlog.storage.object_stores.object_client import Failure, ObjectClient, Page, Pages, Unread
from txlog.storage.policy.retry import Attempts
from txlog.storage.store import ByteRange, Bytes


@dataclass
class ScriptedBucket:
    """Gives the answers that a test sets, one per request, and records the requests.

    After its last answer it repeats that answer.
    """

    answers: list[object]
    asked: list[tuple[object, ...]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    """The size given for each request; larger requests get more time."""
    other: ObjectClient | None = None
    """The client that can list what this one cannot."""

    def first(self) -> ObjectClient:
        """The client that makes the requests: this one."""
        return self

    def second(self) -> ObjectClient | None:
        """See `other`."""
        return self.other

    def put(self, attempts: Attempts, key: str, body: bytes, *, if_absent: bool) -> Failure | None:
        """Answer None: stored."""
        answer = self._answer(attempts, "put", key, body, if_absent)
        assert answer is None or isinstance(answer, Failure)
        return answer

    def get(self, attempts: Attempts, key: str, bytes_max: int | None) -> bytes | Unread | Failure:
        """Answer bytes, whatever the limit is."""
        answer = self._answer(attempts, "get", key)
        assert isinstance(answer, bytes | Unread | Failure)
        return answer

    def get_ranges(
        self, attempts: Attempts, key: str, spans: Sequence[ByteRange]
    ) -> Sequence[Bytes | Failure]:
        """Return an answer for each span."""
        return [self._part(attempts, key, span) for span in spans]

    def _part(self, attempts: Attempts, key: str, span: ByteRange) -> Bytes | Failure:
        answer = self._answer(attempts, "get", key, span.start, span.length)
        assert isinstance(answer, bytes | Failure)
        return answer

    def delete(self, attempts: Attempts, key: str) -> Failure | None:
        """Answer None: deleted."""
        answer = self._answer(attempts, "delete", key)
        assert answer is None or isinstance(answer, Failure)
        return answer

    def pages(self, prefix: str, after: str) -> Pages:
        """A listing of which each page is an answer."""
        return _ScriptedPages(self, prefix, after)

    def page(self, attempts: Attempts, prefix: str, after: str) -> Page | Failure:
        """One page of the listing."""
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
