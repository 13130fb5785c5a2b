"""Pages that act: a plan is shown, confirmed and carried out once; other requests do nothing; no name becomes markup."""

from __future__ import annotations

import html
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlencode

import pytest

from kodoctl.errors import ClusterError, RefusedError, UsageError, error
from kodoctl.ui.action_forms import OrderRequest, UndoRequest
from kodoctl.ui.action_pages import OrdersView
from kodoctl.ui.actions import fields_of
from tests.samples.console_actions import SampleActions, desk
from tests.samples.consoles import Answer, Console, data_of, evil_data, served
from tests.samples.reports import EVIL
from tests.services.polling import eventually
from tests.unit.ui.test_pages import Parsed, words

PLACE = {"topology": "trade", "topic": "orders-billing-DLQ", "subscription": "billing"}


class Acting:
    """A console that acts, and forms as its pages have them."""

    def __init__(self, console: Console, maker: SampleActions) -> None:
        self.console, self.maker = console, maker
        self.form = token(console.ask(f"/action?{urlencode(PLACE)}"))

    def plan(self, path: str = "/plan-letters", **fields: str) -> str:
        """Makes a plan, and returns the path of its page once it is made."""
        given = {"token": self.form, "action": "send", "what": "pause", **PLACE, **fields}
        answer = self.console.post(path, given)
        assert answer.status == 303, answer.text
        page = f"/{answer.headers['location']}"
        eventually(lambda: "Reads the cluster" not in self.console.ask(page).text)
        return page

    def confirm(self, page: str, **fields: str) -> Answer:
        """Sends the form of a plan's page."""
        name = page.rpartition("=")[2]
        return self.console.post("/carry-out", {"id": name, "token": token(self.console.ask(page)), **fields})


def token(answer: Answer) -> str:
    found = re.search(r'name="token" value="(\w+)"', answer.text)
    assert found is not None, answer.text
    return found[1]


@contextmanager
def acting(maker: SampleActions | None = None) -> Iterator[Acting]:
    maker, own = maker or SampleActions(), desk()
    with served(data_of(), (maker, own)) as console:
        yield Acting(console, maker)
    maker.go_on.set()
    own.close(lambda _: None)


@pytest.mark.parametrize("path", ["/plan-letters", "/plan-order", "/plan-undo"])
def test_a_plan_is_shown_confirmed_and_carried_out(path: str) -> None:
    with acting() as it:
        page = it.plan(path, id="1234abcd")
        text = words(it.console.ask(page).text)
        assert "3 letters to send" in text
        assert "On the command line" in text
        assert it.maker.sent == []
        assert it.confirm(page).status == 303
        eventually(lambda: "Done: 3 sent" in it.console.ask(page).text)
        assert "kodoctl history" in words(it.console.ask(page).text)
        assert "done" in words(it.console.ask("/acts").text)
    assert len(it.maker.sent) == 1


def test_the_page_of_an_action_leads_to_what_became_of_its_messages() -> None:
    with acting() as it:
        page = it.plan()
        part = page.replace("act?", "act-outcome?")
        assert "not known yet" in it.console.ask(part).text, "nothing was sent"
        it.confirm(page)
        eventually(lambda: f'data-from="{part[1:]}"' in it.console.ask(page).text)
        page_text = it.console.ask(page).text
        assert "Sent; waiting for what becomes of the messages" in page_text
        assert "sentence good" not in page_text, "nothing is good before it is known"
        assert "sent; nobody has looked yet what became of the messages, " in words(it.console.ask("/acts").text)
        text = it.console.ask(part).text
        assert "3 sent: 3 dead again" in text
        assert "Handled: " not in text, "nothing was"
        assert "3 sent: 3 dead again, " in words(it.console.ask("/acts").text)
        history = it.console.ask("/plans?topology=trade").text
        assert f'href="{page[1:]}">3 sent: 3 dead again</a>' in html.unescape(history)
        assert "sentence bad" in it.console.ask(page).text
        assert "data-done" in text
        place = urlencode({"topology": "trade", "topic": "orders-billing-DLQ", "subscription": "billing"})
        assert f'href="lane?{place}"' in html.unescape(text)
        it.maker.unread = ClusterError(error("K514", "no answer", "of the broker"))
        unread = it.console.ask(part)
        assert unread.status == 200
        assert "not known yet" in unread.text
        assert "K514 no answer: of the broker" in words(unread.text)


