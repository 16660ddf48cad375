"""What values show of themselves in a notebook: small tables, in which every text is text."""

from __future__ import annotations

import re
from html import unescape

import pyarrow as pa
import pytest

import txlog
from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import unavailable
from txlog.client.admin.descriptions import (
    GroupDescription,
    GroupPartition,
    PartitionDescription,
    PendingTransaction,
    TopicDescription,
    TransactionDescription,
    TransactionListing,
)
from txlog.client.html_table import CELL_CHARACTERS_MAX, ROWS_MAX, html_table
from txlog.coordinator.transaction import Transaction, TransactionState
from txlog.model import TopicPartition, TransactionOutcome, TxId
from txlog.settings import TopicConfig

HOSTILE = "<script>alert(1)</script>\"'&<a href=javascript:x>"
TX_ID = TxId(1, 0, 3)
_TAG = re.compile(r"<[^>]*>")
_OURS = re.compile(r'</?(?:table|caption|thead|tbody|tr|th|td)>|<td colspan="\d+">')


def text_of(html: str) -> str:
    """What a browser shows of a table, which has no other markup than that of a table."""
    assert [tag for tag in _TAG.findall(html) if not _OURS.fullmatch(tag)] == []
    return unescape(_TAG.sub(" ", html))


@pytest.mark.parametrize(
    "shown",
    [
        TopicDescription(
            HOSTILE, "id", pa.schema([]), 0, TopicConfig(), (PartitionDescription(0, 1, 2, 3),), ()
        ),
        GroupDescription("g", "", None, (), (GroupPartition(TopicPartition(HOSTILE, 0), 1, 2, 1),)),
        GroupDescription(HOSTILE, "", None, (), ()),
        TransactionListing(HOSTILE, 0, 1, 0, "", "Ongoing", None),
        TransactionListing(
            "a", 0, 1, 0, "", "Empty", None, pending=(PendingTransaction(TX_ID, (HOSTILE,), 0, 1),)
        ),
        TransactionDescription(TX_ID, TransactionOutcome.OPEN, HOSTILE, 0, None, ()),
        TransactionDescription(TX_ID, TransactionOutcome.OPEN, "a", 0, None, (HOSTILE,)),
    ],
)
def test_a_description_shows_hostile_names_as_text(shown: object) -> None:
    assert HOSTILE in text_of(shown._repr_html_())  # type: ignore[attr-defined]


OPENED = Transaction(TX_ID, TransactionState.ONGOING, 0, 60_000)
PENDED = PendingTransaction(TX_ID, ("g", "h"), 0, 1)
LAGS = GroupPartition(TopicPartition("t", 0), 1, 3, 2, lag_ms=1_500)


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (
            TopicDescription(
                "t", "id", pa.schema([]), 0, TopicConfig(), (PartitionDescription(0, 1, 2, 3),), ()
            ),
            (
                "Topic t, open transactions: 0 partition log start offset last stable offset "
                "end offset 0 1 2 3"
            ),
        ),
        (
            GroupDescription("g", "", None, (), (LAGS,)),
            (
                "Group g, lag: 2 partition current offset log end offset lag lag in seconds "
                "t-0 1 3 2 1.5"
            ),
        ),
        (
            TransactionListing(
                "a", 0, 1, 0, "", "Ongoing", None, all_open=(OPENED,), pending=(PENDED,)
            ),
            (
                "Transactional id a, state: Ongoing open transaction state pending groups "
                f"{TX_ID} {OPENED.state} {TX_ID} g, h"
            ),
        ),
        (
            TransactionDescription(TX_ID, TransactionOutcome.OPEN, "a", 7, None, ("g", "h")),
            (
                f"Transaction {TX_ID} outcome transactional id coordinator pending groups "
                "OPEN a 7 g, h"
            ),
        ),
    ],
)
def test_a_description_shows_its_facts_under_their_names(shown: object, text: str) -> None:
    html = shown._repr_html_()  # type: ignore[attr-defined]
    assert text_of(html).split() == text.split()


def test_title_and_header_are_text_too() -> None:
    assert text_of(html_table(HOSTILE, (HOSTILE,), ())).count(HOSTILE) == 2


def test_rows_and_cells_are_bounded_and_a_line_says_how_many_rows_are_missing() -> None:
    shown = text_of(
        html_table("t", ("a", "b"), [(n, "<" * 5_000) for n in range(ROWS_MAX + 1_234)])
    )
    assert "and 1,234 more" in shown
    assert shown.count("<") == ROWS_MAX * CELL_CHARACTERS_MAX
    assert "more" not in text_of(html_table("t", ("a",), [(1,)] * ROWS_MAX))


def test_half_a_surrogate_pair_does_not_keep_a_notebook_from_being_stored() -> None:
    assert "?" in html_table("t", ("a",), [("\ud800",)]).encode().decode()


def test_unknown_lag_is_shown_as_unknown_and_not_as_0() -> None:
    unknown = GroupPartition(TopicPartition("t", 0), None, 7, None, lag_ms=None)
    html = GroupDescription("g", "", None, (), (unknown,))._repr_html_()
    assert "lag: unknown" in html
    assert "<td></td><td>7</td><td></td><td></td>" in html


def test_an_admin_shows_the_topics_and_a_scan_the_offsets(log: MemoryLog) -> None:
    log.producer().send("u", b"<b>").get()
    assert text_of(log.admin._repr_html_()).split()[-3:] == ["topic", "t", "u"]
    scan = txlog.scan("u", root=log.process())
    assert "<td>u-0</td><td>0</td><td>1</td>" in scan._repr_html_()
    named = {"<i>": ["x"]}
    log.admin.create_topic("typed", 1, pa.table(named).schema)
    assert "<i>" in text_of(txlog.scan("typed", root=log.process())._repr_html_())


def test_an_admin_of_a_log_that_cannot_be_read_shows_why(log: MemoryLog) -> None:
    log.store.on(".*", "cluster", unavailable, times=1_000)
    assert "StoreUnavailable" in text_of(log.admin._repr_html_())
