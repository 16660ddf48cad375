"""`txlog group reset | delete | delete-offsets`: Kafka's strategies, and no change by accident."""

from pathlib import Path

import pytest

from tests.processes.command_line import files, run
from tests.unit.cli.sample_log import FIRST_MS, SampleLog
from txlog.client.consumer.consumer import Consumer
from txlog.client.positions.listed_offsets import duration_ms
from txlog.client.producer.producer import Producer
from txlog.engine.producer_config import IN_LOG
from txlog.errors import UsageError
from txlog.model import TopicPartition

O0, O1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
def settled(own_log: SampleLog) -> SampleLog:
    """No offset is pending: group `billing` is at 4 of 11 (10 is aborted) in one partition."""
    own_log.open_producer.abort_transaction()
    return own_log


def position(log: SampleLog, group: str = "billing") -> dict[TopicPartition, int]:
    found = log.connection.offsets.group(group).committed
    return {where: at.offset for where, at in found.items()}


@pytest.mark.parametrize(
    ("strategy", "new"),
    [
        (["--to-earliest"], 0),
        (["--to-latest"], 12),
        (["--to-current"], 4),
        (["--to-offset", "7"], 7),
        (["--shift-by", "3"], 7),
        (["--shift-by", "-3"], 1),
        (["--to-datetime", "2013-01-01T05:15:05Z"], 5),
        (["--to-datetime", str(FIRST_MS + 6_000)], 6),
        (["--to-datetime", "2100-01-01"], 12),
        (["--by-duration", "P9000D"], 0),
        (["--by-duration", "PT1S"], 12),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else None,
)
def test_reset_shows_old_and_new_offsets_and_applies_them_with_execute(
    settled: SampleLog, strategy: list[str], new: int
) -> None:
    command = ["group", "reset", "billing", "--all-topics", *strategy]
    shown = run(*command, root=settled.root)
    row = ["billing", "orders", "0", "4", str(new)]
    assert shown.rows[:2] == [["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET"], row]
    assert "Nothing was done; add --execute" in shown.err
    assert position(settled) == {O0: 4}
    done = run(*command, "--execute", root=settled.root)
    assert (done.code, done.rows[1]) == (0, row)
    assert position(settled) == {O0: new}


def test_group_continues_at_its_reset_offset(settled: SampleLog) -> None:
    command = ["group", "reset", "billing", "--topic", "orders", "--to-offset", "8", "--execute"]
    assert run(*command, root=settled.root).code == 0
    with Consumer(
        "orders",
        root=str(settled.root),
        group_id="billing",
        isolation_level="read_committed",
        enable_auto_commit=False,
    ) as consumer:
        found = consumer.poll()
    assert [record.offset for record in found[O0]] == [8, 9]


@pytest.mark.parametrize(("shift", "new"), [("-100", 0), ("100", 12)])
def test_shift_out_of_range_uses_the_nearest_offset_and_reports_it(
    settled: SampleLog, shift: str, new: int
) -> None:
    done = run("group", "reset", "billing", "--all-topics", "--shift-by", shift, root=settled.root)
    assert done.rows[1][-1] == str(new)
    assert f"orders-0 has no offset {4 + int(shift)}: {new} is the nearest." in done.err


def test_reset_is_limited_to_the_named_partitions(settled: SampleLog) -> None:
    command = ["group", "reset", "other", "--topic", "orders:1", "--to-earliest", "--execute"]
    assert run(*command, root=settled.root).rows[1] == ["other", "orders", "1", "-", "0"]
    assert position(settled, "other") == {O1: 0}


def test_exported_reset_plan_is_applied_from_a_file(settled: SampleLog, tmp_path: Path) -> None:
    plan = run(
        "group", "reset", "billing", "--topic", "orders", "--to-latest", "--export",
        root=settled.root,
    )  # fmt: skip
    assert plan.out == "orders,0,12\norders,1,1\n"
    file = tmp_path / "plan.csv"
    file.write_text(plan.out)
    done = run(
        "group", "reset", "billing", "--from-file", str(file), "--execute", root=settled.root
    )
    assert done.code == 0
    assert position(settled) == {O0: 12, O1: 1}


def test_group_is_copied_by_an_exported_plan(settled: SampleLog, tmp_path: Path) -> None:
    """So a new group begins where another one is."""
    words = ("--all-topics", "--to-current", "--export")
    file = tmp_path / "positions.csv"
    file.write_text(run("group", "reset", "billing", *words, root=settled.root).out)
    words = ("--from-file", str(file), "--execute")
    assert run("group", "reset", "renamed", *words, root=settled.root).code == 0
    assert position(settled, "renamed") == position(settled)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--all-topics"], "name a target"),
        (["--all-topics", "--to-earliest", "--to-latest"], "exclude each other"),
        (["--to-earliest"], "say which partitions"),
        (["--all-topics", "--topic", "orders", "--to-latest"], "say which partitions"),
        (["--topic", "orders:x", "--to-latest"], "write partitions as TOPIC:0,2"),
        (["--topic", "orders", "--by-duration", "2 days"], "is not a duration"),
        (["--topic", "orders", "--to-datetime", "soon"], "'soon' is not a time"),
        (["--from-file", "/nowhere/plan.csv"], "cannot be read"),
    ],
)
def test_ambiguous_or_invalid_reset_is_refused(
    log: SampleLog, arguments: list[str], said: str
) -> None:
    done = run("group", "reset", "billing", *arguments, "--execute", root=log.root)
    assert done.code == 2
    assert said in done.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("orders,0", "line 1: write topic,partition,offset"),
        ("orders,0,5\norders,zero,5", "line 2: write topic,partition,offset"),
        ("orders,0,5\norders,0,6", "line 2: orders-0 occurs twice"),
        ("", "has no line"),
    ],
)
def test_invalid_reset_plan_file_is_refused_with_the_reason(
    log: SampleLog, tmp_path: Path, text: str, said: str
) -> None:
    file = tmp_path / "plan.csv"
    file.write_text(text)
    done = run("group", "reset", "billing", "--from-file", str(file), root=log.root)
    assert (done.code, said in done.err) == (2, True), done.err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["nope", "--all-topics", "--to-latest"], 3, "there is no consumer group 'nope'"),
        (["billing", "--topic", "ordres", "--to-latest"], 3, "did you mean 'orders'"),
        (["billing", "--topic", "orders:7", "--to-latest"], 3, "has partitions 0 to 1, not 7"),
        (["new", "--topic", "orders", "--shift-by", "1"], 3, "there is nothing to shift"),
        ([" ", "--topic", "orders", "--to-latest"], 2, "group.id must be a string"),
    ],
)
def test_reset_of_an_unknown_group_topic_or_partition_is_refused(
    log: SampleLog, arguments: list[str], code: int, said: str
) -> None:
    done = run("group", "reset", *arguments, root=log.root)
    assert (done.code, said in done.err) == (code, True), done.err


