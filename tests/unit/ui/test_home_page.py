"""The first screen as a page: where its links lead, and what it shows of a cluster that does not answer."""

from __future__ import annotations

import html
import re
import threading
import time
from dataclasses import replace

import pytest

from kodoctl.status.lane_status import StatusReading, UnreadTopic
from kodoctl.ui import application
from kodoctl.ui.first_screen import ScreenFacts
from kodoctl.ui.letter_causes import CauseCount, FailingGroup, LetterCauses, TryCount
from tests.samples.console_actions import SampleActions, desk
from tests.samples.consoles import NOW, data_of, lane, reading, served

RETRYING = ("trade", "orders-billing-RETRYING", "orders", "billing")
LETTERS = LetterCauses(
    3, True, (CauseCount("ValueError", 3),), failing=(FailingGroup("eve", "ValueError", 3, NOW, TryCount(2)),)
)


def test_the_advice_to_pause_a_tenant_opens_the_form_that_pauses_it() -> None:
    status, own = reading(lane(consumers=1), lane("retrying", entries=3), lane("dead", entries=3)), desk()
    data = data_of(status, read_facts=lambda _: ScreenFacts({RETRYING: LETTERS}))
    with served(data, (SampleActions(), own)) as console:
        page = console.ask("/lanes").text
        [address] = re.findall(r'href="([^"]+)">Pause eve', page)
        assert "action?" in page, "letters are sent again by another form"
        form = console.ask(f"/{html.unescape(address).partition('#')[0]}").text
    assert address.endswith("#pause-tenant")
    assert re.search(r'id="pause-tenant"[^>]* value="eve"', form), form
    own.close(lambda _: None)


def test_no_worker_is_coloured_where_messages_wait() -> None:
    with served(data_of(reading(lane(entries=3)))) as console:
        assert '<b class="failed">0</b>' in console.ask("/lanes").text
    with served(data_of(reading(lane()))) as console:
        assert '<b class="failed">0</b>' not in console.ask("/lanes").text


def test_dead_letters_that_were_not_read_are_not_said_to_be_none() -> None:
    unread = UnreadTopic("kodo/trade", "orders", "orders-billing-DLQ", "503: no broker owns it")
    with served(data_of(reading(lane(), unread=(unread,)))) as console:
        page = console.ask("/lanes").text
    assert "none kept" not in page
    assert '<span class="of">not read</span>' in page


def test_a_cluster_that_does_not_answer_has_one_headline_and_its_last_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "FRESH_S", -1.0)
    gone = UnreadTopic("kodo/trade", "orders", "orders", "K510 no broker answers: see `kodoctl doctor`")
    silent = replace(reading(unread=(gone, replace(gone, topic="orders-L2"))), at=NOW + 60_000)
    status = silent

    def read() -> StatusReading:
        return status

    with served(data_of(read_status=read, read_facts=lambda _: ScreenFacts())) as console:
        page = console.ask("/lanes").text
        assert "<h1>The cluster does not answer</h1><p>K510 no broker answers: see kodoctl doctor</p>" in page
        assert "topics not read" not in page
        status = reading(lane(entries=37, consumers=1))
        assert "does not answer" not in console.ask("/lanes").text
        status = silent
        page = console.ask("/lanes").text
    assert "<h1>The cluster has not answered since 2026-01-01 11:55:00 UTC</h1>" in page
    assert '<main class="older">' in page
    assert "<b>37</b>" in page
    assert "What needs you is not known until the cluster answers" in page
    assert "topics not read" not in page


def test_a_reading_that_takes_long_is_made_while_pages_show_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "FRESH_S", 1000.0)
    monkeypatch.setattr(application, "_SLOW_S", 0.0)
    readings, go = [reading(lane(entries=number)) for number in (1, 2, 3)], threading.Event()
    made = iter(readings)

    def read() -> StatusReading:
        found = next(made)
        if found is readings[1]:
            go.wait(5)
        return found

    def end_reading() -> None:
        for thread in threading.enumerate():
            if thread.name == "kodo-ui-status":
                thread.join(5)

    recent = application._RecentStatus(read)  # the pages show its times only
    assert recent() is readings[0]
    recent._until = time.monotonic()
    assert [recent(), recent(), recent()] == [readings[0]] * 3
    go.set()
    end_reading()
    assert recent() is readings[1]
    recent._until = time.monotonic() - 60
    assert recent() is readings[2], "what nobody has asked for since is not shown again"
    recent._until = time.monotonic()
    recent()
    end_reading()  # which fails, because there is no fourth
    with pytest.raises(StopIteration):
        recent()