def test_a_form_that_is_sent_again_does_nothing_more() -> None:
    with acting() as it:
        it.maker.go_on.clear()
        page = it.plan()
        secret = token(it.console.ask(page))
        fields = {"id": page.rpartition("=")[2], "token": secret}
        windows = [threading.Thread(target=it.console.post, args=("/carry-out", fields)) for _ in range(5)]
        for one in windows:
            one.start()
        for one in windows:
            one.join()
        running = it.console.ask(page).text
        assert "1 of 3" in words(running)
        assert "the lane is paused" in running
        assert 'http-equiv="refresh"' in running, "without scripts as well"
        it.maker.go_on.set()
        eventually(lambda: "Done: 3 sent" in it.console.ask(page).text)
        assert it.console.post("/carry-out", fields).status == 303
    assert len(it.maker.sent) == 1


def test_an_attempt_that_is_not_complete_goes_on_by_a_form_of_its_own() -> None:
    with acting() as it:
        it.maker.complete = False
        page = it.plan()
        old = token(it.console.ask(page))
        it.confirm(page)
        eventually(lambda: ": go on" in it.console.ask(page).text)
        it.console.post("/carry-out", {"id": page.rpartition("=")[2], "token": old})
        assert len(it.maker.sent) == 1, "the form of the first attempt"
        it.maker.complete = True
        it.confirm(page)
        eventually(lambda: "Where it is recorded" in it.console.ask(page).text)
    assert len(it.maker.sent) == 2


def test_an_attempt_is_stopped_in_order() -> None:
    with acting() as it:
        it.maker.go_on.clear()
        page = it.plan()
        it.confirm(page)
        name = page.rpartition("=")[2]
        assert it.console.post("/stop", {"id": name, "token": "0"}).status == 403
        assert it.console.post("/stop", {"id": name, "token": token(it.console.ask(page))}).status == 303
        eventually(lambda: "Done: 3 sent" in it.console.ask(page).text)


def test_a_protected_context_wants_its_name() -> None:
    with acting(SampleActions(protected="prod")) as it:
        page = it.plan()
        assert "Context 'prod' is protected. Type its name" in words(it.console.ask(page).text)
        refused = it.confirm(page, context="dev")
        assert refused.status == 403
        assert "is not the context's name" in html.unescape(refused.text)
        assert it.maker.sent == []
        assert it.confirm(page, context="prod").status == 303
        eventually(lambda: len(it.maker.sent) == 1)


@pytest.mark.parametrize(
    ("path", "fields", "headers", "status"),
    [
        ("/plan-letters", {}, {"Origin": "http://evil.example"}, 403),
        ("/plan-letters", {}, {"Origin": None}, 403),
        ("/plan-letters", {}, {"Origin": "null"}, 403),
        ("/plan-letters", {}, {"Cookie": None}, 403),
        ("/plan-letters", {"token": "0"}, {}, 403),
        ("/plan-letters", {}, {"Content-Type": "application/json"}, 403),
        ("/plan-letters", {"action": "drop"}, {}, 400),
        ("/plan-letters", {"action": "move"}, {}, 400),
        ("/plan-letters", {"because": "x" * 200_000}, {}, 400),
        ("/plan-order", {"what": "nothing"}, {}, 400),
        ("/carry-out", {"id": "none"}, {}, 400),
        ("/stop", {"id": "none"}, {}, 400),
    ],
)
def test_other_requests_are_refused(
    path: str, fields: dict[str, str], headers: dict[str, str | None], status: int
) -> None:
    made: list[int] = []
    with acting(SampleActions(made=lambda: made.append(1))) as it:
        given = {"token": it.form, "action": "send", "what": "pause", **PLACE, **fields}
        sent = {name.replace("-", "_"): value for name, value in headers.items()}
        own = {"Origin": f"http://127.0.0.1:{it.console.port}", "Content_Type": "application/x-www-form-urlencoded"}
        answer = it.console.ask(path, "POST", urlencode(given), **{**own, **sent})
        assert answer.status == status
        assert "Traceback" not in answer.text
        assert it.console.ask(path).status == 303, "no write by GET"
    assert made == []


