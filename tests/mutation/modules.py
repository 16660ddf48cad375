"""Which modules are mutated, and which fast tests judge each of them."""

from dataclasses import dataclass


def _named(folder: str, names: str) -> tuple[str, ...]:
    return tuple(f"{folder}/test_{name}.py" for name in names.split())


COORDINATOR = (
    "tests/unit/coordinator",
    *_named("tests/unit/groups", "offsets_grid offsets_rules"),
    *_named("tests/protocol", "rules clocks_and_listings"),
)
GROUPS = _named(
    "tests/unit/groups", "deleted_offsets group_offsets offsets_grid offsets_rules position_sizes"
)
TOPICS = _named(
    "tests/unit/log",
    "index_chunks index_units retention topic_appends topic_index topic_life topic_markers "
    "topic_memory topic_upkeep",
)
CLIENTS = (
    *_named(
        "tests/semantics",
        "coordinator_protocol delivery fenced_at_once groups half_messages idempotence isolation "
        "kafka_and_rocketmq tags topics_that_come_back transactions",
    ),
    *_named(
        "tests/unit/clients",
        "added_partitions admin_groups admin_topics auto_offset_reset blocked_reader "
        "changed_topics consumer_ends consumer_positions consumer_reading "
        "denied_appends first_commit flush_failures half_store handed_out "
        "idempotence isolation lost_journals maintenance_pass producer_send "
        "producer_states pruned_appends record_times retention_bounds subscription_patterns "
        "transaction_protocol transactions unanswered_commits unknown_outcomes vacuum_races",
    ),
)
"""Those of producers, consumers and the administration that take about a second or less."""
CHECKPOINTS = _named(
    "tests/unit/spark_plugin",
    "changed_options checkpoint checkpoint_files checkpoint_story checkpoint_story_details "
    "checkpoint_story_replays failed_commit foreach_commit lost_checkpoint offset_log "
    "query_progress refused_writers replay stream_reader",
)
READS = _named("tests/unit/spark_plugin", "data_loss planning read_plan read_task stream_reader")
S3 = _named(
    "tests/unit/storage",
    "byte_spans object_store obstore_failure open probe readback retry s3_answers s3_failure",
)


@dataclass(frozen=True)
class Mutated:
    """One module of the product and the tests that have to notice a change of it."""

    path: str
    """From the project's folder."""
    tests: tuple[str, ...]
    """Files or folders of tests; of these mutmut runs those that call the changed function."""


MODULES = {
    "coordinator-rules": Mutated("txlog/coordinator/rules.py", COORDINATOR),
    "coordinator-state": Mutated("txlog/coordinator/state.py", COORDINATOR),
    "coordinator-outcomes": Mutated("txlog/coordinator/outcomes.py", COORDINATOR),
    "coordinator": Mutated("txlog/coordinator/coordinator.py", (*COORDINATOR, *CLIENTS)),
    "recovery": Mutated("txlog/coordinator/recovery.py", (*COORDINATOR, *CLIENTS)),
    "topic-rules": Mutated("txlog/topic/rules.py", TOPICS),
    "topic-state": Mutated("txlog/topic/state.py", TOPICS),
    "groups-state": Mutated("txlog/groups/state.py", GROUPS),
    "groups": Mutated("txlog/groups/offsets.py", (*GROUPS, *COORDINATOR, *CLIENTS)),
    "boundary-trust": Mutated(
        "txlog/journal/boundaries/boundary_trust.py",
        _named("tests/unit/journal", "boundary boundary_trust trusted_checks"),
    ),
    "pruning": Mutated(
        "txlog/journal/boundaries/pruning.py",
        _named("tests/unit/journal", "prune pruning_dates pruning_grace"),
    ),
    "catalog-state": Mutated(
        "txlog/catalog/state.py",
        (
            "tests/unit/catalog/test_cluster_state.py",
            "tests/unit/catalog/test_cluster.py",
            *CLIENTS,
        ),
    ),
    "catalog": Mutated(
        "txlog/catalog/cluster.py",
        (
            "tests/unit/catalog/test_cluster_state.py",
            "tests/unit/catalog/test_cluster.py",
            *CLIENTS,
        ),
    ),
    "cluster-file": Mutated(
        "txlog/catalog/cluster_file.py",
        ("tests/unit/catalog/test_cluster.py", "tests/bad_input/test_every_field.py"),
    ),
    "cut": Mutated(
        "txlog/topic/read/cut.py",
        ("tests/unit/topic/read/test_cut.py", "tests/unit/topic/read/test_cut_chains.py"),
    ),
    "retention": Mutated(
        "txlog/topic/upkeep/retention.py", ("tests/unit/topic/upkeep/test_retention.py",)
    ),
    "sequence": Mutated("txlog/topic/sequence.py", ("tests/unit/topic/test_sequence.py",)),
    "index": Mutated(
        "txlog/topic/index/index.py",
        (*TOPICS, "tests/unit/topic/read/test_cut.py", "tests/unit/topic/upkeep/test_rewriting.py"),
    ),
    "index-units": Mutated(
        "txlog/topic/index/index_units.py",
        _named("tests/unit/log", "index_chunks index_units rewriting topic_index"),
    ),
    "offset-log": Mutated("spark_plugin/checkpoints/offset_log.py", CHECKPOINTS),
    "checkpoint": Mutated("spark_plugin/checkpoints/checkpoint.py", CHECKPOINTS),
    "checkpoint-story": Mutated("spark_plugin/checkpoints/checkpoint_story.py", CHECKPOINTS),
    "checkpoint-files": Mutated("spark_plugin/checkpoints/checkpoint_files.py", CHECKPOINTS),
    "replay": Mutated("spark_plugin/sink/replay.py", CHECKPOINTS),
    "read-plan": Mutated("spark_plugin/source/read_plan.py", READS),
    "planning": Mutated("spark_plugin/source/planning.py", READS),
    "local-store": Mutated(
        "txlog/storage/disk/local.py",
        (
            *_named(
                "tests/unit/storage", "byte_spans local local_files local_power_loss local_root"
            ),
            *_named("tests/unit/storage", "folder_turns open os_error probe size_limit"),
            "tests/conformance/test_local.py",
        ),
    ),
    "object-store": Mutated(
        "txlog/storage/object_stores/object_store.py",
        (*S3, "tests/conformance/test_simulated_s3.py"),
    ),
    "object-failure": Mutated("txlog/storage/object_stores/object_failure.py", S3),
    "obstore-failure": Mutated("txlog/storage/object_stores/obstore_failure.py", S3),
    "s3-failure": Mutated("txlog/storage/s3/s3_failure.py", S3),
}
"""By the name that `make mutants MODULES=...` takes. The tests of each take less than a minute."""
