"""The console script: until the commands are imported, Ctrl-C ends it without a traceback.

The imports take most of the time that a short command takes, and an interrupt would come up in the
middle of one of them. It must import nothing of the command line at its own top.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
from types import FrameType

INTERRUPTED = 130
"""As in exit_codes.py, which imports too much to be asked."""


def main() -> None:
    """Import the commands, then run the command line of this process."""
    is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_ours:  # Else the caller ignores it, as a shell does for what runs in the background.
        signal.signal(signal.SIGINT, _leave)
    # numpy's linear algebra, which no command uses, starts a thread for each core otherwise.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.disable()  # Modules are no garbage: looking for some takes a fifth of the imports' time.
    commands = importlib.import_module("txlog.cli.main")
    gc.freeze()
    gc.enable()
    if is_ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    commands.main()


def _leave(_: int, __: FrameType | None) -> None:
    """End at once: an exception could be swallowed, or wrapped, by the import it comes up in."""
    os._exit(INTERRUPTED)
