"""A committed transaction whose markers are written one by one."""

from collections.abc import Callable
from functools import partial

from tests.logs.memory_log import MemoryLog
from txlog.engine.producer_config import IN_LOG
from txlog.model import Decision, TxId
from txlog.topic.events import WriteMarker


def partly_marked(log: MemoryLog, *topics: str) -> tuple[TxId, list[Callable[[], object]]]:
    """A transaction with a record `half` in partition 0 of each topic, and for each topic what
    writes its marker."""
    producer = log.producer("p", transaction_records=IN_LOG)
    tx_id = producer.begin_transaction()
    for name in topics:
        producer.send(name, b"half", partition=0)
    producer.flush()
    other = log.process()
    found = [other.cluster.present_topic(name, linearizable=True) for name in topics]
    ids = tuple(sorted(topic.topic_id for topic in found))
    marker = WriteMarker(tx_id, Decision.COMMIT, tx_id.number, 0, topic_ids=ids)
    return tx_id, [partial(topic.execute, marker) for topic in found]
