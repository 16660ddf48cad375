"""The direct test of each planted bug, which must detect the bug without a simulation.

`make test-all` runs each of them with its bug planted, and it must fail.
"""

from collections.abc import Mapping

_BY_FILE: Mapping[str, Mapping[str, str]] = {
    "tests/protocol/test_clocks_and_listings.py": {
        "what a listing lacks is not there (I14)": "test_I14_a_log_lives_without_any_listing",
    },
    "tests/protocol/test_deletion.py": {
        "collection without a boundary (I12)": (
            "test_I12_pruning_takes_entries_and_never_a_record"
        ),
    },
    "tests/protocol/test_rules.py": {
        "without R2, forgotten": (
            "test_R2_a_restored_checkpoint_cannot_commit_the_same_batch_with_other_offsets"
        ),
        "without R8, offsets first": ("test_R8_offsets_show_only_after_the_records_of_every_topic"),
        "without R8, never finished": (
            "test_R8_a_maintenance_pass_finds_what_is_prepared_without_any_pend"
        ),
    },
    "tests/protocol/test_segment_references.py": {
        "without R18": (
            "test_R18_a_segment_that_moves_from_its_coordinator_to_its_topic_is_never_missed"
        ),
    },
    "tests/semantics/test_coordinator_protocol.py": {
        "fenced for nothing": "test_offsets_are_kept_by_group_topic_and_partition_with_a_note",
    },
    "tests/semantics/test_half_messages.py": {
        "check-backs that fail, and are only logged": (
            "test_a_check_asks_some_live_producer_of_the_same_group"
        ),
        "dead letters of what is committed": (
            "test_a_check_asks_some_live_producer_of_the_same_group"
        ),
        "dead letters that are lost": "test_dead_letters_are_replayed_once",
    },
    "tests/semantics/test_retention.py": {
        "retention of what is not complete everywhere (I12)": (
            "test_I12_what_is_decided_and_not_complete_is_kept_too"
        ),
        "compaction that fails, and is only reported": ("test_without_a_limit_nothing_is_deleted"),
        "retention without age (I12)": "test_without_a_limit_nothing_is_deleted",
    },
    "tests/unit/client/admin/test_admin_topics.py": {
        "without R15 for readers": "test_R15_lists_are_of_now_also_after_journals_were_pruned",
    },
    "tests/unit/client/test_denied_appends.py": {
        "sequences not checked (I7)": (
            "test_I7_a_record_that_may_be_stored_keeps_its_sequence_when_the_store_denies"
        ),
        "denied, and taken for not stored (I13)": (
            "test_R9_a_transaction_waits_for_what_may_be_stored_when_the_store_denies"
        ),
        "denied behind the entry (I13)": (
            "test_R9_a_transaction_waits_for_what_may_be_stored_when_the_store_denies"
        ),
    },
    "tests/unit/client/consumer/test_isolation.py": {
        "aborted records are shown (I3)": (
            "test_I3_open_aborted_and_committed_records_at_both_levels"
        ),
    },
    "tests/unit/client/test_moved_while_reading.py": {
        "without R19": "test_R19_a_reader_whose_position_was_deleted_is_told",
    },
    "tests/unit/engine/append/test_send_batch.py": {
        "without R9": "test_R9_a_table_whose_outcome_is_unknown_is_stored_once",
    },
    "tests/unit/client/producer/test_transaction_protocol.py": {
        "what is late is over (I14)": (
            "test_an_offset_fetch_errs_while_the_group_has_a_pending_transaction"
        ),
    },
    "tests/unit/maintenance/test_vacuum.py": {
        "without R17, a PREPARE_COMMIT": (
            "test_R17_nor_does_it_keep_anybody_from_a_topic_that_is_created_afterwards"
        ),
        "vacuum without horizon (R17)": (
            "test_R17_a_slow_task_loses_its_work_and_never_commits_what_is_gone"
        ),
    },
    "tests/unit/coordinator/test_coordinator.py": {
        "no pend": "test_a_pend_that_cannot_be_ended_keeps_no_other_from_its_end",
        "snapshot one entry short": "test_I4_a_commit_that_wins_against_a_timeout_is_finished",
        "an abort after the commit (I4)": (
            "test_I4_a_commit_that_wins_against_a_timeout_is_finished"
        ),
    },
    "tests/unit/coordinator/test_forgotten_outcomes.py": {
        "without R39": "test_R39_a_commit_whose_outcome_is_forgotten_is_not_called_aborted",
    },
    "tests/unit/coordinator/test_used_numbers.py": {
        "without R4": "test_R4_a_number_that_was_left_out_is_never_used",
    },
    "tests/unit/coordinator/test_coordinator_rules.py": {
        "no epoch check (I8)": "test_R3_a_later_epoch_bars_without_a_word",
        "without R3, no bar": "test_R3_the_bar_holds_after_its_outcome_is_forgotten",
        "without R5, before init": ("test_R5_nothing_begins_before_what_was_prepared_is_complete"),
        "without R7": "test_R7_the_floor_stays_below_every_other_open_transaction",
        "without R5, before begin": ("test_R5_nothing_begins_before_what_was_prepared_is_complete"),
        "without R12": "test_R12_a_group_is_not_declared_by_a_stranger",
        "without R12, asked at the registration only": (
            "test_R12_a_group_is_not_declared_by_a_stranger"
        ),
    },
    "tests/unit/groups/test_offsets_grid.py": {
        "offsets compare skipped (I6)": "test_the_outcome_is_the_one_in_the_grid",
        "pending offsets not looked at (I6)": "test_the_outcome_is_the_one_in_the_grid",
    },
    "tests/unit/groups/test_offsets_rules.py": {
        "without R6 in groups": ("test_R6_a_pend_is_applied_under_the_transaction_that_it_bears"),
        "without R11, positions by name": (
            "test_R11_a_group_goes_on_from_one_topic_of_a_name_to_the_next_and_never_back"
        ),
    },
    "tests/unit/journal/boundaries/test_boundary.py": {
        "without R14, believed": "test_R14_the_second_to_create_an_ordinal_changes_nothing",
    },
    "tests/unit/journal/replication/test_long_lags.py": {
        "without R16, a hint is believed": "test_a_run_is_full_by_its_bytes_too",
        "snapshots that fail, and are only logged": (
            "test_R15_an_absence_after_a_full_run_is_certain_if_it_must_be"
        ),
    },
    "tests/unit/journal/replication/test_opening.py": {
        "without R16, a snapshot that vanished": "test_R16_a_hinted_snapshot_may_be_gone",
    },
    "tests/unit/journal/boundaries/test_prune.py": {
        "without R15 for writers": ("test_R15_a_refusal_after_a_freed_slot_is_decided_on_the_tip"),
        "decided before the slot is known (I2)": (
            "test_R15_a_refusal_after_a_freed_slot_is_decided_on_the_tip"
        ),
        "without R14, overwritten": "test_R14_two_pruners_at_once_make_one_boundary",
        "without R14, another snapshot": "test_R14_two_pruners_at_once_make_one_boundary",
        "without R16, deleted early": (
            "test_R16_the_boundarys_snapshot_stays_as_long_as_the_boundary"
        ),
    },
    "tests/unit/journal/boundaries/test_pruning_grace.py": {
        "without R14, whatever its age": (
            "test_R14_nothing_goes_before_the_boundary_is_old_enough"
        ),
    },
    "tests/unit/journal/boundaries/test_trusted_checks.py": {
        "without R15, trusted for ever": (
            "test_R15_a_writer_that_stood_still_does_not_believe_a_freed_slot"
        ),
        "without R15, by the wall clock alone": (
            "test_R15_a_writer_that_stood_still_does_not_believe_a_freed_slot"
        ),
        "without R31, a snapshot's boundary": (
            "test_R31_what_a_snapshot_says_of_the_boundary_is_no_check"
        ),
        "without R34, a hole": (
            "test_R34_a_hole_is_judged_by_a_check_that_is_sent_after_it_was_seen"
        ),
    },
    "tests/unit/catalog/test_boundary_settings.py": {
        "without R32": "test_R32_deletion_obeys_the_grace_of_the_file_on_any_store",
    },
    "tests/unit/topic/test_topic_log.py": {
        "commit entry before the segments": (
            "test_a_segment_is_stored_before_an_entry_can_name_it"
        ),
    },
    "tests/unit/topic/read/test_cut.py": {
        "LSO ignored": "test_I11_also_where_its_other_part_is_sealed_by_now",
        "no consistent cut": (
            "test_I11_a_cut_is_consistent_although_topics_are_looked_at_one_after_the_other"
        ),
        "a cut of several moments": (
            "test_I11_a_cut_is_consistent_although_topics_are_looked_at_one_after_the_other"
        ),
        "without R13, one transaction": ("test_R13_topics_that_share_a_small_limit_stay_within_it"),
        "without R13, the limit": (
            "test_R13_what_was_deleted_unread_is_passed_over_whatever_the_limit"
        ),
    },
    "tests/unit/topic/upkeep/test_newest_keys.py": {
        "compaction across partitions (I12)": (
            "test_I12_a_key_of_another_partition_supersedes_nothing"
        ),
    },
    "tests/unit/topic/upkeep/test_rewriting.py": {
        "compaction by aborted records (I3)": (
            "test_I2_compaction_keeps_the_newest_record_of_each_key_at_its_offset"
        ),
        "offsets close together after compaction (I2)": (
            "test_I2_compaction_keeps_the_newest_record_of_each_key_at_its_offset"
        ),
        "merging of several transactions (I9)": (
            "test_I11_records_of_two_transactions_are_never_stored_as_one"
        ),
        "tombstones that go at once": (
            "test_I2_compaction_keeps_the_newest_record_of_each_key_at_its_offset"
        ),
        "tombstones that hide nothing": (
            "test_I2_compaction_keeps_the_newest_record_of_each_key_at_its_offset"
        ),
    },
    "tests/unit/topic/test_topic_life.py": {
        "without R11, a deleted topic takes records": (
            "test_R11_nothing_lands_in_a_topic_that_was_deleted"
        ),
        "without R17, an append": "test_R17_a_segment_below_the_staging_horizon_is_refused",
    },
    "tests/unit/topic/test_topic_markers.py": {
        "marker by pid instead of TxId": (
            "test_R10_a_marker_of_another_number_leaves_an_open_transaction_open"
        ),
        "without R6 in topics": "test_R6_a_marker_of_an_earlier_transaction_comes_too_late",
        "without R10, markers not recorded": (
            "test_R10_every_marker_is_recorded_whether_or_not_anything_is_open"
        ),
        "without R10, late records": "test_R10_records_of_a_finished_transaction_are_refused",
    },
    "tests/unit/topic/test_topic_upkeep.py": {
        "without R11, producers retired at once": (
            "test_R11_a_retired_producer_is_refused_and_its_markers_have_no_effect"
        ),
        "retention above the last stable offset (I12)": (
            "test_I12_no_log_start_rises_above_an_open_transaction"
        ),
    },
    "tests/unit/spark_plugin/sink/test_batch_commit.py": {
        "replay test by batch id alone": (
            "test_R2_a_batch_of_another_source_that_follows_another_plan_is_refused"
        ),
        "no replay test": ("test_I5_I10_a_driver_that_dies_at_any_write_loses_and_doubles_nothing"),
        "the batch before not compared (R2)": (
            "test_R2_a_batch_of_another_source_that_follows_another_plan_is_refused"
        ),
        "without R3, released before the abort": (
            "test_R3_the_pend_of_a_query_that_died_is_waited_for_until_it_times_out"
        ),
        "without R27, fenced by replays": (
            "test_I10_a_batch_that_is_in_changes_nothing_and_fences_nobody"
        ),
        "without R27, back again": "test_R27_a_run_that_was_superseded_may_not_come_back",
        "without R29": "test_R29_a_source_without_a_group_is_refused",
        "a sink that commits nothing": (
            "test_I5_I10_a_driver_that_dies_at_any_write_loses_and_doubles_nothing"
        ),
    },
    "tests/unit/spark_plugin/checkpoints/test_checkpoint.py": {
        "without R1": "test_R1_a_batch_whose_file_is_gone_is_refused",
        "without R22": "test_R22_without_the_querys_own_option_the_checkpoint_is_refused",
        "without R24": "test_R24_the_checkpoint_of_another_query_is_refused",
    },
    "tests/unit/spark_plugin/sink/test_failed_commit.py": {
        "cleaned up after an unknown outcome (I13)": (
            "test_I13_R26_what_a_failed_commit_staged_stays_for_the_next_attempt"
        ),
        "without R26": "test_I13_R26_what_a_failed_commit_staged_stays_for_the_next_attempt",
    },
    "tests/unit/spark_plugin/sink/test_foreach_commit.py": {
        "without R30, no labels": ("test_R30_a_second_write_of_one_run_under_one_label_is_refused"),
        "without R30, twice in a run": (
            "test_R30_a_second_write_of_one_run_under_one_label_is_refused"
        ),
    },
    "tests/unit/spark_plugin/sink/test_lost_checkpoint.py": {
        "only what a batch moves committed (I10)": (
            "test_a_lost_checkpoint_repeats_no_record_of_a_partition_that_was_idle"
        ),
    },
    "tests/unit/spark_plugin/checkpoints/test_offset_log.py": {
        "without R21": "test_R21_a_line_that_stays_behind_in_its_group_is_refused",
        "without R23": "test_R23_a_repeated_line_advances_nothing",
        "without R25": "test_R25_swapped_sources_are_noticed",
    },
    "tests/unit/spark_plugin/sink/test_replay.py": {
        "without R2, other offsets": (
            "test_R2_the_same_number_with_another_watermark_is_another_batch"
        ),
    },
    "tests/unit/spark_plugin/source/test_stream_reader.py": {
        "without R12, moved by the source": (
            "test_I10_a_sinks_group_does_not_follow_a_checkpoint_that_notes_another_batch_as_done"
        ),
        "without R20": "test_R20_the_replay_of_batch_0_begins_where_it_was_planned_to",
        "without R28": "test_R28_a_replay_is_planned_before_a_new_end_is_asked_for",
        "without R30, nothing left out": (
            "test_R30_the_group_of_a_write_that_may_leave_batches_out_follows_over_them"
        ),
    },
    "tests/unit/storage/s3/test_s3_answers.py": {
        "no read-back": ("test_I1_a_412_without_its_condition_is_a_conflict_perhaps_with_oneself"),
        "overwrite instead of create": (
            "test_I1_every_create_and_every_segment_bears_the_condition"
        ),
    },
}

DIRECT_TESTS: Mapping[str, str] = {
    bug: f"{file}::{test}" for file, tests in _BY_FILE.items() for bug, test in tests.items()
}
"""Planted bug -> the test that detects it, in pytest's notation."""
