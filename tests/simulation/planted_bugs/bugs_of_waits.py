"""Planted bugs in requests that are sent before the answer they used to wait for."""

from collections.abc import Callable, Mapping
from typing import Any

from tests.simulation.planted_bugs.mutant import Patch
from txlog.client.producer.sender import Flush, InLogWriter
from txlog.errors import UnknownTopic
from txlog.journal.entry import decode_own_entry
from txlog.journal.replication.replica import Replica


def _follows_the_name(patch: Patch) -> None:
    """Records are written to the topic that has the name at the time of the write."""

    def successor(self: InLogWriter, flush: Flush, deleted: UnknownTopic) -> Any:
        return self._cluster.present_topic(flush.topic.name)

    patch.setattr(InLogWriter, "_successor", successor)


def _found_entry_not_judged(patch: Patch) -> None:
    """An entry found while waiting is taken for the next one."""

    def apply_entry(self: Replica[Any], slot: int, data: bytes) -> bool:
        if slot == self._at.next_slot:
            self._ingest(*decode_own_entry(data, self.layout, slot))
        return True

    patch.setattr(Replica, "apply_entry", apply_entry)


_FLUSHES = "tests/unit/client/producer/test_far_flushes.py::"
_AHEAD = "tests/unit/journal/replication/test_opening_ahead.py::"

BUGS_OF_WAITS: Mapping[str, tuple[Callable[[Patch], None], str]] = {
    "pending records are written to a recreated topic (R11)": (
        _follows_the_name,
        f"{_FLUSHES}test_R11_record_buffered_before_topic_recreation_is_refused",
    ),
    "entry found while waiting is not judged (R15)": (
        _found_entry_not_judged,
        f"{_AHEAD}test_R15_apply_entry_does_not_believe_an_entry_in_a_freed_slot",
    ),
}
"""Planted bug -> the function that plants it, and the test that detects it."""
