"""The modules that are mutated, and the fast tests that judge each of them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tests.source_tree import ROOT


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
TOPICS = (
    *_named(
        "tests/unit/topic",
        "index_chunks topic_appends topic_index topic_life topic_markers topic_memory topic_upkeep",
    ),
    *_named("tests/unit/topic/upkeep", "retention leaf_groups"),
)
CLIENTS = (
    *_named(
        "tests/semantics",
        "coordinator_protocol delivery groups half_messages idempotence isolation "
        "kafka_and_rocketmq tags topics_that_come_back transactions",
    ),
    *_named("tests/unit/client", "changed_topics denied_appends first_commit pruned_appends"),
    *_named("tests/unit/client/admin", "admin_groups admin_topics"),
    *_named(
        "tests/unit/client/consumer",
        "consumer_ends consumer_positions consumer_reading handed_out isolation "
        "subscription_patterns unanswered_commits",
    ),
    "tests/unit/client/half_messages/test_half_store.py",
    "tests/unit/client/positions/test_auto_offset_reset.py",
    *_named(
        "tests/unit/client/producer",
        "added_partitions idempotence producer_send producer_states transaction_protocol "
        "transactions",
    ),
    "tests/unit/engine/test_blocked_reader.py",
    "tests/unit/engine/append/test_flush_failures.py",
    "tests/unit/topic/write/test_record_preparation.py",
    *_named(
        "tests/unit/maintenance",
        "expiry lost_journals maintenance_pass unknown_outcomes vacuum_races",
    ),
)
"""Tests of producers, consumers and the administration that take about a second or less."""
CHECKPOINTS = (
    *_named(
        "tests/unit/spark_plugin/checkpoints",
        "checkpoint checkpoint_files checkpoint_comparison checkpoint_comparison_details "
        "checkpoint_comparison_replays offset_log query_progress",
    ),
    *_named(
        "tests/unit/spark_plugin/sink",
        "changed_options failed_commit foreach_commit lost_checkpoint refused_writers replay",
    ),
    "tests/unit/spark_plugin/source/test_stream_reader.py",
)
READS = _named(
    "tests/unit/spark_plugin/source", "data_loss planning read_plan read_task stream_reader"
)
S3 = (
    *_named("tests/unit/storage", "open"),
    *_named("tests/unit/storage/object_stores", "byte_ranges object_store obstore_failure"),
    *_named("tests/unit/storage/policy", "probe readback retry"),
    *_named("tests/unit/storage/s3", "s3_answers s3_failure"),
)


@dataclass(frozen=True)
class Mutated:
    """One module of the product and the tests that must detect a change of it."""

    path: str
    """Relative to the project's folder."""
    tests: tuple[str, ...]
    """Files or folders of tests; mutmut runs those of them that call the changed function."""
    aim: float = 0.95
    """The share of the mutants that the tests must kill."""


PROTOCOL = {
    "coordinator-rules": Mutated("txlog/coordinator/rules.py", COORDINATOR),
    "coordinator-state": Mutated("txlog/coordinator/state.py", COORDINATOR),
    "coordinator-outcomes": Mutated("txlog/coordinator/outcomes.py", COORDINATOR),
    "coordinator": Mutated("txlog/coordinator/coordinator.py", (*COORDINATOR, *CLIENTS)),
    "topic-rules": Mutated("txlog/topic/rules.py", TOPICS),
    "topic-producers": Mutated(
        "txlog/topic/producer_state.py",
        (*TOPICS, *_named("tests/unit/topic", "number_ranges sequence")),
    ),
    "topic-state": Mutated("txlog/topic/state.py", TOPICS),
    "groups-state": Mutated("txlog/groups/state.py", GROUPS),
    "groups": Mutated("txlog/groups/offsets.py", (*GROUPS, *COORDINATOR, *CLIENTS)),
    "boundary": Mutated(
        "txlog/journal/boundaries/boundary.py",
        _named(
            "tests/unit/journal/boundaries",
            "boundary boundary_checks trusted_checks prune pruned_objects pruning_dates "
            "pruning_grace",
        ),
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
            *_named(
                "tests/unit/catalog",
                "boundary_settings cluster cluster_state task_metadata opened_log",
            ),
            *CLIENTS,
        ),
    ),
    "cluster-file": Mutated(
        "txlog/catalog/cluster_file.py",
        (
            *_named("tests/unit/catalog", "boundary_settings cluster"),
            *_named("tests/unit/maintenance", "lost_journals"),
            "tests/bad_input/test_every_field.py",
        ),
    ),
    "cut": Mutated(
        "txlog/topic/read/cut.py",
        ("tests/unit/topic/read/test_cut.py", "tests/unit/topic/read/test_cut_chains.py"),
    ),
    "retention": Mutated(
        "txlog/topic/upkeep/retention.py", ("tests/unit/topic/upkeep/test_retention.py",)
    ),
    "index": Mutated(
        "txlog/topic/batch_index.py",
        (*TOPICS, "tests/unit/topic/read/test_cut.py", "tests/unit/topic/upkeep/test_rewriting.py"),
    ),
    "index-groups": Mutated(
        "txlog/topic/upkeep/leaf_groups.py",
        (
            *_named("tests/unit/topic", "index_chunks topic_index"),
            *_named("tests/unit/topic/upkeep", "rewriting leaf_groups"),
        ),
    ),
    "offset-log": Mutated("spark_plugin/checkpoints/offset_log.py", CHECKPOINTS),
    "checkpoint": Mutated("spark_plugin/checkpoints/checkpoint.py", CHECKPOINTS),
    "checkpoint-comparison": Mutated(
        "spark_plugin/checkpoints/checkpoint_comparison.py", CHECKPOINTS
    ),
    "replay": Mutated("spark_plugin/sink/replay.py", CHECKPOINTS),
    "read-plan": Mutated("spark_plugin/source/read_plan.py", READS),
    "local-store": Mutated(
        "txlog/storage/disk/local.py",
        (
            *_named(
                "tests/unit/storage/disk",
                "folder_lock local local_files local_power_loss local_root os_error",
            ),
            *_named("tests/unit/storage", "open object_rules size_limit"),
            "tests/unit/storage/policy/test_probe.py",
            "tests/conformance/test_local.py",
        ),
    ),
    "object-store": Mutated(
        "txlog/storage/object_stores/object_store.py",
        (*S3, "tests/conformance/test_simulated_s3.py"),
    ),
    "object-failure": Mutated("txlog/storage/object_stores/object_client.py", S3),
    "obstore-failure": Mutated("txlog/storage/object_stores/obstore_failure.py", S3),
    "s3-failure": Mutated("txlog/storage/s3/s3_failure.py", S3),
}
"""The rules of the protocol and the stores, by short names; docs/dev/mutation.md lists them."""

