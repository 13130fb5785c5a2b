"""`kodoctl ui` in a real browser: read in any light and on a phone, used by keyboard, refreshed, and closed to pages of others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import ClassVar

import pytest
from playwright.sync_api import Page

from kodoctl.status.lane_status import StatusReading
from kodoctl.ui import application
from kodoctl.ui.application import console
from kodoctl.ui.audit_sentence import AuditStep, Sentence
from kodoctl.ui.first_screen import NO_FACTS
from kodoctl.ui.web_server import ConsoleServer
from tests.browser.conftest import Opened
from tests.browser.test_catalogue_page import FITS, UNFOLD
from tests.browser.test_report_page import CONTRAST, LEAST, Scheme
from tests.samples.consoles import CAUSE, EVIL_PATHS, NIGHT, data_of, evil_data, lane, reading

LANE = "/lane?topology=trade&topic=orders-billing-DLQ&subscription=billing"
MESSAGE = "/message?topology=trade&ground=orders&subscription=billing&message=order-4711&span=24h"
PLANS = "/plans?topology=trade&drift=read"
PATHS = ("/", LANE, f"{LANE}&where=x", "/find?q=4711", "/find?q=none&span=1h", MESSAGE, PLANS)


@pytest.fixture(scope="module")
def night() -> Iterator[ConsoleServer]:
    with closing(ConsoleServer(console(data_of()))) as server:
        yield server


def enter(page: Page, server: ConsoleServer) -> str:
    """Opens the printed address, and returns the address without the token."""
    page.goto(server.address)
    own = server.address.partition("?")[0]
    page.wait_for_url(own)
    return own.removesuffix("/")


def test_the_printed_address_leads_to_the_console_and_the_token_leaves_the_address_bar(
    opened: Opened, night: ConsoleServer
) -> None:
    own = enter(opened.page, night)
    assert opened.page.inner_text("h1") == "10 things need you"
    assert opened.page.inner_text(".audit h2") == "No message was lost, as read 3 min ago"
    assert opened.visible(".cards h2")[0] == "1 topic not read: parcels"
    opened.page.keyboard.press("Tab")
    opened.page.keyboard.press("Enter")
    opened.page.keyboard.press("Tab")
    assert opened.page.evaluate("document.activeElement.closest('.cards') !== null"), "the header is skipped"
    assert opened.page.evaluate("document.cookie") == ""
    assert all(url.startswith(own) for url in opened.requests)
    assert opened.complaints == []


def test_steps_to_a_verdict_are_folded_and_stay_open_once_somebody_opened_them(opened: Opened) -> None:
    steps = (AuditStep("Audit what was read.", ("kodoctl pipeline audit trade.yaml > trade-audit.json",)),)
    sentence = Sentence("open", "Not judged whether a message was lost", steps=steps)
    page = opened.page
    page.clock.install()
    now: list[StatusReading] = [NIGHT]
    with closing(ConsoleServer(console(data_of(read_status=lambda: now[0], read_audit=lambda: sentence)))) as server:
        enter(page, server)
        assert opened.visible(".steps pre") == []
        page.click("text=How to find out")
        now[0] = reading(lane(entries=77, consumers=1))
        until(page, lambda: "77" in page.inner_text("#live main"))
        assert "> trade-audit.json" in opened.visible(".steps pre")[0]
    assert opened.complaints == []


def test_no_name_does_anything(opened: Opened) -> None:
    with closing(ConsoleServer(console(evil_data()))) as server:
        own = enter(opened.page, server)
        for path in EVIL_PATHS:
            opened.page.goto(own + path)
            opened.page.evaluate(UNFOLD)
            assert "<img src=x onerror=alert(1)>" in opened.page.inner_text("body")
    assert [one for one in opened.complaints if "400 (Bad Request)" not in one] == []
    assert all(url.startswith(own) for url in opened.requests)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_can_be_read_in_any_light(opened: Opened, night: ConsoleServer, scheme: Scheme) -> None:
    opened.page.emulate_media(color_scheme=scheme)
    own = enter(opened.page, night)
    for path in PATHS:
        opened.page.goto(own + path)
        opened.page.evaluate(UNFOLD)
        worst, text = opened.page.evaluate(CONTRAST)[0]
        assert worst >= LEAST, f"{path}: {text!r}: {worst:.2f}"


@pytest.mark.parametrize("width", [360, *(pytest.param(width, marks=pytest.mark.full) for width in (800, 1300))])
def test_no_screen_is_scrolled_sideways(opened: Opened, night: ConsoleServer, width: int) -> None:
    opened.page.set_viewport_size({"width": width, "height": 700})
    with closing(ConsoleServer(console(evil_data()))) as evil:
        for server, paths in ((night, PATHS), (evil, [one for one in EVIL_PATHS if one != "/lanes"])):
            own = enter(opened.page, server)
            for path in paths:
                opened.page.goto(own + path)
                opened.page.evaluate(UNFOLD)
                assert opened.page.evaluate(FITS), path


def test_a_letter_and_its_history_are_reached_by_keyboard_alone(opened: Opened, night: ConsoleServer) -> None:
    enter(opened.page, night)
    page = opened.page
    page.keyboard.press("/")
    page.keyboard.type("order 4711")
    page.keyboard.press("Enter")
    page.wait_for_url("**/find?q=order*")
    assert page.inner_text("h1") == "1 message with key 4711"
    assert "No value is order 4711 as a whole; these have 4711." in page.inner_text("main")
    press_until(page, "History for billing")
    page.keyboard.press("Enter")
    page.wait_for_url("**/message?*")
    assert "is here now" in page.inner_text(".hops li:last-child")
    assert "died: ValueError" in page.inner_text(".hops li:first-child")
    press_until(page, "kodoctl ui")
    page.keyboard.press("Enter")
    page.wait_for_selector("#live")
    press_until(page, "dead letters 3 oldest sent 9 h ago")
    page.keyboard.press("Enter")
    page.wait_for_url("**/lane?*")
    page.focus("#where")
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("/kye = 1")
    page.keyboard.press("Enter")
    assert page.input_value("#where") == "/kye = 1", "a slash in a field is a slash"


def test_a_cause_is_followed_to_its_letters_and_taken_as_a_file_by_keyboard_alone(
    opened: Opened, night: ConsoleServer
) -> None:
    enter(opened.page, night)
    page = opened.page
    press_until(page, "2 × ValueError: card of order # was refused")
    page.keyboard.press("Enter")
    page.wait_for_url("**/lane?*")
    assert page.input_value("#where") == f"cause = '{CAUSE}'"
    press_until(page, "u13 1")
    page.keyboard.press("Enter")
    page.wait_for_url("**tenant*")
    assert page.input_value("#where") == f"cause = '{CAUSE}' AND tenant = 'u13'"
    press_until(page, "JSON lines")
    with page.expect_download() as download:
        page.keyboard.press("Enter")
    assert download.value.suggested_filename == "orders-billing-DLQ.jsonl"
    assert download.value.path().read_text().count("order-47") == 2
    assert opened.complaints == []


def test_drift_is_read_when_somebody_asks_and_an_apply_unfolds_by_keyboard(
    opened: Opened, night: ConsoleServer
) -> None:
    with closing(ConsoleServer(console(data_of()))) as server:
        enter(opened.page, server)
        page = opened.page
        press_until(page, "Plans and history")
        page.keyboard.press("Enter")
        page.wait_for_url("**/plans")
        assert "Nobody has asked for it" in page.inner_text("main")
        press_until(page, "Read drift")
        page.keyboard.press("Enter")
        page.wait_for_url("**drift=read*")
        assert "Drift: 0 objects; not applied yet: trade." in page.inner_text("main")
        assert "unknown: no end" not in page.inner_text("main")
        for _ in range(30):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.tagName") == "SUMMARY":
                break
        page.keyboard.press("Enter")
        assert "unknown: no end" in page.inner_text("main")
    assert opened.complaints == []


def test_rates_are_drawn_from_the_second_reading_on_and_told_in_words(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "FRESH_S", 0.0)
    now: list[StatusReading] = [NIGHT]
    with closing(ConsoleServer(console(data_of(read_status=lambda: now[0])))) as server:
        own = enter(opened.page, server)
        page = opened.page
        now[0] = replace(NIGHT, at=NIGHT.at + 10_000)
        page.goto(f"{own}/")
        drawing = page.get_by_role("img", name="in 90.0/s, out 20.0/s; in the last 10 s")
        assert drawing.first.is_visible()
        assert drawing.first.locator("polyline").count() == 2
        box = drawing.first.bounding_box()
        assert box is not None
        assert (box["width"], box["height"]) == (120, 24)


def press_until(page: Page, text: str) -> None:
    """Presses Tab until the link of this text has the focus, which can be seen."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.innerText?.replace(/\\s+/g, ' ')") == text:
            assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
            return
    raise AssertionError(text)


