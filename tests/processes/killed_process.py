"""For processes that tests start to be killed: a log with a script, and death at a store's call.

A step of a protocol is a call of the store, and with one call after the other it is the same moment
in every run. SIGKILL leaves nothing that could tidy up, as when the power goes.
"""

import os
import signal

from tests.stores.scripted_store import Call, Effect, ScriptedStore
from txlog.clock import Runtime, SerialFanOut
from txlog.engine.connection import Connection, open_connection
from txlog.storage import open_store

BEFORE, AFTER = "before", "after"


def scripted_log(root: str) -> tuple[ScriptedStore, Connection]:
    """The log there, and the script that its store follows in this process."""
    runtime = Runtime(fan_out=SerialFanOut())
    store = ScriptedStore(open_store(root, runtime))
    return store, open_connection(store, runtime)


def kill_at(side: str, nth: int) -> Effect:
    """This process is gone on that side of the nth call that meets the effect."""
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
