"""The prompt of `txlog sql`: a history, and completion of topics and columns.

Both are the ones of Python's readline, which needs no package. It must not know DuckDB.
"""

from __future__ import annotations

import os
import re
import readline
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from txlog.errors import TxlogError

HISTORY_LINES_MAX = 1_000
"""Lines that are remembered from one session to the next: no more than one looks through."""

COMPLETED_MAX = 200
"""Names that are offered at once; a terminal asks before it prints more."""

HELP = 'A query ends with ";". Tab completes names; \\q, exit or Ctrl-D ends.'
_ENDS = frozenset({"\\q", "exit", "quit", "exit;", "quit;"})
_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_WORDS = (
    "select from where group by order having limit join left on using with as and or not in is "
    "null between like distinct count( sum( min( max( avg( over ( partition describe summarize "
    "union case when then else end cast("
)


def statements(say: Callable[[str], None]) -> Iterator[str]:
    """What is typed, each statement when its `;` has come. Ctrl-C drops what is typed so far."""
    say(HELP)
    typed: list[str] = []
    while True:
        try:
            line = input("   ...> " if typed else "txlog> ")
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            print()
            typed.clear()
            continue
        if not typed and line.strip().lower() in _ENDS:
            return
        if not typed and not line.strip():
            continue
        typed.append(line)
        if line.rstrip().endswith(";"):
            yield "\n".join(typed)
            typed.clear()


class NameCompletion:
    """Completes words of SQL, topics, and the columns of the topics that the line names."""

    def __init__(
        self, topics: Callable[[], list[str]], columns: Callable[[str], list[str]]
    ) -> None:
        self._topics = topics
        self._columns = columns
        self._known: dict[str, list[str]] = {}
        self._found: list[str] = []

    def install(self) -> None:
        """Complete what is typed from now on."""
        readline.set_completer(self.complete)
        readline.set_completer_delims(" \t\n,()=<>;.")
        is_libedit = "libedit" in (readline.__doc__ or "")
        readline.parse_and_bind("bind ^I rl_complete" if is_libedit else "tab: complete")

    def complete(self, word: str, number: int) -> str | None:
        """The completion of that number, as readline asks for it."""
        if number == 0:
            try:
                self._found = self.candidates(readline.get_line_buffer(), word)
            except TxlogError:  # A line that is being typed shows no errors.
                self._found = []
        return self._found[number] if number < len(self._found) else None

    def candidates(self, line: str, word: str) -> list[str]:
        """The names that begin with the word."""
        topics = self._topics()
        columns = [
            name
            for topic in topics
            if topic.lower() in line.lower()
            for name in self._columns_of(topic)
        ]
        names = [*dict.fromkeys(map(quoted, [*topics, *columns])), *_WORDS.split()]
        begun = word.lower().lstrip('"')
        found = [name for name in names if begun and name.lower().lstrip('"').startswith(begun)]
        return found[:COMPLETED_MAX]

    def _columns_of(self, topic: str) -> list[str]:
        if topic not in self._known:
            self._known[topic] = self._columns(topic)
        return self._known[topic]


def quoted(name: str) -> str:
    """The name as SQL takes it."""
    return name if _PLAIN_NAME.fullmatch(name) else '"{}"'.format(name.replace('"', '""'))


def history_file(variables: dict[str, str]) -> Path:
    """Where the history is kept."""
    state = variables.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(state) / "txlog" / "sql_history"


class History:
    """The statements of earlier sessions. There may be none."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __enter__(self) -> None:
        with suppress(OSError):
            readline.read_history_file(self._file)
        readline.set_history_length(HISTORY_LINES_MAX)

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            # Others may not read it: statements contain values.
            os.close(os.open(self._file, os.O_CREAT | os.O_WRONLY, 0o600))
            readline.write_history_file(self._file)
