"""One damaged object hides nothing else on the page and from the exporter; once it is mended both
show it again, without a restart."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.ui.page import OpenPage, page_of
from txlog import Admin, Consumer, Producer, TopicPartition
from txlog.ui import server

Mend = Callable[[], object]


def newest_entry(journal: Path) -> Mend:
    """What this process has read last is overwritten: it may not go on with the log (R62)."""
    entry = max(journal.joinpath("entries").iterdir())
    whole = entry.read_bytes()
    entry.write_bytes(b"\0" * len(whole))
    return lambda: entry.write_bytes(whole)


def next_entry(journal: Path) -> Mend:
    """Something that no txlog has written is where this process reads next."""
    newest = max(journal.joinpath("entries").iterdir())
    number = f"{int(newest.stem) + 1:0{len(newest.stem)}}"
    entry = newest.with_name(f"{number}{newest.suffix}")
    entry.write_bytes(b"not JSON")
    return entry.unlink


def whole_journal(journal: Path) -> Mend:
    """The journal is away."""
    away = journal.with_name(f"{journal.name}-away")
    shutil.move(journal, away)
    return lambda: shutil.move(away, journal)


DAMAGES = pytest.mark.parametrize("damage", [newest_entry, next_entry, whole_journal])


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two topics with a record each, and a group that reads each. The page looks at once."""
    monkeypatch.setattr(server, "LIVE_MS", 0)
    root = tmp_path / "log"
    for name in ("bad", "good"):
        Admin(str(root), create=True).create_topic(name)
        with Producer(str(root)) as producer:
            producer.send(name, b"x")
        with Consumer(root=str(root), group_id=f"of-{name}", enable_auto_commit=False) as consumer:
            consumer.commit({TopicPartition(name, 0): 0})
    return root


def rows(page: OpenPage, view: str) -> dict[str, tuple[object, str | None]]:
    """Name -> the number of records, and what is wrong."""
    reply = page.api(view)
    assert reply.status == 200, reply.json
    member = "offsets" if view == "topics" else "lag"
    return {row[view[:-1]]: (row[member], row["error"]) for row in reply.json[view]}


def first_line(page: OpenPage) -> tuple[str, str]:
    line = page.api("overview").json["lines"][0]
    return line["status"], line["text"]


def metrics(page: OpenPage) -> set[str]:
    reply = page.get("/metrics", Authorization=f"Bearer {page.token}")
    return {line for line in reply.body.decode().splitlines() if not line.startswith("#")}


WELL_TOPICS = {"bad": (1, None), "good": (1, None)}
WELL_GROUPS = {"of-bad": (1, None), "of-good": (1, None)}


def require_well(page: OpenPage) -> None:
    assert (rows(page, "topics"), rows(page, "groups")) == (WELL_TOPICS, WELL_GROUPS)
    assert first_line(page) == ("ok", "2 topics can be read")
    assert metrics(page) >= {
        "txlog_up 1.0",
        'txlog_topic_partitions{topic="bad"} 1.0',
        'txlog_unreadable{kind="topic"} 0.0',
        'txlog_unreadable{kind="coordinator"} 0.0',
    }


@DAMAGES
def test_damaged_topic_is_wrong_in_its_row_until_it_is_mended(
    log: Path, damage: Callable[[Path], Mend]
) -> None:
    journal = log / Admin(str(log)).connection.cluster.topic("bad").layout.root
    with page_of(str(log)) as page:
        require_well(page)
        mend = damage(journal)
        topics, groups = rows(page, "topics"), rows(page, "groups")
        assert (topics["good"], groups["of-good"]) == ((1, None), (1, None))
        assert next(iter(groups)) == "of-bad", "what cannot be read is first"
        for count, error in (topics["bad"], groups["of-bad"]):
            assert count is None
            assert str(journal.relative_to(log)) in str(error)
        status, text = first_line(page)
        assert (status, text.startswith("cannot be read: topic bad: ")) == ("warn", True)
        assert rows(page, "topics") == topics, "also at the next look"
        for sort in ("offsets", "topic"):
            assert page.api("topics", sort=sort).json["topics"][-1]["topic"] in topics
        assert metrics(page) >= {
            "txlog_up 1.0",
            'txlog_topic_partitions{topic="good"} 1.0',
            'txlog_unreadable{kind="topic"} 1.0',
            'txlog_unreadable{kind="group"} 1.0',
        }
        mend()
        require_well(page)


