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
from types import FrameType

INTERRUPTED = 130
"""As in exit_codes.py, whose import would take too long here."""

UNTOUCHED = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
"""Their handlers as Python sets them. A shell has its background jobs ignore signals."""


def main() -> None:
    """Import the commands, then run the command line of this process."""
    ours = [number for number, known in UNTOUCHED.items() if signal.getsignal(number) == known]
    for number in ours:
        signal.signal(number, _leave)
    # numpy's linear algebra, which no command uses, would start a thread for each core.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
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
