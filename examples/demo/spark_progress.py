"""How far a Spark query is, from its checkpoint folder: which batches it planned and finished."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

NONE = -1


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """Newest batch ids; NONE if there is none."""

    query_id: str
    planned: int
    finished: int
    """Spark has noted that the sink committed it."""

    @property
    def is_in_flight(self) -> bool:
        """A batch was begun whose end Spark has not noted: a restart runs it again."""
        return self.planned > self.finished


def query_progress(checkpoint: Path) -> QueryProgress:
    """What the folder says just now; a missing one is a query that has not begun."""
    # The finished ones first: a batch that ends meanwhile is then in flight, not unplanned.
    finished = _newest(checkpoint / "commits")
    planned = _newest(checkpoint / "offsets")
    return QueryProgress(_query_id(checkpoint / "metadata"), planned, finished)


def is_without_records(checkpoint: Path, batch: int) -> bool:
    """Whether that planned batch reads nothing: its sources are where the batch before it ended."""
    sources = _sources(checkpoint, batch)
    return sources is not None and sources == _sources(checkpoint, batch - 1)


def _sources(checkpoint: Path, batch: int) -> list[str] | None:
    """The lines of the sources: below the version and the batch's own line."""
    try:
        plan = (checkpoint / "offsets" / str(batch)).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    return plan.splitlines()[2:]


def _newest(folder: Path) -> int:
    if not folder.is_dir():
        return NONE
    return max((int(path.name) for path in folder.iterdir() if path.name.isdigit()), default=NONE)


def _query_id(metadata: Path) -> str:
    try:
        return str(json.loads(metadata.read_text(encoding="utf-8"))["id"])
    except (FileNotFoundError, ValueError, KeyError):
        return ""
