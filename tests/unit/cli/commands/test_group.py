"""`txlog group`: Kafka's columns, the exact lag, and pending offsets."""

import pytest

from tests.processes.command_line import run
from tests.unit.cli.sample_log import FIRST_MS, SampleLog


def test_list_shows_the_lag_over_all_partitions(log: SampleLog) -> None:
    done = run("group", "list", root=log.root)
    header, row, *_ = done.rows
    assert header == ["GROUP", "TOPICS", "PARTITIONS", "LAG", "LAG-SECONDS", "PENDING", "OWNER"]
    assert (row[:4], row[5:]) == (["billing", "1", "2", "at least 6"], ["1", "-"])
    assert (done.code, done.err) == (0, "")


def test_describe_prints_kafkas_columns_for_each_partition(log: SampleLog) -> None:
    rows = run("group", "describe", "billing", root=log.root).rows
    words = [
        "GROUP",
        "TOPIC",
        "PARTITION",
        "CURRENT-OFFSET",
        "LOG-END-OFFSET",
        "LAG",
        "LAG-SECONDS",
        "UNDECIDED",
    ]
    at = rows.index(words) + 1
    assert rows[at][:6] == ["billing", "orders", "0", "4", "11", "6"]
    assert rows[at][7:] == ["1"]
    assert rows[at + 1] == ["billing", "orders", "1", "-", "1", "unknown", "-", "0"]
    assert ["TotalLag", "at least 6"] in rows


def test_lag_excludes_aborted_records_and_records_of_open_transactions(log: SampleLog) -> None:
    """Offsets 4 to 9 can be read; 10 is aborted, 11 is open."""
    found = run("group", "describe", "billing", "-o", "json", root=log.root).json
    partition, _ = found["partitions"]
    assert partition["current_offset"] == 4
    assert partition["log_end_offset"] == 11
    assert partition["lag"] == 6
    assert partition["undecided"] == 1


def test_describe_shows_pending_offsets_with_their_transaction(log: SampleLog) -> None:
    (pending,) = run("group", "describe", "billing", "-o", "json", root=log.root).json["pending"]
    assert pending["transaction"] == str(log.opened)
    assert pending["transactional_id"] == "late-job"
    assert pending["outcome"] == "OPEN"
    offsets = {"topic": "orders", "partition": 0, "start_offset": 4, "end_offset": 6}
    assert pending["offsets"] == [offsets]
    rows = run("group", "describe", "billing", root=log.root).rows
    assert [row[-4:] for row in rows if row[:1] == [str(log.opened)]] == [["orders", "0", "4", "6"]]


def test_describe_shows_the_last_commit(log: SampleLog) -> None:
    found = run("group", "describe", "billing", "-o", "json", root=log.root).json
    assert found["last_commit_transaction"].startswith(f"{log.committed.pid}-")
    assert found["last_commit"] == found["partitions"][0]["committed_at"]
    assert found["last_commit"].endswith("Z")


@pytest.mark.parametrize(
    ("name", "code", "why"),
    [
        ("nope", 3, "there is no consumer group 'nope'; 'txlog group list' shows them."),
        ("../x", 3, "there is no consumer group '../x'"),
        ("", 2, "it is empty"),
        ("a\nb", 2, "printable characters"),
        ("x" * 513, 2, "must be at most 512"),
    ],
)
def test_unknown_or_invalid_group_is_refused_in_one_line(
    name: str, code: int, why: str, log: SampleLog
) -> None:
    done = run("group", "describe", name, root=log.root)
    assert (done.code, done.out) == (code, "")
    assert why in done.err
    assert done.err.count("\n") == 1


def test_a_group_whose_only_pend_was_released_is_not_listed(own_log: SampleLog) -> None:
    own_log.open_producer.abort_transaction()
    own_log.open_producer.begin_transaction()
    own_log.open_producer.send_offsets_to_transaction({}, "ghost")
    own_log.open_producer.abort_transaction()
    own_log.admin.connection.offsets.delete("billing")
    assert run("group", "list", "-o", "json", root=own_log.root).json == []
    assert "No consumer group" in run("group", "list", root=own_log.root).err


def test_lag_seconds_are_the_age_of_the_oldest_unread_record(log: SampleLog) -> None:
    """Order 4 is next; each order is a second younger than the one before it."""
    found = run("group", "describe", "billing", "-o", "json", root=log.root).json
    partition, _ = found["partitions"]
    now_ms = log.connection.runtime.clock.wall_ms()
    expected = (now_ms - FIRST_MS - 4_000) // 1000
    assert expected - 60 <= partition["lag_seconds"] <= expected


def test_group_at_the_end_has_zero_lag_in_records_and_seconds(own_log: SampleLog) -> None:
    own_log.open_producer.abort_transaction()
    command = ["group", "reset", "billing", "--topic", "orders", "--to-latest", "--execute"]
    assert run(*command, root=own_log.root).code == 0
    found = run("group", "describe", "billing", "-o", "json", root=own_log.root).json
    assert (found["lag"], found["lag_seconds"]) == (0, 0)


def test_unknown_lag_is_null_and_not_zero(log: SampleLog) -> None:
    """The group has committed nothing in partition 1, which has a record."""
    found = run("group", "describe", "billing", "-o", "json", root=log.root).json
    assert (found["lag"], found["lag_seconds"]) == (None, None)
    _, other = found["partitions"]
    assert (other["current_offset"], other["lag"], other["lag_seconds"]) == (None, None, None)
    (listed,) = run("group", "list", "-o", "json", root=log.root).json
    assert (listed["lag"], listed["lag_seconds"]) == (None, None)


def test_list_and_describe_agree_on_every_shared_value(log: SampleLog) -> None:
    """Where a value does not exist, both commands print null."""
    listed = run("group", "list", "-o", "json", root=log.root).json
    assert listed
    for group in listed:
        described = run("group", "describe", group["group"], "-o", "json", root=log.root).json
        for name in ("group", "lag", "lag_seconds", "owner"):
            assert group[name] == described[name], name
        assert group["partitions"] == len(described["partitions"])
        assert group["pending"] == len(described["pending"])
    assert None in [group["owner"] for group in listed]
