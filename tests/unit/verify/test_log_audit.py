"""An audit of a whole log names every kind of damage, and lists unreferenced objects."""

import re
from collections.abc import Callable

import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import unavailable
from txlog.coordinator.events import Participant
from txlog.engine.connection import open_connection
from txlog.engine.transaction_session import TransactionSession
from txlog.errors import StoreUnavailable, UnknownTopic
from txlog.journal.boundaries.boundary import Boundary
from txlog.journal.boundaries.boundary import create as create_boundary
from txlog.maintenance.vacuum import Vacuum
from txlog.settings import LogSettings
from txlog.storage.memory import MemoryStore
from txlog.testing.round_trips import RoundTrips
from txlog.topic.records.conversion import with_timestamp
from txlog.topic.records.python_rows import record_batch_from_rows
from txlog.topic.topic_log import TopicLog
from txlog.topic.upkeep.merging import merge_segments
from txlog.verify.log_audit import LogReport, audit_log, stored_objects

COUNT = 22


@pytest.fixture(scope="module")
def original() -> MemoryLog:
    """A log with topics `u` (snapshots every eight entries, sealed chunks) and `v`, and a group."""
    log = MemoryLog(
        LogSettings(journal_snapshot_entries=8, entry_records_max_bytes=0),
        transaction_records="in.log",
    )
    log.admin.create_topic("u", 2)
    log.admin.create_topic("v", 1)
    producer = log.producer("a")
    for number in range(COUNT):
        with producer.transaction():
            producer.send("u", b"%d" % number, partition=number % 2)
            producer.send("v", b"%d" % number)
    consumer = log.consumer("u", group_id="g")
    for _ in range(2):
        consumer.poll(max_records=5)
        consumer.commit()
    return log


@pytest.fixture
def log(original: MemoryLog) -> MemoryLog:
    """A copy of the log, to be damaged."""
    return MemoryLog(objects=original.objects())


def audit(log: MemoryLog) -> LogReport:
    """Audit the log in a new process, which must write nothing."""
    before = log.objects()
    connection = log.process()
    report = audit_log(connection, (), stored_objects(connection))
    assert log.changed_since(before) == []
    return report


def unreferenced(report: LogReport) -> dict[str, list[str]]:
    return {found.kind: [o.path for o in found.objects] for found in report.unreferenced}


def named(report: LogReport) -> str:
    return "\n".join(finding.sentence for finding in report.findings)


def paths(log: MemoryLog, pattern: str) -> list[str]:
    return [path for path in sorted(log.objects()) if re.search(pattern, path)]


def topic(log: MemoryLog, name: str) -> TopicLog:
    found = log.process().cluster.topic(name)
    found.catch_up()
    return found


def test_undamaged_log_has_no_findings_and_every_record_is_read(log: MemoryLog) -> None:
    report = audit(log)
    assert (report.findings, report.unreferenced) == ([], ())
    found = {journal.name: journal for journal in report.journals}
    assert (found["u"].records, found["v"].records) == (COUNT, COUNT)
    assert found["u"].snapshots >= 3
    assert len(found) == 1 + 8 + 2


def test_progress_adds_up_to_about_the_stored_bytes(log: MemoryLog) -> None:
    seen: list[int] = []
    connection = log.process()
    audit_log(connection, (), (), seen.append)
    total = sum(stored.size_bytes for stored in stored_objects(connection))
    assert 0.5 * total < sum(seen) < 1.5 * total


KINDS = [
    "^cluster/.*/entries/",
    "^topics/u/.*/entries/",
    "^topics/u/.*/snapshots/",
    "^topics/u/.*/chunks/",
    "^topics/u/.*/segments/",
    "^transactions/.*/entries/",
    "^transactions/.*/snapshots/",
]


