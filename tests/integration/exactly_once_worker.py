"""A process that `test_processes.py` starts: it reads, processes and writes.

`python -m tests.integration.exactly_once_worker staged ROOT STEP` turns records of `source` into
records of `left` and `right`, two at a time, and dies by SIGKILL at the named step of its second
transaction; `... in.log ROOT STEP` does the same with records in the log. `... race ROOT NAME`
writes transactions of its own, in both ways, under an id that another process uses, too.
"""

import json
import random
import sys
import time
from collections.abc import Callable, Mapping

from tests.processes.killed_process import AFTER, BEFORE, kill_at, scripted_log
from tests.stores.scripted_store import ScriptedStore
from txlog.client.consumer.consumer import Consumer
from txlog.client.producer.producer import Producer
from txlog.engine.append.producer_batch import Headers
from txlog.engine.connection import Connection
from txlog.engine.producer_config import IN_LOG, STAGED, TRANSACTION_RECORDS
from txlog.errors import ConcurrentTransactions, FencedError, TransactionAborted

SOURCE, RESULTS, GROUP, NAME = "source", ("left", "right"), "group", "worker"
BATCH = 2
HEADERS: dict[str, Headers] = {"left": [("large", bytes(70_000))], "right": []}
"""Records of one topic are too large for an entry, those of the other ride in entries."""

STEPS: dict[str, tuple[str, str, int]] = {
    "before BEGIN": (BEFORE, "transaction_begun", 1),
    "after BEGIN": (AFTER, "transaction_begun", 1),
    "after the first append": (AFTER, "batches_appended", 1),
    "after the last append": (AFTER, "batches_appended", 2),
    "after the pend": (AFTER, "offsets_pended", 1),
    "before PREPARE": (BEFORE, "commit_prepared", 1),
    "after PREPARE": (AFTER, "commit_prepared", 1),
    "between the markers": (AFTER, "marker_written", 1),
    "after the markers": (AFTER, "marker_written", 2),
    "before COMPLETE": (BEFORE, "transaction_completed", 1),
    "after COMPLETE": (AFTER, "transaction_completed", 1),
}
"""Name -> before or after the entry that holds the event for the nth time."""


STAGED_STEPS = [step for step in STEPS if "BEGIN" not in step and "append" not in step]
"""The steps of a transaction whose records are staged."""

STEPS_OF = {STAGED: STAGED_STEPS, IN_LOG: list(STEPS)}


def work(
    connection: Connection,
    on_second: Callable[[], object] = lambda: None,
    transaction_records: str = STAGED,
) -> None:
    """Work until the input is read. Prints each transaction's id before its first write."""
    producer = Producer(
        connection,
        transactional_id=NAME,
        transaction_records=transaction_records,
        transaction_timeout_ms=1 if transaction_records == IN_LOG else 60_000,
    )
    producer.init_transactions()
    consumer = Consumer(
        SOURCE, root=connection, group_id=GROUP, isolation_level="read_committed",
        auto_offset_reset="earliest", enable_auto_commit=False,
    )  # fmt: skip
    number = 0
    while polled := consumer.poll(max_records=BATCH):
        number += 1
        tx_id = producer.begin_transaction()
        print(tx_id, flush=True)
        if number == 2:
            on_second()
        positions = {where: consumer.position(where) for where in polled}
        # With offsets, a producer begins to upload what it has.
        if transaction_records == STAGED:
            producer.send_offsets_to_transaction(positions, consumer.group_metadata())
        for topic in RESULTS:
            for record in (record for records in polled.values() for record in records):
                producer.send(topic, b"result " + record.value, headers=HEADERS[topic])
            if transaction_records == IN_LOG:  # Otherwise the commit writes them.
                producer.flush()
        if transaction_records == IN_LOG:
            producer.send_offsets_to_transaction(positions, consumer.group_metadata())
        producer.commit_transaction()


def race(connection: Connection, own_name: str) -> None:
    """Run transactions under an id that another process takes over again and again.

    Prints a line for each: its id, its value, and its outcome as this process sees it.
    """
    print("ready", flush=True)
    sys.stdin.readline()
    producer = _registered(connection)
    committed = fenced = setbacks = 0
    for attempt in range(400):
        value = f"{own_name}-{attempt}"
        try:
            tx_id = producer.begin_transaction()
        except FencedError:
            setbacks += 1
            producer = _registered_again(connection, setbacks)
            continue
        ending = _ending(producer, value.encode())
        print(json.dumps({"tx_id": str(tx_id), "value": value, "ending": ending}), flush=True)
        if ending == "committed":
            committed, setbacks = committed + 1, 0
        else:
            fenced, setbacks = fenced + 1, setbacks + 1
            producer = _registered_again(connection, setbacks)
        if committed >= 6 and fenced >= 2:
            return


def _registered_again(connection: Connection, setbacks: int) -> Producer:
    """Register again after a pause, in which the other process can do some work, also on a busy
    machine."""
    time.sleep(random.uniform(0, 0.03 * min(setbacks, 10)))
    return _registered(connection)


def _registered(connection: Connection) -> Producer:
    while True:
        records = random.choice(TRANSACTION_RECORDS)
        producer = Producer(connection, transactional_id=NAME, transaction_records=records)
        try:
            producer.init_transactions()
        except ConcurrentTransactions:
            continue
        return producer


def _ending(producer: Producer, value: bytes) -> str:
    try:
        for topic in RESULTS:
            producer.send(topic, value)
            producer.flush()
        producer.commit_transaction()
    except (FencedError, TransactionAborted) as error:
        return type(error).__name__
    return "committed"


def arm(store: ScriptedStore, step: str) -> None:
    """Make the process die at that step from now on."""
    side, event, nth = STEPS[step]
    store.on("create", "entries/", kill_at(side, nth), holding=f'"type":"{event}"', times=10)


def main(
    verb: str, root: str, argument: str, storage_options: Mapping[str, object] | None = None
) -> None:
    """Run the worker."""
    store, connection = scripted_log(root, storage_options)
    if verb == "race":
        race(connection, argument)
    else:
        work(connection, lambda: arm(store, argument), verb)


if __name__ == "__main__":
    main(*sys.argv[1:])
