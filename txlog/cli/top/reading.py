"""Reads the log for the screen, in a thread of its own: a store may take any time to answer.

It reads what is on the screen and nothing else, one question after the other. An error is an
answer, too: the next look tries again. It only reads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from txlog.cli.top.look import Document, Question
from txlog.client.admin import Admin
from txlog.client.admin.watched_log import WatchedLog
from txlog.documents.record_json import iso_time
from txlog.errors import TxlogError
from txlog.redaction import redact
from txlog.ui.views import VIEWS

KEPT_ANSWERS_MAX = 30
"""Answers that are kept until they are due again."""


@dataclass(frozen=True, slots=True)
class ViewAnswer:
    """A document, or what is wrong; and when it was read."""

    question: Question
    document: Document | None
    error: str
    read_at: str


class Reader:
    """Asks again and again, until it is ended."""

    def __init__(
        self, opened: Callable[[], Admin], interval_ms: int, tell: Callable[[ViewAnswer], object]
    ) -> None:
        """`opened` opens the log. `tell` is called from the reader's thread."""
        self._log = WatchedLog(opened)
        self._runtime = self._log.connection.runtime
        self._interval_ms = interval_ms
        self._tell = tell
        self._asked: SimpleQueue[tuple[Question, ...] | None] = SimpleQueue()
        self._kept: dict[Question, tuple[float, ViewAnswer]] = {}

    def begin(self) -> None:
        """Start the thread. It does not keep the process alive: a read may hang."""
        self._runtime.background.begin(self._run)

    def ask(self, questions: tuple[Question, ...]) -> None:
        """From now on read the answers to these, the first time at once."""
        self._asked.put(questions)

    def end(self) -> None:
        """Ask nothing more."""
        self._asked.put(None)

    def _run(self) -> None:
        questions: tuple[Question, ...] | None = self._asked.get()
        while questions is not None:
            for question in questions:
                if self._asked.empty():
                    self._tell(self._answer(question))
            try:
                questions = self._asked.get(timeout=self._interval_ms / 1000)
                while not self._asked.empty():
                    questions = self._asked.get()
            except Empty:
                continue

    def _answer(self, question: Question) -> ViewAnswer:
        clock = self._runtime.clock
        at_ms, kept = self._kept.get(question, (0.0, None))
        if kept is not None and clock.monotonic_ms() - at_ms < question.every * self._interval_ms:
            return kept
        document, error = None, ""
        try:
            view, params = VIEWS[question.path], dict(question.params)
            document = self._log.ask(lambda admin: view(admin, params))
        except TxlogError as found:
            error = redact(found.message)
        except Exception as found:  # noqa: BLE001 - the screen shows it, and goes on
            error = redact(f"internal error: {type(found).__name__}: {found}")
        answer = ViewAnswer(question, document, error, (iso_time(clock.wall_ms()) or "")[11:19])
        if question.every > 1 and document is not None:
            self._kept = dict(list(self._kept.items())[-KEPT_ANSWERS_MAX:])
            self._kept[question] = (clock.monotonic_ms(), answer)
        return answer
