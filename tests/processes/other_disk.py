"""A process that sees another disk at a folder than other processes do, as on another machine."""

import ctypes
import os
import shutil
from pathlib import Path

_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_REC, _MS_PRIVATE = 0x4000, 0x40000


def see_another_disk(home: Path, content: Path | None = None) -> None:
    """From now on `~` is `home` with another disk there: empty, or with a copy of `content`.

    The disk is a file system of memory, mounted in a namespace that only this process is in. A
    system that refuses that gets another folder as `~`.
    """
    os.environ["HOME"] = str(home)
    kept = home.parent / f"{home.name} of {os.getpid()}"
    if content is not None:
        shutil.copytree(content, kept)
    if not _mounted(home):
        kept.mkdir(exist_ok=True)
        os.environ["HOME"] = str(kept)
    elif content is not None:
        shutil.copytree(kept, home, dirs_exist_ok=True)


def _mounted(folder: Path) -> bool:
    system = ctypes.CDLL(None, use_errno=True)
    if system.unshare(_CLONE_NEWNS) and not _in_a_user_namespace(system):
        return False
    # Otherwise the mount would also be seen where this process comes from.
    if system.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None):
        return False
    return not system.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, b"size=64m")


def _in_a_user_namespace(system: ctypes.CDLL) -> bool:
    """Any user may mount there, where the system allows such namespaces."""
    user, group = os.getuid(), os.getgid()
    if system.unshare(_CLONE_NEWNS | _CLONE_NEWUSER):
        return False
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {user} 1")
    Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    return True
