"""`txlog verify`: a whole log passes, and every kind of damage is named."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.command_line import files, run
from tests.sample_log import SampleLog
from txlog.clients.producer import Producer
from txlog.journal.entry import seal


def flip_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


def cut_off(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def objects(root: Path, pattern: str) -> list[Path]:
    return sorted(root.glob(pattern))


def test_a_whole_log_passes_and_is_only_read(own_log: SampleLog) -> None:
    before = files(own_log.root)
    done = run("verify", root=own_log.root)
    assert (done.code, done.err) == (0, "")
    rows = {row[0]: row[1:] for row in done.rows if len(row) > 1}
    assert rows["orders"][2] == "13"
    assert rows["flights"][2] == "2"
    assert {row[-1] for name, row in rows.items() if name != "JOURNAL"} == {"0"}
    assert "transactions/7" in rows
    assert "__consumer_offsets/0" in rows
    assert files(own_log.root) == before


@pytest.mark.parametrize(
    "pattern",
    [
        "topics/orders/*/segments/*.arrow",
        "topics/orders/*/entries/*.json",
        "transactions/*/entries/*.json",
        "__consumer_offsets/*/entries/*.json",
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
    assert [line for line in done.json["damage"] if victim.name in line]
    place = str(victim.relative_to(own_log.root))
    assert any(place in line for line in done.json["damage"])


def test_records_behind_the_damage_are_still_looked_at(own_log: SampleLog) -> None:
    for segment in objects(own_log.root, "topics/*/*/segments/*.arrow"):
        flip_a_byte(segment)
    damage = run("verify", "-o", "json", root=own_log.root).json["damage"]
    names = {p.name for p in objects(own_log.root, "topics/*/*/segments/*.arrow")}
    assert all(any(name in line for line in damage) for name in names)


def test_an_entry_that_was_replaced_by_another_is_found(own_log: SampleLog) -> None:
    """Each is whole in itself, but the one after it names another checksum."""
    journal = next((own_log.root / "topics" / "orders").iterdir()) / "entries"
    second = sorted(journal.glob("*.json"))[1]
    forged = second.read_bytes()
    body = forged.split(b"\n")[1].replace(b'"written_at_ms":1', b'"written_at_ms":2', 1)
    second.write_bytes(seal(body))
    done = run("verify", "orders", "-o", "json", root=own_log.root)
    assert done.code == 1
    assert "does not follow the entry before it" in " ".join(done.json["damage"])


def test_a_damaged_snapshot_is_named_although_the_log_can_do_without(own_log: SampleLog) -> None:
    producer = Producer(own_log.connection)
    for _ in range(70):
        producer.send("flights", {"carrier": "UA"})
        producer.flush()
    (snapshot,) = objects(own_log.root, "topics/flights/*/snapshots/*.arrow")
    flip_a_byte(snapshot)
    done = run("verify", "flights", "-o", "json", root=own_log.root)
    assert done.code == 1
    assert snapshot.name in done.json["damage"][0]


def test_single_topics_may_be_named(log: SampleLog) -> None:
    found = run("verify", "flights", "-o", "json", root=log.root).json
    assert [row["journal"] for row in found["journals"]] == ["flights"]
    assert run("verify", "nope", root=log.root).code == 3


def test_damage_stands_in_the_table_too(own_log: SampleLog) -> None:
    victim = objects(own_log.root, "topics/flights/*/segments/*.arrow")[0]
    victim.unlink()
    done = run("verify", "-q", root=own_log.root)
    assert done.code == 1
    assert victim.name in done.out.split("DAMAGE\n")[1]
