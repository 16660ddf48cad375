"""The checks of a drill, from the log's stored bytes, once every process of the job is gone.

For the bundled job the output must equal the input. For any job: batches of it are in the log; the
log's structure, the invariants between its journals and the groups' offsets hold; nothing is left
open; and the query's next start accepts the checkpoint.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from spark_plugin.checkpoints.checkpoint import Checkpoint
from spark_plugin.checkpoints.checkpoint_comparison import CheckpointComparison, NextStart, compare
from spark_plugin.checkpoints.query_progress import query_progress
from txlog.cli.commands.verify import proven
from txlog.cli.drill.drill_log import DrillLog
from txlog.cli.output.output import counted
from txlog.client.admin import Admin
from txlog.engine.connection import Connection
from txlog.errors import CorruptData
from txlog.journal.audit import Finding
from txlog.verify.log_audit import audit_log

SETTLE_WAIT_MS = 20_000.0
"""How long a dead run's pends may last: an undecided one times out after ten seconds."""

INPUT_OUTPUT = "input = output"
"""Name of the check that only the bundled job has."""

POLL_MS = 500.0
SHOWN_MAX = 5


@dataclass(frozen=True, slots=True)
class DrillCheck:
    """One property, and whether it was proven."""

    name: str
    is_well: bool
    found: str


def drill_checks(
    connection: Connection, checkpoint: Checkpoint, log: DrillLog | None
) -> Iterator[DrillCheck]:
    """All checks. `log` is the bundled job's data."""
    groups = tuple(compare(connection, checkpoint).owners or {})
    query_id = query_progress(checkpoint).query_id
    yield _check("batches in the log", lambda: _batches(connection, query_id))
    if log is not None:
        yield _check(INPUT_OUTPUT, lambda: _records(log))
        yield _check("group at the end", lambda: _lag(log))
    yield _check("open transactions", lambda: _open(connection, query_id, groups))
    yield _checkpoint(compare(connection, checkpoint))
    damage = audit_log(connection).findings
    yield _findings("every stored byte", damage, "every object is whole, and offsets are dense")
    # Also after damage: then findings count, but their absence proves nothing.
    broken = proven(connection)
    of_groups = [finding for finding in broken if finding.invariant == "I6"]
    yield _findings("offsets of groups", of_groups, "without overlap or gap", damage)
    others = [finding for finding in broken if finding.invariant != "I6"]
    yield _findings("invariants", others, "all journals agree", damage)


def _batches(connection: Connection, query_id: str) -> tuple[bool, str]:
    """The log has a batch of this query; otherwise the other checks prove nothing about the job."""
    own = [
        mark.batch_id
        for mark in Admin(connection).list_micro_batches()
        if mark.query_id == query_id
    ]
    found = (
        f"up to batch {max(own)}"
        if own
        else (
            f"the log has no batch of query {query_id or '(the checkpoint names none)'}: its sink "
            "is not txlog, or writes to another log, or --checkpoint is another query's. Nothing "
            "else that is found here concerns the job."
        )
    )
    return bool(own), found


def _check(name: str, check: Callable[[], tuple[bool, str]]) -> DrillCheck:
    """Run a check; CorruptData becomes its result."""
    try:
        return DrillCheck(name, *check())
    except CorruptData as error:
        return DrillCheck(name, False, error.message)


def _records(log: DrillLog) -> tuple[bool, str]:
    """Compare the committed input with both outputs, number by number."""
    due = Counter(range(log.count))
    source = Counter(log.found(log.numbers))
    even, odd = (Counter(log.found(topic)) for topic in log.outputs)
    lost, extra = due - (even + odd), (even + odd) - due
    misplaced = sum(n % 2 for n in even.elements()) + sum(1 - n % 2 for n in odd.elements())
    duplicated = sum(count for number, count in extra.items() if number in due)
    wrong = extra.total() - duplicated + misplaced + ((source - due) + (due - source)).total()
    found = (
        f"{log.count} in, {even.total() + odd.total()} out: {lost.total()} lost, {duplicated} "
        f"duplicated, {wrong} wrong; {log.aborted} of aborted transactions stayed invisible"
    )
    return not (lost or extra or wrong), found


def _lag(log: DrillLog) -> tuple[bool, str]:
    lag = log.lag()
    return lag == 0, f"{counted(lag, 'record')} behind"


def _open(connection: Connection, query_id: str, groups: tuple[str, ...]) -> tuple[bool, str]:
    """Nothing of the job is undecided or pending, once timed-out transactions are aborted."""
    clock = connection.runtime.clock
    deadline_ms = clock.monotonic_ms() + SETTLE_WAIT_MS
    while left := _left_open(connection, query_id, groups):
        if clock.monotonic_ms() > deadline_ms:
            break
        clock.sleep_ms(POLL_MS)
    return not left, "; ".join(left[:SHOWN_MAX]) or "nothing is left open"


def _left_open(connection: Connection, query_id: str, groups: tuple[str, ...]) -> list[str]:
    """Transactions of the query's ids and labels, and of any other owner of its groups."""
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
            # settle() would also abort a transaction that still has time.
            if now_ms - pending.pended_ms > pending.timeout_ms:
                connection.offsets.settle(group, tx_id)
            # It counts as open until the next pass no longer finds it.
            left.append(f"{tx_id} has pending offsets of group {group}")
    return left


def _checkpoint(comparison: CheckpointComparison) -> DrillCheck:
    is_well = comparison.next_start is not NextStart.REFUSED
    found = str(comparison.next_start) if is_well else f"{comparison.reason} {comparison.remedy}"
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
