"""Cycles of transactions that no order in time allows are found, and no others."""

import pytest

from tests.simulation.sample_history import OTHER, TX, SampleHistory
from tests.simulator.checks.cycle_checks import circular_flow
from tests.simulator.checks.history_facts import HistoryFacts


class HistoryOfReading(SampleHistory):
    """Topics a and b have two records each, in this order; a reader has read some of them."""

    def __init__(self, in_a: str, in_b: str, reads: dict[str, str], *, is_staged: bool) -> None:
        super().__init__()
        for nth, (topic, values) in enumerate((("a", in_a), ("b", in_b)), start=2):
            records = [[topic, 0, offset, value] for offset, value in enumerate(values.split())]
            self.change("final", nth, records=records)
        for tx, value in reads.items():
            self.add("consumed", tx=tx, group="g", ranges=[], reads=[value])
        if not is_staged:
            self.history.events = [e for e in self.history.events if e["what"] != "staged"]

    def is_circular(self) -> bool:
        """Whether the check finds a cycle."""
        return bool(list(circular_flow(HistoryFacts(self.history))))


@pytest.mark.parametrize("is_staged", [True, False])
@pytest.mark.parametrize(
    ("reads", "is_found"),
    [
        ({}, False),
        ({OTHER: "x1"}, False),
        ({TX: "y1"}, True),
        ({TX: "y2"}, True),
        ({TX: "y1", OTHER: "x1"}, True),
    ],
)
def test_G1c_read_from_a_transaction_ordered_later_is_found(
    reads: dict[str, str], is_found: bool, is_staged: bool
) -> None:
    sample = HistoryOfReading("x1 y1", "x2 y2", reads, is_staged=is_staged)
    assert sample.is_circular() == is_found


@pytest.mark.parametrize(("is_staged", "is_found"), [(True, False), (False, True)])
def test_R13_staged_records_may_follow_those_of_their_reader_in_another_topic(
    is_staged: bool, is_found: bool
) -> None:
    """Records in the log are in all topics before a reader can get one of them."""
    sample = HistoryOfReading("x1 y1", "y2 x2", {OTHER: "x1"}, is_staged=is_staged)
    assert sample.is_circular() == is_found


@pytest.mark.parametrize("is_staged", [True, False])
@pytest.mark.parametrize(
    ("reader", "read", "is_found"),
    [
        (OTHER, "x2", False),
        (TX, "x2", True),
        (TX, "y2", True),
    ],
)
def test_G1c_cycle_through_an_intermediate_transaction_is_found(
    reader: str, read: str, is_found: bool, is_staged: bool
) -> None:
    """The record that was read is in b, the record made from it in c, and the record made from that
    in a."""
    sample = HistoryOfReading("x1 y1", "x2 y2", {"3-0-0": read, reader: "z"}, is_staged=is_staged)
    sample.add("send", tx="3-0-0", topic="c", values=["z"])
    sample.add("outcome", tx="3-0-0", outcome="COMMITTED")
    sample.add("final", topic="c", isolation="read_committed", records=[["c", 0, 0, "z"]])
    assert sample.is_circular() == is_found


@pytest.mark.parametrize(("reads", "is_found"), [({}, False), ({OTHER: "x1"}, True)])
def test_interleaved_records_in_the_log_are_a_cycle_only_with_a_read(
    reads: dict[str, str], is_found: bool
) -> None:
    """OTHER got x1 when x3 was there already, and wrote y1 after that."""
    sample = HistoryOfReading("x1 y1 x3", "y2 x2", reads, is_staged=False)
    sample.add("send", tx=TX, topic="a", values=["x3"])
    assert sample.is_circular() == is_found
