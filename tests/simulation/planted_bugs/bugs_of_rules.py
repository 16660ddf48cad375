"""Planted bugs in the journal, the topics, the coordinator and the groups, rule by rule.

Each is code that one might write without knowing the rule. Some rules are hidden by another guard,
which prevents the same fault: such a mutant removes that guard, too, as `beside`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from spark_plugin.sink import replay
from tests.protocol import removed_rules as rules_out
from tests.simulation.planted_bugs.mutant import Mutant, Patch
from tests.simulator.environment import final_state
from txlog.coordinator import rules, state
from txlog.coordinator.coordinator import Coordinator
from txlog.coordinator.events import AbortPrepared, CommitPrepared, Participant, PrepareAbort
from txlog.coordinator.transaction import PREPARED, TransactionState
from txlog.engine.transaction_session import NO_PENDS, TransactionSession
from txlog.errors import MissingObject, OutcomeUnknown
from txlog.journal.boundaries import boundary
from txlog.journal.boundaries.boundary import Boundary, own_below
from txlog.journal.codec import encode
from txlog.journal.entry import decode_entry
from txlog.journal.machine import Decided
from txlog.journal.replication import opening
from txlog.journal.replication.replica import Replica
from txlog.journal.replication.run import RunReader
from txlog.layout import JournalLayout, parse_number
from txlog.model import Decision, TransactionOutcome, TxId
from txlog.sorted_map import SortedMap
from txlog.storage.store import Store
from txlog.topic.read import cut
from txlog.topic.state import TopicState
from txlog.verify.invariants import log_facts

# The coordinator.


def no_R2_offsets(patch: Patch) -> None:
    """A batch with the same number counts as the same batch, even with other offsets."""
    patch.setattr(replay, "_is_same", lambda batch, mark: True)


def no_R2_memory(patch: Patch) -> None:
    """A new run starts without a memory of its query's newest batch."""
    original = state._initialised

    def initialised(known: Any, event: Any) -> Any:
        return replace(original(known, event), marks=SortedMap())

    patch.setattr(state, "_initialised", initialised)


def no_R4(patch: Patch) -> None:
    """Whether a number was used is looked up among the remembered outcomes."""

    def require(name: str, known: Any, tx_id: TxId) -> None:
        if known.open and not known.concurrent:
            rules._require_nothing_prepared(name, known)

    patch.setattr(rules, "_require_next", require)


def no_outcomes(patch: Patch) -> None:
    """A coordinator remembers no outcome, instead of the last 16,384; how
    transactions ended is read from the stored bytes."""

    def outcome(process: Any, tx: str) -> TransactionOutcome:
        found = log_facts(process.network.world_state.service.store).transaction(TxId.parse(tx))
        if found is None:
            return TransactionOutcome.UNKNOWN_ID
        return _OUTCOMES[found.decision]

    patch.setattr(state, "_with_outcome", lambda known, tx_id, ended: known)
    patch.setattr(final_state, "outcome_of", outcome)


_OUTCOMES = {
    None: TransactionOutcome.OPEN,
    Decision.COMMIT: TransactionOutcome.COMMITTED,
    Decision.ABORT: TransactionOutcome.ABORTED,
}


def no_R39(patch: Patch) -> None:
    """A number at or below the highest one counts as aborted if its outcome is not remembered."""
    patch.setattr(rules, "require_remembered", lambda known, tx_id: None)


def few_outcomes(patch: Patch) -> None:
    """A coordinator remembers one or two outcomes, instead of the last 16,384. This is harmless:
    the checks read the decisions from every entry that was ever stored."""

    def outcome(process: Any, tx: str) -> TransactionOutcome:
        wanted = encode(CommitPrepared("", TxId.parse(tx), 0))["tx_id"]
        archive = process.network.world_state.service.archive
        for path, stored in archive.items():
            if path.startswith("transactions/") and "/entries/" in path:
                entry, _ = decode_entry(stored.data, path, parse_number(path) or 0)
                decided = [e["tx_id"] for e in entry.events if e["type"] == "commit_prepared"]
                if wanted in decided:
                    return TransactionOutcome.COMMITTED
        return TransactionOutcome.ABORTED

    patch.setattr(state, "OUTCOME_GENERATION", 1)
    patch.setattr(state, "OUTCOME_GENERATIONS_MAX", 1)
    patch.setattr("txlog.verify.facts.coordinator_facts.OUTCOME_GENERATIONS_MAX", 1)
    patch.setattr(final_state, "outcome_of", outcome)


