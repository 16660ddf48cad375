"""A topic with very many short-lived producers, which are retired in several commands."""

import json
from dataclasses import replace

import pytest

from tests.logs.memory_log import MemoryLog
from txlog.maintenance.maintenance import RETIRED_PIDS_MAX, Maintenance
from txlog.settings import ProcessSettings
from txlog.storage import ENTRY_BYTES_MAX
from txlog.topic.producer_state import producer_states

COUNT = 70_000
"""In one event, this many ids would not fit into an entry (I16)."""

FIRST_PID = 10**15
"""Ids with many digits, so that fewer of them are enough."""


@pytest.mark.slow
def test_I16_one_pass_retires_any_number_of_silent_producers(log: MemoryLog) -> None:
    log.producer().send("u", b"1").get()
    topic = log.connection.cluster.topic("u")
    (known,) = topic.catch_up().producers.values()
    silent = producer_states((pid, known) for pid in range(FIRST_PID, FIRST_PID + 2 * COUNT, 2))
    assert len(json.dumps(list(silent))) > ENTRY_BYTES_MAX
    state = replace(topic.state, producers=silent)
    topic.journal._at, topic.journal.state = replace(topic.journal._at, state=state), state
    topic.journal._is_rebuilt = True  # No entries lead to so many (R64).
    log.clock.advance(8 * 86_400_000)
    before = topic.next_slot
    report = Maintenance(log.connection, ProcessSettings(), ["u"]).run_once()
    assert report.failures == []
    details = [action.detail for action in report.actions if action.task == "producer ids"]
    assert details == [f"producers forgotten: {COUNT}"]
    assert topic.catch_up().producers == {}
    assert topic.next_slot == before + COUNT / RETIRED_PIDS_MAX
