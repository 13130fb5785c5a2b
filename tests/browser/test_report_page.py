"""`kodoctl pipeline report` in a real browser: the verdict at first sight, on any screen, in any light, on paper."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from kodo_pipeline.report.report_html import report_html

from tests.browser.conftest import Opened
from tests.samples.reports import audited, busy, made, quiet
from tests.unit.pipeline.report.test_report_page import evil

Scheme = Literal["light", "dark"]
LEAST = 4.5  # contrast of text with what is behind it, as WCAG's level AA has it
CONTRAST = """() => {
  const light = (text) => {
    const [r, g, b] = text.match(/[\\d.]+/g).slice(0, 3).map((one) => one / 255)
      .map((one) => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (one) => {
    for (; one; one = one.parentElement) {
      const found = getComputedStyle(one).backgroundColor;
      if (!found.endsWith(", 0)")) return found;
    }
    return "rgb(255, 255, 255)";
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  while (walker.nextNode()) {
    const one = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !one.checkVisibility() || one.closest("script")) continue;
    const [a, b] = [light(getComputedStyle(one).color), light(ground(one))].sort((x, y) => y - x);
    found.push([(a + 0.05) / (b + 0.05), walker.currentNode.textContent.trim().slice(0, 40)]);
  }
  return found.sort((x, y) => x[0] - y[0]);
}"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Drawn once: a page has twenty pictures."""
    folder = tmp_path_factory.mktemp("reports")
    of = {
        "bad": made(),
        "evil": evil(),
        "good": made(quiet()),
        "open": made(busy(audit=audited(short=True), points=(), failures=())),
    }
    for name, document in of.items():
        (folder / f"{name}.html").write_text(report_html(document), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in of}


def test_nothing_is_asked_of_anybody_and_no_name_does_anything(opened: Opened, pages: dict[str, Path]) -> None:
    for name in ("bad", "evil"):
        opened.requests.clear()
        opened.open(pages[name])
        opened.page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        assert [url for url in opened.requests if not url.startswith("data:")] == [pages[name].as_uri()]
        assert opened.complaints == []
    assert "<img src=x onerror=alert(1)>" in opened.page.inner_text("main")


def test_the_verdict_is_seen_first_and_leads_to_what_to_do(opened: Opened, pages: dict[str, Path]) -> None:
    for name, title in (
        ("bad", "3 messages were lost"),
        ("good", "No message was lost"),
        ("open", "can be neither shown nor ruled out"),
    ):
        opened.open(pages[name])
        box = opened.page.locator("h1").bounding_box()
        assert box is not None
        assert title in opened.page.inner_text("h1")
        assert box["y"] + box["height"] < 250
    opened.open(pages["bad"])
    weights = {name: opened.page.evaluate(f"getComputedStyle(document.querySelector('.part {name}')).fontWeight")
               for name in (".head", ".say", "summary", "td")}  # fmt: skip
    assert weights == {".head": "600", ".say": "400", "summary": "400", "td": "400"}, "what is said first stands out"
    opened.page.click(".next a")
    assert "kodo-consumer why" in opened.page.inner_text("#todo")
    assert opened.page.evaluate("scrollY") > 500


@pytest.mark.parametrize("scheme", ["dark", pytest.param("light", marks=pytest.mark.full)])
def test_everything_can_be_read_in_any_light(opened: Opened, pages: dict[str, Path], scheme: Scheme) -> None:
    opened.page.emulate_media(color_scheme=scheme)
    for path in pages.values():
        opened.open(path)
        opened.page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        worst, text = opened.page.evaluate(CONTRAST)[0]
        assert worst >= LEAST, f"{text!r}: {worst:.2f}"


def test_pictures_fit_screen_and_light(opened: Opened, pages: dict[str, Path]) -> None:
    def shown() -> str:
        return str(opened.page.evaluate("document.querySelector('picture img').currentSrc"))

    seen = set()
    schemes: list[tuple[Scheme, int]] = [("light", 1100), ("dark", 1100), ("light", 360), ("dark", 360)]
    for scheme, width in schemes:
        opened.page.set_viewport_size({"width": width, "height": 700})
        opened.page.emulate_media(color_scheme=scheme)
        opened.open(pages["bad"])
        opened.page.wait_for_function("[...document.images].every((one) => one.complete && one.naturalWidth > 0)")
        assert opened.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        seen.add(shown())
    assert len(seen) == 4


def test_every_picture_has_words_and_a_table_beside_it(opened: Opened, pages: dict[str, Path]) -> None:
    opened.open(pages["bad"])
    for part in opened.page.locator(".part:has(picture)").all():
        assert part.locator(".head").inner_text().rstrip(".") in (part.locator("img").get_attribute("alt") or "")
        part.locator("summary").first.click()
        assert part.locator("table tbody tr").count() > 0
        assert part.locator("thead th[scope=col]").count() == part.locator("tbody tr").first.locator("th, td").count()


def test_on_paper_everything_is_unfolded_and_dark_on_white(
    opened: Opened, pages: dict[str, Path], tmp_path: Path
) -> None:
    opened.page.emulate_media(color_scheme="dark")
    opened.open(pages["bad"])
    opened.page.pdf(path=str(tmp_path / "page.pdf"), format="A4")  # tells the page that it is printed
    opened.page.emulate_media(media="print", color_scheme="dark")
    assert opened.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert all(one.is_visible() for one in opened.page.locator(".sheet").all())
    light = opened.page.evaluate(
        "document.querySelector('picture img').currentSrc === document.querySelector('picture img').src"
    )
    assert light
    worst, text = opened.page.evaluate(CONTRAST)[0]
    assert worst >= LEAST, f"{text!r}: {worst:.2f}"
