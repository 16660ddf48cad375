"""Ctrl-C at a chosen place: wherever CPython checks for signals while it runs our code.

CPython checks after a call, at the start of a function and at the end of a loop iteration, and
nowhere else. A test that covers these places covers everything that a user can meet.
"""

import dis
import sys
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any

import txlog

_ROOT = Path(txlog.__file__).parent
_LOOKS_FOR_SIGNALS = ("CALL", "RESUME", "JUMP_BACKWARD", "POP_JUMP_BACKWARD")

Place = tuple[str, int]
"""The qualified name of a function, and an instruction in it."""


class Interruption:
    """Ctrl-C in a block of code.

    `with Interruption(["client/producer/sender.py"]) as whole:` lists the places in these modules
    that the block passes; `with whole.at(7):` around the same block raises KeyboardInterrupt at the
    eighth of them, and ends the block.
    """

    def __init__(self, modules: list[str]) -> None:
        self.places: list[Place] = []
        """The places that the block has passed, in order."""
        self.has_come = False
        self._files = {str(_ROOT / module) for module in modules}
        for file in self._files:
            assert Path(file).is_file(), f"no module {file}"
        self._place: Place | None = None
        self._passes_left = 0

    def at(self, number: int) -> "Interruption":
        """Raise KeyboardInterrupt at this place of the list."""
        found = Interruption([])
        found._files = self._files
        found._place = self.places[number]
        found._passes_left = self.places[: number + 1].count(found._place)
        return found

    def __enter__(self) -> "Interruption":
        self._before = sys.gettrace()
        sys.settrace(self._called)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> bool:
        sys.settrace(self._before)
        return kind is KeyboardInterrupt and self.has_come

    def _called(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        code = frame.f_code
        if code.co_filename not in self._files:
            return None
        # Following only one function takes a third of the time.
        if self._place is not None and code.co_qualname != self._place[0]:
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        places, last = _places(code), -1

        def traced(frame: FrameType, event: str, _: Any) -> Callable[..., Any]:
            nonlocal last
            if event == "opcode":
                step, last = (last, frame.f_lasti), frame.f_lasti
                if step in places:
                    self._come_by((code.co_qualname, frame.f_lasti))
            return traced

        return traced

    def _come_by(self, place: Place) -> None:
        self.places.append(place)
        if place == self._place:
            self._passes_left -= 1
            if not self._passes_left:
                self.has_come = True
                raise KeyboardInterrupt


def once_each(places: list[Place]) -> list[int]:
    """The index of the last visit of each place."""
    return sorted({place: number for number, place in enumerate(places)}.values())


def is_in_a_block(code: CodeType, place: Place) -> bool:
    """Whether a `with` or a `try` of this function handles an exception at this place."""
    name, offset = place
    return name == code.co_qualname and _handler(code, offset) is not None


@cache
def _places(code: CodeType) -> frozenset[tuple[int, int]]:
    """From an instruction that checks for signals to the one after it."""
    return frozenset(
        (start, end)
        for start, end in _steps(code)
        # An exception belongs to the instruction that checks; a trace raises it at the next one.
        if _handler(code, start) == _handler(code, end)
    )


def _steps(code: CodeType) -> Iterator[tuple[int, int]]:
    instructions = dis.get_instructions(code)
    for one, following in pairwise(instructions):
        if one.opname.startswith(_LOOKS_FOR_SIGNALS):
            yield one.offset, one.argval if "JUMP" in one.opname else following.offset


@cache
def _handlers(code: CodeType) -> list[tuple[int, int, int]]:
    found = dis.Bytecode(code).exception_entries
    return [(entry.start, entry.end, entry.target) for entry in found]


def _handler(code: CodeType, offset: int) -> int | None:
    covering = (target for start, end, target in _handlers(code) if start <= offset < end)
    return next(covering, None)