def applied_later(patch: Patch) -> None:
    """A commit returns once it is decided, and the next process applies it. This is harmless,
    because R5 makes the next transaction wait."""

    def commit(
        self: Any,
        participants: tuple[Participant, ...] = (),
        mark: Any = None,
        *,
        pends: Mapping[str, Any] = NO_PENDS,
        conditions: Sequence[Any] = (),
    ) -> dict[str, Mapping[int, int]]:
        if self.has_begun or participants or pends or self._groups or self._tag or mark is not None:
            together = [*conditions, *(self._pend_command(*item) for item in pends.items())]
            self._prepare(participants, (*self._groups, *pends), mark, together)
        return {}

    patch.setattr(TransactionSession, "commit", commit)


def decided_twice(patch: Patch) -> None:
    """An abort after the commit replaces it (I4)."""
    original = rules._decide_abort

    def decide(known: Any, command: PrepareAbort) -> Decided:
        holder = known.ids.get(command.transactional_id)
        opened = holder.open.get(command.tx_id) if holder is not None else None
        if opened is None or opened.state is not TransactionState.PREPARE_COMMIT:
            return original(known, command)
        name, tx_id = command.transactional_id, command.tx_id
        return Decided((AbortPrepared(name, tx_id, command.now_ms, holder.epoch),))

    patch.setattr(rules, "_decide_abort", decide)
    patch.setattr(state, "transition", lambda current, new: new)


def prepared_left_to_owners(patch: Patch) -> None:
    """Maintenance ends expired transactions, and leaves decided ones to their owners (R8)."""

    def maintain(self: Coordinator, first: TxId | None = None) -> list[TxId]:
        late = [
            (name, transaction.tx_id)
            for name, transaction in self.catch_up().open_transactions()
            if transaction.state not in PREPARED and transaction.is_late(self._now_ms())
        ]
        for name, tx_id in late:
            self._end_late(name, tx_id)
        return [tx_id for _, tx_id in late]

    patch.setattr(Coordinator, "maintain", maintain)


def timed_out_counts_as_aborted(patch: Patch) -> None:
    """A transaction past its timeout counts as aborted, by the clock of the process that reads it
    (I14)."""
    original = Coordinator.outcome

    def outcome(self: Coordinator, tx_id: TxId) -> TransactionOutcome:
        found = original(self, tx_id)
        for _, opened in self.state.open_transactions():
            is_open = opened.tx_id == tx_id and opened.state not in PREPARED
            if is_open and opened.is_late(self._now_ms()):
                return TransactionOutcome.ABORTED
        return found

    patch.setattr(Coordinator, "outcome", outcome)


def deleted_on_unknown_outcome(patch: Patch) -> None:
    """A producer without an answer to its commit deletes its staged records (I13)."""
    original = Coordinator.prepare_commit

    def prepare(
        self: Coordinator,
        name: str,
        tx_id: TxId,
        participants: tuple[Participant, ...] = (),
        *more: Any,
        **named: Any,
    ) -> None:
        try:
            original(self, name, tx_id, participants, *more, **named)
        except OutcomeUnknown:
            for participant in participants:
                for segment in participant.segments:
                    self._cluster.store.delete(segment.path)
            raise

    patch.setattr(Coordinator, "prepare_commit", prepare)


# The journal.


def no_R14_overwritten(patch: Patch) -> None:
    """A boundary is written even if one with its number exists."""

    def create(store: Store, layout: JournalLayout, proposed: Boundary) -> bool:
        body = boundary.json.dumps(boundary.encode(proposed)).encode()
        store.replace(layout.boundary(proposed.ordinal), boundary.seal(body))
        return True

    patch.setattr(boundary, "create", create)


