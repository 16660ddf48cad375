"""`txlog verify` passes a log without damage and names every kind of damage."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.processes.command_line import Run, files, run
from tests.unit.cli.sample_log import SampleLog
from txlog.cli.output import progress
from txlog.client.producer.producer import Producer
from txlog.journal.entry import seal
from txlog.model import Decision, TxId
from txlog.topic.events import WriteMarker


def flip_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


def cut_off(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def damage_of(done: Run) -> list[str]:
    """The damage that the command found, as sentences."""
    return [line["found"] for line in done.json["damage"]]


def objects(root: Path, pattern: str) -> list[Path]:
    return sorted(root.glob(pattern))


def test_undamaged_log_passes_and_is_not_modified(own_log: SampleLog) -> None:
    before = files(own_log.root)
    done = run("verify", root=own_log.root)
    assert (done.code, done.err) == (0, "")
    rows = {row[0]: row[1:] for row in done.rows if len(row) > 1}
    assert rows["orders"][3] == "13"
    assert rows["flights"][3] == "2"
    assert {row[-1] for name, row in rows.items() if name != "JOURNAL"} == {"0"}
    assert "transactions/7" in rows
    assert files(own_log.root) == before


@pytest.mark.parametrize(
    "pattern",
    [
        "topics/orders/*/segments/*.arrow",
        "topics/orders/*/entries/*.json",
        "transactions/*/*/entries/*.json",
    ],
)
@pytest.mark.parametrize("damage", [flip_a_byte, cut_off, Path.unlink])
def test_each_damaged_or_missing_object_is_named(
    pattern: str, damage: Callable[[Path], None], own_log: SampleLog
) -> None:
    victim = objects(own_log.root, pattern)[0]
    damage(victim)
    done = run("verify", "-o", "json", root=own_log.root)
    assert done.code == 1
    place = str(victim.relative_to(own_log.root))
    assert any(place in line for line in damage_of(done))


def test_every_damaged_segment_is_named_in_one_run(own_log: SampleLog) -> None:
    for segment in objects(own_log.root, "topics/*/*/segments/*.arrow"):
        flip_a_byte(segment)
    damage = damage_of(run("verify", "-o", "json", root=own_log.root))
    names = {p.name for p in objects(own_log.root, "topics/*/*/segments/*.arrow")}
    assert all(any(name in line for line in damage) for name in names)


def test_replaced_journal_entry_is_detected(own_log: SampleLog) -> None:
    """Both entries are valid by themselves, but the next one names another checksum."""
    journal = next((own_log.root / "topics" / "orders").iterdir()) / "entries"
    second = sorted(journal.glob("*.json"))[1]
    forged = second.read_bytes()
    body = forged.split(b"\n")[1].replace(b'"written_at_ms":1', b'"written_at_ms":2', 1)
    second.write_bytes(seal(body))
    done = run("verify", "--topic", "orders", "-o", "json", root=own_log.root)
    assert done.code == 1
    assert "does not follow the entry before it" in " ".join(damage_of(done))


def test_damaged_snapshot_is_named_and_not_repaired(own_log: SampleLog) -> None:
    producer = Producer(own_log.connection)
    for _ in range(70):
        producer.send("flights", {"carrier": "UA"})
        producer.flush()
    (snapshot,) = objects(own_log.root, "topics/flights/*/snapshots/*.arrow")
    flip_a_byte(snapshot)
    damaged = snapshot.read_bytes()
    done = run("verify", "--topic", "flights", "-o", "json", root=own_log.root)
    assert done.code == 1
    assert snapshot.name in damage_of(done)[0]
    assert snapshot.read_bytes() == damaged, "nothing is repaired"


def test_topic_option_limits_verification_to_one_topic(log: SampleLog) -> None:
    found = run("verify", "--topic", "flights", "-o", "json", root=log.root).json
    assert [row["journal"] for row in found["journals"]] == ["flights"]
    assert run("verify", "--topic", "nope", root=log.root).code == 3


def test_damage_is_listed_in_table_output(own_log: SampleLog) -> None:
    victim = objects(own_log.root, "topics/flights/*/segments/*.arrow")[0]
    victim.unlink()
    done = run("verify", "-q", root=own_log.root)
    assert done.code == 1
    assert victim.name in done.out.split("DAMAGE\n")[1]


def test_root_argument_is_accepted_and_overrides_the_root_option(
    log: SampleLog, tmp_path: Path
) -> None:
    assert run("verify", log.root).code == 0
    assert run("verify", log.root, root=tmp_path).code == 0
    assert run("verify", tmp_path).code == 3


def test_I15_lost_topic_journal_is_reported_and_not_recreated(
    own_log: SampleLog,
) -> None:
    shutil.rmtree(next((own_log.root / "topics" / "orders").glob("*/entries")))
    before = files(own_log.root)
    done = run("verify", "-o", "json", root=own_log.root)
    assert (done.code, done.json["unreferenced"]) == (1, [])
    assert "the journal is lost" in damage_of(done)[0]
    assert files(own_log.root) == before


def test_R63_topic_without_any_object_is_damage(own_log: SampleLog) -> None:
    shutil.rmtree(own_log.root / "topics" / "flights")
    before = files(own_log.root)
    done = run("verify", "-o", "json", root=own_log.root)
    assert done.code == 1
    assert "the journal is lost" in damage_of(done)[0]
    assert files(own_log.root) == before


def test_I5_copy_of_a_log_in_use_with_a_torn_transaction_is_not_whole(own_log: SampleLog) -> None:
    """What `cp -r` makes: the coordinators were copied before the topics."""
    earlier = own_log.root.with_name("earlier")
    shutil.copytree(own_log.root / "transactions", earlier)
    producer = Producer(own_log.connection, transactional_id="torn")
    producer.init_transactions()
    with producer.transaction():
        producer.send("orders", b"x")
    producer.close()
    assert run("verify", root=own_log.root).code == 0
    shutil.rmtree(own_log.root / "transactions")
    shutil.copytree(earlier, own_log.root / "transactions")
    done = run("verify", "-o", "json", root=own_log.root)
    assert done.code == 1
    assert [line["invariant"] for line in done.json["damage"]] == ["I4"]


def test_unreferenced_objects_are_listed_and_are_not_damage(own_log: SampleLog) -> None:
    own_log.admin.delete_topics(["flights"])
    (own_log.root / "notes.txt").write_text("mine")
    done = run("verify", root=own_log.root)
    assert done.code == 0
    rows = {row[0]: row[1:] for row in done.rows if len(row) == 4}
    assert rows["of no kind that txlog writes"] == ["1", "4", "notes.txt"]
    assert rows["of a deleted topic"][2].startswith("topics/flights/")
    document = run("verify", "-o", "json", root=own_log.root).json
    (strange,) = [u for u in document["unreferenced"] if "kind that" in u["kind"]]
    assert strange["paths"] == ["notes.txt"]


def test_at_rest_compares_the_journals_with_each_other(own_log: SampleLog) -> None:
    """A marker without a decision is valid by itself and follows the entry before it."""
    assert run("verify", "--at-rest", root=own_log.root).code == 0
    topic = own_log.connection.cluster.topic("flights")
    tx_id = TxId(70, 0, 0)
    topic.execute(WriteMarker(tx_id, Decision.COMMIT, floor=0, coordinator=0))
    done = run("verify", "--at-rest", "-o", "json", root=own_log.root)
    assert done.code == 1
    assert [(line["invariant"], str(tx_id) in line["found"]) for line in done.json["damage"]] == [
        ("I4", True)
    ]


def test_at_rest_compares_the_journals_of_a_damaged_log_too(
    own_log: SampleLog,
) -> None:
    topic = own_log.connection.cluster.topic("flights")
    topic.execute(WriteMarker(TxId(70, 0, 0), Decision.COMMIT, floor=0, coordinator=0))
    victim = objects(own_log.root, "topics/orders/*/segments/*.arrow")[0]
    victim.unlink()
    done = run("verify", "--at-rest", "-o", "json", root=own_log.root)
    found = {(line["invariant"], line["object"].split("/")[1]) for line in done.json["damage"]}
    assert (done.code, found) == (1, {("I15", "orders"), ("I4", "flights")})


def test_progress_is_printed_on_stderr_unless_quiet(
    log: SampleLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LINE_EVERY_MS", 0.0)
    done = run("verify", "-o", "json", root=log.root)
    assert done.json["ok"] is True
    shares = [int(line.split(": ")[1].split("%")[0]) for line in done.err.splitlines()]
    assert shares == sorted(shares)
    assert 50 < shares[-1] <= 100
    assert run("verify", "-q", root=log.root).err == ""
