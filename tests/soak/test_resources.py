"""Memory and open files of a process, as the soak measures them."""

import os

import pytest

from tests.soak.producing import numbers_in, value_of
from tests.soak.resources import Sample, Watch, growth


def test_watch_samples_memory_and_open_files_of_live_processes() -> None:
    watch = Watch([os.getpid(), 1 << 22])
    watch.sample()
    with open("/dev/null", "rb"):
        watch.sample()
    before, after = watch.samples
    assert before.rss_bytes > 1 << 20
    assert after.open_files == before.open_files + 1


def test_growth_is_described_from_second_to_last_quarter() -> None:
    watch = Watch([1, 2])
    assert watch.described() == "too short to tell"
    watch.samples = [Sample(number << 20, 10 + number) for number in range(0, 80, 2)]
    assert watch.described() == "14.5 -> 34.5 MiB a process, 48 -> 88 open files"


MIB = 1 << 20
FLAT = Sample(140 * MIB, 5)


@pytest.mark.parametrize(
    ("late", "found"),
    [
        (FLAT, []),
        (Sample(90 * MIB, 3), []),
        (Sample(170 * MIB, 9), []),
        (Sample(170 * MIB + 1, 9), ["memory of a process grew from 140.0 to 170.0 MiB"]),
        (Sample(170 * MIB, 10), ["open files of a process grew from 5 to 10; 9 is the bound"]),
    ],
)
def test_growth_beyond_a_tenth_and_16_mib_or_four_files_is_a_finding(
    late: Sample, found: list[str]
) -> None:
    sentences = growth(FLAT, late)
    assert len(sentences) == len(found)
    assert all(map(str.startswith, sentences, found))


def test_leak_is_a_finding_only_in_runs_of_five_minutes_or_more() -> None:
    """Two processes, each of which takes 2 MiB and one file more at each measurement."""
    watch = Watch([1, 2])
    watch.samples = [Sample(4 * number * MIB, number) for number in range(150)]
    assert watch.growth(299) == []
    assert len(watch.growth(300)) == 2
    watch.samples = [Sample(2 * FLAT.rss_bytes, FLAT.open_files)] * 150
    assert watch.growth(300) == []
    watch.samples = watch.samples[:3]
    assert watch.growth(300) == ["3 looks at memory and open files are too few"]


def test_value_contains_producer_and_number_and_has_the_given_size() -> None:
    value = value_of(3, 12_345, 100)
    assert len(value) == 100
    assert numbers_in(value) == (3, 12_345)
