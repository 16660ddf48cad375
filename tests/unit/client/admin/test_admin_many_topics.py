"""How `Admin` reads many topics: one by one where that is quick, otherwise together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import pytest

from txlog.client.admin import Admin, NewTopic
from txlog.client.admin.topics import FAN_OUT_TOPICS_MAX, QUICK_MS, TIMED_TOPICS
from txlog.clock import Runtime
from txlog.engine.connection import open_connection
from txlog.storage import MemoryStore
from txlog.testing.clock import manual_runtime
from txlog.topic.records.schema import decode_schema, encode_schema

T = TypeVar("T")
INNER_CALLS_MAX = 64


@dataclass
class CountedFanOut:
    """Runs calls one after the other and records how many each caller passes at once."""

    counts: list[int] = field(default_factory=list)

    def run_all(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        self.counts.append(len(calls))
        return [call() for call in calls]

    def run_together(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        return [call() for call in calls]

    def start(self, call: Callable[[], T]) -> Callable[[], T]:
        result = call()
        return lambda: result


class SlowStore(MemoryStore):
    """A store whose reads take time on the test's clock."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self.clock, self.delay_ms = runtime.clock, 0.0

    def get(self, path: str) -> bytes | None:
        self.clock.sleep_ms(self.delay_ms)
        return super().get(path)


@pytest.mark.parametrize(
    ("topics", "delay_ms", "handed_over"),
    [
        (FAN_OUT_TOPICS_MAX + 20, 0.0, []),
        (FAN_OUT_TOPICS_MAX + 20, QUICK_MS, [FAN_OUT_TOPICS_MAX + 20 - TIMED_TOPICS]),
        (FAN_OUT_TOPICS_MAX, 0.0, [FAN_OUT_TOPICS_MAX]),
    ],
)
def test_fan_out_of_topic_reads_depends_on_count_and_store_latency(
    topics: int, delay_ms: float, handed_over: list[int]
) -> None:
    fan_out = CountedFanOut()
    runtime = replace(manual_runtime(), fan_out=fan_out)
    store = SlowStore(runtime)
    names = [f"t{number:03d}" for number in range(topics)]
    Admin(open_connection(store, runtime, create=True)).create_topics(
        [NewTopic(name, 1) for name in names]
    )
    fan_out.counts.clear()
    store.delay_ms = delay_ms
    found = Admin(open_connection(store, runtime)).describe_topics()
    assert [topic.name for topic in found] == names
    # Opening a journal also runs a few calls in parallel.
    assert [count for count in fan_out.counts if count > INNER_CALLS_MAX] == handed_over


def test_schema_shared_by_topics_is_decoded_once() -> None:
    store = MemoryStore(manual_runtime())
    admin = Admin(open_connection(store, manual_runtime(), create=True))
    admin.create_topics([NewTopic(f"t{number}", 1) for number in range(3)])
    first, *others = (topic.schema for topic in admin.describe_topics())
    assert all(decode_schema(encode_schema(schema)) is first for schema in others)
