"""`kodoctl docs` in a real browser: found by keyboard, followed through the flow, read in any light, on a phone, on paper."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from kodoctl.cli.topology.docs_command import drawings_of
from kodoctl.render.catalogue_html import catalogue_pages
from kodoctl.topology.catalogue import catalogue_document
from tests.browser.conftest import Opened
from tests.browser.test_report_page import CONTRAST, LEAST, Scheme
from tests.samples.catalogues import evil, shop

UNFOLD = "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
FITS = "document.documentElement.scrollWidth <= innerWidth"


def write(folder: Path, pages: Mapping[str, str]) -> Path:
    for name, text in pages.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder / "index.html"


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The index of a shop's catalogue, drawings included."""
    expansions = shop()
    document = catalogue_document(expansions, None)
    document["against"] = {"ref": "main", "commit": "c0ffee" * 7, "removed": []}
    for entry in document["topologies"]:
        entry["changes"] = [["description", "before", "now"]]
    return write(tmp_path_factory.mktemp("catalogue"), catalogue_pages(document, drawings_of(document, expansions)))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    document, expansions = evil()
    return write(tmp_path_factory.mktemp("hostile"), catalogue_pages(document, drawings_of(document, expansions)))


@pytest.fixture
def trade(catalogue: Path) -> Path:
    return catalogue.parent / "topologies/trade.html"


def test_nothing_is_asked_of_anybody_and_no_name_does_anything(opened: Opened, catalogue: Path, hostile: Path) -> None:
    for page in (*catalogue.parent.rglob("*.html"), *hostile.parent.rglob("*.html")):
        opened.requests.clear()
        opened.open(page)
        opened.page.evaluate(UNFOLD)
        assert opened.requests == [page.as_uri()]
        assert opened.complaints == []
    opened.open(hostile)
    opened.page.keyboard.press("/")
    opened.page.keyboard.type("<IMG src=x")
    assert "<img src=x onerror=alert(1)>" in opened.page.inner_text("#hits")
    opened.page.keyboard.press("Enter")
    assert "<img src=x onerror=alert(1)>" in opened.page.inner_text("main")
    assert "<img src=x onerror=alert(1)>" in (opened.page.text_content("svg.drawing") or "")
    assert opened.complaints == []


def test_a_topic_of_pulsar_is_found_and_opened_by_the_keyboard_alone(opened: Opened, catalogue: Path) -> None:
    opened.open(catalogue)
    page = opened.page
    assert "depot" in page.inner_text("#list")
    page.keyboard.press("/")
    page.keyboard.type("orders")
    assert page.inner_text("#count").startswith("3 found")
    assert not page.locator("#list").is_visible()
    assert opened.visible("#hits b")[0] == "orders"
    page.keyboard.type("-billing-dlq")
    assert page.inner_text("#count") == "1 found"
    assert "orders-billing-DLQ" in page.inner_text("#hits")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url("**/trade.html#topic-orders")
    page.keyboard.press("/")
    page.wait_for_url("**/index.html#find")
    assert page.evaluate("document.activeElement.id") == "find"
    page.keyboard.type("no such thing")
    assert page.inner_text("#count") == "Nothing found."
    page.keyboard.press("Escape")
    assert page.locator("#list").is_visible()


def test_arrows_walk_through_the_hits_and_back(opened: Opened, catalogue: Path) -> None:
    opened.open(catalogue)
    page = opened.page
    page.keyboard.press("/")
    page.keyboard.type("trade")
    for key, expected in (("ArrowDown", 0), ("ArrowDown", 1), ("ArrowUp", 0), ("ArrowUp", -1)):
        page.keyboard.press(key)
        assert page.evaluate("[...document.querySelectorAll('#hits a')].indexOf(document.activeElement)") == expected
    page.keyboard.press("Enter")
    page.wait_for_url("**/topologies/trade.html")


