"""Wrong answers: of outcomes that were otherwise, and refusals without a reason.

Like `history_checks.py` it reads the events alone. It proves I4 and I10 as users see them, and
liveness: a log that refuses every write would lose none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from tests.simulator.checks.anomaly import Anomaly
from tests.simulator.checks.history_facts import COMMITTED, HistoryFacts
from tests.simulator.history import Event

_ENDS = {"COMMIT_MESSAGE": COMMITTED, "ROLLBACK_MESSAGE": "ABORTED"}
"""Answer of a local transaction -> outcome of its messages."""

_SENDS_MIN = 3
"""Number of transactions or flushes among which at least one must be acknowledged."""


def wrong_answers(facts: HistoryFacts) -> Iterator[Anomaly]:
    """I4: the outcome of a commit or an abort differs from its answer."""
    for event in facts.history.of("commit", "abort"):
        outcome, answer = facts.outcomes.get(event["tx"]), event["answer"]
        promised = (answer == "ok") == (event["what"] == "commit")
        is_known = event["what"] == "abort" or event["tx"] in facts.asked
        if promised and is_known and not facts.values(event["tx"]):
            continue  # Nothing was written, so a coordinator need not have it.
        if answer != "unknown" and promised != (outcome == COMMITTED):
            text = f"{event['what']} of {event['tx']} was answered {answer}, it is {outcome}"
            yield Anomaly(event["at"], "wrong answer", text)


def lost_batches(facts: HistoryFacts) -> Iterator[Anomaly]:
    """I10: an acknowledged micro-batch is in the log once, with every record that was read for it.

    Another batch of the query may contain some of these records: a restored checkpoint may have a
    batch that begins elsewhere and ends at the same offsets.
    """
    attempts: Counter[tuple[object, ...]] = Counter()
    stored: dict[tuple[object, ...], set[str]] = {}
    for event in facts.asked.values():
        if "batch" in event and facts.outcomes.get(event["tx"]) == COMMITTED:
            attempts[_batch(event)] += 1
            stored.setdefault((event["query"], event["label"]), set()).update(event["reads"])
    for event in facts.history.of("batch_done"):
        wanted = _left(facts, event["reads"])
        lacking = wanted - stored.get((event["query"], event["label"]), set())
        if event["wrote"] and wanted and (attempts[_batch(event)] != 1 or lacking):
            text = f"{_batch(event)} is said to be in: it is {attempts[_batch(event)]} times"
            yield Anomaly(event["at"], "lost write", f"{text}, and lacks {sorted(lacking)}")


def _left(facts: HistoryFacts, values: Iterable[str]) -> set[str]:
    """Check that two runs of a batch read the same records, except for deleted ones."""
    return set(values) - (facts.shown.keys() - facts.kept_shown.keys())


def _batch(event: Event) -> tuple[object, ...]:
    return event["query"], event["batch"], event["label"]


def local_decisions(facts: HistoryFacts) -> Iterator[Anomaly]:
    """I10: half messages are visible if and only if their local transaction committed.

    Those that were without an answer for too long are dead letters, also if all answers were lost
    when their receivers died.
    """
    answered = {e["tx"] for e in _kept_answers(facts)}
    decided = {e["tx"]: e for e in facts.history.of("local")}
    for tx, event in decided.items():
        outcome = facts.outcomes.get(tx)
        may_be = {_ENDS[event["decision"]]} | ({"DEAD_LETTERED"} if tx not in answered else set())
        if outcome not in may_be:
            text = f"{tx} was ended locally with {event['decision']}, it is {outcome}"
            yield Anomaly(event["at"], "wrong answer", text)
    for event in facts.history.of("committing"):
        if _is_half(event["tx"]) and event["tx"] not in decided and facts.is_committed(event["tx"]):
            yield Anomaly(event["at"], "wrong answer", f"{event['tx']} was never ended locally")


def asks_to_commit(event: Event) -> bool:
    """Whether the log may commit a transaction from this event on.

    Half messages are sent before that: the answer to a check-back, perhaps of another process,
    commits them later.
    """
    if event["what"] == "answered":
        return _ENDS.get(event["answer"]) == COMMITTED
    return event["what"] == "committing" and not _is_half(event["tx"])


def _is_half(tx: str) -> bool:
    return "/" in tx and not tx.startswith("batch ")


def _kept_answers(facts: HistoryFacts) -> Iterator[Event]:
    """Answers about local transactions whose receiver survived."""
    given: dict[str, Event] = {}
    for event in facts.history.events:
        who = event["who"].partition("#")[0]
        before = given.get(who)
        if before is not None:
            tag = before["tx"].partition("/")[2]
            is_lost = event["what"] == "died" or tag in event.get("text", "")
            if not is_lost:
                yield before
            del given[who]
        if event["what"] == "answered":
            given[who] = event
    yield from given.values()


def wrong_letters(facts: HistoryFacts) -> Iterator[Anomaly]:
    """I4: each message of a given-up half transaction is a dead letter once, and no other is."""
    for event in facts.history.of("letters"):
        found = Counter((tx, value) for tx, _, value in event["letters"])
        expected = Counter(
            (tx, value)
            for tx, outcome in facts.outcomes.items()
            for value in facts.values(tx)
            if outcome == "DEAD_LETTERED"
        )
        for tx, value in sorted((found - expected) + (expected - found)):
            text = f"{value} of {tx} is a dead letter {found[tx, value]} times"
            outcome = facts.outcomes.get(tx, "a transaction that no actor has named")
            yield Anomaly(facts.begun(tx), "wrong letter", f"{text}, it is {outcome}")


def refusals(facts: HistoryFacts) -> Iterator[Anomaly]:
    """Liveness: without faults, an actor that does not share its transactional id is not refused,
    unless it has read a topic that is deleted: offsets there mean nothing (R11)."""
    if facts.faults != set():
        return
    ids: dict[str, set[str]] = {}
    for event in facts.history.of("holds"):
        ids.setdefault(_role(event), set()).add(event["transactional_id"])
    shared = Counter(name for names in ids.values() for name in names)
    rivals = _groups_of_several(facts)
    ended = {e["tx"] for e in facts.history.of("ending")}
    moved = facts.history.of("consumed")
    ended |= {e["tx"] for e in moved if any(facts.is_closed(topic) for topic, *_ in e["ranges"])}
    for event in facts.history.of("commit"):
        # A process with several actors has several ids, and the event does not say which one.
        mine = ids.get(_role(event), set())
        is_alone = len(mine) == 1 and all(shared[name] == 1 for name in mine)
        is_alone &= event["tx"] not in rivals | ended
        if is_alone and event["answer"] not in ("ok", "expired"):
            text = f"{event['who']} was answered {event['answer']} for {event['tx']}, in vain"
            yield Anomaly(event["at"], "refused", text)
    fenced = {role for role, names in ids.items() if any(shared[name] > 1 for name in names)}
    yield from _without_success(facts, fenced)


def _without_success(facts: HistoryFacts, fenced: set[str]) -> Iterator[Anomaly]:
    """An actor or a whole group that sends repeatedly and never has a record stored, or a group
    that never sends. Records with a deliberate mistake are refused rightly, an actor whose topic is
    deleted ends rightly, and a copier needs records to copy."""
    holders = {_role(event) for event in facts.history.of("holds")}
    excused = {_role(event) for event in facts.history.of("ended")}
    if not any(facts.history.of("commit", "written")):
        excused |= {_role(event) for event in facts.history.of("copies")}
    if holders - excused and not holders & {_role(event) for event in facts.history.of("send")}:
        yield Anomaly(-1, "refused", f"none of {sorted(holders)} ever sent anything")
    teams = {_role(e): e.get("group", "a source") for e in facts.history.of("copies", "counts")}

    def team(event: Event) -> str:
        return str(teams.get(_role(event), _role(event)))

    mistaken = {e["tx"] for e in facts.history.of("mistaken")}
    sends = [e for e in facts.history.of("send") if e["tx"] not in mistaken]
    sent = {(e["tx"] or str(n), team(e)): e for n, e in enumerate(sends)}
    last = {name: event["at"] for (_, name), event in sent.items()}
    counts = Counter(name for _, name in sent)
    ends = ("commit", "abort", "written", "batch_done", "local")
    done = {team(event) for event in facts.history.of(*ends)}
    for name, count in sorted(counts.items()):
        if count >= _SENDS_MIN and name not in done | fenced:
            yield Anomaly(
                last[name], "refused", f"{name} has sent {count} times, and never got anywhere"
            )


def _groups_of_several(facts: HistoryFacts) -> set[str]:
    """Transactions that commit offsets of a group which several actors commit."""
    members: dict[str, set[str]] = {}
    for event in facts.history.of("copies"):
        members.setdefault(event["group"], set()).add(_role(event))
    moved = facts.history.of("consumed")
    return {e["tx"] for e in moved if len(members.get(e["group"], ())) > 1}


def _role(event: Event) -> str:
    return str(event["who"]).partition("#")[0]