def test_a_plan_is_not_carried_out_by_the_form_of_another() -> None:
    with acting() as it:
        first, second = it.plan(), it.plan(where="key = '1'")
        fields = {"id": first.rpartition("=")[2], "token": token(it.console.ask(second))}
        answer = it.console.post("/carry-out", fields)
        assert answer.status == 403
        assert "K039" in answer.text
    assert it.maker.sent == []


def test_a_plan_that_cannot_be_made_is_a_page_with_the_reason() -> None:
    def fail() -> None:
        raise ClusterError(error("K514", "the cluster is gone", "no answer"))

    def break_() -> None:
        raise ValueError("a defect")

    for made, code in ((fail, "K514"), (break_, "K599")):
        with acting(SampleActions(made=made)) as it:
            text = it.console.ask(it.plan()).text
            assert code in text
            assert "Back to the form" in text
            assert "Traceback" not in text


def test_too_much_at_a_time_is_told() -> None:
    until = threading.Event()
    with acting(SampleActions(made=lambda: until.wait(30))) as it:
        given = {"token": it.form, "action": "send", **PLACE}
        answers = [it.console.post("/plan-letters", given) for _ in range(5)]
        assert [one.status for one in answers] == [303] * 4 + [503]
        assert "K037" in answers[-1].text
        until.set()


def test_pages_of_orders_that_wait_do_not_stop_those_of_actions() -> None:
    until, waiting = threading.Event(), threading.Semaphore(0)

    class Slow(SampleActions):
        def orders(self, topology: str, ground: str, subscription: str) -> OrdersView:
            waiting.release()
            until.wait(60)
            return super().orders(topology, ground, subscription)

    with acting(Slow()) as it:
        page = it.plan()
        place = f"/orders?{urlencode({**PLACE, 'ground': 'orders'})}"
        windows = [threading.Thread(target=it.console.ask, args=(place,)) for _ in range(9)]
        for one in windows:
            one.start()
        for _ in windows:
            assert waiting.acquire(timeout=30)
        paths = (place, page, page.replace("act?", "act-state?"), "/acts", f"/action?{urlencode(PLACE)}")
        answers = [it.console.ask(path).status for path in paths]
        until.set()
        for one in windows:
            one.join()
    assert answers == [503, 200, 200, 200, 200]


def test_a_form_that_breaks_off_is_quiet(caplog: pytest.LogCaptureFixture) -> None:
    with acting() as it:
        own = {**it.console.own, "Origin": f"http://127.0.0.1:{it.console.port}", "Content-Length": "100"}
        head = "".join(
            f"{name}: {value}\r\n"
            for name, value in {**own, "Content-Type": "application/x-www-form-urlencoded"}.items()
        )
        with socket.create_connection(("127.0.0.1", it.console.port)) as browser:
            browser.sendall(f"POST {it.console.folder}/plan-letters HTTP/1.1\r\n{head}\r\ntoken=".encode())
            time.sleep(0.2)
        time.sleep(0.2)
        assert it.console.ask("/acts").status == 200
    assert not caplog.records, "no traceback for a window that was closed"


