"""Pages as text: no name can become markup, nothing writes, problems are told, and windows share readings."""

from __future__ import annotations

import html
import re
import socket
import threading
import time
from collections.abc import Generator
from dataclasses import replace
from html.parser import HTMLParser
from http.client import IncompleteRead
from typing import Any, NoReturn

import pytest

from kodoctl.documents.recall_document import PeekedMessage
from kodoctl.errors import ClusterError, error
from kodoctl.status.lane_status import StatusReading
from kodoctl.ui import application
from kodoctl.ui.export_response import ExportResponse
from kodoctl.ui.message_search import SearchResult, SearchText
from kodoctl.ui.message_views import LaneMessages, LaneQuestion
from kodoctl.ui.plan_views import NamespaceHistory
from tests.samples.consoles import (
    EVIL_PATHS,
    NIGHT,
    Answer,
    SampleMessages,
    SamplePlans,
    data_of,
    evil_data,
    peeked,
    served,
)
from tests.samples.reports import EVIL
from tests.services.polling import eventually


def words(page: str) -> str:
    """The text of a page, on one line."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


OWN = r"(\./|console\.(css|js)|(lane|message|export)\?.*|plans|lane#found|#content|data:,)$"


class Parsed(HTMLParser):
    """Elements of a page, each with the names of its attributes. `own`: addresses that a page may have."""

    own = OWN

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags |= {tag, *(f"{tag} {name}" for name, _ in attrs)}
        assert not [value for name, value in attrs if name in ("href", "src") and not re.match(self.own, value or "")]


@pytest.mark.parametrize("path", EVIL_PATHS)
def test_hostile_names_are_text(path: str) -> None:
    with served(evil_data()) as console:
        answer = console.ask(path)
    assert answer.status == (400 if "where=" in path else 200)
    tags = Parsed(answer.text).tags
    assert not tags & {"img", "style", "iframe", "base"}
    assert not [one for one in tags if " on" in one or one.endswith(" style")]
    assert answer.text.count("<script") == (path != "/lanes"), "our own"
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


def test_a_page_of_a_defect_says_what_to_do() -> None:
    def fail() -> StatusReading:
        raise ZeroDivisionError("by zero")

    with served(data_of(read_status=fail)) as console:
        found = console.ask("/")
    assert (found.status, "K599" in found.text, "by zero" in found.text) == (500, True, True)


def test_several_windows_cost_one_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "FRESH_S", 60.0)  # eight windows of a busy machine may ask over many seconds
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
    text = words(page)
    assert "protected context prod, http://pulsar:8080" in text
    assert "No message was lost, as read 3 min ago" in text
    assert "10 things need you" in text
    assert "L1 retrying 12 oldest sent 2 h ago no worker reads it" in text
    assert "Read at 2026-01-01 11:55:00 UTC" in text


def test_of_a_cluster_that_is_not_protected_no_badge_is_shown() -> None:
    with served(data_of(production=False)) as console:
        assert "protected" not in console.ask().text


def test_a_lane_shows_causes_messages_and_the_equal_commands() -> None:
    messages = SampleMessages()
    path = "/lane?topology=trade&topic=orders-billing-DLQ&subscription=billing"
    with served(data_of(messages=messages)) as console:
        page = console.ask(path).text
        condition = console.ask(f"{path}&where=key%20%3D%20'4711'").text
    text = words(page)
    assert "orders / billing: dead letters" in text
    assert "1 of 3 messages meet the condition." in text
    assert "ValueError: card of order 4711 was refused" in text
    assert "order-4711 key 4711 " in text
    assert "where=cause+%3D+%27ValueError%3A+card+of+order+%23+was+refused%27" in page
    assert "message=order-4711" in page
    peek = "kodoctl peek persistent://kodo/trade/orders-billing-DLQ --subscription kodo-hold --where true"
    assert f"{peek} --topology topologies/trade.yaml --context prod" in text
    assert f"{peek} --topology topologies/trade.yaml --out orders-billing-DLQ.jsonl --context prod" in text
    assert "where=cause+%3D+%27ValueError%3A+card+of+order+%23+was+refused%27+AND+tenant+%3D+%27u13%27" in page
    assert [one.where for one in messages.asked] == ["true", "key = '4711'"]
    assert "recall plan topologies/trade.yaml --topic orders --subscription billing --where" in words(condition)


def test_a_wrong_condition_is_told_above_its_form() -> None:
    with served(data_of()) as console:
        answer = console.ask("/lane?topology=trade&topic=orders&subscription=billing&where=kye%20%3D%201")
    assert answer.status == 400
    assert "did you mean key?" in words(answer.text)
    assert "orders / billing: dead letters" in words(answer.text)
    assert "<pre>kye = 1\n^^^" in answer.text, "a caret needs letters of one width"
    assert 'value="kye = 1"' in answer.text


def test_a_search_leads_with_the_lane_and_to_its_page_and_to_the_history() -> None:
    messages = SampleMessages()
    with served(data_of(messages=messages)) as console:
        page = console.ask("/find?q=4711").text
        nothing = console.ask("/find?q=none&span=1h").text
        never = console.ask("/find?q=none&span=all").text
        wrong = console.ask("/find?q=none%20%3D%201").text
    text = words(page)
    assert "1 message with key 4711 3 messages read in all lanes, of the last 24h." in text
    assert "dead letters of orders / billing , here now, ValueError" in text
    assert 'href="lane?topology=trade&amp;topic=orders-billing-DLQ&amp;subscription=billing"' in page
    assert "Not waiting for mailing any more: done, skipped or discarded, of which nothing is recorded" in text
    assert "subscription=billing&amp;message=order-4711&amp;span=24h" in page
    assert 'No stored message has the value "none"' in words(nothing)
    assert 'href="find?q=none&amp;span=all&amp;topology="' in nothing
    assert "payload.customer.id = '4711'" in words(nothing)
    assert "What no topic keeps any more" in words(never)
    assert "It is no condition either: unknown fact" in words(wrong)
    assert messages.asked[:2] == [("4711", "24h", ""), ("none", "1h", "")]


@pytest.mark.parametrize("path", ["/find", "/find?q=%20"])
def test_a_search_for_nothing_says_what_can_be_searched(path: str) -> None:
    messages = SampleMessages()
    with served(data_of(messages=messages)) as console:
        answer = console.ask(path)
    assert answer.status == 200
    assert "a kodo-id, a position, a key, a tenant" in words(answer.text)
    assert not messages.asked


def test_a_page_that_is_none_leads_to_those_that_are() -> None:
    with served(data_of()) as console:
        answer = console.ask("/lnae")
    assert answer.status == 404
    assert "There is no such page" in words(answer.text)
    assert 'href="plans"' in answer.text


def test_a_history_shows_hops_and_where_the_message_is() -> None:
    path = "/message?topology=trade&ground=orders&subscription=billing&span=all&message="
    with served(data_of()) as console:
        found, missing = console.ask(f"{path}order-4711"), console.ask(f"{path}none")
    text = words(found.text)
    assert "L1/ready no longer stored" in text
    assert "It is a dead letter: nothing tries it again by itself." in text
    assert "died: ValueError" in text
    assert "put back to wait twice in retrying" in text
    assert "dead letters is here now" in text
    assert '{ "n": 4711 }' in text
    assert "As it is stored" not in words(missing.text)
    assert (
        "kodo-consumer why topologies/trade.yaml order-4711 --topic orders --subscription billing --context prod"
        in text
    )
    assert missing.status == 404
    assert "none of the 3 messages stored in 1 topic." in words(missing.text)


@pytest.mark.parametrize(
    ("message", "words_"),
    [
        (peeked(size=None, preview=""), "no payload (a tombstone)"),
        (peeked(broken="encrypted"), "The payload cannot be read: encrypted"),
    ],
)
def test_payloads_that_are_none_are_named(message: PeekedMessage, words_: str) -> None:
    class One(SampleMessages):
        def lane(self, question: LaneQuestion) -> LaneMessages:
            found = super().lane(question)
            return replace(found, document={**found.document, "messages": [message]})

    with served(data_of(messages=One())) as console:
        assert words_ in words(console.ask("/lane?topology=trade&topic=orders&subscription=billing").text)


EXPORT = "/export?topic=orders-billing-DLQ&subscription=billing&where=key%20%3D%20'4711'"


def test_the_choice_is_downloaded_as_it_is_read() -> None:
    messages = SampleMessages()
    with served(data_of(messages=messages)) as console:
        answer = console.ask(f"{EXPORT}&topology=trade&as=jsonl")
        wrong = console.ask(f"{EXPORT}&topology=trade&as=exe")
        condition = console.ask(f"{EXPORT}x&topology=trade&as=jsonl")
    assert answer.status == 200
    assert answer.headers["content-disposition"] == 'attachment; filename="orders-billing-DLQ.jsonl"'
    assert answer.text.count("order-47") == 2
    assert messages.asked[0] == ("key = '4711'", "jsonl")
    assert (wrong.status, condition.status) == (400, 400)
    assert "K585" in words(wrong.text)


def test_a_download_that_breaks_off_is_no_whole_file() -> None:
    with served(data_of()) as console, pytest.raises(IncompleteRead):
        console.ask(f"{EXPORT}&topology=cut%20off&as=jsonl")


def test_a_download_that_the_browser_gives_up_is_read_no_further() -> None:
    ended = threading.Event()

    class Endless(SampleMessages):
        def export(self, question: LaneQuestion, suffix: str) -> Generator[bytes]:
            try:
                while True:
                    yield b'{"id": "order-4711"}\n' * 1_000
            finally:
                ended.set()

    with served(data_of(messages=Endless())) as console:
        with socket.create_connection(("127.0.0.1", console.port)) as browser:
            path = f"{console.folder}{EXPORT}&topology=trade&as=jsonl"
            head = "".join(f"{name}: {value}\r\n" for name, value in console.own.items())
            browser.sendall(f"GET {path} HTTP/1.1\r\n{head}\r\n".encode())
            assert browser.recv(15) == b"HTTP/1.1 200 OK"
        assert ended.wait(20), "another file can be written"


def test_a_file_has_a_name_that_no_header_can_be_made_of() -> None:
    response = ExportResponse((one for one in [b""]), 'a"\r\nSet-Cookie: x/../é', "jsonl")
    assert response.headers["content-disposition"] == 'attachment; filename="a___Set-Cookie__x_..__.jsonl"'


def test_a_note_about_a_payload_is_shown_in_its_place() -> None:
    class One(SampleMessages):
        def lane(self, question: LaneQuestion) -> LaneMessages:
            found = super().lane(question)
            message = peeked(content={"kind": "bytes", "text": "", "note": "not shown: masked"})
            return replace(found, document={**found.document, "messages": [message]})

    with served(data_of(messages=One())) as console:
        page = console.ask("/lane?topology=trade&topic=orders&subscription=billing").text
    assert "Payload: not shown: masked" in words(page)
    assert 'class="payload"' not in page


def test_history_and_drift_are_shown_as_the_commands_print_them() -> None:
    plans = SamplePlans()
    with served(data_of(plans=plans)) as console:
        page = words(console.ask("/plans?topology=trade").text)
        assert plans.drifts == 0
        read = words(console.ask("/plans?topology=trade&drift=read").text)
        again = words(console.ask("/plans").text)
        unknown = console.ask("/plans?topology=none")
    assert "4f2a is cut off: 1 of 9 changes done The rest is not done." in page
    assert "Nobody has asked for it" in page
    assert "4f2a 2026-01-01 11:40 UTC apply: cut off, 1 of 9 changes done by root@vm pid 7, commit c0ffeec0ffee" in page
    assert page.index("4f2a 2026") < page.index("1b0c 2026"), "the newest first"
    assert "orders / billing lane L1/ready paused until 2026-01-01 12:55:00 UTC root: bank" in page
    assert "orders / billing taken back lane L1/ready paused root" in page
    assert "kodoctl history kodo/trade --context prod" in page
    assert "3 sent, 1 unclear of orders-billing-DLQ" in page
    assert "Drift: 0 objects; not applied yet: trade." in read
    assert "Read 0 s ago" in read
    assert "Drift: 0 objects" in again, "the last one stays"
    assert unknown.status == 400


@pytest.mark.parametrize(
    ("runs", "text"),
    [
        ([], "None. They would be recorded in .kodoctl/recall."),
        (None, "Recalls, releases, moves and discards Not known."),
    ],
)
def test_a_ledger_without_runs_is_named(runs: list[Any] | None, text: str) -> None:
    """Another folder or --ledger may have some."""

    class NoRuns(SamplePlans):
        def history(self, topology: str) -> NamespaceHistory:
            found = super().history(topology)
            return replace(found, document={**found.document, "recalls": runs})

    with served(data_of(plans=NoRuns())) as console:
        assert text in words(console.ask("/plans?topology=trade").text)


def test_pages_that_wait_do_not_stop_the_others() -> None:
    until = threading.Event()

    class Slow(SampleMessages):
        def find(self, wanted: SearchText, span: str, topology: str) -> SearchResult:
            until.wait(60)
            return super().find(wanted, span, topology)

    with served(data_of(messages=Slow())) as console:
        answers: list[Answer] = []
        windows = [threading.Thread(target=lambda: answers.append(console.ask("/find?q=1"))) for _ in range(60)]
        for one in windows:
            one.start()
        eventually(lambda: len(answers) == 51)
        assert {one.status for one in answers} == {503}
        assert "K037" in answers[0].text
        assert console.ask().status == 200
        until.set()
        for one in windows:
            one.join()
    assert sum(one.status == 200 for one in answers) == 9


def test_an_end_while_pages_wait_is_quiet(capfd: pytest.CaptureFixture[str]) -> None:
    until, reads = threading.Event(), threading.Event()

    class Slow(SampleMessages):
        def find(self, wanted: SearchText, span: str, topology: str) -> SearchResult:
            reads.set()
            until.wait(60)
            return super().find(wanted, span, topology)

    answers: list[Answer] = []
    with served(data_of(messages=Slow())) as console:
        window = threading.Thread(target=lambda: answers.append(console.ask("/find?q=1")))
        window.start()
        reads.wait(30)
        threading.Timer(4.0, until.set).start()
    window.join()
    assert answers[0].status == 503
    assert capfd.readouterr().err == ""
