"""`auto.offset.reset` = by_duration (KIP-1106): a consumer starts at records younger than that."""

import pytest

from tests.logs.memory_log import MemoryLog
from txlog.client.consumer.consumer import Consumer
from txlog.client.positions.listed_offsets import duration_ms
from txlog.errors import InvalidConfig, UsageError
from txlog.model import TopicPartition

U0 = TopicPartition("u", 0)
HOUR_MS = 3_600_000


@pytest.fixture
def hours(log: MemoryLog) -> MemoryLog:
    """A log with five records in `u`, an hour apart; the newest has the current time."""
    producer = log.producer()
    log.clock.advance(10 * HOUR_MS)
    for age in (4, 3, 2, 1, 0):
        stamp = log.clock.wall_ms() - age * HOUR_MS
        producer.send("u", b"%d h" % age, timestamp_ms=stamp).get()
    return log


@pytest.mark.parametrize(
    ("duration", "first"),
    [("PT1H", 3), ("PT1H30M", 3), ("PT2H", 2), ("P1D", 0), ("PT0S", 4), ("P99999999999999999D", 0)],
)
def test_by_duration_starts_at_first_record_within_duration(
    hours: MemoryLog, duration: str, first: int
) -> None:
    consumer = hours.consumer("u", auto_offset_reset=f"by_duration:{duration}")
    assert consumer.position(U0) == first


def test_by_duration_starts_at_end_if_all_records_are_older(hours: MemoryLog) -> None:
    hours.clock.advance(2 * HOUR_MS)
    assert hours.consumer("u", auto_offset_reset="by_duration:PT1H").position(U0) == 5


def test_committed_offset_takes_precedence_over_by_duration(hours: MemoryLog) -> None:
    hours.consumer("u", group_id="g").commit({U0: 1})
    consumer = hours.consumer("u", group_id="g", auto_offset_reset="by_duration:PT1H")
    assert consumer.position(U0) == 1


@pytest.mark.in_log
@pytest.mark.parametrize(("isolation", "first"), [("read_uncommitted", 5), ("read_committed", 6)])
def test_by_duration_skips_a_young_aborted_record_at_read_committed(
    hours: MemoryLog, isolation: str, first: int
) -> None:
    hours.clock.advance(2 * HOUR_MS)
    producer = hours.producer("a")
    producer.begin_transaction()
    producer.send("u", b"aborted").get()
    producer.abort_transaction()
    producer.close()
    hours.producer().send("u", b"now").get()
    consumer = hours.consumer("u", auto_offset_reset="by_duration:PT1H", isolation_level=isolation)
    assert consumer.position(U0) == first


@pytest.mark.parametrize(
    "value", ["by_duration", "by_duration:", "by_duration:1h", "by_duration:-PT1H", "PT1H", "first"]
)
def test_invalid_auto_offset_reset_is_refused(log: MemoryLog, value: str) -> None:
    with pytest.raises(InvalidConfig, match="auto.offset.reset is"):
        Consumer(root=log.connection, auto_offset_reset=value)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("P1D", 86_400_000),
        ("PT1H", HOUR_MS),
        ("P1DT6H30M5S", 109_805_000),
        ("PT0S", 0),
        ("PT1.5S", 1_500),
        ("PT0,0019S", 1),
        ("PT2.S", 2_000),
        ("p1dt1s", 86_401_000),
    ],
)
def test_durations_are_iso_8601(text: str, milliseconds: int) -> None:
    assert duration_ms(text) == milliseconds


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1Y", "1D", "PT1.5H", "PT.5S", "PT\u0661H", "P1D "]
)
def test_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a duration"):
        duration_ms(text)


def test_duration_of_a_thousand_digits_is_refused() -> None:
    with pytest.raises(UsageError):
        duration_ms(f"P{'9' * 1_000}D")
