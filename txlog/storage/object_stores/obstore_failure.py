"""Classifies obstore's exceptions by their text.

Keeps I13: obstore's classes prove nothing (a conflict in flight and a name in use raise the same
one), and none has a status. One expression, anchored at the start of the text's first line, finds
it there; a text that does not match, for example after a change in obstore, means that the request
may have been executed. A status counts only if the bucket's own endpoint gave it: the services that
issue credentials answer with statuses, too. It must not make requests.
"""

from __future__ import annotations

import re

from txlog.storage.object_stores.object_client import Failure, Meaning, read_status

# `.` matches no line end, so both examine the first line only.
_STATUS = re.compile(
    r".*?Error performing [A-Z]+ (\S+) in \S+ - "
    r"(?:Server returned non-2xx status code: (\d{3})\b|Received redirect without LOCATION)"
)
# Azure deletes in batches, even a single object.
_IN_BATCH = re.compile(r".*?Bulk delete request failed for key .* \(code: (\d{3})\)(?:\n|\Z)")
_LOOK_ALIKE = re.compile("Error performing|Bulk delete")
_CODE = re.compile(r"<Code>([A-Za-z0-9.]{1,64})</Code>")
_REGION = re.compile(r"<Region>([a-z0-9-]{1,32})</Region>")
_DETAILS = "\n\nDebug source:\n"
# Rust escapes line ends in quoted texts, so neither a name nor a body can look like this.
_KIND = re.compile(r"HttpError \{\n +kind: ([A-Za-z]{1,32}),\n")


def read_failure(error: BaseException, key: str, origin: str) -> Failure:
    """What `error` means for the request for `key`. `origin`: the endpoint's scheme and host."""
    kind = type(error).__name__
    if kind == "InvalidPathError":
        return Failure(Meaning.STRANGE_NAME, kind)
    said, _, details = str(error).partition(_DETAILS)
    if _LOOK_ALIKE.search(key):  # The text begins with the name.
        return Failure(Meaning.UNCLEAR, f"no answer ({kind})")
    found = _STATUS.match(said)
    if found is not None:
        return _read_answer(found, said, origin)
    in_batch = _IN_BATCH.match(said)
    if in_batch is not None:
        return read_status(int(in_batch[1]), "")
    failed = _KIND.search(details)
    reason = f"no answer ({failed[1]})" if failed else f"no answer ({kind})"
    if failed and failed[1] == "Connect":
        return Failure(Meaning.NOT_REACHED, reason)
    return Failure(Meaning.UNCLEAR, reason)


def _read_answer(found: re.Match[str], said: str, origin: str) -> Failure:
    url, status = found.groups()
    if not url.startswith(origin) or url[len(origin) : len(origin) + 1] not in ("/", "?", ""):
        return Failure(Meaning.UNCLEAR, f"no answer (HTTP {status} of another service)")
    if status is None:  # AWS answers so if the region is not the bucket's.
        return Failure(Meaning.DENIED, "a redirect to another region", answered=True)
    code = _CODE.search(said, found.end())
    failure = read_status(int(status), code[1] if code else "")
    region = _REGION.search(said, found.end())
    if region is None or failure.meaning is not Meaning.DENIED:
        return failure
    reason = f"{failure.reason}, the bucket's region being {region[1]}"
    return Failure(failure.meaning, reason, answered=True)
