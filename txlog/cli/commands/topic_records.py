"""`txlog topic delete-records | compact`: removing records from a topic by hand.

Each only shows what it would do unless `--execute` is given. It decides nothing:
`txlog/client/admin/record_deletion.py` and `txlog/topic/upkeep/compaction.py` do.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from txlog.cli.commands.topic import app
from txlog.cli.output.output import Facts, counted
from txlog.cli.session import Execute, Session, Topic, topic_names, with_session
from txlog.client.admin.record_deletion import planned_log_starts
from txlog.errors import UsageError
from txlog.journal.codec import parsed
from txlog.model import TopicPartition
from txlog.topic.upkeep.compaction import CompactionLimits, compact
from txlog.topic.upkeep.merging import merge_segments

__all__ = ["app"]


@app.command(
    "delete-records",
    epilog="Examples: txlog topic delete-records orders --partition 0 --before-offset 5000, "
    "txlog topic delete-records orders --all --execute",
)
@with_session
def delete_records(
    session: Session,
    name: Annotated[
        str | None,
        typer.Argument(metavar="[TOPIC]", help="Its name.", autocompletion=topic_names),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", help="Only of this partition.")
    ] = None,
    before_offset: Annotated[
        int | None,
        typer.Option("--before-offset", help="Delete records below it; -1: all that may be."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All that may be deleted, in every partition.")
    ] = False,
    offset_json_file: Annotated[
        Path | None,
        typer.Option(
            "--offset-json-file",
            metavar="FILE",
            help="In the format of kafka-delete-records.sh: "
            '{"partitions": [{"topic": "orders", "partition": 0, "offset": 5000}], "version": 1}.',
        ),
    ] = None,
    execute: Execute = False,
) -> None:
    """Delete a topic's oldest records for good.

    Records of an incomplete transaction stay, with all that follow them. The log start rises at
    once; vacuum frees the space.
    """
    admin = session.admin()
    if offset_json_file is not None:
        if everything or (name, partition, before_offset) != (None, None, None):
            raise UsageError("--offset-json-file names topics and offsets; leave the others out.")
        offsets = _from_file(offset_json_file)
    elif name is None:
        raise UsageError("name a topic, or give --offset-json-file.")
    elif everything and partition is None and before_offset is None:
        count = len(admin.describe_topic(name).partitions)
        offsets = {TopicPartition(name, number): -1 for number in range(count)}
    elif partition is not None and before_offset is not None and not everything:
        offsets = {TopicPartition(name, partition): before_offset}
    else:
        raise UsageError("say what to delete: --partition P --before-offset N, or --all.")
    planned = planned_log_starts(admin.connection, offsets)
    before = {
        where: admin.connection.cluster.topic(where.topic).state.partitions[where.partition]
        for where in offsets
    }
    rows = [
        (*where, before[where].log_start, planned.get(where, before[where].log_start))
        for where in sorted(offsets)
    ]
    names = ("topic", "partition", "log_start_offset", "new_log_start_offset")
    if execute:
        admin.delete_records(offsets)
    session.show_rows(names, rows)
    count = sum(row[3] - row[2] for row in rows)
    if execute:
        session.say(f"Deleted {counted(count, 'offset')}.")
    else:
        session.say_planned(f"delete {counted(count, 'offset')}")


def _from_file(path: Path) -> dict[TopicPartition, int]:
    """Kafka's file of offsets. Raises UsageError."""
    try:
        rows: list[Any] = parsed(path.read_text(encoding="utf-8-sig"))["partitions"]
        found = [(TopicPartition(str(r["topic"]), r["partition"]), r["offset"]) for r in rows]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(
            f"{path} is not a file of offsets ({error}); it should contain "
            '{"partitions": [{"topic": ..., "partition": ..., "offset": ...}]}.'
        ) from error
    if not all(type(where.partition) is int and type(offset) is int for where, offset in found):
        raise UsageError(f"{path}: partitions and offsets are whole numbers.")
    if len(dict(found)) != len(found):
        raise UsageError(f"{path} names a partition twice; name each once.")
    return dict(found)


@app.command("compact", epilog="Example: txlog topic compact prices --execute")
@with_session
def compact_topic(session: Session, name: Topic, execute: Execute = False) -> None:
    """Merge a topic's small segments. If its cleanup.policy says compact, also keep only the newest
    record of each key, now instead of when enough is new.

    Offsets do not change. Without --execute it only shows how many segments there are.
    """
    connection = session.admin().connection
    topic = connection.cluster.present_topic(name, linearizable=True)
    if not execute:
        rows = topic.batches_from_slot(topic.state, 0)
        found = (batch for row in rows for batch in topic.unfolded(topic.state, row))
        count = len({batch.segment for batch in found if batch.record_count})
        policy = topic.state.config.cleanup_policy
        planned = {"segments": count, "cleanup_policy": policy}
        session.show(planned, [Facts(tuple(planned.items()))])
        session.say(
            f"Topic {name} has {counted(count, 'segment')}; its cleanup.policy is {policy}. "
            "Nothing was done; add --execute to do it."
        )
        return
    process = connection.cluster.process
    limits = CompactionLimits(process.compaction_keys_max, process.batch_bytes)
    cleaned = compact(topic, connection.runtime.clock.wall_ms(), limits, force=True)
    merged = merge_segments(topic, process.batch_bytes)
    facts = {
        "records_removed": cleaned.records_removed,
        "records_kept": cleaned.records_kept,
        "segments_merged": merged.segments_before,
        "segments_made": merged.segments_after,
        "interrupted": cleaned.interrupted or merged.interrupted,
    }
    session.show(facts, [Facts(tuple(facts.items()))])