def no_R14_believed(patch: Patch) -> None:
    """A process trusts the boundary that it proposed, even if another's was first."""
    original = boundary.create

    def create(store: Store, layout: JournalLayout, proposed: Boundary) -> bool:
        original(store, layout, proposed)
        return True

    patch.setattr(boundary, "create", create)


def no_boundary(patch: Patch) -> None:
    """Old entries are deleted without a boundary that says so (I12)."""

    def prune(self: Replica[Any], keep_entries: int, apart_entries: int = 1) -> int:
        self._catch_up(linearizable=True)
        self._write_snapshot()
        lowest = max(0, self._at.next_slot - keep_entries)
        doomed = own_below(self._store, self.layout.entry, lowest)
        for path in doomed:
            self._store.delete(path)
        return len(doomed)

    patch.setattr(Replica, "prune", prune)


def snapshot_below_the_boundary(patch: Patch) -> None:
    """A boundary names the newest existing snapshot, and not one of its own (R14)."""

    def advance(self: Replica[Any], lowest: int, *, closed: bool = False) -> None:
        covered = self._at.next_slot - self._at.next_slot % self._options.snapshot_entries - 1
        proposed = Boundary(
            self._at.boundary.ordinal + 1, lowest, covered, self._runtime.entropy.token(), closed
        )
        boundary.create(self._store, self.layout, proposed)
        newest = self._checks.check(self._at.boundary).boundary
        self._at = replace(self._at, boundary=newest)

    patch.setattr(Replica, "_advance_boundary", advance)


def hint_believed(patch: Patch) -> None:
    """The journal is read from the place that the hint names (R16)."""
    original = opening.open_journal

    def opened(store: Any, layout: JournalLayout, machine: Any, known: Boundary) -> Any:
        hinted = opening.hinted_slot(store, layout)
        if hinted is not None:
            found = opening._from_snapshot(store, layout, machine, hinted, known)
            if found is not None:
                return found
        return original(store, layout, machine, known)

    patch.setattr("txlog.journal.replication.replica.open_journal", opened)


def vanished_is_an_error(patch: Patch) -> None:
    """A named but missing snapshot counts as damage (R16)."""
    original = opening._from_snapshot

    def from_snapshot(
        store: Any, layout: JournalLayout, machine: Any, slot: int, known: Boundary
    ) -> Any:
        found = original(store, layout, machine, slot, known)
        if found is None:
            raise MissingObject(f"{layout.snapshot(slot)} is missing.", path=layout.snapshot(slot))
        return found

    patch.setattr(opening, "_from_snapshot", from_snapshot)


def snapshot_deleted_early(patch: Patch) -> None:
    """Only the newest snapshot is kept, and not the boundary's (R16)."""

    def delete(self: Replica[Any]) -> int:
        entries = own_below(self._store, self.layout.entry, self._at.boundary.lowest_slot)
        newest = self._at.next_slot - self._at.next_slot % self._options.snapshot_entries - 1
        kept = max(newest, self._at.boundary.snapshot_slot, 0)
        for path in [*entries, *own_below(self._store, self.layout.snapshot, kept)]:
            self._store.delete(path)
        return len(entries)

    patch.setattr(Replica, "_delete_below_boundary", delete)


def old_decision_published(patch: Patch) -> None:
    """A writer that loses a slot publishes its old decision in the next one (I2)."""
    original = Replica._decide_all
    kept: dict[int, bytes] = {}

    def decide_all(
        self: Replica[Any], commands: list[Any], path: str
    ) -> tuple[Any, list[Any], bytes]:
        if any(c.decided is None or not c.decided.events for c in commands):
            after, events, kept[id(self)] = original(self, commands, path)
            return after, events, kept[id(self)]
        events = [event for queued in commands for event in queued.decided.events]
        after = self.state
        for event in events:
            after = self._machine.apply(after, event, self._at.next_slot)
        return after, events, kept[id(self)]

    patch.setattr(Replica, "_decide_all", decide_all)


def tip_by_listing(patch: Patch) -> None:
    """An object missing from a listing counts as absent (I14)."""

    def fetch(self: RunReader, slot: int, count: int) -> list[bytes | None]:
        names = [self._layout.entry(slot + number) for number in range(count)]
        listed = {found.path for found in self._store.list_after(self._layout.entries)}
        return [self._store.get(name) if name in listed else None for name in names]

    patch.setattr(RunReader, "fetch", fetch)


