"""`txlog topic`: what it shows, what it changes, and what it refuses before it writes."""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from tests.processes.command_line import files, run
from tests.unit.cli.sample_log import SampleLog
from txlog.client.admin import Admin
from txlog.journal.entry import checked_body, seal
from txlog.model import TxId


def test_list_shows_partitions_offsets_and_open_transactions(log: SampleLog) -> None:
    done = run("topic", "list", "--offsets", root=log.root)
    assert done.out.splitlines() == [
        "TOPIC    PARTITIONS  OFFSETS  OPEN-TRANSACTIONS",
        "flights           1        2                  0",
        "orders            2       13                  1",
    ]
    assert (done.code, done.err) == (0, "")


def test_list_in_json_is_one_document(log: SampleLog) -> None:
    assert run("topic", "list", "-o", "json", root=log.root).json == [
        {"topic": "flights"},
        {"topic": "orders"},
    ]
    assert run("topic", "list", "--offsets", "-o", "json", root=log.root).json == [
        {"topic": "flights", "partitions": 1, "offsets": 2, "open_transactions": 0},
        {"topic": "orders", "partitions": 2, "offsets": 13, "open_transactions": 1},
    ]


def test_list_without_offsets_reads_no_topic(own_log: SampleLog) -> None:
    """So 5,000 topics are listed as fast as one, on a bucket, too."""
    shutil.rmtree(Path(own_log.root, "topics"))
    assert run("topic", "list", root=own_log.root).out == "TOPIC\nflights\norders\n"


@pytest.mark.parametrize(
    ("words", "shown"), [("topic list --offsets", ["flights"]), ("group list", [])]
)
def test_list_shows_what_can_be_read_and_ends_with_what_cannot(
    words: str, shown: list[str], own_log: SampleLog
) -> None:
    entry = max(Path(own_log.root).glob("topics/orders/**/entries/*.json"))
    entry.write_bytes(b"")
    done = run(*words.split(), "-o", "json", root=own_log.root)
    assert [row[words.split()[0]] for row in done.json] == shown
    assert (done.code, entry.name in done.err) == (1, True)


def test_list_of_an_empty_log_prints_a_hint_on_stderr(tmp_path: Path) -> None:
    Admin(str(tmp_path), create=True)
    assert run("topic", "list", "-o", "json", root=tmp_path).json == []
    done = run("topic", "list", root=tmp_path)
    assert done.out == "TOPIC\n"
    assert "txlog topic create" in done.err
    assert run("topic", "list", "-q", root=tmp_path).err == ""


def test_describe_shows_last_stable_and_end_offsets_separately(log: SampleLog) -> None:
    found = run("topic", "describe", "orders", "-o", "json", root=log.root).json
    assert found["open_transactions"] == [str(log.opened)]
    assert found["partitions"] == [
        {"partition": 0, "log_start_offset": 0, "last_stable_offset": 11, "log_end_offset": 12},
        {"partition": 1, "log_start_offset": 0, "last_stable_offset": 1, "log_end_offset": 1},
    ]


def test_describe_shows_the_schema_and_the_configuration(log: SampleLog) -> None:
    rows = run("topic", "describe", "flights", root=log.root).rows
    assert ["Topic", "flights"] in rows
    assert ["key.column", "carrier"] in rows
    assert ["at", "timestamp[us, UTC]", "yes"] in rows
    assert ["0", "0", "2", "2"] in rows


def test_describe_says_that_a_deletion_was_interrupted_and_delete_finishes_it(
    own_log: SampleLog,
) -> None:
    assert ["IsBeingDeleted", "no"] in run("topic", "describe", "flights", root=own_log.root).rows
    cluster = own_log.admin.connection.cluster
    assert cluster.deletions is not None
    cluster.deletions.begin([cluster.present_topic("flights")])
    done = run("topic", "describe", "flights", root=own_log.root)
    assert ["IsBeingDeleted", "yes"] in done.rows
    assert "'txlog topic delete flights' or 'txlog maintain' finishes the deletion" in done.err
    assert run("topic", "delete", "flights", "--execute", root=own_log.root).code == 0
    assert own_log.admin.list_topics() == ["orders"]


