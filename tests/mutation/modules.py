"""Which modules are mutated, and which fast tests judge each of them."""

from dataclasses import dataclass

COORDINATOR = (
    "tests/unit/coordinator",
    "tests/unit/groups/test_offsets_grid.py",
    "tests/unit/groups/test_offsets_rules.py",
    *("tests/protocol/test_rules.py", "tests/protocol/test_clocks_and_listings.py"),
)
TOPICS = (
    *("tests/unit/log/test_index_chunks.py", "tests/unit/log/test_index_units.py"),
    *("tests/unit/log/test_topic_appends.py", "tests/unit/log/test_topic_index.py"),
    *("tests/unit/log/test_topic_life.py", "tests/unit/log/test_topic_markers.py"),
    *("tests/unit/log/test_topic_upkeep.py", "tests/unit/log/test_topic_memory.py"),
    "tests/unit/log/test_retention.py",
)
CLIENTS = (
    "tests/semantics",
    *(
        f"tests/unit/clients/test_{name}.py"
        for name in (
            *("added_partitions", "admin_groups", "admin_topics", "auto_offset_reset"),
            *("blocked_reader", "changed_topics", "connection", "consumer_ends"),
            *("consumer_positions", "consumer_reading", "denied_appends", "first_commit"),
            *("flush_failures", "given_positions", "half_store", "handed_out", "idempotence"),
            *("isolation", "lost_journals", "maintenance_pass", "moved_while_reading"),
            *("producer_send", "producer_states", "pruned_appends", "record_times"),
            *("retention_bounds", "subscription_patterns", "transaction_protocol"),
            *("transactions", "unanswered_commits", "unknown_outcomes", "vacuum_races"),
        )
    ),
)
"""Those of producers, consumers and the administration that take about a second or less."""


@dataclass(frozen=True)
class Mutated:
    """One module of the product and the tests that have to notice a change of it."""

    path: str
    """From the project's folder."""
    tests: tuple[str, ...]
    """Files or folders of tests; of these mutmut runs those that call the changed function."""


MODULES = {
    "coordinator-rules": Mutated("txlog/coordinator/rules.py", (*COORDINATOR, *CLIENTS)),
    "coordinator-state": Mutated("txlog/coordinator/state.py", (*COORDINATOR, *CLIENTS)),
    "coordinator-outcomes": Mutated("txlog/coordinator/outcomes.py", (*COORDINATOR, *CLIENTS)),
    "coordinator": Mutated("txlog/coordinator/coordinator.py", (*COORDINATOR, *CLIENTS)),
    "recovery": Mutated("txlog/coordinator/recovery.py", (*COORDINATOR, *CLIENTS)),
    "topic-rules": Mutated("txlog/log/topic_rules.py", (*TOPICS, *CLIENTS)),
    "topic-state": Mutated("txlog/log/topic_state.py", (*TOPICS, *CLIENTS)),
    "groups-state": Mutated("txlog/groups/offsets_state.py", ("tests/unit/groups", *CLIENTS)),
    "groups": Mutated("txlog/groups/offsets.py", ("tests/unit/groups", *COORDINATOR, *CLIENTS)),
    "catalog-state": Mutated(
        "txlog/log/cluster_state.py",
        ("tests/unit/log/test_cluster_state.py", "tests/unit/log/test_cluster.py", *CLIENTS),
    ),
    "catalog": Mutated(
        "txlog/log/cluster.py",
        ("tests/unit/log/test_cluster_state.py", "tests/unit/log/test_cluster.py", *CLIENTS),
    ),
    "cut": Mutated(
        "txlog/log/cut.py", ("tests/unit/log/test_cut.py", "tests/unit/log/test_cut_chains.py")
    ),
    "retention": Mutated("txlog/log/retention.py", ("tests/unit/log/test_retention.py",)),
    "sequence": Mutated("txlog/log/sequence.py", ("tests/unit/log/test_sequence.py",)),
    "index": Mutated(
        "txlog/log/index.py",
        (*TOPICS, "tests/unit/log/test_cut.py", "tests/unit/log/test_rewriting.py"),
    ),
    "index-units": Mutated(
        "txlog/log/index_units.py",
        (*TOPICS, "tests/unit/log/test_cut.py", "tests/unit/log/test_rewriting.py"),
    ),
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
        "txlog/storage/s3.py",
        ("tests/unit/storage", "tests/conformance/test_simulated_s3.py"),
    ),
    "s3-failure": Mutated("txlog/storage/s3_failure.py", ("tests/unit/storage",)),
}
"""By the name that `make mutants MODULES=...` takes. The tests of each take less than a minute."""
