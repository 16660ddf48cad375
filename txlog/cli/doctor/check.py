"""One result of `txlog doctor`: a value without secrets. The checks themselves are elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from txlog.errors import TxlogError
from txlog.redaction import redact


class Status(StrEnum):
    """The result of a check. Only `fail` makes the exit code 1."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the doctor's table."""

    name: str
    status: Status
    found: str
    fix: str = ""


def passed(name: str, found: str) -> Check:
    """Nothing to do."""
    return Check(name, Status.OK, redact(found))


def warned(name: str, found: str, fix: str) -> Check:
    """It works, but not as well as it could."""
    return Check(name, Status.WARN, redact(found), redact(fix))


def failed(name: str, found: str, fix: str) -> Check:
    """It will not work."""
    return Check(name, Status.FAIL, redact(found), redact(fix))


def failed_with(name: str, error: TxlogError) -> Check:
    """The error's reason, and its remedy."""
    if error.reason == error.remedy:
        return failed(name, error.message, "")
    return failed(name, error.reason.removesuffix("."), error.remedy)
