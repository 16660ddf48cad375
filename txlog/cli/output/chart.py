"""Numbers over time as a chart: of characters for a terminal, or as a picture in a file."""

from __future__ import annotations

import importlib.util
import math
import sys
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from txlog.distribution import install_command
from txlog.errors import UsageError

HEIGHT = 6
WIDTH_MAX = 60
TITLE_WIDTH = 90
"""Characters of a line of a picture's title. matplotlib's own `wrap` takes `$` for a formula."""
PICTURES = (".svg", ".png")

_BLOCKS = " ▁▂▃▄▅▆▇█"
_PLAIN_BLOCKS = "   ..:::#"
"""For a terminal whose encoding has no blocks."""
_MISSING = "?"


def chart(
    title: str, values: Sequence[int | None], *, encoding: str | None = None
) -> tuple[str, ...]:
    """Lines of a column chart; a value that is not known is a question mark at its foot.
    `encoding`: of the terminal, by default stdout's."""
    bucket = max(math.ceil(len(values) / WIDTH_MAX), 1)
    columns = [_highest(values[at : at + bucket]) for at in range(0, len(values), bucket)]
    top = max((value for value in columns if value is not None), default=0)
    label_width = len(str(top))
    blocks = _BLOCKS if _can_print(_BLOCKS, encoding) else _PLAIN_BLOCKS
    lines = []
    for row in reversed(range(HEIGHT)):
        label = str(top) if row == HEIGHT - 1 else "0" if row == 0 else ""
        cells = "".join(_cell(value, top, row, blocks) for value in columns)
        lines.append(f"{label.rjust(label_width)} {cells}".rstrip())
    return (title, *lines)


def _highest(values: Sequence[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _cell(value: int | None, top: int, row: int, blocks: str) -> str:
    if value is None:
        return _MISSING if row == 0 else " "
    eighths = math.ceil(value * HEIGHT * 8 / top) if value else 0
    return blocks[min(max(eighths - 8 * row, 0), 8)]


def _can_print(text: str, encoding: str | None) -> bool:
    try:
        text.encode(encoding or sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def picture_path(text: str) -> Path:
    """The file of a picture. Raises UsageError for another suffix, and without matplotlib."""
    path = Path(text)
    if path.suffix.lower() not in PICTURES:
        raise UsageError(f"{text!r} is no picture; give a name that ends with .svg or .png.")
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError(f"pictures need matplotlib; run {install_command('plot')}.")
    return path


def write_picture(
    path: Path,
    title: str,
    times: Sequence[datetime],
    lines: Mapping[str, Sequence[int | None]],
) -> None:
    """A panel for each name, one below the other, with the same times. A value that is not known
    is a gap. Raises OSError."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 2.4 * len(lines) + 0.6), layout="constrained")
    axes = figure.subplots(len(lines), sharex=True, squeeze=False)[:, 0]
    # Names may be long and hold any character: `$` would begin a formula.
    figure.suptitle(textwrap.fill(title, TITLE_WIDTH), parse_math=False)
    for axis, (name, values) in zip(axes, lines.items(), strict=True):
        axis.plot(times, [math.nan if v is None else v for v in values], drawstyle="steps-post")
        axis.set_ylabel(name)
        axis.set_ylim(bottom=0)
        axis.grid(visible=True, alpha=0.3)
    if times[0] < times[-1]:  # Else values that are mostly unknown would be shown within years.
        axes[0].set_xlim(times[0], times[-1])
    with warnings.catch_warnings():
        # A box is drawn for a character that the font lacks.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(path, format=path.suffix[1:].lower(), metadata={"Date": None})
