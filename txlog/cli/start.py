"""The console script. While the commands are imported, Ctrl-C ends it without a traceback.

Imports take most of a short command's time, so an interrupt would often hit one of them. This
module must import nothing of the command line at its top.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
from types import FrameType

INTERRUPTED = 130
"""As in exit_codes.py, whose import would take too long here."""


def main() -> None:
    """Import the commands, then run the command line of this process."""
    is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_ours:  # Else the caller ignores it, as a shell does for background jobs.
        signal.signal(signal.SIGINT, _leave)
    # numpy's linear algebra, which no command uses, would start a thread for each core.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.disable()  # Modules are not garbage: collecting takes a fifth of the imports' time.
    commands = importlib.import_module("txlog.cli.main")
    # What was imported lives as long as the process, so later collections skip it.
    gc.freeze()
    gc.enable()
    if is_ours:
        # From here on Ctrl-C is an exception: a command may have to say what it has written.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    commands.main()


def _leave(_: int, __: FrameType | None) -> None:
    """End at once: the import in progress could swallow or wrap an exception."""
    os._exit(INTERRUPTED)
