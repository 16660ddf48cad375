"""For processes that tests start in order to kill them: a log with a script, and death at a store
call.

Each step of a protocol is a call of the store. With one call at a time, a step is the same point in
every run. As after a power failure, SIGKILL leaves no chance to clean up.
"""

import os
import signal
from collections.abc import Mapping

from tests.stores.scripted_store import Call, Effect, ScriptedStore
from txlog.clock import Runtime
from txlog.engine.connection import Connection, open_connection
from txlog.fan_out import SerialFanOut
from txlog.storage import open_store

BEFORE, AFTER = "before", "after"


def scripted_log(
    root: str, storage_options: Mapping[str, object] | None = None
) -> tuple[ScriptedStore, Connection]:
    """The log at that root, and the script that its store follows in this process."""
    runtime = Runtime(fan_out=SerialFanOut())
    store = ScriptedStore(open_store(root, runtime, storage_options))
    return store, open_connection(store, runtime)


def kill_at(side: str, nth: int) -> Effect:
    """Kill this process before or after the nth call that matches."""
    calls = 0

    def die(call: Call) -> object:
        nonlocal calls
        calls += 1
        if calls < nth:
            return call()
        if side == AFTER:
            call()
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("SIGKILL cannot be caught")

    return die
