"""The name of this project on the package index, and its version.

The name is not `txlog`: that is another project on the index, whose module is also called txlog.
This module must not know which packages need an extra.
"""

from __future__ import annotations

DISTRIBUTION = "txlog-spark"
"""As in setup.cfg; a test compares the two."""

VERSION = "0.1.0"
"""As in setup.cfg; a test compares the two. Every stored object names it."""


def install_command(extra: str = "") -> str:
    """The command that installs this project, with one of its extras if one is named.

    If the project is installed already, pip takes only the packages of the extra from the index.
    """
    return f"pip install '{DISTRIBUTION}[{extra}]'" if extra else f"pip install {DISTRIBUTION}"
