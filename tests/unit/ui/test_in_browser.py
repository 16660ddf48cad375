"""The page in Debian's Chromium: what it shows, how, and what it never does.

`make servers` installs Playwright and Chromium.
"""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.test_simulated_s3 import Line
from tests.docs.pages import Page
from tests.source_tree import ROOT
from tests.unit.cli.command_cases import make_logs
from tests.unit.ui.page import OpenPage, page_of
from txlog import Admin, Consumer, Producer, TopicPartition
from txlog.clock import Runtime
from txlog.engine.connection import open_connection
from txlog.fan_out import SerialFanOut
from txlog.storage.s3.s3 import S3Store

pytestmark = [pytest.mark.extra, pytest.mark.slow]

MARKUP = "<img src=x onerror=alert(1)><b>bold</b>"
VIEWS = (
    "", "groups", "groups/billing", "topics", "topics/orders", "topics/orders/records",
    "transactions", "transactions/2-0-0", "queries", "storage", "vacuum",
)  # fmt: skip

CONTRASTS = """() => {
  const parts = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (text) => parts(text).slice(0, 3).map((c) => c / 255).map(
    (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)).reduce(
    (sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      if (parts(colour).length < 4 || parts(colour)[3] > 0) return colour;
    }
    return getComputedStyle(document.body).backgroundColor;
  };
  const own = (e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
  return [...document.querySelectorAll("body *")].filter((e) => own(e) && e.checkVisibility())
    .map((e) => {
      const [a, b] = [light(getComputedStyle(e).color), light(behind(e))].sort((x, y) => y - x);
      return [e.outerHTML.slice(0, 80), (a + 0.05) / (b + 0.05)];
    }).filter(([, ratio]) => ratio < 4.5);
}"""
"""The texts whose contrast is below what WCAG's level AA asks for."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        yield found
        found.close()


class Tab:
    """A tab with the page, which notes what must not happen."""

    def __init__(self, browser: Any, page: OpenPage, **options: Any) -> None:
        self.context = browser.new_context(**options)
        self.tab = self.context.new_page()
        self.bad: list[str] = []
        self.asked: list[str] = []
        self.tab.on("console", lambda message: self.bad.append(message.text))
        self.tab.on("pageerror", lambda error: self.bad.append(str(error)))
        self.tab.on("dialog", lambda dialog: self.bad.append(dialog.message))
        self.tab.on("request", lambda request: self.asked.append(request.url))
        self.tab.goto(page.url)
        self.tab.wait_for_selector("main h1")

    def open(self, view: str) -> None:
        self.tab.evaluate("view => { location.hash = `#/${view}` }", view)
        self.tab.wait_for_selector(f'main[data-shows="#/{view}"]')


@pytest.fixture
def tab(browser: Any, page: OpenPage) -> Iterator[Tab]:
    found = Tab(browser, page)
    yield found
    found.context.close()
    assert found.bad == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 2000])
def test_every_view_fits_and_can_be_read(
    scheme: str, width: int, browser: Any, page: OpenPage
) -> None:
    found = Tab(browser, page, color_scheme=scheme, viewport={"width": width, "height": 800})
    for view in VIEWS:
        found.open(view)
        assert found.tab.evaluate("document.documentElement.scrollWidth") <= width, view
        assert found.tab.evaluate(CONTRASTS) == [], view
    host = page.url.partition("?")[0]
    assert [url for url in found.asked if not url.startswith(host)] == []
    assert found.bad == []
    found.context.close()


def test_token_leaves_the_address(tab: Tab, page: OpenPage) -> None:
    assert page.token not in tab.tab.url
    tab.tab.reload()
    tab.tab.wait_for_selector("text=Is anything wrong?")


def test_keys_open_views_and_the_filter(tab: Tab) -> None:
    tab.tab.keyboard.press("Tab")
    assert tab.tab.evaluate("document.activeElement.textContent") == "To the content"
    tab.tab.keyboard.press("1")
    tab.tab.wait_for_selector("h1:text('Consumer groups')")
    tab.tab.keyboard.press("/")
    tab.tab.keyboard.type("bill")
    tab.tab.keyboard.press("Enter")
    tab.tab.wait_for_selector("text=/^1 group$/")
    tab.tab.evaluate("document.activeElement.blur()")
    tab.tab.keyboard.press("0")
    tab.tab.wait_for_selector("h1:text('Is anything wrong?')")


def minute() -> dict[str, list[tuple[str, str]]]:
    """Question -> what docs/ui.md says to click, and what is then there."""
    text = Page(ROOT / "docs" / "ui.md").text.split("\n## In a minute\n")[1].split("\n## ")[0]
    return {
        title: re.findall(r"\*\*(.+?)\*\*|\*(.+?)\*", steps.replace("\n   ", " "))
        for title, _, steps in (part.partition("\n") for part in text.split("\n### ")[1:])
    }


@pytest.mark.parametrize("question", minute())
def test_minute_of_the_page_leads_to_the_answer(question: str, tab: Tab) -> None:
    for clicked, seen in minute()[question]:
        if clicked:
            tab.tab.get_by_role("link", name=clicked, exact=True).first.click()
        elif seen == "the chart":
            tab.tab.wait_for_selector("main .u-over")
        else:
            tab.tab.get_by_role("main").get_by_text(seen).first.wait_for()


def test_markup_in_names_keys_values_and_headers_is_text(browser: Any, tmp_path: Path) -> None:
    root = str(tmp_path / "log")
    Admin(root, create=True).create_topic("orders")
    with Producer(root, transactional_id=MARKUP) as producer:
        producer.init_transactions()
        with producer.transaction():
            text = MARKUP.encode()
            producer.send("orders", text, key=text, headers=[(MARKUP, text)])
    with Consumer(root=root, group_id=MARKUP, enable_auto_commit=False) as consumer:
        consumer.commit({TopicPartition("orders", 0): 0})
    with page_of(root) as page:
        found = Tab(browser, page)
        for view, count in (("groups", 1), ("topics/orders/records", 4), ("transactions", 1)):
            found.open(view)
            found.tab.wait_for_selector("main table")
            assert found.tab.inner_text("main table").count(MARKUP) == count, view
            assert found.tab.locator("main img, main b").count() == 0
        found.open("groups")
        found.tab.click("main table a")
        found.tab.wait_for_selector(".u-over")
        assert MARKUP in found.tab.inner_text("main h1")
        assert found.bad == []
        found.context.close()


def test_two_tabs_are_live_and_say_when_the_log_is_gone(browser: Any, tmp_path: Path) -> None:
    make_logs(tmp_path)
    root = tmp_path / "log"
    with page_of(str(root)) as page:
        tabs = [Tab(browser, page) for _ in range(2)]
        for each in tabs:
            each.open("topics/flights")
            each.tab.wait_for_selector("td[data-label=End]:text-is('2')")
        with Producer(str(root)) as producer:
            producer.send("flights", {"carrier": "AA"})
        for each in tabs:
            each.tab.wait_for_selector("td[data-label=End]:text-is('3')")
        shutil.move(root, f"{root}-away")
        for each in tabs:
            each.tab.wait_for_selector(f".notice:has-text('{root}')")
        shutil.move(f"{root}-away", root)
        for each in tabs:
            each.tab.wait_for_selector("td[data-label=End]:text-is('3')")
            assert each.bad == []
            each.context.close()


def test_damaged_topic_says_in_its_row_what_is_wrong_until_it_is_mended(
    browser: Any, tmp_path: Path
) -> None:
    make_logs(tmp_path)
    entry = max((tmp_path / "log" / "topics" / "orders").rglob("entries/*.json"))
    whole = entry.read_bytes()
    with page_of(str(tmp_path / "log")) as page:
        found = Tab(browser, page, viewport={"width": 400, "height": 800})
        found.open("topics")
        entry.write_bytes(b"")
        found.tab.wait_for_selector(f"tr:has-text('orders') td.look:has-text('{entry.name}')")
        assert found.tab.locator("tr:has-text('flights') td.look").count() == 0
        assert found.tab.evaluate("document.documentElement.scrollWidth") <= 400
        assert found.tab.evaluate(CONTRASTS) == []
        entry.write_bytes(whole)
        found.tab.wait_for_selector("tr:has-text('orders') td[data-label=Offsets]")
        assert found.tab.locator("td.look").count() == 0
        assert found.bad == []
        found.context.close()


def test_page_reckons_the_price_of_its_own_requests_to_a_bucket(browser: Any) -> None:
    line = Line()
    runtime = Runtime(line.clock, fan_out=SerialFanOut())
    store = S3Store("bucket", "log", runtime, requests=line)
    with page_of(Admin(open_connection(store, runtime, create=True))) as page:
        found = Tab(browser, page)
        found.open("storage")
        found.tab.wait_for_selector(
            "text=/own process has sent \\d+ GETs?, \\d+ PUTs?, \\d+ LISTs?/"
        )
        assert found.bad == []
        found.context.close()
