"""Runs the notebook of `examples`, in a process and a folder of its own.

`python -m tests.docs.notebook` stores its outputs in it, as a reader sees them.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

from tests.source_tree import ROOT

NOTEBOOK = ROOT / "examples" / "notebook" / "tour.ipynb"
CELL_TIMEOUT_S = 60


def stored() -> Any:
    """The notebook as it is in the source."""
    return nbformat.read(NOTEBOOK, as_version=4)


def executed(folder: Path) -> Any:
    """The notebook with the outputs of a run in `folder`. Raises CellExecutionError."""
    notebook = stored()
    # Sockets of files, whose names may have 107 characters, and no port.
    with tempfile.TemporaryDirectory(prefix="nb") as sockets:
        through = Config({"KernelManager": {"transport": "ipc", "ip": f"{sockets}/k"}})
        own = {"PYTHONPATH": str(ROOT), "IPYTHONDIR": sockets, "JUPYTER_RUNTIME_DIR": sockets}
        NotebookClient(
            notebook,
            timeout=CELL_TIMEOUT_S,
            record_timing=False,
            resources={"metadata": {"path": str(folder)}},
            config=through,
        ).execute(env={**os.environ, **own})
    return notebook


def main() -> None:
    """Store the outputs, without the place where the run was."""
    with tempfile.TemporaryDirectory() as folder:
        text = nbformat.writes(executed(Path(folder)))
        NOTEBOOK.write_text(text.replace(f"{folder}/", "") + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
