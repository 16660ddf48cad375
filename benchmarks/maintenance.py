"""Compaction and merging, compared with one plain read of the topic; and the gain of a reader.

The raw limit of both is to read everything once and to write what remains. Each round builds new
logs, without syncs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from pathlib import Path
from time import time_ns

import numpy as np
import pyarrow as pa

from benchmarks.figures import Figure, in_turn, latency, rate, ratio, timed
from txlog.client.admin import Admin
from txlog.client.consumer.consumer import Consumer
from txlog.client.producer.producer import Producer
from txlog.clock import Runtime
from txlog.engine.connection import Connection, open_connection
from txlog.storage.disk.local import LocalStore
from txlog.topic.upkeep.compaction import CompactionLimits, compact
from txlog.topic.upkeep.merging import merge_segments

ROUNDS = 5
RECORDS, KEYS = 500_000, 50_000
SEGMENTS, ROWS = 2_000, 10
PARTITIONS = 4
LIMITS = CompactionLimits(keys_max=1_000_000, batch_bytes=1_250_000)


def run(folder: Path) -> Sequence[Figure]:
    """Rates, their ratios to a plain read, and the ratio of reading after merging to before."""
    folders = map(folder.joinpath, map(str, count()))
    merged_logs: list[Connection] = []
    before: list[float] = []

    def merge() -> float:
        merged_logs.append(_small_log(next(folders)))
        before.append(_read_s(merged_logs[-1], SEGMENTS * ROWS))
        return _merging_s(merged_logs[-1])

    taken = in_turn(
        {
            "read": lambda: _read_s(_keyed_log(next(folders)), RECORDS),
            "compact": lambda: _compaction_s(_keyed_log(next(folders))),
            "merge": merge,
            "read merged": lambda: _read_s(merged_logs[-1], SEGMENTS * ROWS),
        },
        ROUNDS,
    )
    before = before[-ROUNDS:]
    return (
        rate("compaction, of ten records one stays", taken["compact"], RECORDS),
        ratio("compaction: time / one plain read of the topic", taken["compact"], taken["read"]),
        rate("merging: segments of ten records", taken["merge"], SEGMENTS),
        ratio("merging: time / one plain read of the topic", taken["merge"], before),
        latency(f"plain read of {SEGMENTS:,} segments", before),
        latency("the same after merging", taken["read merged"]),
        ratio("plain read: after / before merging", taken["read merged"], before),
    )


def _log(folder: Path) -> Connection:
    return open_connection(LocalStore(folder, Runtime(), durable=False), Runtime(), create=True)


def _keyed_log(folder: Path) -> Connection:
    """Records of 100 bytes, each key ten times."""
    connection = _log(folder)
    Admin(connection).create_topic("t", PARTITIONS, config={"cleanup.policy": "compact"})
    producer = Producer(connection)
    numbers = np.random.default_rng(1).permutation(RECORDS) % KEYS
    for start in range(0, RECORDS, 10_000):
        keys = pa.array([b"key-%06d" % number for number in numbers[start : start + 10_000]])
        values = pa.array([b"x" * 90] * len(keys))
        producer.send_batch("t", pa.record_batch({"key": keys, "value": values}))
        producer.flush()
    return connection


def _small_log(folder: Path) -> Connection:
    connection = _log(folder)
    Admin(connection).create_topic("t", PARTITIONS)
    producer = Producer(connection)
    batch = pa.record_batch({"value": pa.array([b"x" * 100] * ROWS)})
    for _ in range(SEGMENTS):
        producer.send_batch("t", batch)
        producer.flush()
    return connection


def _read_s(connection: Connection, expected: int) -> float:
    consumer = Consumer("t", root=connection, auto_offset_reset="earliest")
    found = 0

    def read() -> None:
        nonlocal found
        while (table := consumer.poll_arrow()) is not None:
            found += table.num_rows

    seconds = timed(read)
    if found != expected:
        raise RuntimeError(f"{found} records were read, {expected} were written")
    return seconds


def _compaction_s(connection: Connection) -> float:
    topic = connection.cluster.topic("t")
    seconds = timed(lambda: compact(topic, time_ns() // 1_000_000, LIMITS, force=True))
    left = sum(row.record_count for row in topic.batches_from_slot(topic.catch_up(), 0))
    if left != KEYS:
        raise RuntimeError(f"{left} records are left of {KEYS} keys")
    return seconds


def _merging_s(connection: Connection) -> float:
    topic = connection.cluster.topic("t")
    topic.catch_up()
    seconds = timed(lambda: merge_segments(topic, LIMITS.batch_bytes))
    segments = {row.segment for row in topic.batches_from_slot(topic.catch_up(), 0)}
    if len(segments) > SEGMENTS // 8:
        raise RuntimeError(f"{len(segments)} segments are left of {SEGMENTS}")
    return seconds
