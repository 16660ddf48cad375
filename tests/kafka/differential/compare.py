"""Plays a history on both servers and compares what each step showed."""

from __future__ import annotations

from collections import Counter

from tests.kafka.differential.history import history
from tests.kafka.differential.player import SKIPPED, Player


def compared(seed: int, length: int, broker: str, gateway: str, shown: Counter[str]) -> str:
    """The first step that differs, with those before it; empty if none does. `shown` counts what
    the steps showed."""
    steps = history(seed, length)
    kafka = Player(broker, f"h{seed}").play(steps)
    txlog = Player(gateway, f"h{seed}").play(steps)
    for number, (step, first, second) in enumerate(zip(steps, kafka, txlog, strict=True)):
        if first != second:
            before = zip(steps[:number], kafka, strict=False)
            lines = [f"  {one}: {answer}" for one, answer in before if answer != SKIPPED]
            return "\n".join([*lines, f"  {step}: Kafka {first}, txlog {second}"])
        shown[f"{step.name}: {first if isinstance(first, str) else 'answered'}"] += 1
    return ""
