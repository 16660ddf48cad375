"""The console script. While the commands are imported, Ctrl-C ends it without a traceback.

Imports take most of a short command's time, so an interrupt would often hit one of them. SIGTERM
does what Ctrl-C does: the first process of a container would not be ended by it otherwise. This
module must import nothing of the command line at its top.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
from types import FrameType

INTERRUPTED = 130
"""As in exit_codes.py, whose import would take too long here."""

UNTOUCHED = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
"""Their handlers as Python sets them. A shell has its background jobs ignore signals."""


class _WithoutPandas:
    """pyarrow imports pandas at the first conversion of Python's values, where it is installed, and
    goes on without where it is not. A command has no data frames, and starts 0.3 s sooner."""

    def find_spec(self, name: str, _: object, target: object = None, /) -> None:
        """Raises ModuleNotFoundError for pandas; others are found as before."""
        if name == "pandas":
            raise ModuleNotFoundError("the command line does without pandas", name=name)


def main() -> None:
    """Import the commands, then run the command line of this process."""
    ours = [number for number, known in UNTOUCHED.items() if signal.getsignal(number) == known]
    for number in ours:
        signal.signal(number, _leave)
    # numpy's linear algebra, which no command uses, would start a thread for each core.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Arrow's own pool keeps a heap for each thread, with a hundred writers of a gateway 36 MB.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    sys.meta_path.insert(0, _WithoutPandas())
    gc.disable()  # Modules are not garbage: collecting takes a fifth of the imports' time.
    commands = importlib.import_module("txlog.cli.main")
    # What was imported lives as long as the process, so later collections skip it.
    gc.freeze()
    gc.enable()
    for number in ours:
        # From here on Ctrl-C is an exception: a command may have to say what it has written.
        signal.signal(number, signal.default_int_handler)
    commands.main()


def _leave(_: int, __: FrameType | None) -> None:
    """End at once: the import in progress could swallow or wrap an exception."""
    os._exit(INTERRUPTED)
