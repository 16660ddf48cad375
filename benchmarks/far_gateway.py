"""A transaction of librdkafka at a gateway whose store is far, beside the Python producer's."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import confluent_kafka as librdkafka

from benchmarks.far_clients import BEFORE_THE_BEGIN_S, FarClients
from benchmarks.far_store import ROUND_TRIP_MS, far_store, round_trips
from benchmarks.figures import Figure, at_most, in_turn, quartiles, timed
from tests.processes.kafka_gateway import Gateway

ROUNDS, WARM_UP = 12, 3
TIMEOUT_S = 120.0


def run(folder: Path) -> Sequence[Figure]:
    """Round trips until ten records of 400 bytes are committed: each client as it is by default."""
    with far_store() as store:
        clients = FarClients(store)
        options = [
            f"--storage-option={name}={value if isinstance(value, str) else json.dumps(value)}"
            for name, value in store.storage_options.items()
        ]
        with Gateway(clients.root, *options) as gateway:
            producer = librdkafka.Producer(
                gateway.config(transactional_id="librdkafka", linger_ms=0)
            )
            producer.init_transactions(TIMEOUT_S)
            _transaction(producer)
            store.far()
            sides = {
                "the Python producer": lambda: clients.small(clients.producer, "a"),
                "librdkafka at the gateway": lambda: _small(producer),
            }
            taken = in_turn(sides, ROUNDS, WARM_UP)
    [here, there] = taken.values()
    beyond = [1000 * (b - a) / ROUND_TRIP_MS for a, b in zip(here, there, strict=True)]
    return [
        *(round_trips(f"transaction of 10 records, {name}", s) for name, s in taken.items()),
        Figure("the difference", median(beyond), "RTT", at_most(0.5), quartiles(beyond)),
    ]


def _small(producer: librdkafka.Producer) -> float:
    time.sleep(BEFORE_THE_BEGIN_S)
    return timed(lambda: _transaction(producer))


def _transaction(producer: librdkafka.Producer) -> None:
    producer.begin_transaction()
    for number in range(10):
        producer.produce("gateway", b"x" * 400, b"%d" % number)
    producer.commit_transaction(TIMEOUT_S)
