"""A query whose log and checkpoint are in Azure's emulator; Spark writes the checkpoint by Hadoop's
client of Azure.

Azurite has the service of blobs alone, which Hadoop 3.5 speaks for accounts without a hierarchy of
folders; the service of files (dfs) is not tried.
"""

from pathlib import Path

import pytest

from tests.conformance.azurite import ACCOUNT, KEY, azurite
from tests.spark.drilled_checkpoint import assert_exactly_once, with_settings

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.extra,
    pytest.mark.timeout(900),
]

HADOOP_AZURE = "org.apache.hadoop:hadoop-azure:3.5.0"
"""The Hadoop version of PySpark 4.2."""

CONTAINER = "txlog-test"
HOST = f"{ACCOUNT}.dfs.core.windows.net"


def test_I5_I6_I10_R24_a_query_with_its_checkpoint_in_azure_survives_kills(tmp_path: Path) -> None:
    with azurite(CONTAINER) as server:
        settings = {
            "abfs.endpoint": f"127.0.0.1:{server.port}",
            "account.hns.enabled": "false",
            f"account.key.{HOST}": KEY,
            "always.use.https": "false",
            "fns.account.service.type": "BLOB",
            "networking.library": "JDK_HTTP_URL_CONNECTION",
        }
        spark = {f"spark.hadoop.fs.azure.{name}": value for name, value in settings.items()}
        assert_exactly_once(
            f"az://{CONTAINER}/log",
            f"abfs://{CONTAINER}@{HOST}/check point",
            with_settings({"spark.jars.packages": HADOOP_AZURE, **spark}, tmp_path),
            tmp_path,
            server.storage_options,
        )