CHANGES = (
    ["reset", "billing", "--all-topics", "--to-earliest"],
    ["delete", "billing"],
    ["delete-offsets", "billing", "--topic", "orders"],
)


@pytest.mark.parametrize("execute", [[], ["--execute"]], ids=["plan", "execute"])
@pytest.mark.parametrize("words", CHANGES, ids=lambda words: words[0])
def test_change_of_a_group_is_refused_while_its_offsets_are_pending(
    words: list[str], execute: list[str], own_log: SampleLog
) -> None:
    before = files(own_log.root)
    done = run("group", *words, *execute, root=own_log.root)
    assert (done.code, done.out) == (4, "")
    assert "is pending on orders-0" in done.err
    assert files(own_log.root) == before


@pytest.mark.parametrize("words", CHANGES, ids=lambda words: words[0])
def test_plan_is_shown_if_execute_would_end_the_pending_transaction(
    words: list[str], settled: SampleLog
) -> None:
    """It is past its timeout."""
    producer = Producer(
        settled.connection, transactional_id="dead-job", transaction_timeout_ms=1,
        transaction_records=IN_LOG,
    )  # fmt: skip
    producer.init_transactions()
    producer.begin_transaction()
    producer.send_offsets_to_transaction({O0: 5}, "billing")
    before = files(settled.root)
    shown = run("group", *words, root=settled.root)
    assert (shown.code, "Nothing was done" in shown.err) == (0, True), shown.err
    assert files(settled.root) == before
    assert run("group", *words, "--execute", root=settled.root).code == 0


