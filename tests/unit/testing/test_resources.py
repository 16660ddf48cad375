"""Memory and open files of a process, as the soak sees them."""

import os

from txlog.testing.soak.producing import numbers_in, value_of
from txlog.testing.soak.resources import Sample, Watch


def test_a_watch_sees_memory_and_open_files_of_the_living() -> None:
    watch = Watch([os.getpid(), 1 << 22])
    watch.look()
    with open("/dev/null", "rb"):
        watch.look()
    before, after = watch.samples
    assert before.rss_bytes > 1 << 20
    assert after.open_files == before.open_files + 1


def test_growth_is_told_from_the_second_quarter_to_the_last() -> None:
    watch = Watch([1, 2])
    assert watch.described() == "too short to tell"
    watch.samples = [Sample(number << 20, 10 + number) for number in range(0, 80, 2)]
    assert watch.described() == "14.5 -> 34.5 MiB a process, 48 -> 88 open files"


def test_a_value_tells_its_producer_and_number_and_has_its_size() -> None:
    value = value_of(3, 12_345, 100)
    assert len(value) == 100
    assert numbers_in(value) == (3, 12_345)