def cut(store: MemoryStore, path: str) -> None:
    data = store.get(path) or b""
    store.replace(path, data[: len(data) // 2])


def flip(store: MemoryStore, path: str) -> None:
    data = bytearray(store.get(path) or b"")
    data[len(data) // 2] ^= 4
    store.replace(path, bytes(data))


@pytest.mark.parametrize("damage", [cut, flip])
@pytest.mark.parametrize("kind", KINDS)
def test_I15_one_damaged_object_of_each_kind_is_named(
    log: MemoryLog, kind: str, damage: Callable[[MemoryStore, str], None]
) -> None:
    path = paths(log, kind)[0]
    damage(log.memory, path)
    assert path in named(audit(log))


@pytest.mark.parametrize("kind", [k for k in KINDS if "snapshots" not in k])
def test_I15_a_missing_object_of_each_kind_is_named(log: MemoryLog, kind: str) -> None:
    """Except for snapshots, which a journal does not need, and the last entry, whose loss no reader
    can detect."""
    path = paths(log, kind)[0]
    log.memory.delete(path)
    assert path in named(audit(log))


def test_damage_in_several_places_is_named_by_one_audit(log: MemoryLog) -> None:
    """Damage of the cluster journal hides no topic; a damaged entry hides no records before it."""
    spoiled = [paths(log, kind)[0] for kind in ("^cluster/.*/entries/", "^topics/u/.*segments/")]
    spoiled += [paths(log, kind)[-1] for kind in ("^topics/u/.*/entries/", "^topics/v/.*segments/")]
    for path in spoiled:
        flip(log.memory, path)
    text = named(audit(log))
    assert [path for path in spoiled if path not in text] == []


def test_R14_a_boundary_and_the_snapshot_that_it_names_are_checked(log: MemoryLog) -> None:
    topic(log, "u").journal.prune(keep_entries=5)
    assert audit(log).findings == []
    (boundary,) = paths(log, "boundaries/")
    for path in (boundary, *paths(log, "^topics/u/.*/snapshots/")[-1:]):
        sound = log.memory.get(path)
        assert sound is not None
        cut(log.memory, path)
        assert path in named(audit(log))
        log.memory.replace(path, sound)
    layout = topic(log, "u").layout
    create_boundary(log.memory, layout, Boundary(1, 1, 2, "token"))
    assert "does not rise" in named(audit(log))


def stage(log: MemoryLog, name: str) -> Participant:
    found = topic(log, name)
    rows = record_batch_from_rows([{"value": b"staged"}], found.schema())
    segment = found.stage({0: [with_timestamp(rows, 1)]}, 0)
    return Participant(found.topic_id, name, (), (segment,))


def test_missing_staged_segment_of_a_decided_transaction_is_damage(log: MemoryLog) -> None:
    participant = stage(log, "v")
    connection = log.process()
    session = TransactionSession(connection, "s")
    session.register("one")
    session.begin()
    connection.coordinator_of("s").prepare_commit("s", session.tx_id, (participant,), (), None, "")
    (segment,) = participant.segments
    assert audit(log).findings == []
    log.memory.delete(segment.path)
    assert f"{segment.path} is missing" in named(audit(log))
    assert str(session.tx_id) in named(audit(log))


def test_unreferenced_objects_are_grouped_by_kind(log: MemoryLog) -> None:
    (segment,) = stage(log, "u").segments
    log.admin.create_topic("gone", 1)
    log.admin.delete_topics(["gone"])
    strays = [
        "README.txt",
        "topics/u/x/notes.txt",
        f"transactions/{log.connection.cluster.log_id}/99/hint.json",
        "probes/x/0001",
    ]
    for path in strays:
        log.memory.put_new(path, b"?")
    found = unreferenced(audit(log))
    assert found["segment"] == [segment.path]
    assert all(path.startswith("topics/gone/") for path in found["of a deleted topic"])
    assert found["of no kind that txlog writes"] == strays[:2]
    assert found["of no journal of this log"] == strays[2:3]
    assert found["left by a probe"] == strays[3:]


def test_replaced_segments_and_chunks_are_unreferenced_until_vacuum_deletes_them(
    log: MemoryLog,
) -> None:
    old = {kind: paths(log, f"^topics/u/.*/{kind}/") for kind in ("chunks", "segments")}
    merged = topic(log, "u")
    assert merge_segments(merged, 1 << 20).segments_after == 1
    found = {kind.kind: kind for kind in audit(log).unreferenced}
    assert sorted(found) == ["index chunk", "segment"]
    chunks, segments = found["index chunk"], found["segment"]
    assert [stored.path for stored in chunks.objects] == old["chunks"]
    assert chunks.size_bytes == sum(len(log.objects()[path]) for path in old["chunks"])
    assert {stored.path for stored in segments.objects} < set(old["segments"])
    log.clock.advance(2)
    collector = Vacuum(log.process(), 1)
    count = len(chunks.objects) + len(segments.objects)
    assert collector.sweep(collector.find_candidates()).objects == count
    assert audit(log).unreferenced == ()


def test_damaged_log_reports_no_unreferenced_objects(log: MemoryLog) -> None:
    """The damaged object may hold the reference."""
    stage(log, "u")
    flip(log.memory, paths(log, "^topics/v/.*segments/")[0])
    assert unreferenced(audit(log)) == {}


# Lost journals.


def test_I15_lost_topic_journal_is_damage(log: MemoryLog) -> None:
    """An empty topic in its place would leave every remaining segment unreferenced."""
    root = topic(log, "u").layout.root
    for path in paths(log, f"^{root}/(entries|snapshots|hint)"):
        log.memory.delete(path)
    report = audit(log)
    assert f"{root}: the journal is lost" in named(report)
    assert unreferenced(report) == {}
    assert [found.path for found in audit_log(log.process(), ("u",)).findings] == [root]


def test_R63_topic_with_an_empty_folder_is_damage(log: MemoryLog) -> None:
    """Its first entry came before the entry that names it."""
    log.admin.create_topic("w", 1)
    for path in paths(log, "^topics/w/"):
        log.memory.delete(path)
    assert "the journal is lost" in named(audit(log))
    assert audit_log(log.process(), ("w",)).findings


@pytest.mark.parametrize("stops_at", ["^topics/w/", "^cluster/"])
def test_R63_interrupted_creation_of_a_topic_is_not_damage(log: MemoryLog, stops_at: str) -> None:
    log.store.on("create", stops_at, unavailable)
    with pytest.raises(StoreUnavailable):
        log.admin.create_topic("w", 1)
    assert audit(log).findings == []


def test_I15_lost_cluster_journal_is_damage_and_hides_no_topic(log: MemoryLog) -> None:
    for path in paths(log, "^cluster/"):
        log.memory.delete(path)
    report = audit(log)
    assert "the journal is lost" in named(report)
    assert {"u", "v"} < {journal.name for journal in report.journals}
    assert unreferenced(report) == {}


def test_audit_of_named_topics_reads_only_those_topics(log: MemoryLog) -> None:
    report = audit_log(log.process(), ("v",))
    assert [journal.name for journal in report.journals] == ["v"]
    with pytest.raises(UnknownTopic, match="did you mean 'u'"):
        audit_log(log.process(), ("uu",))


# On a far store.


def test_I15_audit_of_a_named_topic_leaves_out_no_topic_of_that_name_in_a_damaged_list(
    log: MemoryLog,
) -> None:
    before = topic(log, "v").topic_id
    log.admin.delete_topics(["v"])
    log.admin.create_topic("v")
    after = topic(log, "v").topic_id
    for path in paths(log, "^cluster/.*entries/"):
        cut(log.memory, path)
    for path in (*paths(log, f"topics/v/{before}/entries/"), *paths(log, f"topics/v/{after}/e")):
        cut(log.memory, path)
    report = audit_log(log.process(), ["v"])
    damaged = {finding.path.split("/")[2] for finding in report.findings}
    assert damaged == {before, after}


def far(log: MemoryLog) -> tuple[LogReport, int]:
    """Audit the log on a store one round trip away; also return the number of round trips."""
    rounds = RoundTrips(log.memory)
    connection = open_connection(rounds.store, rounds.runtime)
    reports: list[LogReport] = []
    listed = stored_objects(connection)
    waits = rounds.waits(lambda: reports.append(audit_log(connection, (), listed)))
    return reports[0], waits


def test_audit_of_a_far_log_gives_the_same_report_in_few_round_trips(log: MemoryLog) -> None:
    report, waits = far(log)
    assert report == audit(log)
    assert waits < len(log.objects()) / 3


def test_damage_is_reported_identically_on_near_and_far_stores(log: MemoryLog) -> None:
    for path in (paths(log, "v/.*/segments/")[3], paths(log, "topics/u/.*/entries/")[5]):
        log.memory.replace(path, log.objects()[path][:-40] + bytes(40))
    log.memory.delete(paths(log, "topics/v/.*/segments/")[9])
    report, _ = far(log)
    assert report == audit(log)
    assert len(report.findings) >= 3


def test_byte_progress_is_equal_on_near_and_far_stores(log: MemoryLog) -> None:
    progress: dict[str, list[int]] = {"near": [], "far": []}
    rounds = RoundTrips(log.memory)
    for where, connection in (
        ("near", log.process()),
        ("far", open_connection(rounds.store, rounds.runtime)),
    ):
        audit_log(connection, (), stored_objects(connection), progress[where].append)
    assert sorted(progress["near"]) == sorted(progress["far"])
