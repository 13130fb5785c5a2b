"""A real Chromium, for pages that people open."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.services.programs import system_program


@pytest.fixture(scope="module")  # no longer: an event loop runs in this thread meanwhile
def browser() -> Iterator[Browser]:
    """Of the system: playwright's own would be fetched from elsewhere."""
    found = system_program("chromium", "chromium", "chromium-browser", "google-chrome")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield opened
        opened.close()


class Opened:
    """A page from a file, and everything it asked for or complained of."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.requests: list[str] = []
        self.complaints: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda problem: self.complaints.append(str(problem)))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))

    def open(self, file: Path) -> None:
        self.page.goto(file.as_uri())

    def visible(self, selector: str) -> list[str]:
        """Texts of what can be seen, one line each."""
        return [one.inner_text() for one in self.page.locator(selector).all() if one.is_visible()]


@pytest.fixture
def opened(browser: Browser) -> Iterator[Opened]:
    """A new page in a window of a laptop."""
    page = browser.new_page(viewport={"width": 1100, "height": 800})
    yield Opened(page)
    page.close()
