"""Options of other connectors that are accepted: each reader and writer warns of them once."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql.types import BinaryType, StructType

from spark_plugin import options
from spark_plugin.datasource import TxlogDataSource
from txlog.client.admin import Admin

COLUMNS = StructType().add("value", BinaryType())


def read_job(source: TxlogDataSource) -> None:
    source.reader(COLUMNS).partitions()


def read_stream(source: TxlogDataSource) -> None:
    reader = source.streamReader(COLUMNS)
    reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())


def write_job(source: TxlogDataSource) -> None:
    source.writer(COLUMNS, overwrite=False)


@pytest.mark.parametrize(
    ("call", "given"),
    [
        (read_job, {"subscribe": "t"}),
        (read_stream, {"subscribe": "t"}),
        (write_job, {"topic": "t"}),
    ],
)
def test_reader_and_writer_warn_of_options_without_effect_in_their_first_call(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    call: Callable[[TxlogDataSource], None],
    given: dict[str, str],
) -> None:
    monkeypatch.setattr(options, "_warned", set())
    root = str(tmp_path / "log")
    Admin(root, create=True).create_topic("t")
    for _ in range(2):
        call(TxlogDataSource({"path": root, "kafka.client.id": "job", **given}))
    (warning,) = caplog.messages
    assert warning == (
        "options without effect in txlog: kafka.client.id (there is no broker to connect to)"
    )
