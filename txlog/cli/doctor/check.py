"""One result of `txlog doctor`: a value without secrets."""

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
    """A check that passed."""
    return Check(name, Status.OK, redact(found))


def warned(name: str, found: str, fix: str) -> Check:
    """A check of something that works, but not well."""
    return Check(name, Status.WARN, redact(found), redact(fix))


def failed(name: str, found: str, fix: str) -> Check:
    """A check that failed."""
    return Check(name, Status.FAIL, redact(found), redact(fix))


def failed_with(name: str, error: TxlogError) -> Check:
    """A check that failed with this error: its reason, and its remedy as the fix."""
    # An error of one sentence has no remedy of its own.
    if error.reason == error.remedy:
        return failed(name, error.message, "")
    return failed(name, error.reason.removesuffix("."), error.remedy)
