"""A query whose checkpoint is in a server that answers as Google Cloud Storage does.

Spark writes it by Google's connector for Hadoop.
"""

from pathlib import Path

import pytest

from tests.source_tree import ROOT
from tests.spark.drilled_checkpoint import assert_exactly_once, with_settings
from tests.spark.fake_gcs import fake_gcs

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.extra,
    pytest.mark.timeout(900),
]

CONNECTOR = ROOT / ".servers" / "jars" / "gcs-connector.jar"
"""2.2.28: newer ones have no complete description in Maven. `make servers` fetches it."""

CLASSES = {
    "fs.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
    "fs.AbstractFileSystem.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFS",
}
"""Hadoop 3.5 names classes of its own, those of hadoop-gcp."""

NUMBERS = {
    "fs.gs.block.size": "67108864",
    "fs.gs.inputstream.inplace.seek.limit": "8388608",
    "fs.gs.inputstream.min.range.request.size": "2097152",
    "fs.gs.outputstream.buffer.size": "8388608",
    "fs.gs.rewrite.max.chunk.size": "536870912",
}
"""Defaults of Hadoop 3.5, which writes 64m and 8m: the connector reads digits only."""

BUCKET = "lake"


def test_I5_I6_I10_R24_a_query_with_its_checkpoint_in_google_cloud_storage_survives_kills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_gcs(BUCKET) as url:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
        place = {
            "fs.gs.storage.root.url": url,
            "fs.gs.project.id": "test",
            "fs.gs.auth.service.account.enable": "false",
            "fs.gs.auth.null.enable": "true",
        }
        hadoop = {f"spark.hadoop.{n}": v for n, v in (CLASSES | NUMBERS | place).items()}
        assert_exactly_once(
            str(tmp_path / "log"),
            f"gs://{BUCKET}/check point",
            with_settings({"spark.jars": str(CONNECTOR), **hadoop}, tmp_path),
            tmp_path,
        )
