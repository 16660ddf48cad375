"""Names of objects that say more than which object it is."""

from txlog.clock import segment_id
from txlog.layout import JournalLayout, is_segment, segment_id_of, segment_time_ms
from txlog.testing.clock import manual_runtime

TOPIC = JournalLayout("topics/t/0123456789abcdef")
SEGMENTS = 256


def test_names_of_segments_made_at_one_time_begin_with_different_digits() -> None:
    """A bucket serves each range of names by servers of its own."""
    runtime = manual_runtime()
    names = [TOPIC.segment(segment_id(runtime)) for _ in range(SEGMENTS)]
    assert all(is_segment(name) for name in names)
    firsts = {name.removeprefix(TOPIC.segments)[0] for name in names}
    assert firsts == set("0123456789abcdef")


def test_id_and_time_of_a_segment_are_found_in_its_name() -> None:
    runtime = manual_runtime()
    drawn = segment_id(runtime)
    path = TOPIC.segment(drawn)
    assert segment_id_of(path) == drawn
    assert segment_time_ms(path) == runtime.clock.wall_ms()
    assert segment_id_of(TOPIC.segment(segment_id(runtime, drawn))) > drawn
