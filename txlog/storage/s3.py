"""An S3 bucket, or a prefix in one, as a store; any service that honours If-None-Match serves.

It guards I1 by one conditional PUT an object, read back after anything but a clean success
(storage rules 1 to 5). s3fs makes the requests, with its caches and its own repeats turned off:
limits and repeats are `retry.py`'s, and what a failure means is `s3_failure.py`'s. LIST decides
nothing. Credentials and endpoint come from the usual AWS_* variables or from storage options.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from txlog.clock import Runtime
from txlog.errors import InternalError, TxlogError, UsageError
from txlog.layout import bytes_max
from txlog.storage.byte_spans import Span, cut, merge
from txlog.storage.object_path import check_path, check_prefix
from txlog.storage.readback import PutAnswer, check_entry_body, create_with_readback
from txlog.storage.retry import Attempts, RetrySettings, call_until_answered
from txlog.storage.s3_client import S3Requests, client_options, endpoint_name, shared_client
from txlog.storage.s3_failure import Failure, Meaning, as_error
from txlog.storage.size_limit import require_size
from txlog.storage.store import Body, ByteRange, Bytes, CreateResult, Exists, StoredObject, whole

MULTIPART_BYTES_MIN = 64 << 20
"""From this size `put_new` uploads in parts; below, one request is cheaper. `create` never does."""

PART_BYTES = 16 << 20
"""Size of an uploaded part."""

PARTS_AT_ONCE = 8
"""Parts of one upload that are under way together."""

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_ONLY_IF_ABSENT = {"IfNoneMatch": "*"}


def open_s3_store(place: str, runtime: Runtime, options: Mapping[str, object]) -> S3Store:
    """The store at `bucket/prefix`. `options` are s3fs's, and RetrySettings' by their names.

    Raises UsageError if s3fs is not installed or the bucket's name is no such, InvalidOption for an
    unknown option. Makes no request.
    """
    bucket, _, prefix = place.partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise UsageError(
            "the URL of an S3 log is s3://bucket/prefix, with no credentials in it; put those into "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
        )
    prefix = prefix.strip("/")
    if prefix:
        _check_root(prefix)
    settings, rest = RetrySettings.take_from(options)
    return S3Store(bucket, prefix, runtime, rest, settings)


class S3Store:
    """Objects below `prefix` in `bucket`. Safe to use from threads and in forked processes."""

    def __init__(
        self,
        bucket: str,
        prefix: str,
        runtime: Runtime,
        options: Mapping[str, object] | None = None,
        settings: RetrySettings | None = None,
        requests: S3Requests | None = None,
    ) -> None:
        """`requests` takes the place of s3fs and its options: for the simulation."""
        self._bucket = bucket
        self._base = f"{prefix}/" if prefix else ""
        self._runtime = runtime
        self._settings = settings or RetrySettings()
        self._options = {} if requests else client_options(options or {}, self._settings)
        self._endpoint = endpoint_name(self._options.get("endpoint_url"))
        self._opened = (os.getpid(), requests or shared_client(self._options))

    @property
    def url(self) -> str:
        """`s3://bucket/prefix`, without credentials."""
        return f"s3://{self._bucket}/{self._base}".rstrip("/")

    def create(self, path: str, data: bytes) -> CreateResult:
        """See Store.create."""
        check_path(path)
        check_entry_body(path, data)
        return self._create(path, data, self._put_whole)

    def get(self, path: str) -> bytes | None:
        """See Store.get. One request."""
        check_path(path)
        attempts = self._attempts()
        return call_until_answered(self._place(path), attempts, partial(self._read, path, attempts))

    def get_ranges(self, path: str, ranges: Sequence[ByteRange]) -> list[Bytes] | None:
        """See Store.get_ranges. One request for each run of ranges that lie close together."""
        check_path(path)
        spans = merge(ranges)
        attempts = self._attempts(sum(span.length for span in spans))
        parts: dict[Span, bytes | None] = {}

        def read_missing() -> None:
            missing = [span for span in spans if span not in parts]
            requests = [
                partial(_download, self._get_parameters(path, span), None) for span in missing
            ]
            answers = self._client.ask_all(attempts, requests)
            for span, answer in zip(missing, answers, strict=True):
                parts[span] = self._part(path, answer)

        call_until_answered(self._place(path), attempts, read_missing)
        found = [part for part in parts.values() if part is not None]
        return cut(ranges, list(parts), found) if len(found) == len(parts) else None

    def put_new(self, path: str, data: Body) -> None:
        """See Store.put_new. Large bodies go up in parts. Raises InternalError on a used name.

        An upload in parts that is interrupted stays in the bucket, unseen and charged for; let a
        lifecycle rule abort such uploads (AbortIncompleteMultipartUpload).
        """
        check_path(path)
        body = whole(data)
        put = self._put_parts if len(body) >= MULTIPART_BYTES_MIN else self._put_whole
        if isinstance(self._create(path, body, put), Exists):
            raise InternalError(
                f"{self._place(path)} exists already with other content, but its name should be "
                "unique. Nothing was overwritten; please report this.",
                path=path,
            )

    def replace(self, path: str, data: bytes) -> None:
        """See Store.replace."""
        check_path(path)
        attempts = self._attempts(len(data))
        parameters = {"Key": self._base + path, "Body": bytes(data)}

        def overwrite() -> None:
            answer = self._ask(attempts, "put_object", parameters)
            if isinstance(answer, Failure):
                raise self._error(answer, "replace", path)

        call_until_answered(self._place(path), attempts, overwrite)

    def list_after(self, prefix: str, after: str = "") -> Iterator[StoredObject]:
        """See Store.list_after. One request for each 1,000 objects, made as they are asked for."""
        check_prefix(prefix)
        start = {"StartAfter": self._base + after} if after else {}
        parameters: dict[str, object] = {"Prefix": self._base + prefix, **start}
        return self._list_pages(prefix, after, parameters)

    def delete(self, path: str) -> None:
        """See Store.delete."""
        check_path(path)
        attempts = self._attempts()

        def remove() -> None:
            answer = self._ask(attempts, "delete_object", {"Key": self._base + path})
            if isinstance(answer, Failure) and answer.meaning is not Meaning.ABSENT:
                raise self._error(answer, "delete", path)

        call_until_answered(self._place(path), attempts, remove)

    def _create(
        self, path: str, data: bytes, put: Callable[[str, bytes, Attempts], object]
    ) -> CreateResult:
        attempts = self._attempts(len(data))

        def answer() -> PutAnswer:
            return self._put_answer(path, attempts, put(path, data, attempts))

        read = partial(self._read, path, attempts)
        return create_with_readback(self._place(path), data, attempts, answer, read)

    def _put_whole(self, path: str, data: bytes, attempts: Attempts) -> object:
        parameters = {"Key": self._base + path, "Body": data, **_ONLY_IF_ABSENT}
        return self._ask(attempts, "put_object", parameters)

    def _put_parts(self, path: str, data: bytes, attempts: Attempts) -> object:
        def upload(files: Any) -> Awaitable[object]:
            where = f"{self._bucket}/{self._base}{path}"
            upload: Awaitable[object] = files._pipe_file(
                where, data, chunksize=PART_BYTES, max_concurrency=PARTS_AT_ONCE, mode="create"
            )
            return upload

        return self._client.ask(attempts, upload)

    def _put_answer(self, path: str, attempts: Attempts, answer: object) -> PutAnswer:
        if not isinstance(answer, Failure):
            return PutAnswer.STORED
        attempts.last_failure = answer.reason
        match answer.meaning:
            case Meaning.TAKEN:
                return PutAnswer.TAKEN
            case Meaning.NOT_REACHED:
                return PutAnswer.NOT_STORED
            case Meaning.UNCLEAR:
                return PutAnswer.UNKNOWN
            case _:
                raise self._error(answer, "create", path)

    def _read(self, path: str, attempts: Attempts) -> bytes | None:
        """One GET of the whole object."""
        request = partial(_download, self._get_parameters(path, None), bytes_max(path))
        return self._part(path, self._client.ask(attempts, request))

    def _get_parameters(self, path: str, span: Span | None) -> dict[str, str]:
        parameters = {"Bucket": self._bucket, "Key": self._base + path}
        if span is not None:  # HTTP has no empty range: one byte is read, and cut off later.
            last = max(span.end - 1, span.start)
            parameters["Range"] = f"bytes={span.start}-{last}"
        return parameters

    def _part(self, path: str, answer: bytes | _Unread | Failure) -> bytes | None:
        """What a GET brought; None if absent. Raises StoreUnavailable, StoreDenied, CorruptData."""
        if isinstance(answer, _Unread):
            require_size(path, answer.size_bytes, self._place(path))
            return None
        if not isinstance(answer, Failure):
            return answer
        match answer.meaning:
            case Meaning.ABSENT:
                return None
            case Meaning.BEYOND_END:
                return b""
            case _:
                raise self._error(answer, "read", path)

    def _list_pages(
        self, prefix: str, after: str, parameters: dict[str, object]
    ) -> Iterator[StoredObject]:
        while True:
            attempts = self._attempts()
            request = partial(self._list_page, attempts, prefix, parameters)
            page = call_until_answered(self._place(prefix), attempts, request)
            for item in page.get("Contents", []):
                path = item["Key"].removeprefix(self._base)
                if path > after:  # Some services do not know StartAfter.
                    modified_ms = round(item["LastModified"].timestamp() * 1000)
                    yield StoredObject(path, item["Size"], modified_ms)
            if not page.get("IsTruncated"):
                return
            parameters = {**parameters, "ContinuationToken": page["NextContinuationToken"]}

    def _list_page(
        self, attempts: Attempts, prefix: str, parameters: dict[str, object]
    ) -> dict[str, Any]:
        answer = self._ask(attempts, "list_objects_v2", parameters)
        if isinstance(answer, Failure):
            raise self._error(answer, "list", prefix)
        return answer

    def _ask(
        self, attempts: Attempts, method: str, parameters: Mapping[str, object]
    ) -> dict[str, Any] | Failure:
        def call(files: Any) -> Awaitable[dict[str, Any]]:
            answer: Awaitable[dict[str, Any]] = files._call_s3(
                method, Bucket=self._bucket, **parameters
            )
            return answer

        return self._client.ask(attempts, call)

    @property
    def _client(self) -> S3Requests:
        """This process's client; looked for again after a fork."""
        process, client = self._opened
        if process != os.getpid():
            client = shared_client(self._options)
            self._opened = (os.getpid(), client)
        return client

    def _attempts(self, size_bytes: int = 0) -> Attempts:
        return Attempts(self._settings, self._runtime, size_bytes)

    def _place(self, path: str) -> str:
        return f"s3://{self._bucket}/{self._base}{path}"

    def _error(self, failure: Failure, action: str, path: str) -> TxlogError:
        return as_error(failure, action, self._place(path), self._bucket, self._endpoint)


@dataclass(frozen=True, slots=True)
class _Unread:
    """A body that was left where it is, being larger than it may be."""

    size_bytes: int


async def _download(
    parameters: Mapping[str, str], limit: int | None, files: Any
) -> bytes | _Unread:
    response = await files._call_s3("get_object", **parameters)
    async with response["Body"] as stream:
        size_bytes = response.get("ContentLength", 0)  # Every S3 service says it.
        if limit is not None and size_bytes > limit:
            return _Unread(size_bytes)
        data: bytes = await stream.read()
    return data


def _check_root(prefix: str) -> None:
    try:
        check_path(prefix)
    except InternalError as error:
        raise UsageError(
            f"{prefix!r} cannot be the prefix of a log in a bucket: {error.message.split(': ')[1]} "
            "Choose another prefix.",
            prefix=prefix,
        ) from None
