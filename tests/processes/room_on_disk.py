"""Little room on a disk, as the kernel enforces it."""

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def room_for(size_bytes: int) -> Iterator[None]:
    """Limits the size of every file of this process: EFBIG, as with a quota, after the part that
    fits.

    Python does not check how much of a module's bytecode was written: the part would be found by
    every later import of the module, in all processes.
    """
    limits, unwritten = resource.getrlimit(resource.RLIMIT_FSIZE), sys.dont_write_bytecode
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, limits[1]))
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        sys.dont_write_bytecode = unwritten
