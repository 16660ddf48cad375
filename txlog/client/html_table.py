"""The tables by which values show themselves in a notebook.

Everything in them is text: names and errors may contain what a browser takes for markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

ROWS_MAX = 20
"""Rows that are shown, and a line says how many more there are: a notebook keeps its outputs."""

CELL_CHARACTERS_MAX = 120
"""Of a longer text the beginning is shown."""


def html_table(title: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table with a caption; a cell that is None is empty."""
    heads = "".join(f"<th>{_shown(name)}</th>" for name in header)
    lines = [
        f"<tr>{''.join(f'<td>{_shown(cell)}</td>' for cell in row)}</tr>" for row in rows[:ROWS_MAX]
    ]
    if len(rows) > ROWS_MAX:
        more = f"and {len(rows) - ROWS_MAX:,} more"
        lines.append(f'<tr><td colspan="{len(header)}">{more}</td></tr>')
    return (
        f"<table><caption>{_shown(title)}</caption><thead><tr>{heads}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table>"
    )


def _shown(value: object) -> str:
    text = "" if value is None else str(value)
    if len(text) > CELL_CHARACTERS_MAX:
        text = f"{text[:CELL_CHARACTERS_MAX]}..."
    # A notebook is stored as UTF-8, which half a surrogate pair does not have.
    return escape(text.encode(errors="replace").decode())
