"""Requests to a bucket of S3 by s3fs.

Large bodies are uploaded in parts, with the condition on the request that completes the upload.
`s3_client.py`, which makes the connections, decides how often anything is sent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from txlog.storage.object_stores.object_client import FOREIGN, Failure, Page, Unread
from txlog.storage.policy.retry import Attempts
from txlog.storage.store import ByteRange, Bytes, StoredObject

MULTIPART_BYTES_MIN = 64 << 20
"""From this size an object is uploaded in parts; below, one request is cheaper.

An interrupted upload in parts stays in the bucket, invisible and charged for; let a lifecycle rule
abort such uploads (AbortIncompleteMultipartUpload).
"""

PART_BYTES = 16 << 20
"""Size of an uploaded part: a segment.bytes of 64 MB is four of them. With PARTS_AT_ONCE it is the
memory that an upload takes."""

PARTS_AT_ONCE = 8
"""Parts of one upload that are sent at the same time: the connections of one upload, of
CONNECTIONS_MAX (64)."""

T = TypeVar("T")

_ONLY_IF_ABSENT = {"IfNoneMatch": "*"}


class S3Requests(Protocol):
    """Access to a service: calls of s3fs's methods, one request each."""

    def ask(self, attempts: Attempts, call: Callable[[Any], Awaitable[T]]) -> T | Failure:
        """One request, `call(s3fs)`, within the time of the attempt."""

    def ask_all(
        self, attempts: Attempts, calls: Sequence[Callable[[Any], Awaitable[T]]]
    ) -> list[T | Failure]:
        """The same for several requests at once."""


class S3fsClient:
    """See ObjectClient."""

    def __init__(self, bucket: str, requests: Callable[[], S3Requests]) -> None:
        """`requests` gives this process's connections."""
        self._bucket = bucket
        self._requests = requests

    def put(self, attempts: Attempts, key: str, body: bytes, *, if_absent: bool) -> Failure | None:
        if if_absent and len(body) >= MULTIPART_BYTES_MIN:
            answer: object = self._put_parts(attempts, key, body)
        else:
            condition = _ONLY_IF_ABSENT if if_absent else {}
            answer = self._ask(attempts, "put_object", {"Key": key, "Body": body, **condition})
            if not isinstance(answer, Failure) and not answer.get("ETag"):
                return FOREIGN
        return answer if isinstance(answer, Failure) else None

    def get(self, attempts: Attempts, key: str, bytes_max: int | None) -> bytes | Unread | Failure:
        request = partial(_download, self._get_parameters(key), bytes_max)
        return self._requests().ask(attempts, request)

    def get_ranges(
        self, attempts: Attempts, key: str, ranges: Sequence[ByteRange]
    ) -> Sequence[Bytes | Failure]:
        requests = [
            partial(_download_range, self._get_parameters(key, wanted)) for wanted in ranges
        ]
        return self._requests().ask_all(attempts, requests)

    def delete(self, attempts: Attempts, key: str) -> Failure | None:
        answer = self._ask(attempts, "delete_object", {"Key": key})
        return answer if isinstance(answer, Failure) else None

    def pages(self, prefix: str, after: str) -> S3fsPages:
        start = {"StartAfter": after} if after else {}
        return S3fsPages(partial(self._ask, method="list_objects_v2"), {"Prefix": prefix, **start})

    def _put_parts(self, attempts: Attempts, key: str, data: bytes) -> object:
        def upload(files: Any) -> Awaitable[object]:
            upload: Awaitable[object] = files._pipe_file(
                f"{self._bucket}/{key}",
                data,
                chunksize=PART_BYTES,
                max_concurrency=PARTS_AT_ONCE,
                mode="create",
            )
            return upload

        return self._requests().ask(attempts, upload)

    def _get_parameters(self, key: str, wanted: ByteRange | None = None) -> dict[str, str]:
        parameters = {"Bucket": self._bucket, "Key": key}
        if wanted is not None:
            parameters["Range"] = f"bytes={wanted.start}-{wanted.last}"
        return parameters

    def _ask(
        self, attempts: Attempts, method: str, parameters: Mapping[str, object]
    ) -> dict[str, Any] | Failure:
        def call(files: Any) -> Awaitable[dict[str, Any]]:
            answer: Awaitable[dict[str, Any]] = files._call_s3(
                method, Bucket=self._bucket, **parameters
            )
            return answer

        return self._requests().ask(attempts, call)


class S3fsPages:
    """See Pages."""

    def __init__(
        self,
        ask: Callable[..., dict[str, Any] | Failure],
        parameters: Mapping[str, object],
    ) -> None:
        self._ask = ask
        self._parameters = parameters

    def next(self, attempts: Attempts) -> Page | Failure:
        answer = self._ask(attempts, parameters=self._parameters)
        if isinstance(answer, Failure):
            return answer
        objects = [_stored(item) for item in answer.get("Contents", [])]
        is_last = not answer.get("IsTruncated")
        if not is_last:
            token = answer["NextContinuationToken"]
            self._parameters = {**self._parameters, "ContinuationToken": token}
        return Page(objects, is_last)


def _stored(item: Mapping[str, Any]) -> StoredObject:
    return StoredObject(item["Key"], item["Size"], round(item["LastModified"].timestamp() * 1000))


async def _download(
    parameters: Mapping[str, str], bytes_max: int | None, files: Any
) -> bytes | Unread | Failure:
    response = await files._call_s3("get_object", **parameters)
    async with response["Body"] as stream:
        if not response.get("ETag"):
            return FOREIGN
        # Known before the body is read, so an object of any size costs no memory. Every S3 service
        # sends it.
        size_bytes = response.get("ContentLength", 0)
        if bytes_max is not None and size_bytes > bytes_max:
            return Unread(size_bytes)
        data: bytes = await stream.read()
    return data


async def _download_range(parameters: Mapping[str, str], files: Any) -> Bytes | Failure:
    response = await files._call_s3("get_object", **parameters)
    async with response["Body"] as stream:
        data: bytes = await stream.read()
    return data if response.get("ETag") else FOREIGN
