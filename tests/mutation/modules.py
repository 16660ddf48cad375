"""Which modules are mutated, and which fast tests judge each of them."""

from dataclasses import dataclass

CORE = ("tests/unit/log", "tests/unit/coordinator", "tests/unit/groups", "tests/unit/journal")


@dataclass(frozen=True)
class Mutated:
    """One module of the product and the tests that have to notice a change of it."""

    path: str
    """From the project's folder."""
    tests: tuple[str, ...]
    """Files or folders of tests; of these mutmut runs those that call the changed function."""


MODULES = {
    "coordinator-rules": Mutated("txlog/coordinator/rules.py", ("tests/unit/coordinator",)),
    "coordinator-state": Mutated("txlog/coordinator/state.py", ("tests/unit/coordinator",)),
    "coordinator-outcomes": Mutated("txlog/coordinator/outcomes.py", ("tests/unit/coordinator",)),
    "coordinator": Mutated("txlog/coordinator/coordinator.py", ("tests/unit/coordinator",)),
    "recovery": Mutated("txlog/coordinator/recovery.py", ("tests/unit/coordinator",)),
    "topic-rules": Mutated("txlog/log/topic_rules.py", ("tests/unit/log",)),
    "topic-state": Mutated("txlog/log/topic_state.py", ("tests/unit/log",)),
    "groups-state": Mutated("txlog/groups/offsets_state.py", ("tests/unit/groups",)),
    "groups": Mutated("txlog/groups/offsets.py", ("tests/unit/groups", "tests/unit/coordinator")),
    "catalog-state": Mutated("txlog/log/cluster_state.py", ("tests/unit/log",)),
    "catalog": Mutated("txlog/log/cluster.py", ("tests/unit/log",)),
    "cut": Mutated("txlog/log/cut.py", ("tests/unit/log/test_cut.py",)),
    "retention": Mutated("txlog/log/retention.py", ("tests/unit/log/test_retention.py",)),
    "sequence": Mutated("txlog/log/sequence.py", ("tests/unit/log/test_sequence.py",)),
    "index": Mutated("txlog/log/index.py", ("tests/unit/log",)),
    "index-units": Mutated("txlog/log/index_units.py", ("tests/unit/log",)),
    "offset-log": Mutated("spark_plugin/offset_log.py", ("tests/unit/spark_plugin",)),
    "checkpoint": Mutated("spark_plugin/checkpoint.py", ("tests/unit/spark_plugin",)),
    "checkpoint-story": Mutated("spark_plugin/checkpoint_story.py", ("tests/unit/spark_plugin",)),
    "checkpoint-files": Mutated("spark_plugin/checkpoint_files.py", ("tests/unit/spark_plugin",)),
    "replay": Mutated("spark_plugin/replay.py", ("tests/unit/spark_plugin",)),
    "read-plan": Mutated("spark_plugin/read_plan.py", ("tests/unit/spark_plugin",)),
    "planning": Mutated("spark_plugin/planning.py", ("tests/unit/spark_plugin",)),
    "local-store": Mutated(
        "txlog/storage/local.py", ("tests/unit/storage", "tests/conformance/test_local.py")
    ),
    "s3-store": Mutated(
        "txlog/storage/s3.py", ("tests/unit/storage", "tests/conformance/test_s3.py")
    ),
    "s3-failure": Mutated("txlog/storage/s3_failure.py", ("tests/unit/storage",)),
}
"""By the name that `make mutants MODULES=...` takes. The tests of each take less than a minute."""
