"""Forms and plans of the console in a real browser: readable in any light, on a phone, and whatever names are in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page

from kodoctl.ui.application import console
from kodoctl.ui.web_server import ConsoleServer
from tests.browser.conftest import Opened
from tests.browser.test_catalogue_page import FITS, UNFOLD
from tests.browser.test_console_page import enter
from tests.browser.test_report_page import CONTRAST, LEAST, Scheme
from tests.samples.console_actions import SampleActions, desk
from tests.samples.consoles import data_of, evil_data
from tests.samples.reports import EVIL

PLACE = {"topology": "trade", "topic": "orders-billing-DLQ", "subscription": "billing", "ground": "orders"}
PATHS = [f"/{path}?{urlencode(PLACE)}" for path in ("action", "orders", "undo", "acts", "")]


@contextmanager
def acting(page: Page, text: str = "") -> Iterator[tuple[str, SampleActions]]:
    maker = SampleActions(text, protected=text or "prod")
    data = evil_data() if text else data_of()
    with closing(ConsoleServer(console(data, (maker, desk())))) as server:
        yield enter(page, server), maker


def pages(page: Page, own: str, maker: SampleActions) -> Iterator[str]:
    """Opens the pages one after the other, and yields their names: forms, a plan, a refusal, progress and result."""
    for path in PATHS:
        page.goto(own + path)
        yield path
    page.goto(own + PATHS[0])
    page.click("text=Make the plan")
    page.wait_for_selector(".confirm")
    yield "plan"
    page.fill("#context", "dev")
    page.click(".confirm button")
    page.wait_for_selector("text=is not the context's name")
    yield "refused"
    maker.go_on.clear()
    page.fill("#context", maker.protected)
    page.click(".confirm button")
    page.wait_for_selector("progress")
    yield "running"
    maker.go_on.set()
    page.wait_for_selector("section.sentence")
    yield "done"


@pytest.mark.parametrize("scheme", ["dark", pytest.param("light", marks=pytest.mark.full)])
def test_everything_can_be_read_in_any_light(opened: Opened, scheme: Scheme) -> None:
    opened.page.emulate_media(color_scheme=scheme)
    with acting(opened.page) as (own, maker):
        for name in pages(opened.page, own, maker):
            opened.page.wait_for_load_state()  # a selector may be there before the style sheet is
            opened.page.evaluate(UNFOLD)
            worst, text = opened.page.evaluate(CONTRAST)[0]
            assert worst >= LEAST, f"{name}: {text!r}: {worst:.2f}"


@pytest.mark.parametrize("width", [360, pytest.param(1300, marks=pytest.mark.full)])
@pytest.mark.parametrize("text", [pytest.param("", marks=pytest.mark.full), EVIL])
def test_no_page_is_scrolled_sideways_and_no_name_does_anything(opened: Opened, width: int, text: str) -> None:
    opened.page.set_viewport_size({"width": width, "height": 700})
    with acting(opened.page, text) as (own, maker):
        for name in pages(opened.page, own, maker):
            opened.page.wait_for_load_state()
            opened.page.evaluate(UNFOLD)
            assert opened.page.evaluate(FITS), name
    assert [one for one in opened.complaints if "403 (Forbidden)" not in one] == []
    assert all(url.startswith((own, "data:")) for url in opened.requests)
