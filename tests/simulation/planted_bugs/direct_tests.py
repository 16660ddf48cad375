"""The direct test of each planted bug, which must detect the bug without a simulation.

`make test-all` runs each of them with its bug planted, and it must fail.
"""

from collections.abc import Mapping

_BY_FILE: Mapping[str, Mapping[str, str]] = {
    "tests/protocol/test_clocks_and_listings.py": {
        "unlisted objects count as absent (I14)": "test_I14_log_works_without_list_permission",
    },
    "tests/protocol/test_deletion.py": {
        "entries deleted without a boundary (I12)": (
            "test_I12_pruning_deletes_entries_but_no_records"
        ),
    },
    "tests/protocol/test_rules.py": {
        "without R2, new run forgets the mark": (
            "test_R2_restored_checkpoint_cannot_commit_the_same_batch_with_other_offsets"
        ),
        "without R8, offsets applied before the topics": (
            "test_R8_offsets_are_applied_only_after_the_records_of_every_topic"
        ),
        "without R8, maintenance skips prepared transactions": (
            "test_R8_maintenance_finishes_a_prepared_transaction_without_pends"
        ),
    },
    "tests/semantics/test_coordinator_protocol.py": {
        "every commit is fenced": (
            "test_offsets_and_metadata_are_kept_by_group_topic_and_partition"
        ),
    },
    "tests/semantics/test_half_messages.py": {
        "check-backs that fail, and are only logged": (
            "test_check_runs_at_a_live_producer_of_the_same_group"
        ),
        "committed half message dead-lettered": (
            "test_check_runs_at_a_live_producer_of_the_same_group"
        ),
        "only the first message dead-lettered": "test_dead_letters_are_replayed_once",
    },
    "tests/semantics/test_retention.py": {
        "retention deletes incomplete transactions (I12)": (
            "test_I12_records_of_an_incomplete_transaction_cannot_be_deleted"
        ),
        "compaction that fails, and is only reported": ("test_without_a_limit_nothing_is_deleted"),
        "retention ignores the age (I12)": "test_without_a_limit_nothing_is_deleted",
    },
    "tests/unit/client/admin/test_admin_topics.py": {
        "without R15 for readers": "test_R15_topic_and_group_lists_are_current_after_pruning",
    },
    "tests/unit/client/test_denied_appends.py": {
        "sequences not checked (I7)": ("test_I7_record_in_doubt_keeps_its_sequence_after_denial"),
        "denied retry counts as not stored (I13)": (
            "test_R9_commit_is_refused_while_denied_append_is_in_doubt"
        ),
        "denied boundary read counts as no entry (I13)": (
            "test_R9_commit_is_refused_while_denied_append_is_in_doubt"
        ),
    },
    "tests/unit/client/consumer/test_isolation.py": {
        "aborted records not skipped (I3)": (
            "test_I3_open_aborted_and_committed_records_at_both_levels"
        ),
    },
    "tests/unit/client/test_moved_while_reading.py": {
        "without R19": "test_R19_reader_at_deleted_offset_raises_with_reset_none",
    },
    "tests/unit/engine/append/test_send_batch.py": {
        "without R9": "test_R9_table_with_unknown_outcome_is_stored_once",
    },
    "tests/unit/client/producer/test_transaction_protocol.py": {
        "timed-out transaction counts as aborted (I14)": (
            "test_offset_fetch_raises_while_offsets_are_pending"
        ),
    },
    "tests/unit/maintenance/test_vacuum.py": {
        "without R17, PREPARE_COMMIT not checked": (
            "test_R17_topic_created_below_the_horizon_is_writable_after_one_refusal"
        ),
        "vacuum without horizon (R17)": (
            "test_R17_append_of_a_deleted_segment_raises_segment_expired"
        ),
    },
    "tests/unit/coordinator/test_coordinator.py": {
        "no pend": "test_pend_that_cannot_be_resolved_does_not_block_others",
        "snapshot one entry short": "test_I4_commit_that_wins_against_a_timeout_is_completed",
        "abort accepted after the commit (I4)": (
            "test_I4_commit_that_wins_against_a_timeout_is_completed"
        ),
    },
    "tests/unit/coordinator/test_forgotten_outcomes.py": {
        "without R39": "test_R39_commit_with_a_forgotten_outcome_raises_outcome_unknown",
    },
    "tests/unit/coordinator/test_used_numbers.py": {
        "without R4": "test_R4_skipped_number_below_the_highest_is_refused",
    },
    "tests/unit/coordinator/test_coordinator_rules.py": {
        "no epoch check (I8)": "test_R3_later_epoch_bars_a_prepare_without_an_event",
        "without R3, unknown transaction not barred": (
            "test_R3_the_bar_holds_after_its_outcome_is_forgotten"
        ),
        "without R5, init does not wait for prepared transactions": (
            "test_R5_nothing_begins_before_the_prepared_transaction_is_complete"
        ),
        "without R7": "test_R7_the_floor_stays_below_every_other_open_transaction",
        "without R5, BEGIN does not wait for the prepared transaction": (
            "test_R5_nothing_begins_before_the_prepared_transaction_is_complete"
        ),
        "without R12": "test_R12_only_the_owner_of_a_group_can_declare_it",
        "without R12, owner checked at registration only": (
            "test_R12_only_the_owner_of_a_group_can_declare_it"
        ),
    },
    "tests/unit/groups/test_commit_together.py": {
        "repeat decided anew (R56)": (
            "test_R56_repeat_of_a_commit_stores_nothing_and_asks_nothing_again"
        ),
        "decision without its pends (R56)": (
            "test_R56_R11_refused_pend_or_condition_refuses_the_commit"
        ),
    },
    "tests/unit/groups/test_offsets_grid.py": {
        "start offsets not compared (I6)": "test_command_outcome_matches_the_grid",
        "pending offsets not checked (I6)": "test_command_outcome_matches_the_grid",
    },
    "tests/unit/coordinator/test_topic_deletion.py": {
        "without R54, topic closed without the coordinators": (
            "test_R54_every_coordinator_refuses_the_topic_before_it_is_closed"
        ),
    },
    "tests/unit/client/producer/test_staged_into_deleted_topics.py": {
        "without R40": "test_R40_a_commit_into_a_deleted_topic_decides_nothing",
        "without R54, topic closed before the markers": (
            "test_R54_deletion_finishes_in_the_topic_what_was_decided_before"
        ),
    },
    "tests/unit/groups/test_offsets_rules.py": {
        "without R6 in groups": ("test_R6_pend_is_applied_only_under_its_transaction_id"),
        "without R11, positions kept by topic name": (
            "test_R11_group_advances_to_the_next_incarnation_and_never_back"
        ),
    },
    "tests/unit/journal/boundaries/test_boundary.py": {
        "without R14, losing boundary trusted": (
            "test_R14_second_create_of_an_ordinal_changes_nothing"
        ),
    },
    "tests/unit/journal/replication/test_long_lags.py": {
        "snapshots that fail, and are only logged": (
            "test_R15_linearizable_read_reaches_the_tip_if_pruned_after_a_full_run"
        ),
    },
    "tests/unit/journal/replication/test_opening.py": {
        "without R16, hint trusted": (
            "test_R16_hint_to_a_snapshot_below_the_boundary_is_not_followed"
        ),
        "without R16, missing snapshot counts as damage": (
            "test_R16_journal_opens_without_hinted_snapshot"
        ),
    },
    "tests/unit/journal/boundaries/test_prune.py": {
        "without R15 for writers": (
            "test_R15_command_after_a_freed_slot_is_not_refused_on_the_snapshots_state"
        ),
        "old decision published in a later slot (I2)": (
            "test_R15_command_after_a_freed_slot_is_not_refused_on_the_snapshots_state"
        ),
        "without R14, boundary overwritten": "test_R14_concurrent_pruners_create_one_boundary",
        "without R14, boundary names an older snapshot": (
            "test_R14_concurrent_pruners_create_one_boundary"
        ),
        "without R16, boundary's snapshot deleted": (
            "test_R16_snapshot_of_the_newest_boundary_is_kept"
        ),
    },
    "tests/unit/journal/boundaries/test_pruning_grace.py": {
        "without R31, snapshot's boundary counts as checked": (
            "test_R14_entries_below_the_newest_old_enough_boundary_are_deleted"
        ),
        "without R14, grace ignored": (
            "test_R14_no_entry_is_deleted_before_the_boundary_is_old_enough"
        ),
    },
    "tests/unit/journal/boundaries/test_trusted_checks.py": {
        "without R15, check trusted for ever": (
            "test_R15_suspended_writer_does_not_believe_a_freed_slot"
        ),
        "without R15, trust by the wall clock alone": (
            "test_R15_suspended_writer_does_not_believe_a_freed_slot"
        ),
        "without R34, missing entry counts as damage at once": (
            "test_R34_hole_is_judged_by_a_check_sent_after_it_was_seen"
        ),
    },
    "tests/unit/catalog/test_boundary_settings.py": {
        "without R32": "test_R32_pruning_obeys_the_cluster_files_grace_on_a_near_store",
    },
    "tests/unit/topic/test_topic_log.py": {
        "entry published before its segments are stored": (
            "test_segment_is_stored_when_stage_returns"
        ),
    },
    "tests/unit/topic/read/test_cut.py": {
        "LSO ignored": "test_I11_sealed_transaction_behind_an_open_one_is_excluded",
        "no consistent cut": (
            "test_I11_cut_is_consistent_although_topics_are_read_at_different_times"
        ),
        "cut checks only each producer's last transaction": (
            "test_I11_cut_is_consistent_although_topics_are_read_at_different_times"
        ),
        "without R13, connected group split": (
            "test_R13_topics_sharing_a_limit_of_one_stay_within_it_and_both_advance"
        ),
        "without R13, limit ignored": (
            "test_R13_offsets_deleted_unread_do_not_count_towards_the_limit"
        ),
    },
    "tests/unit/topic/upkeep/test_newest_keys.py": {
        "compaction across partitions (I12)": (
            "test_I12_same_key_in_another_partition_does_not_supersede"
        ),
    },
    "tests/unit/topic/upkeep/test_rewriting.py": {
        "compaction by aborted records (I3)": (
            "test_I2_compaction_keeps_the_newest_record_of_each_key_at_its_offset"
        ),
        "compaction renumbers offsets (I2)": (
            "test_I2_compaction_keeps_the_newest_record_of_each_key_at_its_offset"
        ),
        "batches of several transactions merged (I9)": (
            "test_I11_merging_never_combines_batches_of_two_transactions"
        ),
        "tombstones removed at once": (
            "test_I2_compaction_keeps_the_newest_record_of_each_key_at_its_offset"
        ),
        "tombstones delete no records": (
            "test_I2_compaction_keeps_the_newest_record_of_each_key_at_its_offset"
        ),
    },
    "tests/unit/topic/test_topic_life.py": {
        "without R11, deleted topic accepts records": ("test_R11_deleted_topic_rejects_all_writes"),
        "without R17, append not checked": (
            "test_R17_a_segment_below_the_staging_horizon_is_refused"
        ),
    },
    "tests/unit/topic/test_topic_markers.py": {
        "marker by pid instead of TxId": (
            "test_R10_a_marker_of_another_number_leaves_an_open_transaction_open"
        ),
        "without R6 in topics": "test_R6_marker_of_an_earlier_transaction_is_ignored",
        "without R10, markers not recorded": (
            "test_R10_every_marker_is_recorded_whether_or_not_its_transaction_is_open"
        ),
        "without R10, late records accepted": (
            "test_R10_records_of_a_finished_transaction_are_refused"
        ),
    },
    "tests/unit/topic/test_topic_upkeep.py": {
        "without R11, producers retired at once": (
            "test_R11_a_retired_producer_is_refused_and_its_markers_have_no_effect"
        ),
        "retention above the last stable offset (I12)": (
            "test_I12_log_start_cannot_advance_past_an_open_transaction"
        ),
    },
    "tests/unit/spark_plugin/sink/test_batch_commit.py": {
        "replay detected by batch id alone": (
            "test_R2_batch_of_other_source_after_replanned_batch_is_refused"
        ),
        "no replay check": ("test_I5_I10_driver_crash_at_any_write_loses_and_duplicates_nothing"),
        "previous batch not compared (R2)": (
            "test_R2_batch_of_other_source_after_replanned_batch_is_refused"
        ),
        "without R3, pend released before the abort": (
            "test_R3_commit_waits_for_pend_of_dead_query_until_timeout"
        ),
        "without R27, replay fences the live run": (
            "test_I10_replay_of_committed_batch_writes_nothing_and_fences_no_run"
        ),
        "without R27, superseded run registers again": ("test_R27_superseded_run_stays_fenced"),
        "without R29": "test_R29_a_source_without_a_group_is_refused",
        "a sink that commits nothing": (
            "test_I5_I10_driver_crash_at_any_write_loses_and_duplicates_nothing"
        ),
    },
    "tests/unit/spark_plugin/sink/test_states_in_memory.py": {
        "epoch and mark not compared (R60)": (
            "test_R60_batch_without_a_group_that_another_run_has_committed_is_stored_once"
        ),
        "nothing compared (R60)": (
            "test_R60_group_moved_since_the_batch_before_is_refused_with_its_position"
        ),
    },
    "tests/unit/spark_plugin/checkpoints/test_checkpoint.py": {
        "without R1": "test_R1_batch_whose_offsets_file_is_missing_is_refused",
        "without R22": "test_R22_missing_checkpoint_location_option_is_refused",
        "without R24": "test_R24_the_checkpoint_of_another_query_is_refused",
    },
    "tests/unit/spark_plugin/sink/test_failed_commit.py": {
        "staged segments deleted after an unknown outcome (I13)": (
            "test_I13_R26_staged_segments_of_failed_commit_remain_for_the_retry"
        ),
        "without R26": "test_I13_R26_staged_segments_of_failed_commit_remain_for_the_retry",
    },
    "tests/unit/spark_plugin/sink/test_foreach_commit.py": {
        "without R30, no labels": ("test_R30_second_write_with_same_label_in_one_run_is_refused"),
        "without R30, label accepted twice in a run": (
            "test_R30_second_write_with_same_label_in_one_run_is_refused"
        ),
    },
    "tests/unit/spark_plugin/sink/test_lost_checkpoint.py": {
        "idle positions not committed (I10)": (
            "test_lost_checkpoint_repeats_no_record_of_idle_partition"
        ),
    },
    "tests/unit/spark_plugin/checkpoints/test_offset_log.py": {
        "without R21": "test_R21_line_lagging_behind_another_of_its_group_is_refused",
        "without R23": "test_R23_a_repeated_line_advances_nothing",
        "without R25": "test_R25_swapped_sources_are_refused",
    },
    "tests/unit/spark_plugin/sink/test_replay.py": {
        "without R2, other offsets accepted": (
            "test_R2_same_batch_id_with_another_fingerprint_is_refused"
        ),
    },
    "tests/unit/spark_plugin/source/test_stream_reader.py": {
        "without R12, source moves the group": (
            "test_I10_source_does_not_move_group_of_a_sink_to_end_of_replanned_batch"
        ),
        "without R20": "test_R20_replay_of_batch_0_keeps_planned_start_after_log_start_moved",
        "without R28": "test_R28_replay_is_planned_before_latest_offset_is_requested",
        "without R30, omitted batch counts as missing": (
            "test_R30_source_moves_group_past_batches_skipped_in_foreach_batch"
        ),
    },
    "tests/unit/storage/s3/test_s3_answers.py": {
        "no read-back": ("test_I1_create_resolves_a_412_by_reading_back"),
        "overwrite instead of create": ("test_I1_create_and_put_new_send_If_None_Match"),
    },
}

DIRECT_TESTS: Mapping[str, str] = {
    bug: f"{file}::{test}" for file, tests in _BY_FILE.items() for bug, test in tests.items()
}
"""Planted bug -> the test that detects it, in pytest's notation."""