def test_reset_plan_is_exported_while_offsets_are_pending(log: SampleLog) -> None:
    """It is applied later."""
    done = run("group", "reset", "billing", "--all-topics", "--to-current", "--export",
               root=log.root)  # fmt: skip
    assert (done.code, done.out) == (0, "orders,0,4\n")


def test_delete_offsets_removes_committed_offsets_only_with_execute(settled: SampleLog) -> None:
    command = ["group", "delete-offsets", "billing", "--topic", "orders:0"]
    shown = run(*command, root=settled.root)
    assert shown.rows[1] == ["billing", "orders", "0", "4"]
    found = run(*command, "-o", "json", root=settled.root).json
    assert found == [{"group": "billing", "topic": "orders", "partition": 0, "current_offset": 4}]
    assert position(settled) == {O0: 4}
    assert run(*command, "--execute", root=settled.root).code == 0
    assert position(settled) == {}
    again = run(*command, "--execute", root=settled.root)
    assert (again.code, "no consumer group 'billing'" in again.err) == (3, True)


def test_delete_removes_a_group_only_with_execute(settled: SampleLog) -> None:
    shown = run("group", "delete", "billing", root=settled.root)
    assert (shown.code, "Would delete group billing: 1 position" in shown.err) == (0, True)
    assert position(settled) == {O0: 4}
    assert run("group", "delete", "billing", "--execute", root=settled.root).code == 0
    assert run("group", "describe", "billing", root=settled.root).code == 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("P1D", 86_400_000),
        ("PT1H30M", 5_400_000),
        ("P1DT1S", 86_401_000),
        ("PT0S", 0),
        ("pt1s", 1_000),
    ],
)
def test_durations_are_iso_8601(text: str, expected: int) -> None:
    assert duration_ms(text) == expected


@pytest.mark.parametrize("text", ["", "P", "PT", "1D", "P1M", "P-1D", "P1.5D"])
def test_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a duration"):
        duration_ms(text)


def test_partition_that_is_named_twice_is_reset_once(settled: SampleLog) -> None:
    named = ("--topic", "orders:0,0", "--topic", "orders:0")
    done = run("group", "reset", "billing", *named, "--to-earliest", "--execute", root=settled.root)
    assert (done.code, done.err) == (0, "Group billing was reset in 1 partition.\n")
    assert len(done.rows) == 3  # The header, the partition, and the end of the last line.


def test_plan_file_of_a_spreadsheet_is_read(settled: SampleLog, tmp_path: Path) -> None:
    plan = tmp_path / "plan.csv"
    plan.write_bytes(b"\xef\xbb\xbforders,0,1\r\n")
    done = run("group", "reset", "billing", "--from-file", plan, "-o", "json", root=settled.root)
    assert [row["new_offset"] for row in done.json] == [1]


@pytest.mark.parametrize("cell", ["9" * 5_000, "9" * 200_000])
def test_plan_file_with_an_endless_number_is_refused(
    settled: SampleLog, tmp_path: Path, cell: str
) -> None:
    plan = tmp_path / "plan.csv"
    plan.write_text(f"orders,0,{cell}\n")
    done = run("group", "reset", "billing", "--from-file", plan, root=settled.root)
    assert (done.code, "internal error" in done.err) == (2, False)
