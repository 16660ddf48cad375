"""Processes that get Ctrl-C while their main thread uses threads, each at another place: in our
code, or in the standard library's that it calls. Then each goes on for a moment, and ends."""

import json
import os
import select
import signal
import sys
from collections.abc import Callable

from tests.processes.interruption import Interruption, Place
from txlog.clock import FanOut, Runtime

END_S = 20
"""Each process ends within milliseconds."""

MODULES = [
    "clock.py",
    "threading.py",
    "weakref.py",
    "_weakrefset.py",
    "concurrent/futures/thread.py",
    "concurrent/futures/_base.py",
]
NOT_REACHED = 100
"""The status of a process that did not pass its place: threads took other turns."""
LAST = "made"


def main() -> None:
    """Interrupt every place once, each in a process of its own. Prints those that end badly, and
    last how many places there are and how many were reached."""
    places = _places()
    reached = 0
    for place in places:
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            # It ends as any process does: the interpreter waits for its threads.
            _interrupted(place, writing)
            return
        os.close(writing)
        status = _status(child)
        with os.fdopen(reading) as pipe:
            last = "" if status else pipe.read()
        reached += status != NOT_REACHED
        if (status, last) not in ((0, LAST), (NOT_REACHED, "")):
            print(f"interrupted at {place}: ended with {status}, last call {last!r}", flush=True)
    print(f"{reached} of {len(places)}", flush=True)


def _status(child: int) -> int:
    """How the process ends: as `subprocess` says it."""
    descriptor = os.pidfd_open(child)
    is_ended = bool(select.select([descriptor], [], [], END_S)[0])
    os.close(descriptor)
    if not is_ended:
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _places() -> list[Place]:
    """The places that the scenario passes, found in another process, as this one may start no
    thread."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        whole = Interruption(MODULES)
        Scenario().run(whole)
        with os.fdopen(writing, "w") as pipe:
            json.dump(list(dict.fromkeys(whole.places)), pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        found = [(name, offset) for name, offset in json.load(pipe)]
    assert _status(child) == 0
    return found


def _interrupted(place: Place, last: int) -> None:
    whole = Interruption(MODULES)
    whole.places = [place]
    interruption, scenario = whole.at(0), Scenario()
    scenario.run(interruption)
    if not interruption.has_come:
        sys.exit(NOT_REACHED)
    assert not scenario.is_done, "Ctrl-C was lost"
    scenario.go_on(lambda: os.write(last, LAST.encode()))


class Scenario:
    """What the main thread does with threads."""

    def __init__(self) -> None:
        self.runtime = Runtime()
        self.made: list[int] = []
        self.is_done = False

    def run(self, interruption: Interruption) -> None:
        """Everything once, while it may be interrupted."""
        fan_out, background = self.runtime.fan_out, self.runtime.background
        with interruption:
            assert fan_out.run_all(self.calls(3)) == [0, 1, 2]
            assert fan_out.run_together(self.calls(2)) == [0, 1]
            (call,) = self.calls(1)
            joins = [fan_out.start(call), fan_out.postpone(call, 5.0)]
            fan_out.postpone(call, 50.0).take()
            event, end = self.runtime.new_event(), background.repeat(call, 5.0)
            background.begin(event.set)
            event.wait_ms(1_000.0)
            event.wait_ms(0.0)
            end()
            assert [join() for join in joins] == [0, 0]
            self.is_done = True

    def calls(self, count: int) -> list[Callable[[], int]]:
        """Calls that return their numbers."""
        return [lambda number=number: self.made.append(number) or number for number in range(count)]

    def go_on(self, last: Callable[[], object]) -> None:
        """The same objects can be used afterwards. The process may not forget the last call."""
        fan_out: FanOut = self.runtime.fan_out
        assert fan_out.run_all(self.calls(5)) == [0, 1, 2, 3, 4]
        begun = self.runtime.new_event()
        fan_out.postpone(begun.set, 1.0)
        assert begun.wait_ms(1_000 * END_S)
        fan_out.start(last)
