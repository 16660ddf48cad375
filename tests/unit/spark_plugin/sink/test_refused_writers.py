"""A refused writer has created nothing: no log at a mistyped root, no topic."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    YearMonthIntervalType,
)

from spark_plugin.options import parse_writer_options
from spark_plugin.sink.batch_writer import TxlogBatchWriter
from spark_plugin.sink.stream_writer import TxlogStreamWriter
from tests.logs.memory_log import MemoryLog
from tests.unit.spark_plugin.spark_query import Query
from txlog.client.admin import Admin
from txlog.errors import (
    CheckpointConflict,
    IncompatibleSchema,
    InvalidConfig,
    InvalidOption,
    NotATxlog,
    TxlogError,
    UnknownTopic,
)

FRAME = StructType().add("id", LongType()).add("value", StringType())
MISNAMED = StructType().add("value", BinaryType()).add("_offset", LongType())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": "t", "key": "nope"}, "names the column 'nope'"),
        ({"topic": "t", "partition": "value"}, "must be a whole number"),
        ({"topic": "t", "partitions": "99999999"}, "choose 1 to 10000"),
        ({}, "set the option 'topic'"),
    ],
)
def test_invalid_option_creates_no_log(
    tmp_path: Path, options: dict[str, str], message: str
) -> None:
    root = tmp_path / "log"
    parsed = parse_writer_options({"path": str(root), **options})
    with pytest.raises(TxlogError, match=message):
        TxlogBatchWriter.for_job(parsed, FRAME, overwrite=False)
    assert not root.exists()


def test_dataframe_with_reserved_column_name_creates_no_topic(tmp_path: Path) -> None:
    root = tmp_path / "log"
    parsed = parse_writer_options({"path": str(root), "topic": "copy"})
    with pytest.raises(IncompatibleSchema, match="'_offset' has a reserved name"):
        TxlogBatchWriter.for_job(parsed, MISNAMED, overwrite=False)
    assert Admin(str(root), create=True).list_topics() == []


def test_setting_that_does_not_suit_the_columns_is_refused_before_the_tasks_of_a_job(
    tmp_path: Path,
) -> None:
    options = {"path": str(tmp_path), "topic": "copy", "topic.cleanup.policy": "compact"}
    with pytest.raises(InvalidConfig, match="compacted by its key.column; name one"):
        TxlogBatchWriter.for_job(parse_writer_options(options), FRAME, overwrite=False)


def test_job_is_checked_before_its_tasks_and_creates_the_log_but_no_topic(tmp_path: Path) -> None:
    """Only its tasks have the batch id, on which the permission to create topics depends."""
    root = tmp_path / "log"
    options = {"path": str(root), "topic": "copy"}
    none = parse_writer_options({**options, "createTopics": "false"})
    with pytest.raises(NotATxlog, match="there is no log at"):
        TxlogBatchWriter.for_job(none, FRAME, overwrite=False)
    assert not root.exists()
    TxlogBatchWriter.for_job(parse_writer_options(options), FRAME, overwrite=False)
    admin = Admin(str(root))
    assert admin.list_topics() == []
    TxlogBatchWriter.for_job(parse_writer_options(options), FRAME, overwrite=False)
    with pytest.raises(UnknownTopic, match="there is no topic 'copy'"):
        TxlogBatchWriter.for_job(none, FRAME, overwrite=False)
    assert admin.list_topics() == []


def test_R30_label_of_a_query_without_foreach_batch_is_refused_and_creates_no_log(
    tmp_path: Path,
) -> None:
    """Its missing batches would pass for batches that a `foreachBatch` has left out (I10)."""
    log = MemoryLog()
    query = Query(log, tmp_path / "checkpoint")
    query.plan_other(0, 4)
    root = tmp_path / "log"
    asked = {"path": str(root), "topic": "t", "checkpointLocation": str(query.folder)}
    with pytest.raises(InvalidOption, match="in writeStream leave the option out"):
        TxlogStreamWriter.for_batch(parse_writer_options({**asked, "label": "copy"}), FRAME)
    assert not root.exists()
    TxlogStreamWriter.for_batch(parse_writer_options(asked), FRAME)
    assert root.exists()


def test_R22_query_without_a_name_below_the_sessions_checkpoints_is_refused_and_creates_no_log(
    tmp_path: Path,
) -> None:
    asked = {"path": str(tmp_path / "log"), "topic": "t"}
    with pytest.raises(InvalidOption, match=r"a new checkpoint below /cps .* Name the query"):
        TxlogStreamWriter.for_batch(parse_writer_options(asked), FRAME, "/cps")
    assert list(tmp_path.iterdir()) == []


STORED = pa.schema(
    [
        pa.field("n", pa.int32(), nullable=False),
        ("text", pa.string()),
        ("numbers", pa.list_(pa.int32())),
    ]
)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"n": LongType()}, "column 'n' is bigint, .* Cast it"),
        ({"n": IntegerType(), "text": IntegerType()}, "column 'text' is int, .* Cast it"),
        ({"n": YearMonthIntervalType()}, "cast it to int, a number of months"),
        ({"text": StringType()}, "no column 'n', which may not be null"),
    ],
)
def test_frame_whose_columns_cannot_be_stored_is_refused_before_tasks_run(
    tmp_path: Path, columns: dict[str, DataType], message: str
) -> None:
    asked = {"path": str(tmp_path / "log"), "topic": "t"}
    Admin(asked["path"], create=True).create_topic("t", 1, STORED)
    schema = StructType([StructField(name, kind) for name, kind in columns.items()])
    with pytest.raises(IncompatibleSchema, match=message):
        TxlogBatchWriter.for_job(parse_writer_options(asked), schema, overwrite=False)


@pytest.mark.parametrize(
    "columns",
    [
        {"n": ShortType(), "text": NullType(), "numbers": ArrayType(NullType())},
        {"n": IntegerType(), "numbers": ArrayType(ByteType())},
        {"n": IntegerType(), "numbers": ArrayType(NullType(), containsNull=False)},
    ],
)
def test_frame_with_narrower_types_and_nulls_is_accepted(
    tmp_path: Path, columns: dict[str, DataType]
) -> None:
    asked = {"path": str(tmp_path / "log"), "topic": "t"}
    Admin(asked["path"], create=True).create_topic("t", 1, STORED)
    schema = StructType([StructField(name, kind) for name, kind in columns.items()])
    TxlogBatchWriter.for_job(parse_writer_options(asked), schema, overwrite=False)


def test_job_with_the_option_of_a_query_is_told_to_leave_it_out(tmp_path: Path) -> None:
    """A job outside of `foreachBatch` belongs to no streaming query."""
    asked = {"path": str(tmp_path / "log"), "topic": "t", "checkpointLocation": str(tmp_path)}
    with pytest.raises(CheckpointConflict, match="leave it out of any other job"):
        TxlogBatchWriter.for_job(parse_writer_options(asked), FRAME, overwrite=False)


def test_checkpoint_without_a_batch_creates_no_log(tmp_path: Path) -> None:
    root, checkpoint = tmp_path / "log", tmp_path / "checkpoint"
    checkpoint.mkdir()
    asked = {"path": str(root), "topic": "t", "checkpointLocation": str(checkpoint)}
    with pytest.raises(CheckpointConflict, match="contains no batch"):
        TxlogStreamWriter.for_batch(parse_writer_options(asked), FRAME)
    assert not root.exists()
