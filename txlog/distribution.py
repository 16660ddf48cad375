"""The name under which pip knows this project, and its version.

The name is not `txlog`: on the package index that is another project, whose module is also called
txlog. It must not know which packages need an extra.
"""

from __future__ import annotations

DISTRIBUTION = "txlog-spark"
"""As in setup.cfg; a test compares the two."""

VERSION = "0.1.0"
"""As in setup.cfg; a test compares the two. What a log stores says it, too."""


def install_command(extra: str = "") -> str:
    """The command that installs this project, with one of its extras if one is named.

    If the project is installed already, pip takes only the packages of the extra from the index.
    """
    return f"pip install '{DISTRIBUTION}[{extra}]'" if extra else f"pip install {DISTRIBUTION}"
