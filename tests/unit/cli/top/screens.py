"""`txlog top` for tests: the real screen without a terminal, over a real log."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from textual.widgets import DataTable

from txlog import Admin
from txlog.cli.top.look import VIEWS, Look
from txlog.cli.top.screen import TopApp

TIMEOUT_S = 30
INTERVAL_MS = 50


class Screen:
    """A screen that runs."""

    def __init__(self, app: TopApp, pilot: Any) -> None:
        self.app = app
        self.pilot = pilot

    @property
    def text(self) -> str:
        """What is on it."""
        drawn = self.app.export_screenshot()
        return html.unescape("\n".join(re.findall(r"<text[^>]*>([^<]*)</text>", drawn))).replace(
            "\xa0", " "
        )

    @property
    def names(self) -> list[str]:
        """The first cells of the rows."""
        table = self.app.query_one("#rows", DataTable)
        return [table.get_row_at(number)[0].plain for number in range(table.row_count)]

    async def until(self, holds: Callable[[], bool]) -> None:
        """Until it shows that."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                while not holds():
                    await self.pilot.pause()
        except TimeoutError as error:
            shown = re.sub(r"\s*\n\s*", " | ", self.text)
            raise AssertionError(f"it shows {shown}") from error

    async def shows(self, *texts: str) -> None:
        """Until these are on it."""
        await self.until(lambda: all(text in self.text for text in texts))

    async def press(self, *keys: str) -> None:
        """Press these keys."""
        await self.pilot.press(*keys)


@asynccontextmanager
async def screen_of(
    root: str, view: str = "groups", size: tuple[int, int] = (120, 40)
) -> AsyncIterator[Screen]:
    """The screen over the log there."""
    app = TopApp(lambda: Admin(root), INTERVAL_MS, Look(VIEWS[view]))
    async with app.run_test(size=size) as pilot:
        yield Screen(app, pilot)


def play(scene: Coroutine[Any, Any, None]) -> None:
    """Run one test's scene."""
    asyncio.run(scene)
