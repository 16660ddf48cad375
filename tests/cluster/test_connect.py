"""Spark Connect on a cluster: batch, stream, and a `foreachBatch` that is killed and replayed.

The programs and tests of tests/spark/test_versions.py, whose server has its executors here.
"""

from collections.abc import Iterator

import pytest

from tests.cluster.cluster import Cluster
from tests.spark.session import MASTER
from tests.spark.test_versions import (  # noqa: F401
    Runs,
    answers,
    killed_and_started_again,
    test_I10_a_query_over_spark_connect_writes_a_replayed_batch_once,
    test_I10_each_order_is_stored_once_across_the_kill,
    test_I10_job_over_spark_connect_skips_committed_txn_versions,
    test_only_one_write_of_the_batch_was_decided_before_the_kill,
)

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.extra,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """The programs, on a cluster of two workers."""
    folder = tmp_path_factory.mktemp("connect")
    with Cluster.start(folder / "cluster", {}) as cluster, pytest.MonkeyPatch.context() as patch:
        patch.setenv(MASTER, cluster.url)
        with killed_and_started_again(folder) as runs:
            assert len(cluster.executors()) == 2
            yield runs
