"""What a drill proves, once every process of the job is gone: from the log's stored bytes.

For the bundled job what goes in must come out. For any job: batches of it in the log, the log's
structure, the invariants between its journals, the groups' offsets, nothing left open, and a
checkpoint that the next start takes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from spark_plugin.checkpoint import Checkpoint
from spark_plugin.checkpoint_story import CheckpointStory, NextStart, tell
from spark_plugin.query_progress import query_progress
from txlog.cli.drill_log import DrillLog
from txlog.cli.output import counted
from txlog.cli.proof import proven
from txlog.clients.admin import Admin
from txlog.clients.connection import Connection
from txlog.clients.log_audit import audit_log
from txlog.errors import CorruptData
from txlog.journal.audit import Finding

SETTLE_WAIT_MS = 20_000.0
"""For what a dead run has left: a pend that was not decided times out after ten seconds."""

INPUT_OUTPUT = "input = output"
"""Name of the check that only the bundled job has."""

POLL_MS = 500.0
SHOWN_MAX = 5


@dataclass(frozen=True, slots=True)
class DrillCheck:
    """One thing that was proven, or not."""

    name: str
    is_well: bool
    found: str


def drill_checks(
    connection: Connection, checkpoint: Checkpoint, log: DrillLog | None
) -> Iterator[DrillCheck]:
    """All of them. `log` is the bundled job's data."""
    groups = tuple(tell(connection, checkpoint).owners or {})
    query_id = query_progress(checkpoint).query_id
    yield _check("batches in the log", lambda: _batches(connection, query_id))
    if log is not None:
        yield _check(INPUT_OUTPUT, lambda: _records(log))
        yield _check("group at the end", lambda: _lag(log))
    yield _check("open transactions", lambda: _open(connection, query_id, groups))
    yield _checkpoint(tell(connection, checkpoint))
    damage = audit_log(connection).findings
    yield _findings("every stored byte", damage, "every object is whole, and offsets are dense")
    # Made in any case; but what lies behind damage was not looked at, so that finding nothing there
    # proves nothing.
    broken = proven(connection)
    of_groups = [finding for finding in broken if finding.invariant == "I6"]
    yield _findings("offsets of groups", of_groups, "without overlap or gap", damage)
    others = [finding for finding in broken if finding.invariant != "I6"]
    yield _findings("invariants", others, "all journals tell one story", damage)


def _batches(connection: Connection, query_id: str) -> tuple[bool, str]:
    """Without a batch of this query in this log, all that follows says nothing of the job."""
    own = [mark.batch_id for mark in Admin(connection).replay_marks() if mark.query_id == query_id]
    found = (
        f"up to batch {max(own)}"
        if own
        else (
            f"the log has no batch of query {query_id or '(the checkpoint names none)'}: its sink "
            "is not txlog, or writes to another log, or --checkpoint is another query's. What else "
            "is found here says nothing of the job."
        )
    )
    return bool(own), found


def _check(name: str, check: Callable[[], tuple[bool, str]]) -> DrillCheck:
    """Damage that it meets is what it has found."""
    try:
        return DrillCheck(name, *check())
    except CorruptData as error:
        return DrillCheck(name, False, error.message)


def _records(log: DrillLog) -> tuple[bool, str]:
    """The input as committed, and both outputs, number by number."""
    due = Counter(range(log.count))
    source = Counter(log.found(log.numbers))
    even, odd = (Counter(log.found(topic)) for topic in log.outputs)
    lost, extra = due - (even + odd), (even + odd) - due
    misplaced = sum(n % 2 for n in even.elements()) + sum(1 - n % 2 for n in odd.elements())
    duplicated = sum(count for number, count in extra.items() if number in due)
    wrong = extra.total() - duplicated + misplaced + ((source - due) + (due - source)).total()
    found = (
        f"{log.count} in, {even.total() + odd.total()} out: {lost.total()} lost, {duplicated} "
        f"duplicated, {wrong} wrong; {log.aborted} of aborted transactions stayed unseen"
    )
    return not (lost or extra or wrong), found


def _lag(log: DrillLog) -> tuple[bool, str]:
    lag = log.lag()
    return lag == 0, f"{counted(lag, 'record')} behind"


def _open(connection: Connection, query_id: str, groups: tuple[str, ...]) -> tuple[bool, str]:
    """Nothing of the job is undecided or pending, once what timed out is ended."""
    clock = connection.runtime.clock
    deadline_ms = clock.monotonic_ms() + SETTLE_WAIT_MS
    while left := _left_open(connection, query_id, groups):
        if clock.monotonic_ms() > deadline_ms:
            break
        clock.sleep_ms(POLL_MS)
    return not left, "; ".join(left[:SHOWN_MAX]) or "none is left"


def _left_open(connection: Connection, query_id: str, groups: tuple[str, ...]) -> list[str]:
    """Of the query's own transactional ids, those of its labels, and whatever owns its groups."""
    owners = {Admin(connection).owner_of(group) for group in groups} - {""}
    own = f"spark.{query_id}"
    left = []
    for coordinator in connection.coordinators():
        coordinator.maintain()
        for name, transaction in coordinator.catch_up().open_transactions():
            if name in owners or name == own or (query_id and name.startswith(f"{own}.")):
                left.append(f"{transaction.tx_id} of {name} is {transaction.state}")
    for group in groups:
        for tx_id, pending in connection.offsets.group(group).pending.items():
            now_ms = connection.runtime.clock.wall_ms()
            if now_ms - pending.pended_ms > pending.timeout_ms:
                connection.offsets.settle(group, tx_id)
            left.append(f"{tx_id} pends on group {group}")
    return left


def _checkpoint(story: CheckpointStory) -> DrillCheck:
    is_well = story.next_start is not NextStart.REFUSED
    found = str(story.next_start) if is_well else f"{story.reason} {story.remedy}"
    return DrillCheck("checkpoint and log", is_well, found)


def _findings(
    name: str, findings: list[Finding], well: str, damage: Sequence[Finding] = ()
) -> DrillCheck:
    if damage and not findings:
        return DrillCheck(name, False, "not proven: bytes are damaged")
    shown = "; ".join(str(finding) for finding in findings[:SHOWN_MAX])
    more = len(findings) - SHOWN_MAX
    found = f"{shown}; and {more} more" if more > 0 else shown or well
    return DrillCheck(name, not findings, found)
