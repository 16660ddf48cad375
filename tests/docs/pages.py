"""The project's Markdown pages as data: code blocks, links, headings and words."""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.source_tree import ROOT

_FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
_LINK = re.compile(r"\[[^\]\n]+\]\(([^)\s]+)\)")
_INLINE = re.compile(r"`([^`\n]+)`")
_OUTPUT = "text output"


@dataclass(frozen=True)
class Block:
    """A fenced block: the words after the fence, its text, and its line."""

    info: str
    text: str
    line: int
    output: str | None = None
    """The output that the next block shows; None if there is no such block."""

    @property
    def is_python(self) -> bool:
        """Whether the block is to be executed."""
        return self.info.split()[:1] == ["python"]

    @property
    def needs_spark(self) -> bool:
        """Whether the block is marked `python spark`."""
        return self.is_python and "spark" in self.info.split()


@dataclass(frozen=True)
class Page:
    """One Markdown file."""

    path: Path

    @property
    def place(self) -> str:
        """The path below the root, for messages."""
        return self.path.relative_to(ROOT).as_posix()

    @cached_property
    def text(self) -> str:
        """The source of the page."""
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def prose(self) -> str:
        """The text without its fenced blocks."""
        return _FENCE.sub("", self.text)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """Every fenced block, each with the output that follows it."""
        found = list(_FENCE.finditer(self.text))
        followers = [*found[1:], None] if found else []
        return tuple(
            Block(
                match[1].strip(),
                match[2],
                self.text.count("\n", 0, match.start()) + 1,
                after[2] if after is not None and after[1].strip() == _OUTPUT else None,
            )
            for match, after in zip(found, followers, strict=True)
        )

    @cached_property
    def anchors(self) -> frozenset[str]:
        """The anchors that a link may name after '#', by GitHub's rule."""
        return frozenset(_slug(title) for title in _HEADING.findall(self.prose))

    @cached_property
    def links(self) -> tuple[str, ...]:
        """The targets of links, in order."""
        return tuple(_LINK.findall(self.prose))

    @cached_property
    def code_words(self) -> tuple[str, ...]:
        """The inline code, in order."""
        return tuple(_INLINE.findall(self.prose))

    @cached_property
    def words(self) -> int:
        """The number of words of its prose, without tables and code."""
        lines = self.prose.split("\n")
        return sum(len(line.split()) for line in lines if not line.startswith(("|", "    ")))

    def rows(self, heading: str) -> list[list[str]]:
        """The cells of the table below the line `heading`, without the table's head."""
        lines = self.text.split(f"\n{heading}\n", 1)[1].lstrip("\n").split("\n")
        table = lines[: next((n for n, line in enumerate(lines) if not line.startswith("|")), None)]
        return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]


def _slug(title: str) -> str:
    plain = re.sub(r"[^\w\- ]", "", title.lower())
    return plain.replace(" ", "-")


def pages() -> list[Page]:
    """The pages in the root, README.md first, and everything below docs/."""
    first = ROOT / "README.md"
    others = sorted(path for path in ROOT.glob("*.md") if path != first)
    return [Page(path) for path in (first, *others, *sorted((ROOT / "docs").rglob("*.md")))]
