"""The page and the pictures of a report, without a browser."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from kodoctl.render import charts
from kodoctl.render import report_charts as pictures
from kodoctl.render.report_html import report_html
from tests.reports import EVIL, audited, busy, failure, made, quiet, tenant

NOON = 1_767_268_500_000  # ms since the epoch, 11:55
PNG = b"\x89PNG\r\n\x1a\n"


def evil():
    """Whatever somebody else can choose is hostile."""
    tenants = [tenant(EVIL, 400, 1, {"p50": 1, "p95": 2, "p99": 3})]
    audit = {**audited(lost=1), "notes": [EVIL], "sql": [EVIL]}
    groups = [{**busy().groups[0], "names": [EVIL]}, busy().groups[1]]
    failures = [failure("dead", EVIL, 2, "dead")]
    counted = {**busy().counted, "tenants": tenants}
    return made(busy(counted=counted, audit=audit, groups=groups, failures=failures))


def test_nothing_hostile_gets_into_the_page_or_a_picture():
    text = report_html(evil())
    for piece in ("<img src=x", "<script>alert", "\x1b", "\u202e"):
        assert piece not in text
    assert "&lt;img src=x onerror=alert(1)&gt;" in text
    drawn = charts.svg(pictures.tenants, evil(), charts.LIGHT)
    assert "<img" not in drawn
    assert "&lt;img src=x" in drawn


@pytest.fixture(scope="module")
def text():
    """A busy page: its pictures take seconds."""
    return report_html(made())


def test_one_file_that_asks_nobody_for_anything(text):
    assert "default-src &#39;none&#39;" in text
    assert not re.search(r"""(?:src|href|srcset)=["'](?!data:|#)""", text)
    assert text.count("<picture>") == len(pictures.CHARTS)
    assert len(text) < 1_000_000


def test_the_verdict_stands_before_everything_else(text):
    body = text[text.index("<body>") :]
    order = [
        "3 messages were lost",
        "What to do:",
        "Where messages wait",
        "Who is slow",
        "What fails",
        "Who is noisy",
        "kodoctl recall plan",
    ]
    assert [body.index(one) for one in order] == sorted(body.index(one) for one in order)


def test_without_traffic_there_are_words_and_no_empty_pictures():
    facts = replace(quiet(), counted={**quiet().counted, "lanes": []})
    text = report_html(made(facts))
    assert "<picture>" not in text
    assert "Nothing waits." in text
    assert "Nothing happened yet." in text
    assert [name for name, _ in pictures.for_chat(made(facts))] == ["verdict.png"]


def test_pictures_are_the_same_for_the_same_document_and_differ_in_colours():
    first, again = (charts.svg(pictures.waiting, made(), charts.LIGHT) for _ in range(2))
    assert first == again
    dark = charts.dark(first)
    assert "Verdana" in first
    assert charts.LIGHT.ink not in dark
    assert len(dark) == len(first)


def test_tenants_without_latencies_are_drawn_by_what_they_sent():
    counted = {**busy().counted, "tenants": [tenant("anna", 5, 0, None)]}
    assert "anna" in charts.svg(pictures.tenants, made(busy(counted=counted)), charts.NARROW)


@pytest.mark.parametrize("minutes", [2, 4, 10, 75, 91, 100, 119, 120, 150, 1440, 2880, 20_000])
@pytest.mark.parametrize("style", [charts.LIGHT, charts.NARROW])
def test_a_clock_of_any_span_is_drawn_without_a_warning(minutes, style):
    points = [
        {"at": NOON + step * minutes * 30_000, "arrivals": 1, "failed": 0, "done": 1, "over_limit": 0}
        for step in range(3)
    ]
    over_time = {"points": points, "width_ms": minutes * 30_000}
    assert charts.svg(pictures.traffic, {"over_time": over_time}, style)


def test_a_chat_gets_the_verdict_first():
    found = list(pictures.for_chat(made()))
    assert [name for name, _ in found] == [
        "verdict.png", "waiting.png", "latency.png", "failures.png", "tenants.png", "traffic.png",
    ]  # fmt: skip
    assert all(data.startswith(PNG) for _, data in found)