@DAMAGES
def test_damaged_coordinator_hides_its_own_groups_only(
    log: Path, damage: Callable[[Path], Mend]
) -> None:
    connection = Admin(str(log)).connection
    number, other = map(connection.offsets.coordinator_number_of, ("of-bad", "of-good"))
    assert number != other
    journal = log / connection.coordinator(number).journal.layout.root
    with page_of(str(log)) as page:
        require_well(page)
        mend = damage(journal)
        assert rows(page, "groups") == {"of-good": (1, None)}
        assert rows(page, "topics") == WELL_TOPICS
        for view in ("groups", "topics", "transactions", "queries"):
            reply = page.api(view)
            assert reply.status == 200
            assert reply.json["unread"][0].startswith(f"coordinator {number}: "), view
            assert str(journal.relative_to(log)) in reply.json["unread"][0]
        assert first_line(page)[1].startswith(f"cannot be read: coordinator {number}: ")
        assert 'txlog_unreadable{kind="coordinator"} 1.0' in metrics(page)
        mend()
        require_well(page)


def ids_of_two_coordinators(log: Path) -> tuple[str, str]:
    """Two transactional ids; the first one's coordinator has the group of-bad, too."""
    connection = Admin(str(log)).connection
    number = connection.offsets.coordinator_number_of("of-bad")
    ids = [f"id-{n}" for n in range(100)]
    return (
        next(each for each in ids if connection.coordinator_of(each).number == number),
        next(each for each in ids if connection.coordinator_of(each).number != number),
    )


@pytest.fixture
def transactions(log: Path) -> dict[str, list[str]]:
    """Transactional id -> its transactions; those of the first id move the group of-bad."""
    found: dict[str, list[str]] = {}
    for name in ids_of_two_coordinators(log):
        with Producer(str(log), transactional_id=name) as producer:
            producer.init_transactions()
            for _ in range(3):
                tx_id = producer.begin_transaction()
                producer.send("bad", b"x")
                if not found:
                    offsets = {TopicPartition("bad", 0): 1}
                    producer.send_offsets_to_transaction(offsets, "of-bad")
                producer.commit_transaction()
                found.setdefault(name, []).append(str(tx_id))
    return found


def past_entry(journal: Path) -> Mend:
    """An entry that this process has read, and that its state does not need any more."""
    entry = sorted(journal.joinpath("entries").iterdir())[3]
    whole = entry.read_bytes()
    entry.write_bytes(b"not JSON")
    return lambda: entry.write_bytes(whole)


@pytest.mark.parametrize("damage", [past_entry, next_entry])
def test_damaged_coordinator_hides_no_history_of_others(
    log: Path, transactions: dict[str, list[str]], damage: Callable[[Path], Mend]
) -> None:
    bad, good = transactions
    journal = log / Admin(str(log)).connection.coordinator_of(bad).journal.layout.root
    is_past = damage is past_entry
    with page_of(str(log)) as page:
        page.api("groups")
        mend = damage(journal)
        place = str(journal.relative_to(log))
        for _ in range(2):
            listed = page.api("transactions").json
            found = {row["transaction"] for row in listed["transactions"]}
            assert found >= {*transactions[good]}
            assert bool(found & {*transactions[bad]}) == is_past
            assert place in listed["unread"][0]
        for view, name in (("group", "of-good"), ("transaction", transactions[good][0])):
            assert page.api(view, name=name).status == 200
        lag = page.api("group/lag", name="of-good").json
        assert (lag["moments"][-1]["lag"], lag["unread"]) == (1, [])
        if is_past:
            lag = page.api("group/lag", name="of-bad").json
            assert lag["moments"][-1]["lag"] == 6
            assert place in lag["unread"][0]
        mend()
        mended = page.api("transactions").json
        assert (mended["total"], mended["unread"]) == (6, [])


def test_log_with_one_topic_and_one_group_is_told_of_in_the_singular(tmp_path: Path) -> None:
    root = str(tmp_path / "log")
    Admin(root, create=True).create_topic("orders")
    with Consumer(root=root, group_id="g", enable_auto_commit=False) as consumer:
        consumer.commit({TopicPartition("orders", 0): 0})
    with page_of(root) as page:
        texts = [line["text"] for line in page.api("overview").json["lines"]]
    assert texts[:2] == ["1 topic can be read", "1 group, none of them 5 minutes behind"]
    assert texts[4] == "0 Spark queries have committed micro-batches"