CLI = (
    "tests/unit/cli/input",
    "tests/unit/cli/output",
    *_named("tests/unit/cli/commands", "consume consume_forms export group produce topic txn"),
    *_named("tests/unit/cli", "exit_codes json_output types_and_formats"),
)
FOLDERS = {
    "spark_plugin": ("tests/unit/spark_plugin",),
    "txlog/storage": (
        *_named(
            "tests/unit/storage",
            "fsspec_client fsspec_store limits_of_names memory object_rules open root_url",
        ),
        "tests/unit/storage/test_size_limit.py",
        "tests/unit/storage/policy/test_store_wrapper.py",
        *_named("tests/conformance", "generic memory"),
    ),
    "txlog/client": (
        "tests/unit/client",
        *_named(
            "tests/unit/cli/commands", "dlq export group group_offsets topic txn txn_producers"
        ),
        *CLIENTS,
    ),
    "txlog/engine": (
        "tests/unit/engine",
        "tests/unit/client/producer",
        "tests/unit/client/consumer/test_client_config.py",
        "tests/bad_input/test_places.py",
        *CLIENTS,
    ),
    "txlog/topic/upkeep": (
        "tests/unit/topic/upkeep",
        "tests/unit/topic/test_topic_upkeep.py",
        "tests/unit/maintenance/test_steps_of_a_pass.py",
    ),
    "txlog/topic/write": (
        "tests/unit/topic/write",
        "tests/unit/topic/records/test_segment.py",
        *_named("tests/unit/engine/append", "buffered_bytes send_batch"),
        "tests/unit/client/producer/test_producer_send.py",
        "tests/unit/spark_plugin/sink/test_staging.py",
    ),
    "txlog/verify": ("tests/unit/verify",),
    "txlog/maintenance": _named(
        "tests/unit/maintenance",
        "expiry forged_states lost_journals maintenance_pass steps_of_a_pass vacuum vacuum_races",
    ),
    "txlog/cli/output": CLI,
    "txlog/cli/input": CLI,
}
"""Folder -> tests that judge each module below it. Modules are named after their paths."""