def test_the_end_of_the_console_waits_for_attempts_and_not_for_plans() -> None:
    maker, own, until = SampleActions(), desk(), threading.Event()
    maker.go_on.clear()
    with served(data_of(), (maker, own)) as console:
        it = Acting(console, maker)
        page = it.plan()
        it.confirm(page)
        maker.made = lambda: until.wait(30)
        own.plan("slow", "acts", lambda: maker.plan_undo(UndoRequest("trade", "1")))
        began = time.monotonic()
        own.close(lambda _: None)
        assert time.monotonic() - began < 15
        until.set()


def test_a_discard_of_dead_letters_has_only_the_fields_of_its_command() -> None:
    with acting() as it:
        text = words(it.console.ask(it.plan(action="discard", to="L2", again="yes")).text)
    assert "to='', " in text
    assert "again=False" in text


def test_the_end_of_the_console_ends_attempts_in_order_and_says_how_to_continue() -> None:
    maker, own = SampleActions(), desk()
    maker.complete = False
    maker.go_on.clear()
    with served(data_of(), (maker, own)) as console:
        it = Acting(console, maker)
        page = it.plan()
        it.confirm(page)
        eventually(lambda: len(maker.sent) == 1)
        told: list[str] = []
        own.close(told.append)
        assert it.console.post("/plan-letters", {"token": it.form, "action": "send", **PLACE}).status == 503
    assert re.match(r"Interrupted: Send again: orders / billing", told[0])
    assert told[1].endswith("Next: kodoctl recall apply own.json")


@pytest.mark.parametrize(("steps", "command"), [(1, "kodoctl recall apply own.json"), (0, "3 letters to send")])
def test_the_end_names_what_comes_next_for_plans_that_ended_outdated(steps: int, command: str) -> None:
    maker, own = SampleActions(), desk()
    maker.problem, maker.steps = RefusedError(error("K533", "the cluster changed since the plan")), steps
    with served(data_of(), (maker, own)) as console:
        it = Acting(console, maker)
        it.plan(where="true")
        page = it.plan()
        it.confirm(page)
        eventually(lambda: "K533" in console.ask(page).text)
        told: list[str] = []
        own.close(told.append)
    assert [one.partition(". Next: ")[2] for one in told] == [command], "nothing of the plan without an attempt"


def test_old_plans_are_forgotten() -> None:
    with acting() as it:
        first = it.plan()
        for number in range(42):
            it.plan(where=f"key = '{number}'")
        assert it.console.ask(first).status == 400
        assert "K038" in it.console.ask(first).text


def test_hostile_names_are_text() -> None:
    maker, own = SampleActions(EVIL), desk()
    given = {"topology": EVIL, "topic": EVIL, "subscription": EVIL, "ground": EVIL, "where": EVIL, "because": EVIL}
    with served(evil_data(), (maker, own)) as console:
        it = Acting(console, maker)
        pages = [f"{path}?{urlencode(given)}" for path in ("/action", "/orders", "/undo", "/acts")]
        page = it.plan(**given, tenant=EVIL, to=EVIL)
        pages += [page, "/", f"/lane?{urlencode(given)}"]
        for path in pages:
            check(console.ask(path))
        it.confirm(page)
        eventually(lambda: "Where it is recorded" in console.ask(page).text)
        check(console.ask(page))
        for part in ("act-state?", "act-outcome?"):
            check(console.ask(page.replace("act?", part)), script=0)


def check(answer: Answer, script: int = 1) -> None:
    """No text of others became an element, an attribute or an address."""
    tags = Acted(answer.text).tags
    assert not tags & {"img", "style", "iframe", "base"}
    assert not [one for one in tags if " on" in one or one.endswith(" style")]
    assert answer.text.count("<script") == script
    assert "\x1b" not in answer.text
    assert "\u202e" not in answer.text


class Acted(Parsed):
    """Elements of a page that acts, and its own addresses."""

    own = r"(\./|console\.(css|js)|(lane|message|action|orders|undo|act|act-outcome|plans|export)\?.*|acts|plans|#content|data:,)$"


