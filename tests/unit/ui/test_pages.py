"""Pages as text: no name can become markup, nothing writes, problems are told, and windows share readings."""

from __future__ import annotations

import html
import re
import threading
import time
from html.parser import HTMLParser
from typing import NoReturn

from kodoctl.errors import ClusterError, error
from kodoctl.status.lane_status import StatusReading
from tests.samples.consoles import NIGHT, data_of, evil_data, served
from tests.samples.reports import EVIL


class Parsed(HTMLParser):
    """Elements of a page, each with the names of its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags |= {tag, *(f"{tag} {name}" for name, _ in attrs)}
        assert not [
            value for name, value in attrs if name in ("href", "src") and not (value or "").startswith(("/", "data:,"))
        ]


def test_hostile_names_are_text() -> None:
    with served(evil_data()) as console:
        for path in ("/", "/lanes"):
            answer = console.ask(path)
            assert answer.status == 200
            tags = Parsed(answer.text).tags
            assert not tags & {"img", "style", "iframe", "base", "form"}
            assert not [one for one in tags if " on" in one or one.endswith(" style")]
            assert answer.text.count("<script") == (path == "/"), "our own"
            assert "\x1b" not in answer.text
            assert "\u202e" not in answer.text
            assert "<img src=x onerror=alert(1)>" in html.unescape(answer.text)


def test_a_hostile_problem_of_the_cluster_is_text() -> None:
    def fail() -> NoReturn:
        raise ClusterError(error("K514", EVIL, f"{EVIL}\n{EVIL}"))

    with served(data_of(read_status=fail)) as console:
        for path in ("/", "/lanes"):
            answer = console.ask(path)
            assert answer.status == 502
            assert "<img" not in answer.text
            assert "kodoctl explain K514" in answer.text


def test_several_windows_cost_one_reading() -> None:
    readings: list[float] = []

    def read() -> StatusReading:
        readings.append(time.monotonic())
        time.sleep(0.2)
        return NIGHT

    with served(data_of(read_status=read)) as console:
        windows = [threading.Thread(target=console.ask, args=("/lanes",)) for _ in range(8)]
        for one in windows:
            one.start()
        for one in windows:
            one.join()
    assert len(readings) == 1


def test_the_page_says_cluster_protection_commands_and_its_time() -> None:
    with served(data_of()) as console:
        page = console.ask().text
    text = " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())
    assert "context prod, http://pulsar:8080 protected" in text
    assert "No message was lost, as read 3 min ago" in text
    assert "Needs you 7" in text
    assert "L1 retrying 12 1 h no worker reads it" in text
    assert "Read at 2026-01-01 11:55:00 UTC" in text


def test_of_a_cluster_that_is_not_protected_no_badge_is_shown() -> None:
    with served(data_of(production=False)) as console:
        assert "protected" not in console.ask().text
