"""Checks of a history: the anomalies of Jepsen's Kafka workload, and those of this log.

`anomalies` reads the events alone, and uses none of the product's code. Names are those of
jepsen.tests.kafka and of Adya, if there are any. It proves I2, I3, I5, I6, I9, I10 and I11 as users
see them; `txlog.verify.invariants` checks the stored bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise

from tests.simulator.checks.anomaly import Anomaly, Check
from tests.simulator.checks.answer_checks import (
    asks_to_commit,
    local_decisions,
    lost_batches,
    refusals,
    wrong_answers,
    wrong_letters,
)
from tests.simulator.checks.cycle_checks import circular_flow, write_cycles
from tests.simulator.checks.deletion_checks import wrong_deletions
from tests.simulator.checks.history_facts import COMMITTED, READ_COMMITTED, HistoryFacts
from tests.simulator.history import History, Record


def anomalies(history: History) -> list[Anomaly]:
    """All anomalies of a history; empty if it is sound."""
    facts = HistoryFacts(history)
    return sorted({found for check in CHECKS for found in check(facts)})


def failures(facts: HistoryFacts) -> Iterator[Anomaly]:
    """Errors that no actor may meet."""
    for event in facts.history.of("failure"):
        yield Anomaly(event["at"], "failure", f"{event['who']}: {event['text']}")


def duplicates(facts: HistoryFacts) -> Iterator[Anomaly]:
    """I7: a record that was sent once has two offsets."""
    places: dict[str, Record] = {}
    for (isolation, _), records in facts.final.items():
        for record in records if isolation != READ_COMMITTED else ():
            known = places.setdefault(record[3], record)
            if known is not record:
                text = f"{record[3]} is at {known[:3]} and {record[:3]}"
                yield Anomaly(facts.step(record[3]), "duplicate", text)


def lost_writes(facts: HistoryFacts) -> Iterator[Anomaly]:
    """I3: an acknowledged record is missing.

    A record without an offset was in no topic when it was acknowledged, if its topic was deleted
    before.
    """
    for event in facts.history.of("written"):
        for record in event["records"]:
            is_excused = record[2] < 0 and facts.went_with_its_topic(record[3])
            if record[3] not in facts.shown and not is_excused:
                text = f"{record[3]} of {event['tx']} was acknowledged at {record[:3]}"
                yield Anomaly(event["at"], "lost write", text)


def aborted_reads(facts: HistoryFacts) -> Iterator[Anomaly]:
    """G1a, I3: a reader got a record whose transaction did not commit, or which was never sent."""
    for event in facts.history.of("poll", "cut", "final"):
        sees_all = event.get("isolation", READ_COMMITTED) != READ_COMMITTED
        for record in event["records"]:
            tx = facts.writer.get(record[3])
            if record[3] not in facts.writer:
                yield Anomaly(event["at"], "made up", f"{record} was never sent")
            elif not (sees_all or facts.is_committed(tx)):
                text = f"{event['who']} read {record}, and {tx} is {facts.outcomes.get(tx or '')}"
                yield Anomaly(event["at"], "G1a aborted read", text)


def early_reads(facts: HistoryFacts) -> Iterator[Anomaly]:
    """G1a, I3: a reader got a record before its transaction was asked to commit.

    A later commit does not excuse it. A staged record is in no topic before its decision, at any
    isolation level.
    """
    asked: set[str | None] = {None}
    for event in facts.history.of("committing", "answered", "poll", "cut", "final"):
        if asks_to_commit(event):
            asked.add(event["tx"])
        sees_all = event.get("isolation", READ_COMMITTED) != READ_COMMITTED
        for record in event.get("records", ()):
            tx = facts.writer.get(record[3])
            if tx not in asked and (tx in facts.staged or not sees_all):
                text = f"{event['who']} read {record}, before {tx} was asked to commit"
                yield Anomaly(event["at"], "G1a aborted read", text)


def torn_transactions(facts: HistoryFacts) -> Iterator[Anomaly]:
    """G1b, I5: at the end all records of a committed transaction are there."""
    shown: dict[str, set[str]] = {}
    for value in facts.shown:
        tx = facts.writer.get(value)
        if tx is not None:
            shown.setdefault(tx, set()).add(value)
    for tx, outcome in facts.outcomes.items():
        asked = facts.asked.get(tx)
        if outcome != COMMITTED:
            continue
        if asked is None:
            text = f"{tx} is committed, and was not asked to"
            yield Anomaly(facts.begun(tx), "wrong answer", text)
            continue
        lacking = set(asked["values"]) ^ shown.get(tx, set())
        if not all(facts.went_with_its_topic(value) for value in lacking):
            text = f"{tx} wrote {asked['values']}, and shown are {sorted(shown.get(tx, ()))}"
            yield Anomaly(asked["at"], "G1b torn transaction", text)


def torn_cuts(facts: HistoryFacts) -> Iterator[Anomaly]:
    """G1b, I11: a consistent cut has all records of a transaction or none, in all partitions and
    topics."""
    seen: dict[str, set[str]] = {}
    for event in facts.history.of("cut"):
        known = seen.setdefault(event["who"], set())
        known.update(record[3] for record in event["records"])
        for tx in sorted({facts.writer.get(record[3]) or "" for record in event["records"]} - {""}):
            whole = {
                value
                for value in facts.asked.get(tx, {"values": ()})["values"]
                if value in facts.kept_shown and facts.sent_to[value] in event["topics"]
            }
            if not whole <= known:
                text = f"{event['who']} has a part of {tx}: it lacks {sorted(whole - known)}"
                yield Anomaly(event["at"], "G1b torn cut", text)


def unbalanced_cuts(facts: HistoryFacts) -> Iterator[Anomaly]:
    """I11: the bank's total is zero in every cut. The amount follows the colon.

    If records were deleted, perhaps before the cut was read, this cannot be decided.
    """
    totals: Counter[str] = Counter()
    for event in facts.history.of("cut"):
        if not all(facts.is_whole(facts.newest(topic)) for topic in event["topics"]):
            continue
        for record in event["records"]:
            totals[event["who"]] += int(record[3].partition(":")[2] or 0)
        if totals[event["who"]]:
            text = f"{event['who']} counts {totals[event['who']]} after {event['records']}"
            yield Anomaly(event["at"], "unbalanced cut", text)


def inconsistent_offsets(facts: HistoryFacts) -> Iterator[Anomaly]:
    """I2: an offset has the same record for every reader at any time, and a record has one offset.

    The answer to a repeated send may be -1 in place of an offset that is no longer known.
    """
    known: dict[tuple[str, int, int], str] = {}
    places: dict[str, Record] = {}
    everything = [(-1, records) for records in facts.final.values()]
    told = facts.history.of("poll", "cut", "written", "final")
    everything += [(event["at"], event["records"]) for event in told]
    for at, records in everything:
        for record in records:
            topic, partition, offset, value = record
            found = known.setdefault((topic, partition, offset), value) if offset >= 0 else value
            if found != value:
                text = f"{topic}-{partition} at {offset} held {found}, and then {value}"
                yield Anomaly(at, "inconsistent offsets", text)
            place = places.setdefault(value, record)
            if place[:2] != record[:2] or len({place[2], offset} - {-1}) > 1:
                text = f"{value} is at {place[:3]}, but was reported at {record[:3]}"
                yield Anomaly(at, "inconsistent offsets", text)


def uneven_polls(facts: HistoryFacts) -> Iterator[Anomaly]:
    """Positions of a reader only rise, and skip no visible record.

    A reader without a group begins at the start: a record that is readable at the end was readable
    then.
    """
    given: dict[tuple[str, str, str, int], list[int]] = {}
    for event in facts.history.of("poll", "cut"):
        isolation = event.get("isolation", READ_COMMITTED)
        who = str(event.get("reader", event["who"]))
        for topic, partition, offset, _ in event["records"]:
            so_far = given.setdefault((who, isolation, topic, partition), [])
            if not so_far and "reader" not in event:
                so_far.append(-1)
            if so_far and offset <= so_far[-1]:
                text = f"{who} was given {topic}-{partition} {offset} after {so_far[-1]}"
                yield Anomaly(event["at"], "non-monotonic poll", text)
            elif missed := _passed_over(facts, isolation, so_far[-1:], topic, partition, offset):
                text = f"{who} passed over {topic}-{partition} {missed}"
                yield Anomaly(event["at"], "poll skip", text)
            so_far.append(offset)


def _passed_over(
    facts: HistoryFacts, isolation: str, before: list[int], topic: str, partition: int, offset: int
) -> list[int]:
    """Readable offsets between the previous one and this one."""
    records = facts.kept.get((isolation, topic), ()) if before else ()
    return [r[2] for r in records if r[1] == partition and before[0] < r[2] < offset]


def unseen(facts: HistoryFacts) -> Iterator[Anomaly]:
    """Liveness: long after the last work every reader has read all records."""
    seen: dict[str, set[str]] = {}
    for event in facts.history.of("poll", "cut"):
        seen.setdefault(event["who"], set()).update(record[3] for record in event["records"])
    for event in facts.history.of("stuck"):
        yield Anomaly(event["at"], "stuck", f"{event['who']} does not come to an end")
    for event in facts.history.of("caught_up"):
        for topic in event["topics"]:
            records = facts.kept.get((event["isolation"], facts.newest(topic)), [])
            missed = [r for r in records if r[3] not in seen.get(event["who"], set())]
            if missed:
                yield Anomaly(event["at"], "unseen", f"{event['who']} never saw {missed}")


def offset_gaps(facts: HistoryFacts) -> Iterator[Anomaly]:
    """I2: offsets are dense, from 0 on."""
    for (isolation, topic), records in facts.final.items():
        if isolation == READ_COMMITTED:
            continue
        ends: Counter[int] = Counter()
        for _, partition, offset, value in records:
            if offset != ends[partition]:
                text = f"{topic}-{partition} has {value} at {offset}, after {ends[partition] - 1}"
                yield Anomaly(facts.step(value), "offset gap", text)
            ends[partition] = offset + 1


def open_ends(facts: HistoryFacts) -> Iterator[Anomaly]:
    """Liveness: long after the last work no transaction is open."""
    for tx, outcome in facts.outcomes.items():
        if outcome == "OPEN":
            yield Anomaly(facts.begun(tx), "stuck", f"{tx} is still open")


def offset_ranges(facts: HistoryFacts) -> Iterator[Anomaly]:
    """I6: the ranges by which transactions moved a group are consecutive and end at its position.

    The outcome of a transaction without records may be unknown: its range may be among them.
    """
    ranges: dict[tuple[str, str, int], list[tuple[int, int, str]]] = {}
    perhaps: dict[tuple[str, str, int], dict[int, set[int]]] = {}
    for event in facts.history.of("consumed"):
        for topic, partition, start, end in event["ranges"]:
            where = (event["group"], topic, partition)
            if facts.is_committed(event["tx"]):
                ranges.setdefault(where, []).append((start, end, event["tx"]))
            elif facts.outcomes.get(event["tx"]) == "UNKNOWN":
                perhaps.setdefault(where, {}).setdefault(start, set()).add(end)
    for where, found in ranges.items():
        stands = facts.positions.get(where, -1)
        position = [] if facts.is_closed(where[1]) else [(stands, stands, "its position")]
        for one, other in pairwise([*sorted(found), *position]):
            end, start = _bridged(one[1], other[0], perhaps.get(where, {})), other[0]
            if start != end:
                kind = "offset overlap" if start < end else "offset range gap"
                text = f"{where}: {one[2]} leads to {end}, {other[2]} is {start}"
                yield Anomaly(max(facts.begun(one[2]), facts.begun(other[2])), kind, text)


def _bridged(at: int, goal: int, perhaps: Mapping[int, Collection[int]]) -> int:
    """The end of a chain of ranges from `at`, not beyond `goal`. Of several chains any is
    followed."""
    reached, waiting = {at}, [at]
    while waiting:
        ends = {end for end in perhaps.get(waiting.pop(), ()) if end <= goal} - reached
        reached |= ends
        waiting += ends
    return max(reached)


def lost_updates(facts: HistoryFacts) -> Iterator[Anomaly]:
    """I5, I10: each record between the start of a group's query and the group's position was copied
    once, and no other record was.

    A deleted record may be missing: it may have been deleted before it could be copied.
    """
    told = {(e["group"], *e["sources"], *e["sinks"]): e for e in facts.history.of("copies")}
    for event in told.values():
        group, sources = event["group"], [facts.newest(topic) for topic in event["sources"]]
        below = Counter(_below_position(facts.final, facts, group, sources))
        expected = Counter(_below_position(facts.kept, facts, group, sources))
        gone = {source for source in facts.sent_to if facts.is_of_the_deleted(source)}
        for sink in event["sinks"]:
            records = facts.final.get((READ_COMMITTED, sink), ())
            copies = [record[3] for record in records if "<" in record[3]]
            steps = {value.partition("<")[2]: facts.step(value) for value in copies}
            found = Counter(value.partition("<")[2] for value in copies)
            allowed = below | Counter(gone & set(found))
            if lacking := sorted((expected - found).elements()):
                step = facts.step(lacking[0])
                yield Anomaly(step, "lost update", f"{sink} lacks the copies of {lacking}")
            if surplus := sorted((found - allowed).elements()):
                text = f"{sink} has too many copies of {surplus}"
                yield Anomaly(steps[surplus[0]], "duplicate copy", text)


def _below_position(
    topics: Mapping[tuple[str, str], list[Record]],
    facts: HistoryFacts,
    group: str,
    names: list[str],
) -> Iterator[str]:
    for topic in names:
        for record in topics.get((READ_COMMITTED, topic), ()):
            where = (group, topic, record[1])
            if facts.begins.get(where, 0) <= record[2] < facts.positions.get(where, 0):
                yield record[3]


def gaps_in_counts(facts: HistoryFacts) -> Iterator[Anomaly]:
    """I10: each number of a source that counts is there once, without a gap."""
    for sink in sorted({sink for e in facts.history.of("counts") for sink in e["sinks"]}):
        records = facts.final.get((READ_COMMITTED, sink), ())
        found = sorted(
            (int(record[3].partition("<")[2]), facts.step(record[3])) for record in records
        )
        numbers = [number for number, _ in found]
        steps = [step for place, (number, step) in enumerate(found) if number != place]
        if steps:
            yield Anomaly(steps[0], "lost update", f"{sink} counts {numbers}")


CHECKS: tuple[Check, ...] = (
    failures,
    wrong_answers,
    lost_batches,
    local_decisions,
    wrong_letters,
    refusals,
    duplicates,
    lost_writes,
    aborted_reads,
    early_reads,
    torn_transactions,
    torn_cuts,
    unbalanced_cuts,
    inconsistent_offsets,
    uneven_polls,
    unseen,
    offset_gaps,
    open_ends,
    offset_ranges,
    lost_updates,
    wrong_deletions,
    gaps_in_counts,
    write_cycles,
    circular_flow,
)