def test_a_console_that_only_reads_has_no_way_to_act() -> None:
    with served(data_of()) as console:
        assert "changes nothing" in console.ask().text
        assert "Actions" not in console.ask().text
        for path in ("/action", "/acts", "/carry-out", "/plan-letters"):
            assert console.ask(path).status == 404
            assert console.post(path, {}).status == 404


@pytest.mark.parametrize("tenant", ["u\u202e1", "a\tb", "a\nb\r", "\x00\x80", "::x::", "<i>'\"&amp;"])
def test_forms_send_the_name_of_a_tenant_as_it_is(tenant: str) -> None:
    with acting(SampleActions(tenant)) as it:
        page = it.console.ask(f"/orders?{urlencode({**PLACE, 'ground': 'orders', 'tenant': tenant})}").text
        form = it.console.ask(f"/action?{urlencode({**PLACE, 'tenant': tenant})}").text
    fields = re.findall(r'name="((?:json:)?tenant)" value="([^"]*)"', page + form)
    sent = [fields_of(urlencode({name: html.unescape(value)}).encode()) for name, value in fields]
    assert sent == [{"tenant": tenant}] * 4
    assert all(html.unescape(value).isprintable() for _, value in fields), "browsers and HTML change nothing of it"


@pytest.mark.parametrize("tenant", ["u7 ", " u7", "u7\t"])
def test_a_pause_of_a_name_with_blanks_is_not_one_of_another_tenant(tenant: str) -> None:
    with acting() as it:
        page = it.console.ask(f"/orders?{urlencode({**PLACE, 'ground': 'orders', 'tenant': tenant})}").text
    form = page[page.index("Pause a tenant") :].partition("</form>")[0]
    sent = {name: html.unescape(value) for name, value in re.findall(r'name="([^"]+)" value="([^"]*)"', form)}
    assert OrderRequest.of({"what": "pause", **fields_of(urlencode(sent).encode())}).details == {"tenant": tenant}


@pytest.mark.parametrize("value", ["1", "{", "[" * 50_000, '"\\ud800"'])
def test_a_field_that_is_no_json_text_is_refused(value: str) -> None:
    with pytest.raises(UsageError, match="K039"):
        fields_of(urlencode({"json:tenant": value}).encode())


@pytest.mark.parametrize(
    ("path", "query", "page"),
    [
        ("/plan-letters", PLACE, f"action?{urlencode(PLACE)}"),
        ("/plan-order", {**PLACE, "ground": "orders"}, "orders?topology=trade&ground=orders&subscription=billing"),
        ("/plan-undo", {"topology": "trade"}, "undo?topology=trade"),
        ("/carry-out", {"id": "x", "next": "//evil.example"}, "act?id=x"),
        ("/stop", {"id": "x"}, "act?id=x"),
        ("/plan-letters", {"topology": "trade"}, "acts"),
        ("/stop", {}, "acts"),
    ],
)
def test_the_address_of_a_form_leads_to_its_page(path: str, query: dict[str, str], page: str) -> None:
    with acting() as it:
        answer = it.console.ask(f"{path}?{urlencode(query)}")
    assert (answer.status, answer.headers["location"]) == (303, page)


def test_a_limit_shows_its_value_by_the_file_and_by_a_live_order() -> None:
    with acting() as it:
        page = it.console.ask(f"/orders?{urlencode({**PLACE, 'ground': 'orders'})}").text
    assert "Change the limit: bank, now 500/h (1500/h by the file)" in page
    assert "Change the limit: bank, bank</legend>" in page, "no live order changes it"
    assert 'placeholder="1500/h"' in page


def test_a_form_for_letters_says_what_it_does() -> None:
    with acting() as it:
        page = it.console.ask(f"/action?{urlencode(PLACE)}").text
    assert "<h1>Send again or discard: orders / billing, dead letters</h1>" in page
    assert "retrying, of the level in which they died" in page
    assert '<option value="L2">L2 ready</option>' in page


