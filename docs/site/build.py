"""Builds the documentation site: README, the pages of docs/, and the API from its docstrings.

`python docs/site/build.py` writes build/docs/index.html. Pages are written for readers of the
repository, so links that leave docs/ become names of files here. The chapters, and the order of
their pages, are those of docs/README.md. A page that it does not name is a warning, and a warning
fails the build.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "build" / "docs-source"
TARGET = ROOT / "build" / "docs"

API = {
    "The log": "txlog",
    "Errors": "txlog.errors",
    "Consumer group resets": "txlog.client.admin.offset_reset",
    "Settings": "txlog.settings",
    "Spark": "spark_plugin",
    "For tests of yours: what a store must do": "txlog.testing.conformance",
    "For tests of yours: a clock in the hand": "txlog.testing.clock",
    "For tests of yours: a store far away": "txlog.testing.proxy_process",
    "For tests of yours: an S3 server": "txlog.testing.s3_server",
    "For tests of yours: the invariants of a log": "txlog.verify.invariants",
}

_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")
_PAGE_OF_DOCS = re.compile(r"\]\(((?:dev/)?[\w-]+)\.md\)")


def main() -> int:
    """Collect the pages, then run Sphinx; its exit code."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    for page in sorted((ROOT / "docs").rglob("*.md")):
        if not page.name.startswith("0000"):
            write(page.relative_to(ROOT / "docs"), page.read_text(encoding="utf-8"), page.parent)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    write(Path("index.md"), readme + contents(), ROOT)
    write(Path("api.md"), api(), ROOT)
    sphinx = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--quiet"]
    places = ["-c", str(Path(__file__).parent), str(SOURCE), str(TARGET)]
    done = subprocess.run([*sphinx, *places], check=False)
    if done.returncode == 0:
        print(f"The documentation is at {TARGET / 'index.html'}")
    return done.returncode


def write(name: Path, text: str, folder: Path) -> None:
    """A page of the site; `folder` is where its links begin."""
    path = SOURCE / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_LINK.sub(lambda link: moved(link, folder, path.parent), text), "utf-8")


def moved(link: re.Match[str], folder: Path, here: Path) -> str:
    """The link as the site has it."""
    target, hash_sign, anchor = link[2].partition("#")
    if not target or "://" in target:
        return link[0]
    path = (folder / target).resolve()
    if path == ROOT / "README.md":
        found = SOURCE / "index.md"
    elif path.is_relative_to(ROOT / "docs") and path.suffix == ".md" and path.name[:4] != "0000":
        found = SOURCE / path.relative_to(ROOT / "docs")
    else:
        return (
            f"{link[1]} (`{path.relative_to(ROOT)}`)" if f"{path.name}" not in link[1] else link[1]
        )
    return f"[{link[1]}]({Path(os.path.relpath(found, here)).as_posix()}{hash_sign}{anchor})"


def contents() -> str:
    """What the site's side lists: docs/README.md, the API, the pages in its order, the notes."""
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    chapters = {"Overview": ["README", "api"]}
    for part in index.split("\n## ")[1:]:
        title, _, text = part.partition("\n")
        chapters[title] = _PAGE_OF_DOCS.findall(text)
    notes = sorted(path.stem for path in (SOURCE / "design").glob("*.md"))
    chapters["Why it is so"] = [f"design/{name}" for name in notes]
    return "".join(chapter(title, names) for title, names in chapters.items())


def chapter(title: str, names: list[str]) -> str:
    """A part of it."""
    head = f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n"
    return head + "\n".join(names) + "\n```\n"


def api() -> str:
    """The documented modules."""
    parts = (
        f"## {title}\n\n```{{eval-rst}}\n.. automodule:: {module}\n   :members:\n```\n"
        for title, module in API.items()
    )
    return "# The API\n\n" + "\n".join(parts)


if __name__ == "__main__":
    sys.exit(main())