def test_create_also_creates_the_log_and_stores_schema_and_configuration(tmp_path: Path) -> None:
    root = tmp_path / "new" / "log"
    done = run(
        *("topic", "create", "trips", "--partitions", 3),
        *("--schema", "id: int64 not null, at: timestamp[us, UTC]"),
        *("--config", "key.column=id", "--config", "compression.type=zstd"),
        root=root,
    )
    assert (done.code, done.out) == (0, "")
    assert done.err == f"Created a log at {root}.\nCreated topic trips with 3 partitions.\n"
    topic = Admin(str(root)).describe_topic("trips")
    assert len(topic.partitions) == 3
    assert topic.schema == pa.schema(
        [pa.field("id", pa.int64(), nullable=False), ("at", pa.timestamp("us", "UTC"))]
    )
    assert topic.config.key_column == "id"
    assert topic.config.compression_type == "zstd"


def test_create_without_a_schema_creates_a_kafka_shaped_topic(own_log: SampleLog) -> None:
    assert run("topic", "create", "plain", root=own_log.root).code == 0
    assert own_log.admin.describe_topic("plain").schema.names == ["key", "value", "headers"]


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (["../x"], 2, "'../x' is not allowed"),
        ([""], 2, "it is empty"),
        (["x" * 250], 2, "has 250 characters; the limit is 249"),
        (["__x"], 2, "reserved for internal topics"),
        (["x", "--partitions", "0"], 2, "cannot have 0 partitions; choose 1 to"),
        (["x", "--partitions", "many"], 2, "--partitions"),
        (["x", "--config", "max.message.byte=1"], 2, "did you mean 'max.message.bytes'?"),
        (["x", "--config", "max.message.bytes=1kb"], 2, "must be a whole number, not '1kb'"),
        (["x", "--config", "max.message.bytes"], 2, "write NAME=VALUE"),
        (["x", "--config", "key.column=a"], 2, "the schema has no such column"),
        (["x", "--schema", "a: int33"], 2, "did you mean 'int32'?"),
        (["x", "--schema", "_offset: int32"], 2, "reserved name"),
        (["x", "--schema", "a: int32, A: int32"], 2, "two columns named 'a' and 'A'"),
        (["x", "--schema", "@/no/such/file"], 2, "no schema can be read from /no/such/file"),
        ([], 2, "Missing argument 'TOPIC'"),
        (["x", "--nope"], 2, "No such option: --nope"),
    ],
)
def test_invalid_create_arguments_are_refused_without_creating_the_log(
    arguments: list[str], code: int, why: str, tmp_path: Path
) -> None:
    root = tmp_path / "log"
    done = run("topic", "create", *arguments, root=root)
    assert (done.code, done.out) == (code, "")
    assert why in done.err
    assert done.err.startswith("txlog: ")
    assert done.err.count("\n") == 1
    assert not root.exists()


def test_create_of_an_existing_topic_exits_4_and_changes_nothing(own_log: SampleLog) -> None:
    before = files(own_log.root)
    done = run("topic", "create", "orders", "--partitions", 9, root=own_log.root)
    assert done.code == 4
    assert done.err == "txlog: topic 'orders' exists already; use it, or choose another name.\n"
    assert files(own_log.root) == before


def test_create_does_not_overwrite_a_log_of_a_newer_format(own_log: SampleLog) -> None:
    cluster_file = own_log.root / "txlog.json"
    newer = seal_as_version_99(cluster_file.read_bytes())
    cluster_file.write_bytes(newer)
    done = run("topic", "create", "x", root=f"{own_log.root}/")
    assert done.code == 3
    assert "format version 99" in done.err
    assert cluster_file.read_bytes() == newer


def seal_as_version_99(data: bytes) -> bytes:
    """The cluster file as a future version of txlog would write it."""
    body, _ = checked_body(data, "txlog.json")
    return seal(body.replace(b'"format_version":3', b'"format_version":99'))


def test_config_shows_and_changes_values(own_log: SampleLog) -> None:
    shown = run("topic", "config", "orders", "-o", "json", root=own_log.root).json
    assert shown["compression.type"] == "none"
    done = run(
        *("topic", "config", "orders", "compression.type=lz4", "max.message.bytes=5"),
        root=own_log.root,
    )
    assert ["max.message.bytes", "5"] in done.rows
    config = own_log.admin.describe_topic("orders").config
    assert (config.compression_type, config.max_message_bytes) == ("lz4", 5)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("compression.type=gzip", "must be one of none, lz4, zstd"),
        ("retention=5", "unknown topic configuration 'retention'"),
        ("key.column=nope", "the schema has no such column"),
        ("=5", "write NAME=VALUE"),
    ],
)
def test_config_with_one_invalid_change_applies_none(
    change: str, why: str, own_log: SampleLog
) -> None:
    before = files(own_log.root)
    done = run("topic", "config", "orders", "max.message.bytes=5", change, root=own_log.root)
    assert (done.code, done.out) == (2, "")
    assert why in done.err
    assert files(own_log.root) == before


