"""Classifies exceptions of s3fs, botocore and aiohttp by their HTTP status.

Keeps I13: only the types of exceptions that are raised before anything is sent prove that no
request was made; any other type may hide a request that was executed. It must not make requests;
`object_client.py` says what a status means.
"""

from __future__ import annotations

from txlog.storage.object_stores.object_client import Failure, Meaning, read_status

_NEVER_SENT = frozenset(
    """
    NoCredentialsError PartialCredentialsError CredentialRetrievalError TokenRetrievalError
    ProfileNotFound ConfigNotFound ConfigParseError InvalidConfigError ParamValidationError
    NoRegionError UnknownServiceError InvalidURL
    """.split()  # noqa: SIM905 - a list of words is read more easily.
)
"""Names of exceptions of botocore and aiohttp that are raised before anything is sent; neither is
imported."""

_OF_A_WRONG_SETTING = (TypeError, ValueError)
"""What they raise for a setting that they cannot use, at the first request. Later, and as a base
class such as of JSONDecodeError, it may be about the answer to a request that was executed."""


def read_failure(error: BaseException, *, answered_before: bool) -> Failure:
    """What `error`, raised by s3fs, botocore or aiohttp, means for the request.

    `answered_before`: whether any request of this client has had an answer. If so, a refused
    connection proves nothing, because aiohttp repeats a request whose kept connection broke.
    """
    response = _response(error)
    if response is not None:
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        code = str(response.get("Error", {}).get("Code", ""))
        return read_status(status if isinstance(status, int) else 0, code)
    # With base classes, by name: botocore is not imported for it.
    names = {kind.__name__ for kind in type(error).__mro__}
    reason = type(error).__name__
    is_setting = type(error) in _OF_A_WRONG_SETTING and not answered_before
    if names & _NEVER_SENT or is_setting:
        return Failure(Meaning.DENIED, reason)
    if not answered_before and _failed_to_connect(error, names):
        return Failure(Meaning.NOT_REACHED, reason)
    return Failure(Meaning.UNCLEAR, reason)


def _response(error: BaseException) -> dict[str, dict[str, object]] | None:
    """botocore's parsed answer: on the error itself, or on the one that s3fs translated."""
    for candidate in (error, error.__cause__):
        response = getattr(candidate, "response", None)
        if isinstance(response, dict):
            return response
    return None


def _failed_to_connect(error: BaseException, names: set[str]) -> bool:
    """botocore keeps aiohttp's error in `kwargs`; its own classes also mean broken connections."""
    if "ConnectTimeoutError" in names:
        return True
    details = getattr(error, "kwargs", None)
    inner = details.get("error") if isinstance(details, dict) else None
    inner_names = {kind.__name__ for kind in type(inner).__mro__}
    return bool(inner_names & {"ClientConnectorError", "gaierror"})