def test_the_flow_is_followed_by_click_and_by_keyboard(opened: Opened, catalogue: Path) -> None:
    opened.open(catalogue)
    opened.page.click("#flow a >> text=depot")
    opened.page.wait_for_url("**/depot.html")
    opened.page.click("svg.drawing a >> text=orders")
    opened.page.wait_for_url("**/trade.html#topic-orders")
    opened.page.focus("svg.drawing a >> nth=0")
    width = "getComputedStyle(document.activeElement.querySelector('path')).strokeWidth"
    assert opened.page.evaluate(width) == "4px", "the box with the focus is seen"
    opened.page.keyboard.press("Enter")
    opened.page.wait_for_url("**/trade.html#**")
    boxes = opened.page.locator("svg.drawing").first.text_content() or ""
    assert all(
        name in boxes for name in ("checkout", "producer", "billing", "consumer", "customs", "consumer of depot")
    )


def test_every_link_leads_somewhere(opened: Opened, catalogue: Path) -> None:
    for page in catalogue.parent.rglob("*.html"):
        opened.open(page)
        links = opened.page.evaluate("[...document.querySelectorAll('a')].map((one) => one.getAttribute('href'))")
        for link in links:
            path, _, section = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            assert target.is_file(), link
            assert not section or f'id="{section}"' in target.read_text(), link


@pytest.mark.parametrize("scheme", ["dark", pytest.param("light", marks=pytest.mark.full)])
def test_everything_can_be_read_in_any_light(opened: Opened, catalogue: Path, trade: Path, scheme: Scheme) -> None:
    opened.page.emulate_media(color_scheme=scheme)
    for page in (catalogue, trade):
        opened.open(page)
        opened.page.evaluate(f"{UNFOLD}; document.querySelectorAll('svg').forEach((one) => one.remove())")
        worst, text = opened.page.evaluate(CONTRAST)[0]
        assert worst >= LEAST, f"{text!r}: {worst:.2f}"


def test_drawings_are_dark_in_the_dark_and_light_on_paper(opened: Opened, trade: Path) -> None:
    opened.open(trade)

    def filtered() -> str:
        return str(opened.page.evaluate("getComputedStyle(document.querySelector('.drawing')).filter"))

    assert filtered() == "none"
    opened.page.emulate_media(color_scheme="dark")
    assert filtered().startswith("invert(")
    opened.page.emulate_media(color_scheme="dark", media="print")
    assert filtered() == "none"


@pytest.mark.parametrize("width", [360, 800])
def test_a_narrow_screen_is_not_scrolled_sideways(
    opened: Opened, catalogue: Path, trade: Path, hostile: Path, width: int
) -> None:
    opened.page.set_viewport_size({"width": width, "height": 700})
    for page in (catalogue, trade, hostile, *hostile.parent.rglob("topologies/*.html")):
        opened.open(page)
        opened.page.evaluate(UNFOLD)
        assert opened.page.evaluate(FITS), page.name
    opened.open(catalogue)
    opened.page.fill("#find", "billing")
    assert opened.page.evaluate(FITS)


def test_on_paper_everything_is_unfolded_and_nothing_is_cut_off(opened: Opened, trade: Path, tmp_path: Path) -> None:
    opened.page.emulate_media(color_scheme="dark")
    opened.open(trade)
    opened.page.pdf(path=str(tmp_path / "page.pdf"), format="A4")  # tells the page that it is printed
    opened.page.emulate_media(media="print", color_scheme="dark")
    assert opened.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert all(one.is_visible() for one in opened.page.locator(".sheet").all())
    assert opened.visible(".contents, .crumbs, .find") == []
    opened.page.set_viewport_size({"width": 718, "height": 1000})  # A4 without its margins
    wide = "[...document.querySelectorAll('.drawing, .sheet table')].filter((one) => one.getBoundingClientRect().right > innerWidth + 1).length"
    assert opened.page.evaluate(wide) == 0
