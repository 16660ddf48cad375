"""Faults on the line to the store, from a seed: cut connections, delays and lost answers.

It drives a TcpProxy from a thread of its own. The same seed gives the same faults; the requests
they hit depend on the machine.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from txlog.testing.tcp_proxy import TcpProxy

CALM_S = (0.2, 1.5)
"""The duration of the fault-free time between two faults."""

TROUBLED_S = (0.05, 1.5)
"""The duration of a fault."""

DELAY_MS = (20.0, 400.0)
LOSSES = (1, 6)
"""The number of answers lost at a time."""


class NetworkFaults:
    """Cuts, delays and losses, one after the other."""

    def __init__(self, proxy: TcpProxy, seed: str) -> None:
        self.counts: Counter[str] = Counter()
        """The faults so far, by kind."""
        self._proxy = proxy
        self._random = random.Random(seed)
        self._over = threading.Event()

    @contextmanager
    def injected(self) -> Iterator[None]:
        """Inject faults for the duration of the block; afterwards the line works as before."""
        thread = threading.Thread(target=self._inject, name="network faults")
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()
            self._proxy.recover()

    def _inject(self) -> None:
        while not self._over.wait(self._random.uniform(*CALM_S)):
            fault = self._random.choice(("cut", "delay", "lose PUT", "lose GET", "stall"))
            self._begin(fault)
            self.counts[fault] += 1
            self._over.wait(self._random.uniform(*TROUBLED_S))
            self._proxy.recover()

    def _begin(self, fault: str) -> None:
        if fault == "cut":
            self._proxy.refuse()
        elif fault == "delay":
            self._proxy.delay(self._random.uniform(*DELAY_MS))
        elif fault == "stall":
            self._proxy.stall()
        else:
            self._proxy.lose_answers(fault.split()[1], self._random.randint(*LOSSES))