# Cuts.


def no_R13_group(patch: Patch) -> None:
    """A cut takes at least one transaction, without those that it is tied to."""

    def oldest_group(windows: Any, window: Any, starts: Any, limit: int) -> Any:
        ends = dict(starts)
        first = window.oldest()
        where = window.view.where(first.partition)
        ends[where] = min(first.next_offset, window.highs[first.partition])
        for other in windows:
            cut._include_torn_once(other, windows, ends)
        return ends

    patch.setattr(cut, "_oldest_group", oldest_group)


def no_R13_limit(patch: Patch) -> None:
    """If not even one group fits, everything is taken."""
    original = cut.limited_cut

    def limited(topics: Any, starts: Any, highs: Any, limit: int) -> Mapping[Any, int]:
        found = original(topics, starts, highs, limit)
        exceeds = sum(found.values()) - sum(starts[where] for where in found) > limit
        return dict(highs) if exceeds else found

    patch.setattr(cut, "limited_cut", limited)
    patch.setattr("tests.simulator.actors.bank_transfers.limited_cut", limited)


def aborted_shown(patch: Patch) -> None:
    """Readers stop at open transactions, and skip nothing."""
    original = TopicState.decided
    patch.setattr(
        TopicState, "decided", lambda self, row: replace(original(self, row), aborted=False)
    )


OF_RULES: Mapping[str, Mutant] = {
    "old decision published in a later slot (I2)": Mutant(old_decision_published, "producers", 1),
    "aborted records not skipped (I3)": Mutant(aborted_shown, "producers", 0),
    "abort accepted after the commit (I4)": Mutant(decided_twice, "witnessed", 2),
    "sequences not checked (I7)": Mutant(rules_out.without_I7, "flaky", 55),
    "entries deleted without a boundary (I12)": Mutant(no_boundary, "storm", 0),
    "staged segments deleted after an unknown outcome (I13)": Mutant(
        deleted_on_unknown_outcome, "denied", 548
    ),
    "unlisted objects count as absent (I14)": Mutant(
        tip_by_listing, "producers", 215, unseen_seeds=1_300
    ),
    "timed-out transaction counts as aborted (I14)": Mutant(
        timed_out_counts_as_aborted, "wrong-clocks", 23
    ),
    "without R2, other offsets accepted": Mutant(no_R2_offsets, "numbers", 7),
    "without R2, new run forgets the mark": Mutant(no_R2_memory, "numbers", 7, 600),
    "without R4": Mutant(no_R4, "wrong-clocks", 10, beside=no_outcomes, kind="I4"),
    "without R5, BEGIN does not wait for the prepared transaction": Mutant(
        rules_out.without_R5_before_begin, "producers", 3, beside=applied_later
    ),
    "without R6 in groups": Mutant(rules_out.without_R6_in_groups, "witnessed", 213),
    "without R8, offsets applied before the topics": Mutant(rules_out.without_R8, "witnessed", 550),
    "without R8, maintenance skips prepared transactions": Mutant(
        prepared_left_to_owners, "bank", 79
    ),
    "without R10, late records accepted": Mutant(rules_out.without_R10_refusal, "worn", 274),
    "without R13, connected group split": Mutant(no_R13_group, "bank", 25),
    "without R13, limit ignored": Mutant(no_R13_limit, "bank", 1),
    "without R14, losing boundary trusted": Mutant(no_R14_believed, "pruned", 353),
    "without R14, boundary overwritten": Mutant(no_R14_overwritten, "pruned", 0),
    "without R14, boundary names an older snapshot": Mutant(
        snapshot_below_the_boundary, "storm", 6
    ),
    "without R16, hint trusted": Mutant(hint_believed, "hinted", 372, unseen_seeds=300),
    "without R16, missing snapshot counts as damage": Mutant(vanished_is_an_error, "hinted", 13),
    "without R16, boundary's snapshot deleted": Mutant(snapshot_deleted_early, "hinted", 52),
    "without R39": Mutant(no_R39, "flaky", 11, 800, beside=few_outcomes, kind="wrong answer"),
}
