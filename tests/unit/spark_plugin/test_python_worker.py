"""The run of a task, by properties that Spark sets and users do not."""

import pytest

from spark_plugin.python_worker import NO_BATCH, TaskIdentity, run_of

MINE, OTHER = "5bd90fb1-ad4f-45ea-83a0-e3e2dc432c13", "6834ae12-87bb-410a-a04b-0e5be6a9812a"
ROOT = f"spark-session-{MINE}-execution-root-id-12"


@pytest.mark.parametrize(
    ("job_tags", "run_id"),
    [
        (f"{ROOT},spark-session-{MINE}", MINE),
        (f"spark-session-{OTHER},{ROOT}", MINE),
        (f"mine,{ROOT},yours", MINE),
        (f"spark-session-{MINE}", f"{MINE}/group"),
        (f"spark-session-{OTHER},mine,spark-session-{MINE}", f"{MINE}/{OTHER}/group"),
        (f"my-{ROOT}", "group"),
        ("", "group"),
    ],
)
def test_R27_run_id_is_session_id_of_root_execution_tag(job_tags: str, run_id: str) -> None:
    """Without that tag, which a user may clear, the sessions and the job group identify the run."""
    assert run_of(job_tags, "group") == run_id


def test_task_belongs_to_a_batch_only_with_query_id_and_batch_id() -> None:
    assert TaskIdentity("query", "run", 0).is_of_batch
    assert not TaskIdentity("query", "run", NO_BATCH).is_of_batch
    assert not TaskIdentity("", "run", 0).is_of_batch