def test_figures_are_read_again_without_losing_the_focus_and_an_end_is_told(opened: Opened) -> None:
    now: list[StatusReading] = [NIGHT]
    page = opened.page
    page.clock.install()
    with closing(ConsoleServer(console(data_of(read_status=lambda: now[0], read_facts=lambda _: NO_FACTS)))) as server:
        enter(page, server)
        page.focus("main a.lane >> nth=0")
        now[0] = reading(lane(entries=77, consumers=1))
        until(page, lambda: "77" in page.inner_text("#live main"))
        assert page.evaluate("document.activeElement.className") == "lane"
        assert opened.visible(".cards .finding") == []
        assert page.inner_text("#stale") == ""
    until(page, lambda: "kodoctl ui has ended" in page.inner_text("#stale"))
    assert "77" in page.inner_text("#live main"), "the older figures stay, and are called so"


def until(page: Page, holds: Callable[[], bool]) -> None:
    """Lets the time of the page pass until something holds. A reading is shown for some seconds of real time."""
    for _ in range(100):
        page.clock.run_for(10_000)
        page.wait_for_timeout(100)
        if holds():
            return
    raise AssertionError(page.inner_text("body"))


class _Attacker(BaseHTTPRequestHandler):
    """A page of another port of this machine, and so of the same site: the browser sends the cookie along with requests
    to the console. `cookies`: those that it sent to this port.
    """

    target = ""
    cookies: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.cookies.append(self.headers.get("Cookie", ""))
        body = f"""<!doctype html><img src="/image"><iframe id="frame" src="{self.target}/"></iframe>
        <form id="form" method="post" action="{self.target}/lanes"><button>go</button></form>""".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


def test_a_page_of_another_port_can_neither_read_nor_frame_nor_act_nor_get_the_cookie(
    opened: Opened, night: ConsoleServer
) -> None:
    own = enter(opened.page, night)
    _Attacker.target = own
    with ThreadingHTTPServer(("127.0.0.1", 0), _Attacker) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        page = opened.page
        page.goto(f"http://127.0.0.1:{server.server_port}/")
        frame = page.frames[1]
        assert "No message was lost" not in frame.content(), "clickjacking"
        read = f"fetch('{own}/lanes', {{credentials: 'include'}}).then((one) => one.text()).catch((one) => 'refused')"
        assert page.evaluate(read) == "refused"
        page.click("#form button")
        page.wait_for_url(f"{own}/lanes")
        assert page.inner_text("body").strip() == "Only a page of this console may do that."
        server.shutdown()
    assert len(_Attacker.cookies) >= 2
    assert not any(_Attacker.cookies)