VALUES = (
    *_named("tests/unit/engine", "as_of journal_history kafka_names producer_config times"),
    "tests/unit/client/consumer/test_client_config.py",
)
SESSIONS = (
    *_named(
        "tests/unit/engine", "commit_returns sessions transaction_completion transaction_session"
    ),
    *_named(
        "tests/unit/client/producer",
        "staged_into_deleted_topics staged_transactions transaction_protocol transactions",
    ),
    "tests/unit/client/test_first_commit.py",
    "tests/unit/client/half_messages/test_half_store.py",
)
ENTRIES = (
    "arrow_schema connections datasource foreign_options listener option_values options "
    "python_worker"
)
"""The modules of `spark_plugin` itself, and their tests."""
NEARER = {
    "txlog/storage/disk": ("tests/unit/storage/disk", "tests/conformance/test_local.py"),
    "txlog/storage/object_stores": (
        "tests/unit/storage/object_stores",
        *_named("tests/unit/storage/s3", "s3_answers s3_clients"),
    ),
    "txlog/storage/policy": ("tests/unit/storage/policy",),
    "txlog/storage/s3": ("tests/unit/storage/s3", "tests/unit/storage/test_open.py"),
    "txlog/engine/append": (
        "tests/unit/engine/append",
        *_named(
            "tests/unit/client/producer",
            "idempotence producer_send record_futures staged_transactions",
        ),
        *_named("tests/unit/client", "denied_appends pruned_appends"),
    ),
    **dict.fromkeys(
        (
            f"txlog/engine/{name}.py"
            for name in ("as_of", "journal_history", "producer_config", "times")
        ),
        VALUES,
    ),
    "txlog/engine/blocked_reader.py": ("tests/unit/engine/test_blocked_reader.py",),
    "txlog/engine/connection.py": (
        *_named("tests/unit/engine", "connection log_gone opened_logs"),
        "tests/bad_input/test_places.py",
    ),
    "txlog/engine/new_topic.py": (
        "tests/unit/engine/test_new_topic.py",
        "tests/unit/client/admin/test_admin_topics.py",
    ),
    "txlog/engine/transaction_completion.py": SESSIONS,
    "txlog/engine/transaction_session.py": SESSIONS,
    "txlog/client/admin": (
        "tests/unit/client/admin",
        *_named("tests/unit/client", "html_table lagging_process"),
        *_named("tests/unit/cli/commands", "group group_offsets topic txn txn_producers"),
        "tests/semantics/test_topics_that_come_back.py",
    ),
    "txlog/client/html_table.py": ("tests/unit/client/test_html_table.py",),
    "txlog/client/consumer": (
        "tests/unit/client/consumer",
        "tests/unit/client/positions",
        *_named("tests/unit/client", "lagging_process moved_while_reading waiting_partitions"),
        *_named("tests/semantics", "groups isolation topics_that_come_back"),
    ),
    "txlog/client/half_messages": (
        "tests/unit/client/half_messages",
        "tests/unit/client/test_lagging_process.py",
        *_named("tests/semantics", "half_messages tags topics_that_come_back"),
    ),
    "txlog/client/positions": (
        "tests/unit/client/positions",
        "tests/unit/client/test_lagging_process.py",
        *_named("tests/unit/client/consumer", "client_config consumer_positions"),
    ),
    "txlog/client/producer": (
        "tests/unit/client/producer",
        *_named("tests/unit/client", "changed_topics denied_appends first_commit pruned_appends"),
        *_named("tests/unit/client/consumer", "client_config refused_in_transactions"),
        *_named("tests/semantics", "idempotence topics_that_come_back transactions"),
    ),
    "txlog/cli/output/chart.py": (
        "tests/unit/cli/output/test_chart.py",
        "tests/unit/cli/commands/test_group_lag.py",
    ),
    **{
        f"spark_plugin/{part}": (f"tests/unit/spark_plugin/{part}",)
        for part in ("checkpoints", "deployment", "drill", "source")
    },
    **{
        f"spark_plugin/{name}.py": _named("tests/unit/spark_plugin", ENTRIES)
        for name in ENTRIES.split()
    },
}
"""A part of these folders -> the tests of this part. They take much less time than all tests of the
folder, and a mutant that only farther tests detect has no direct test yet."""


IN_SPARK = (
    "spark_plugin/archive.py",
    "spark_plugin/checkpoints/hadoop_files.py",
    "spark_plugin/deployment/check_job.py",
    "spark_plugin/drill/numbers_job.py",
    "spark_plugin/drill/startup/sitecustomize.py",
)
"""Modules that run only in a session of Spark, or in a process that a test starts: no fast test
calls their functions in its own process. tests/spark, tests/cluster and the drills test them."""


def _nearest(path: str, tests: tuple[str, ...]) -> tuple[str, ...]:
    places = [place for place in NEARER if f"{path}/".startswith(f"{place}/")]
    return NEARER[max(places, key=len)] if places else tests


def _in_folders() -> Iterator[tuple[str, Mutated]]:
    known = {module.path for module in PROTOCOL.values()}
    for folder, tests in FOLDERS.items():
        for file in sorted((ROOT / folder).rglob("*.py")):
            path = file.relative_to(ROOT)
            if path.name != "__init__.py" and str(path) not in {*known, *IN_SPARK}:
                name = str(path.with_suffix("")).replace("/", ".")
                yield name, Mutated(str(path), _nearest(str(path), tests), 0.9)


MODULES = {**PROTOCOL, **dict(_in_folders())}
"""By the name that `make mutants MODULES=...` takes."""


def grouped(names: Iterable[str]) -> list[list[str]]:
    """Divide modules into groups that the same tests judge; each test is measured once a group."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        groups.setdefault(MODULES[name].tests, []).append(name)
    return list(groups.values())