def test_forms_have_addresses_that_lead_back() -> None:
    with acting() as it:
        page = it.plan()
        places = {
            f"/action?{urlencode(PLACE)}": "plan-letters?",
            f"/orders?{urlencode({**PLACE, 'ground': 'orders'})}": "plan-order?",
            "/undo?topology=trade": "plan-undo?",
            page: "carry-out?",
        }
        for shown, form in places.items():
            found = re.search(rf'action="({re.escape(form)}[^"]*)"', it.console.ask(shown).text)
            assert found is not None, shown
            again = it.console.ask(f"/{html.unescape(found[1])}").headers["location"]
            assert it.console.ask(f"/{again}").status == 200, again


@pytest.mark.parametrize(("code", "is_final"), [("K533", True), ("K559", True), ("K582", False)])
def test_a_plan_that_is_outdated_cannot_go_on(code: str, is_final: bool) -> None:
    maker = SampleActions()
    maker.problem = RefusedError(error(code, "no", "somebody was faster\nand more"))
    with acting(maker) as it:
        page = it.plan()
        it.confirm(page)
        eventually(lambda: code in it.console.ask(page).text)
        text = words(it.console.ask(page).text)
        assert (": go on" in text) is not is_final
        assert ("Make a new one" in text) is is_final
        assert "Refused: this attempt did nothing" in text
        assert "refused: no: somebody was faster, " in words(it.console.ask("/acts").text)
        if is_final:
            it.console.post("/carry-out", {"id": page.rpartition("=")[2], "token": "0"})
    assert len(maker.sent) == 1


def test_a_plan_that_had_begun_before_it_was_outdated_is_continued_by_its_command() -> None:
    maker = SampleActions()
    maker.problem = ClusterError(error("K514", "no broker answers"))
    with acting(maker) as it:
        page = it.plan()
        it.confirm(page)
        eventually(lambda: "K514" in it.console.ask(page).text)
        maker.problem = RefusedError(error("K533", "the cluster changed since the plan"))
        it.confirm(page)
        eventually(lambda: "K533" in it.console.ask(page).text)
        text = words(it.console.ask(page).text)
    assert "Refused: this attempt did nothing" in text
    assert "Make a new one" not in text
    assert "The command below continues what has begun. " in text
    assert "kodoctl recall apply own.json" in text


def test_a_plan_that_was_refused_is_listed_with_the_reason() -> None:
    def refuse() -> None:
        raise RefusedError(error("K555", "nowhere to send to"))

    def fail() -> None:
        raise ClusterError(error("K514", "the cluster is gone"))

    for made, text in (
        (refuse, "refused: nowhere to send to, "), (fail, "no plan could be made: the cluster is gone, "),
    ):  # fmt: skip
        with acting(SampleActions(made=made)) as it:
            it.plan()
            assert text in words(it.console.ask("/acts").text)
    maker = SampleActions()
    maker.verb = ""
    with acting(maker) as it:
        it.plan()
        assert "refused: 3 letters to send: 3 letters to send, " in words(it.console.ask("/acts").text)


def test_a_plan_that_has_begun_names_the_command_that_continues_it() -> None:
    maker = SampleActions()
    maker.go_on.clear()
    with acting(maker) as it:
        page = it.plan()
        assert "kodoctl recall apply own.json" not in it.console.ask(page).text
        it.confirm(page)
        assert "If this console ends" in it.console.ask(page).text
        assert "kodoctl recall apply own.json" in words(it.console.ask(page).text)


def test_an_error_after_a_part_does_not_say_that_nothing_was_done() -> None:
    maker = SampleActions()
    maker.problem = ClusterError(error("K514", "no broker answers"))
    with acting(maker) as it:
        page = it.plan()
        it.confirm(page)
        eventually(lambda: "K514" in it.console.ask(page).text)
        text = words(it.console.ask(page).text)
        listed = words(it.console.ask("/acts").text)
    assert "An error ended it at 1 of 3" in text
    assert "ended by an error: no broker answers, " in listed
    assert "kodoctl recall apply own.json" in text