def test_delete_is_a_dry_run_unless_execute_is_given(own_log: SampleLog) -> None:
    before = files(own_log.root)
    shown = run("topic", "delete", "flights", root=own_log.root)
    assert (shown.code, shown.rows[1]) == (0, ["flights", "1", "2", "0"])
    assert shown.err.startswith("Would delete topic flights: 1 partition, 2 offsets, 0 open tra")
    assert run("topic", "delete", "flights", "-o", "json", root=own_log.root).json == {
        "topic": "flights", "partitions": 1, "offsets": 2, "open_transactions": 0, "deleted": False,
    }  # fmt: skip
    assert files(own_log.root) == before
    done = run("topic", "delete", "flights", "--execute", root=own_log.root)
    assert done.err.startswith("Deleted topic flights")
    assert own_log.admin.list_topics() == ["orders"]


@pytest.mark.parametrize("verb", ["describe", "config", "delete"])
def test_unknown_topic_exits_3_and_is_named(verb: str, log: SampleLog) -> None:
    done = run("topic", verb, "nope", root=log.root)
    assert (done.code, done.out) == (3, "")
    assert "there is no topic 'nope'" in done.err


def test_transaction_id_in_topic_describe_is_accepted_by_txn_describe(log: SampleLog) -> None:
    (opened,) = run("topic", "describe", "orders", "-o", "json", root=log.root).json[
        "open_transactions"
    ]
    assert TxId.parse(opened) == log.opened
    assert run("txn", "describe", opened, root=log.root).code == 0


def test_alter_adds_partitions(own_log: SampleLog) -> None:
    done = run("topic", "alter", "orders", "--partitions", "5", root=own_log.root)
    assert (done.code, "Topic orders has 5 partitions; it had 2." in done.err) == (0, True)
    assert len(own_log.admin.describe_topic("orders").partitions) == 5


def test_alter_adds_columns_that_old_records_read_as_null(own_log: SampleLog) -> None:
    command = ["topic", "alter", "flights", "--add-column", "gate: string"]
    done = run(*command, "--add-column", "seats: int16", root=own_log.root)
    assert (done.code, "Added 2 columns to topic flights." in done.err) == (0, True)
    assert own_log.admin.describe_topic("flights").schema.names[-2:] == ["gate", "seats"]
    record = run("consume", "flights", "-n", "1", root=own_log.root).json
    assert (record["value"]["gate"], record["value"]["seats"]) == (None, None)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["orders"], 2, "say what to add, one at a time"),
        (["flights", "-p", "2", "--add-column", "gate: string"], 2, "one at a time"),
        (["orders", "--partitions", "1"], 2, "the number only grows"),
        (["orders", "--partitions", "0"], 2, "partitions"),
        (["flights", "--add-column", "gate"], 2, "':' is expected before 'the end'"),
        (["flights", "--add-column", "carrier: string"], 2, "carrier"),
        (["flights", "--add-column", "gate: string not null"], 2, "gate"),
        (["nope", "--partitions", "2"], 3, "there is no topic 'nope'"),
    ],
)
def test_invalid_alter_arguments_are_refused(
    log: SampleLog, arguments: list[str], code: int, said: str
) -> None:
    done = run("topic", "alter", *arguments, root=log.root)
    assert (done.code, said in done.err) == (code, True), done.err


@pytest.mark.parametrize(
    "more", [["flights"], ["--all"], ["flights", "--partition", 0, "--before-offset", 1]]
)
def test_delete_records_refuses_a_file_of_offsets_with_other_offsets(
    own_log: SampleLog, tmp_path: Path, more: list[object]
) -> None:
    file = tmp_path / "offsets.json"
    file.write_text('{"partitions": [{"topic": "orders", "partition": 0, "offset": 4}]}')
    words = ("topic", "delete-records", "--offset-json-file", file, "--execute")
    done = run(*words, *more, root=own_log.root)
    assert (done.code, done.err) == (
        2,
        "txlog: --offset-json-file names topics and offsets; leave the others out.\n",
    )
    assert own_log.admin.describe_topic("orders").partitions[0].log_start_offset == 0
