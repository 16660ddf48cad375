"""The functions with which the stages of a path begin; docs/dev/calls.md says why each is needed.

A call belongs to the stage of the innermost function around it that is named here.
"""

OTHERS = "the client, between the stages"

_LOCAL = "txlog/storage/disk/local.py LocalStore"
_ROOT = "txlog/storage/disk/root_folder.py RootFolder"
_REPLICA = "txlog/journal/replication/replica.py Replica"
_SESSION = "txlog/engine/transaction_session.py TransactionSession"
_STATES = "txlog/client/producer/producer_states.py"
_SENDER = "txlog/client/producer/sender.py Sender"
_STAGED = "txlog/client/producer/open_transaction.py"
_READER = "spark_plugin/source/stream_reader.py TxlogStreamReader"
_COMMIT = "spark_plugin/sink/batch_commit.py"
_CHECKPOINT = "spark_plugin/checkpoints/checkpoint.py"

_FUNCTIONS = {
    "state and thread of the client": (
        f"{_STATES} ProducerStatus.require_own_process",
        f"{_STATES} ProducerStatus.require_no_error",
        f"{_STATES} ProducerStatus.require_sendable",
        f"{_STATES} ProducerStatus.advance",
        f"{_STATES} transition",
        "txlog/client/consumer/consumer.py Consumer._require_open",
        "txlog/client/consumer/consumer.py Consumer._require_assigned",
    ),
    "records kept until they are stored": (
        f"{_SENDER}.write_batch",
        f"{_SENDER}.flush",
        f"{_SENDER}.fire_callbacks",
        f"{_SENDER}.add_settled",
        f"{_STAGED} StagedWriter.write",
        f"{_STAGED} StagedRecords.add",
        f"{_STAGED} StagedRecords.complete",
        f"{_STAGED} StagedRecords.participants",
    ),
    "rows prepared and routed": (
        "txlog/topic/write/record_preparation.py prepared_batch",
        "spark_plugin/sink/staging.py Staging.add_all",
        "txlog/topic/topic_log.py TopicLog.in_newest_schema",
        "txlog/topic/write/partitioner.py split_by_partition",
    ),
    "segment encoded": (
        "txlog/topic/topic_log.py TopicLog.encode",
        "txlog/topic/topic_log.py TopicLog.new_segment",
        "txlog/topic/write/segment_writer.py SegmentWriter.add",
        "txlog/topic/write/segment_writer.py SegmentWriter.finish",
    ),
    "another instance, a deleted topic": (
        f"{_SESSION}._begin_read",
        f"{_SESSION}.require_not_fenced",
        f"{_SESSION}.has_deleted",
        f"{_STAGED} StagedWriter.topic",
    ),
    "steps of the transaction": (
        f"{_SESSION}.begin",
        f"{_SESSION}.commit",
        "txlog/coordinator/coordinator.py Coordinator.write_markers",
    ),
    "completion": (
        "txlog/engine/transaction_completion.py Completion.__init__",
        "txlog/engine/transaction_completion.py Completion.join",
        "txlog/engine/transaction_completion.py Completion.include_in_decision",
    ),
    "commands that share an entry": (
        f"{_REPLICA}._run",
        "txlog/journal/replication/publish_queue.py PublishQueue.drain",
        "txlog/journal/replication/publish_queue.py PublishQueue.finish_all",
    ),
    "rules": (f"{_REPLICA}._decide_all",),
    "next state": (
        "txlog/topic/machine.py TopicMachine.apply",
        "txlog/groups/machine.py CoordinatorMachine.apply",
        f"{_REPLICA}._adopt_entry",
    ),
    "entry encoded": (f"{_REPLICA}._encoded",),
    "entry created": (f"{_REPLICA}._try_slot",),
    "a writer's turn": (
        "txlog/storage/disk/folder_lock.py FolderLocks.turn",
        "txlog/storage/store.py turn",
    ),
    "files written": (
        f"{_LOCAL}.create",
        f"{_LOCAL}.put_new",
        f"{_LOCAL}.open_new",
        f"{_LOCAL}._finish",
    ),
    "the log is still there": (
        f"{_ROOT}.require_same",
        f"{_ROOT}.hold",
        "txlog/catalog/cluster.py Cluster.require_present",
        "txlog/journal/log_presence.py LogPresence.require",
    ),
    "the journal still has its past": ("txlog/journal/boundaries/boundary.py PastChecks.require",),
    "the slot counts": (f"{_REPLICA}._is_believed",),
    "new entries looked for": (
        f"{_REPLICA}.catch_up",
        f"{_REPLICA}.follow",
        "txlog/client/consumer/assignment.py Assignment.catch_up",
    ),
    "entries of others": (
        "txlog/journal/entry.py decode_own_entry",
        f"{_REPLICA}._ingest",
    ),
    "batches of the index": (
        "txlog/client/consumer/fetcher.py PartitionFetcher._rows",
        "txlog/client/consumer/fetcher.py PartitionFetcher.is_unread",
        "spark_plugin/source/read_plan.py plan_reads",
    ),
    "what is read ahead": (
        "txlog/client/consumer/fetcher.py PartitionFetcher.take",
        "txlog/client/consumer/fetcher.py PartitionFetcher.fill",
    ),
    "batches read and checked": (
        "txlog/topic/read/reader.py batch_source",
        "txlog/topic/read/reader.py read_ahead",
        "spark_plugin/source/read_plan.py read_from",
    ),
    "records as objects": (
        "txlog/client/consumer/consumer_record.py readable",
        "txlog/client/consumer/record_iteration.py all_at_once",
    ),
    "end of the batch": (
        f"{_READER}._next_end",
        f"{_READER}.partitions",
        "txlog/topic/read/cut.py stable_ends",
    ),
    "the source's own offset": (
        "spark_plugin/source/offsets.py from_json",
        "spark_plugin/source/offsets.py to_json",
        "spark_plugin/source/offsets.py advance",
        f"{_READER}._decoded",
        f"{_READER}._require_own",
        f"{_READER}._require_reached",
        f"{_READER}._require_whole",
    ),
    "the group's position": (
        f"{_READER}._begin_group_read",
        f"{_READER}._move_group",
        f"{_COMMIT} BatchCommitter._pending",
    ),
    "columns, topics and options": (
        "spark_plugin/datasource.py TxlogDataSource.streamWriter",
        "spark_plugin/sink/sink_topics.py prepare_topics",
        "spark_plugin/source/read_plan.py layouts_of",
    ),
    "the batch in the checkpoint": (
        f"{_CHECKPOINT} query_checkpoint",
        f"{_CHECKPOINT} Checkpoint.plan",
        f"{_CHECKPOINT} Checkpoint.checked_batch_range",
    ),
    "replay tests": (
        f"{_COMMIT} BatchCommitter._may_commit_early",
        f"{_COMMIT} BatchCommitter._has_committed_from_memory",
    ),
    "what the tasks have staged": (
        "spark_plugin/sink/staging.py participants",
        f"{_COMMIT} require_topics",
    ),
}
STAGES = {function: stage for stage, functions in _FUNCTIONS.items() for function in functions}
