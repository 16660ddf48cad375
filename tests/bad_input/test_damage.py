"""Corrupt, truncated and missing objects are named in the error, or rebuilt where that is
possible."""

import re
from collections.abc import Callable

import pytest

from tests.logs.memory_log import MemoryLog
from txlog.catalog.cluster_file import create_cluster
from txlog.errors import CorruptData, MissingObject, NotATxlog, UnsupportedFormat
from txlog.journal.entry import seal
from txlog.journal.snapshot import decode_snapshot
from txlog.layout import CLUSTER_FILE
from txlog.model import TopicPartition
from txlog.settings import LogSettings
from txlog.storage.memory import MemoryStore
from txlog.testing.clock import manual_runtime
from txlog.verify.invariants import check_log

U0 = TopicPartition("u", 0)
COUNT = 22

Damage = Callable[[MemoryLog, str], None]


def flip_a_bit(log: MemoryLog, path: str) -> None:
    data = bytearray(log.objects()[path])
    data[len(data) * 3 // 5] ^= 0x10
    _overwrite(log, path, bytes(data))


def cut_in_half(log: MemoryLog, path: str) -> None:
    data = log.objects()[path]
    _overwrite(log, path, data[: len(data) // 2])


def empty(log: MemoryLog, path: str) -> None:
    _overwrite(log, path, b"")


def replace_by_zeros(log: MemoryLog, path: str) -> None:
    """As some file systems do after a power loss."""
    _overwrite(log, path, bytes(len(log.objects()[path])))


def remove(log: MemoryLog, path: str) -> None:
    log.memory.delete(path)


def _overwrite(log: MemoryLog, path: str, data: bytes) -> None:
    log.memory.replace(path, data)


SPOILED = [flip_a_bit, cut_in_half, empty, replace_by_zeros]
EVERY = [*SPOILED, remove]


@pytest.fixture(scope="module")
def original() -> MemoryLog:
    """Topic `u` with a record in each of 22 transactions, a snapshot every eight entries, and a
    group that has read ten records."""
    log = MemoryLog(
        LogSettings(journal_snapshot_entries=8, entry_records_max_bytes=0),
        transaction_records="in.log",
    )
    log.admin.create_topic("u", 1)
    producer = log.producer("a")
    for number in range(COUNT):
        with producer.transaction():
            producer.send("u", b"%d" % number)
    log.consumer("u", group_id="g").commit({U0: 10})
    return log


@pytest.fixture
def log(original: MemoryLog) -> MemoryLog:
    """A copy that a test may damage."""
    return MemoryLog(objects=original.objects())


def paths(log: MemoryLog, pattern: str) -> list[str]:
    return [path for path in sorted(log.objects()) if re.search(pattern, path)]


def segment_of(log: MemoryLog, offset: int) -> str:
    """The path of the segment that holds a record of `u`."""
    topic = log.process().cluster.topic("u")
    (row,) = topic.batches(topic.catch_up(), 0, offset, offset + 1)
    return row.segment


def read_all(log: MemoryLog) -> list[bytes]:
    return log.values("u")


EXPECTED = [b"%d" % number for number in range(COUNT)]


# Segments.


@pytest.mark.parametrize("damage", SPOILED)
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_I15_damaged_segment_is_named_and_not_skipped(
    log: MemoryLog, damage: Damage, isolation: str
) -> None:
    path = segment_of(log, 5)
    damage(log, path)
    consumer = log.consumer("u", isolation_level=isolation, fetch_max_bytes=1)
    assert sum(len(consumer.poll(max_records=1)[U0]) for _ in range(5)) == 5
    for _ in range(2):
        with pytest.raises(CorruptData, match=path) as raised:
            consumer.poll()
        assert raised.value.fatal
        assert consumer.position(U0) == 5
    assert path in str(check_log(log.process()))


def test_I15_missing_segment_is_named_with_the_lost_offset(log: MemoryLog) -> None:
    path = segment_of(log, 5)
    remove(log, path)
    with pytest.raises(MissingObject, match=f"{path} is missing.*partition 0, offset 5"):
        read_all(log)


def test_seek_past_a_damaged_segment_reads_the_later_records(log: MemoryLog) -> None:
    flip_a_bit(log, segment_of(log, 5))
    consumer = log.consumer("u")
    consumer.seek(U0, 6)
    assert [record.value for record in consumer.poll()[U0]] == EXPECTED[6:]


# Entries.


OF_A, OF_G = "transactions/.*/3", "transactions/.*/6"
"""Journals of the coordinators that serve the transactional id and the group."""
JOURNALS = ["cluster", "topics/u", OF_A, OF_G]


def use(log: MemoryLog, journal: str) -> object:
    """Use the journal in a process that has nothing open."""
    if journal == "cluster":
        return log.process().cluster.state()
    if journal == "topics/u":
        return read_all(log)
    if journal == OF_A:
        return log.elsewhere("a")
    return log.consumer("u", group_id="g").committed(U0)


@pytest.mark.parametrize("damage", SPOILED)
@pytest.mark.parametrize("journal", JOURNALS)
def test_I15_damaged_entry_is_named_and_nothing_is_written_after_it(
    log: MemoryLog, journal: str, damage: Damage
) -> None:
    path = paths(log, f"^{journal}/.*entries/")[-1]
    damage(log, path)
    before = log.objects()
    with pytest.raises(CorruptData, match=path):
        use(log, journal)
    written = [path for path in log.changed_since(before) if re.match(journal, path)]
    assert written == [], "nothing is written behind damage"


@pytest.mark.parametrize("journal", JOURNALS)
def test_half_of_an_entry_that_a_store_kept_blocks_its_journal_until_it_is_removed(
    log: MemoryLog, journal: str
) -> None:
    """As after a PUT whose sender was killed, on a store that keeps half of a body. No process has
    read the entry, so the journal without it is what it was before the PUT."""
    last = paths(log, f"^{journal}/.*entries/")[-1]
    slot = int(last.rpartition("/")[2].removesuffix(".json"))
    half = last.replace(f"{slot:020}", f"{slot + 1:020}")
    whole = log.objects()[last]
    log.memory.put_new(half, whole[: len(whole) // 2])
    with pytest.raises(CorruptData, match=f"{half} is damaged: it has .* bytes instead of"):
        use(log, journal)
    assert half in str(check_log(log.process()))
    remove(log, half)
    producer = log.elsewhere("a")
    with producer.transaction():
        producer.send("u", b"next")
    assert read_all(log) == [*EXPECTED, b"next"]
    log.check()


@pytest.mark.parametrize("journal", JOURNALS)
def test_I15_entry_of_a_newer_format_requires_a_newer_txlog(log: MemoryLog, journal: str) -> None:
    path = paths(log, f"^{journal}/.*entries/")[-1]
    newer = log.objects()[path].replace(b'{"format":3,', b'{"format":4,', 1)
    _overwrite(log, path, newer)
    with pytest.raises(UnsupportedFormat, match=f"{path} has format version 4.*newer txlog"):
        use(log, journal)


def test_I15_unknown_event_type_is_refused_and_not_skipped(log: MemoryLog) -> None:
    path = paths(log, "^topics/u/.*entries/")[-1]
    body = log.objects()[path].splitlines()[1]
    assert b"marker_written" in body
    _overwrite(log, path, seal(body.replace(b"marker_written", b"marker_rewritten")))
    with pytest.raises(UnsupportedFormat, match=f"{path} contains an event that this txlog cannot"):
        read_all(log)


def test_I1_replaced_entry_is_detected_by_the_checksum_in_the_next_entry(log: MemoryLog) -> None:
    """The replaced entry's own checksum is valid, but the next entry holds the original one."""
    path = paths(log, "^topics/u/.*entries/")[-2]
    body = log.objects()[path].splitlines()[1]
    _overwrite(log, path, seal(body.replace(b'"written_at_ms":1', b'"written_at_ms":2')))
    with pytest.raises(CorruptData, match=r"entries/0+\d+.json follows an entry with checksum"):
        read_all(log)


@pytest.mark.parametrize("journal", ["topics/u", OF_A])
def test_I15_missing_entry_is_named_and_not_recreated(log: MemoryLog, journal: str) -> None:
    path = paths(log, f"^{journal}/.*entries/")[-2]
    remove(log, path)
    with pytest.raises(MissingObject, match=f"{path} is missing, and entries after it exist"):
        use(log, journal)
    assert path not in log.objects(), "and no process fills the hole"


# Snapshots, chunks, hints: they only speed up opening.


@pytest.mark.parametrize("damage", EVERY)
@pytest.mark.parametrize("which", ["newest", "all"])
@pytest.mark.parametrize("journal", ["topics/u", OF_A])
def test_I15_a_damaged_snapshot_is_rebuilt_from_the_journal(
    log: MemoryLog, journal: str, which: str, damage: Damage
) -> None:
    found = paths(log, f"^{journal}/.*snapshots/")
    assert len(found) >= 3
    for path in found if which == "all" else found[-1:]:
        damage(log, path)
    use(log, journal)
    assert read_all(log) == EXPECTED
    if damage is not remove:
        (hint,) = paths(log, f"^{journal}/.*hint.json")
        slot = int(re.findall(rb"\d+", log.objects()[hint])[0])
        (mended,) = paths(log, f"^{journal}/.*snapshots/0*{slot}.arrow")
        assert decode_snapshot(log.objects()[mended], mended)[0].slot == slot
    log.producer("a").begin_transaction()
    assert read_all(log) == EXPECTED


@pytest.mark.parametrize("damage", EVERY)
def test_R16_damaged_or_missing_hint_is_harmless(log: MemoryLog, damage: Damage) -> None:
    for path in paths(log, "hint.json"):
        damage(log, path)
    assert read_all(log) == EXPECTED
    assert log.consumer("u", group_id="g").position(U0) == 10
    with log.elsewhere("a").transaction():
        pass
    log.check()


@pytest.mark.parametrize("is_deleted", [False, True], ids=["older snapshot", "deleted snapshot"])
def test_R16_old_hint_is_harmless(log: MemoryLog, is_deleted: bool) -> None:
    """A journal's hint names its first snapshot, as if no later hint had been written."""
    named = {}
    for hint in paths(log, "hint.json"):
        first, *later = paths(log, f"^{hint.removesuffix('hint.json')}snapshots/")
        if later:
            named[hint] = int(re.findall(r"/0*(\d+)\.arrow", first)[0])
            _overwrite(log, hint, b'{"snapshot": %d}' % named[hint])
            if is_deleted:
                remove(log, first)
    assert any(hint.startswith("topics/u") for hint in named)
    assert any(re.match(OF_A, hint) for hint in named)
    assert read_all(log) == EXPECTED
    assert log.consumer("u", group_id="g").position(U0) == 10
    producer = log.elsewhere("a")
    with producer.transaction():
        producer.send("u", b"more")
    assert read_all(log) == [*EXPECTED, b"more"]
    log.check()


@pytest.mark.parametrize(
    "hint",
    [
        b"{}",
        b"[]",
        b"7",
        b'{"snapshot":-1}',
        b'{"snapshot":"7"}',
        b'{"snapshot":true}',
        b'{"snapshot":1e400}',
        b'{"snapshot":99999999999999999999999}',
        b"[" * 100_000,
    ],
)
def test_R16_hint_with_invalid_content_is_ignored(log: MemoryLog, hint: bytes) -> None:
    for path in paths(log, "hint.json"):
        _overwrite(log, path, hint)
    assert read_all(log) == EXPECTED


@pytest.mark.parametrize("damage", EVERY)
def test_I15_damaged_chunk_is_named_only_when_its_records_are_read(
    log: MemoryLog, damage: Damage
) -> None:
    path = paths(log, "^topics/u/.*chunks/")[0]
    damage(log, path)
    with pytest.raises(CorruptData, match=path):
        read_all(log)
    consumer = log.consumer("u")
    consumer.seek(U0, 21)
    assert [record.value for record in consumer.poll()[U0]] == EXPECTED[21:]


# Boundaries.


@pytest.fixture
def pruned(log: MemoryLog) -> MemoryLog:
    """The same log, with the topic's old entries deleted behind a boundary."""
    assert log.process().cluster.topic("u").journal.prune(keep_entries=5) > 20
    assert read_all(log) == EXPECTED
    return log


@pytest.mark.parametrize("damage", EVERY)
def test_I15_a_damaged_boundary_is_named(pruned: MemoryLog, damage: Damage) -> None:
    """The damage is found although newer snapshots and a hint to them exist."""
    for number in range(3):
        producer = pruned.producer(f"later-{number}")
        for _ in range(4):
            with producer.transaction():
                producer.send("u", b"more")
    (path,) = paths(pruned, "boundaries/")
    damage(pruned, path)
    before = pruned.objects()
    with pytest.raises(CorruptData, match=path):
        read_all(pruned)
    assert pruned.changed_since(before) == []


@pytest.mark.parametrize("damage", EVERY)
def test_I15_damaged_snapshot_below_a_boundary_is_named_and_not_rebuilt(
    pruned: MemoryLog, damage: Damage
) -> None:
    snapshots = paths(pruned, "^topics/u/.*snapshots/")
    for path in snapshots:
        damage(pruned, path)
    before = pruned.objects()
    with pytest.raises(CorruptData, match=r"topics/u/.*snapshots/"):
        read_all(pruned)
    assert pruned.changed_since(before) == []


# The cluster file.


@pytest.mark.parametrize("damage", SPOILED)
def test_I15_damaged_cluster_file_is_named(log: MemoryLog, damage: Damage) -> None:
    damage(log, CLUSTER_FILE)
    for open_log in (log.process, lambda: _create(log.memory)):
        with pytest.raises(CorruptData, match=CLUSTER_FILE):
            open_log()


def _create(store: MemoryStore) -> object:
    return create_cluster(store, manual_runtime())


def test_a_log_of_a_newer_format_is_refused(log: MemoryLog) -> None:
    body = log.objects()[CLUSTER_FILE].splitlines()[1]
    newer = body.replace(b'"format_version":3', b'"format_version":4').replace(
        b'"created_ms"', b'"something_new":{},"created_ms"'
    )
    _overwrite(log, CLUSTER_FILE, seal(newer))
    before = log.objects()
    for open_log in (log.process, lambda: _create(log.memory)):
        with pytest.raises(
            NotATxlog, match="contains a log of another format: .* version 4.*newer txlog"
        ):
            open_log()
    assert log.changed_since(before) == []


def test_log_of_format_version_2_is_refused_with_a_remedy(log: MemoryLog) -> None:
    for path, data in log.objects().items():
        if data.startswith(b'{"format":3,'):
            _overwrite(log, path, data.replace(b'{"format":3,', b'{"format":2,', 1))
    before = log.objects()
    for open_log in (log.process, lambda: _create(log.memory)):
        with pytest.raises(NotATxlog, match="version 2; .*create the log anew") as caught:
            open_log()
        assert isinstance(caught.value.__cause__, UnsupportedFormat)
    assert log.changed_since(before) == []


def test_log_with_an_unknown_setting_requires_a_newer_txlog(log: MemoryLog) -> None:
    body = log.objects()[CLUSTER_FILE].splitlines()[1]
    newer = body.replace(b'"settings":{', b'"settings":{"tomorrow.ms":1,').replace(b"1,}", b"1}")
    assert newer != body
    _overwrite(log, CLUSTER_FILE, seal(newer))
    with pytest.raises(
        NotATxlog,
        match="a setting that this txlog cannot read: .*'tomorrow.ms'.* use a newer txlog",
    ):
        log.process()


def test_opening_a_root_without_a_cluster_file_raises_not_a_txlog(log: MemoryLog) -> None:
    remove(log, CLUSTER_FILE)
    with pytest.raises(NotATxlog, match="there is no log at memory://"):
        log.process()


# A changed byte in any object.


@pytest.mark.parametrize("seed", range(60))
def test_I15_one_flipped_bit_in_any_object_is_harmless_or_named(log: MemoryLog, seed: int) -> None:
    """Either all records come back, or an error names the object; no other error and no other
    records."""
    objects = log.objects()
    path = sorted(objects)[seed * 37 % len(objects)]
    data = bytearray(objects[path])
    position = seed * 7919 % len(data)
    data[position] ^= 1 << seed % 8
    _overwrite(log, path, bytes(data))
    try:
        found: object = (read_all(log), log.consumer("u", group_id="g").committed(U0))
    except (CorruptData, NotATxlog) as error:
        found = path in error.message
    assert found in (True, (EXPECTED, 10))
