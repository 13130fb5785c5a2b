"""The page and the pictures of a report, without a browser."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from kodo_pipeline.charts import charts
from kodo_pipeline.report import report_charts as pictures
from kodo_pipeline.report.document import document
from kodo_pipeline.report.report_html import report_html
from kodo_pipeline.report.report_words import headlines

from tests.samples.reports import ABOUT, EVIL, audited, busy, failure, made, quiet, tenant
from tests.unit.render.drawings import drawing

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
    drawn = drawing(pictures.tenants, evil(), charts.LIGHT)
    assert "<img" not in drawn
    assert "&lt;img src=x" in drawn


@pytest.fixture
def undrawn(monkeypatch):
    """From its call on, pages without their pictures, which take a second each."""
    return lambda: monkeypatch.setattr(charts, "svg", lambda *_: "")


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
    first, again = (drawing(pictures.waiting, made(), charts.LIGHT) for _ in range(2))
    assert first == again
    dark = charts.dark(first)
    assert "Verdana" in first
    assert charts.LIGHT.ink not in dark
    assert len(dark) == len(first)


def test_tenants_without_latencies_are_drawn_by_what_they_sent():
    counted = {**busy().counted, "tenants": [tenant("anna", 5, 0, None)]}
    assert "anna" in drawing(pictures.tenants, made(busy(counted=counted)), charts.NARROW)


def test_the_tenants_who_sent_most_are_drawn_whatever_their_topic():
    small = [{**tenant(f"small-{number}", number, 0, None), "topic": "alerts"} for number in range(1, 13)]
    tenants = [*small, tenant("mega", 500, 0, None)]
    sent = {(one["topic"], one["tenant"]): one["arrivals"] for one in tenants}
    document = made(busy(counted={**busy().counted, "tenants": tenants}, sent=sent))
    drawn = drawing(pictures.tenants, document, charts.NARROW)
    assert "orders: mega" in drawn
    assert "alerts: small-12" in drawn
    assert "small-3 " not in drawn
    assert "orders: mega" in report_html(document)


@pytest.mark.parametrize("minutes", [2, 4, 10, 75, 91, 100, 119, 120, 150, 1440, 2880, 20_000])
@pytest.mark.parametrize("style", [charts.LIGHT, charts.NARROW])
def test_a_clock_of_any_span_is_drawn_without_a_warning(minutes, style):
    points = [
        {"at": NOON + step * minutes * 30_000, "arrivals": 1, "failed": 0, "done": 1, "over_limit": 0}
        for step in range(3)
    ]
    over_time = {"points": points, "width_ms": minutes * 30_000}
    assert drawing(pictures.traffic, {"over_time": over_time}, style)


@pytest.mark.parametrize("style", [charts.LIGHT, charts.NARROW])
@pytest.mark.parametrize("at", [0, NOON])
def test_a_time_beyond_all_calendars_takes_no_picture_away(at, style):
    """Whoever produces may choose one; a landing has the last day there is for it."""
    last = 253_402_214_400_000
    points = [{"at": one, "arrivals": 1, "failed": 0, "done": 1, "over_limit": 0} for one in (at, at + 60_000, last)]
    assert drawing(pictures.traffic, {"over_time": {"points": points, "width_ms": 60_000}}, style)


def test_dates_on_an_axis_are_in_the_order_of_iso():
    points = [
        {"at": NOON + day * 86_400_000, "arrivals": 1, "failed": 0, "done": 1, "over_limit": 0} for day in range(5)
    ]
    drawn = drawing(pictures.traffic, {"over_time": {"points": points, "width_ms": 86_400_000}}, charts.LIGHT)
    assert ">01-02<" in drawn
    assert ">2026-01<" in drawn
    assert "Jan" not in drawn


def test_windows_under_a_minute_have_seconds_and_those_without_anything_are_one_row(undrawn):
    quiet_ = {"arrivals": 0, "done": 0, "failed": 0, "over_limit": 0}
    points = [{"at": NOON, **quiet_, "arrivals": 3}, {"at": NOON + 45_000, **quiet_, "arrivals": 1}]
    page = report_html(made(busy(points=points, width=5_000)))
    assert "3 new messages, at 2026-01-01 11:55:00 UTC" in page
    assert "2026-01-01 11:55:05 UTC to 2026-01-01 11:55:40 UTC: nothing" in page
    assert page.count(": nothing<") == 1
    undrawn()
    one = [{"at": NOON, **quiet_, "done": 3}, {"at": NOON + 10_000, **quiet_, "done": 1}]
    assert ": nothing<" not in report_html(made(busy(points=one, width=5_000))), "one window is a row of its own"


def test_what_has_a_time_that_cannot_be_is_told_and_not_drawn(undrawn, text):
    points = [{"at": NOON + step * 1_000, "arrivals": 1, "done": 0, "failed": 0, "over_limit": 0} for step in range(3)]
    past = {"arrivals": 1, "done": 0, "failed": 0, "over_limit": 0}
    future = {"arrivals": 1_200, "done": 3, "failed": 2, "over_limit": 1}
    found = made(busy(points=points, width=1_000, past=past, future=future, impossible_ages=1))
    page = report_html(found)
    past_line, future_line = (
        "1 message with a time before anything can have been stored",
        "1,200 messages and 6 actions of workers",
    )
    assert f"Not drawn: {past_line}; {future_line} with a time in the future." in page
    assert re.search(r"in the future</th>\s*<td class=.n.>1,200</td><td class=.n.>3</td>", page)
    assert "Not in these times: 1 message done" in page
    assert list(headlines(found))[-1].startswith("Not drawn: 1 message with a time before")
    assert "Not in these times" not in text
    undrawn()
    nowhere = report_html(made(busy(points=[], future={"arrivals": 0, "done": 1, "failed": 0, "over_limit": 0})))
    assert "Nothing happened at a time that can be drawn." in nowhere
    assert "Not drawn: 1 action of workers with a time in the future." in nowhere


def test_what_is_to_be_copied_is_never_cut(undrawn):
    undrawn()
    facts = busy(audit={**audited(lost=1), "sql": ["SELECT " + "x" * 9_000 + " END"]})
    page = report_html(document(replace(ABOUT, ledger="s3a://bucket/" + "d" * 600 + "/books"), facts))
    assert page.count("d" * 600 + "/books") > 3
    assert "x END" in page


def test_partitions_without_an_entry_are_one_row(undrawn):
    undrawn()
    audit = audited()
    empty = {**audit["coverage"][0], "entries_planned": 0, "entries_seen": 0}
    doubtful = {**empty, "partition": 7, "problems": ["gone"]}
    page = report_html(made(busy(audit={**audit, "coverage": [*audit["coverage"], empty, doubtful, empty]})))
    assert "2 partitions without an entry" in page
    assert "orders-partition-7" in page


def test_a_chat_gets_the_verdict_first():
    found = list(pictures.for_chat(made()))
    assert [name for name, _ in found] == [
        "verdict.png", "waiting.png", "latency.png", "failures.png", "tenants.png", "traffic.png",
    ]  # fmt: skip
    assert all(data.startswith(PNG) for _, data in found)
