"""A query whose checkpoint is on a real HDFS, which the sink reads by Hadoop's own client."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_plugin.checkpoints.checkpoint import open_checkpoint
from spark_plugin.checkpoints.hadoop_files import stop_jvm
from tests.spark.drilled_checkpoint import assert_exactly_once
from tests.spark.hdfs import hdfs
from txlog.cli.spark_environment import spark_environment
from txlog.clock import Runtime
from txlog.errors import StoreDenied

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.extra,
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an empty HDFS, whose user is the one that runs this."""
    with hdfs(tmp_path_factory.mktemp("hdfs") / "data") as url:
        yield url
    stop_jvm()


def test_I5_I6_I10_R24_a_query_with_its_checkpoint_on_hdfs_survives_kills(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = {"fs.defaultFS": url, "fs.permissions.umask-mode": "077"}
    (tmp_path / "core-site.xml").write_text(
        "<configuration>"
        + "".join(
            f"<property><name>{name}</name><value>{value}</value></property>"
            for name, value in properties.items()
        )
        + "</configuration>"
    )
    # As on a cluster: the location names neither scheme nor host, and Spark takes it for HDFS.
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    environment = spark_environment(tmp_path)
    assert_exactly_once(str(tmp_path / "log"), "/check point", environment, tmp_path)
    checkpoint = open_checkpoint(f"{url}/check point", Runtime())
    assert checkpoint.query_id()
    stop_jvm()  # A JVM reads the user's name once.
    monkeypatch.setenv("HADOOP_USER_NAME", "stranger")
    with pytest.raises(StoreDenied, match=r"/check point/metadata .*user=stranger"):
        checkpoint.query_id()
