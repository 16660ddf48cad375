"""A micro-batch whose commit failed: its staged segments remain for the next attempt."""

from pathlib import Path

import pytest

from spark_plugin.sink.participants import participants
from tests.stores.faulty_stores import HookedStore
from tests.unit.spark_plugin.spark_query import Query, new_log
from txlog.errors import OutcomeUnknown


@pytest.mark.parametrize("is_stored", [False, True], ids=["not stored", "stored"])
def test_I13_R26_staged_segments_of_failed_commit_remain_for_the_retry(
    tmp_path: Path, is_stored: bool
) -> None:
    """The answer to the decision is lost; Spark calls abort, then the driver commits again."""
    log = new_log()
    query = Query(log, tmp_path / "checkpoint")
    store = HookedStore(log.memory)
    process = log.process(store)
    query.run(process, "run", 0, 0, 2)
    query.plan(1, 2, 4)
    messages = query.tasks(process, "run", 1, 2, 4)
    staged = {segment.path for p in participants(messages) for segment in p.segments}
    journal = log.connection.cluster.layout.transactions(0)
    decision = journal.entry(sum(path.startswith(journal.entries) for path in log.objects()))
    if is_stored:
        store.lose_answer(decision)
    else:
        store.delay_write(decision)
    with pytest.raises(OutcomeUnknown):
        query.commit(process, "run", 1, messages)
    assert staged
    assert staged <= set(log.objects())
    query.commit(log.process(), "run", 1, messages)
    assert sorted(row["n"] for row in log.values("even", "odd")) == [0, 1, 2, 3]
    log.check()
