"""Storage options of the command line: from a variable, from a file, from `--storage-option`.

They are passed to the store like `storage_options` in Python: s3fs's names on S3, for example
`sse_customer_key`. No value is printed: errors name the option only. Other users of the machine can
read a process's arguments, so secrets belong in the file or in the variable.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence

from txlog.errors import InvalidOption

VARIABLE = "TXLOG_STORAGE_OPTIONS"
"""A JSON object, or @ and the path of a file that contains one."""

HELP = (
    "An option of the store, such as endpoint_url=https://...; repeatable. Others can read a "
    f"process's arguments: put secrets into {VARIABLE}, as JSON or as @FILE."
)


def storage_options(
    given: Sequence[str] | None, environment: Mapping[str, str]
) -> dict[str, object]:
    """The options from the variable, overridden by those given.

    Names with dots mean nested objects: `s3_additional_kwargs.ServerSideEncryption=aws:kms`.
    Raises InvalidOption.
    """
    options = _of_variable(environment.get(VARIABLE, ""))
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals or not all(name.split(".")):
            shown = repr(name) if equals else "what was given"
            raise InvalidOption(f"--storage-option takes NAME=VALUE, not {shown}.")
        _put(options, name, _value(name, value))
    return options


def _of_variable(text: str) -> dict[str, object]:
    origin = VARIABLE
    if text.startswith("@"):
        origin = f"the file {text[1:]} that {VARIABLE} names"
        text = _content(text[1:])
    if not text.strip():
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):  # Without a cause: the text may hold a secret.
        found = None
    if not isinstance(found, dict):
        raise InvalidOption(f"{origin} must hold a JSON object, such as {{}}; correct it.")
    return found


def _content(path: str) -> str:
    try:
        with open(os.path.expanduser(path), encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise InvalidOption(
            f"the file {path} that {VARIABLE} names cannot be read: {reason}."
        ) from None


def _value(name: str, text: str) -> object:
    """JSON, unless it is a number (a key may consist of digits); else the text."""
    if text in ("true", "false", "null"):
        return json.loads(text)
    if not text.startswith(("{", "[")):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidOption(
            f"--storage-option {name} begins like JSON but is not valid; correct it.", name=name
        ) from None


def _put(options: dict[str, object], name: str, value: object) -> None:
    *path, last = name.split(".")
    within = options
    for part in path:
        inner = within.get(part)
        within[part] = inner = dict(inner) if isinstance(inner, dict) else {}
        within = inner
    within[last] = value
