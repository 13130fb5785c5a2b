"""Acting in `kodoctl ui`, in a real browser on the real broker: plan, review, confirm, result, and what the cluster has then."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from playwright.sync_api import Browser, Page

from tests.broker.recalling import RETRYING, Recalls
from tests.broker.waiting_messages import Waits
from tests.brokers.workspace import Workspace, run_main, workspace
from tests.browser.conftest import Opened
from tests.services.servers import Proxy

__all__ = ["workspace"]
pytestmark = [pytest.mark.broker, pytest.mark.filterwarnings("ignore::ResourceWarning")]
SHOTS = os.environ.get("KODO_SHOTS")
LETTERS = "/action?topology=trade&topic=orders-billing-DLQ&subscription=billing"


class Ui:
    """A running console, and a page of a browser that has entered it. `own`: address of its pages."""

    def __init__(self, address: str, page: Page) -> None:
        self.page, self.address = page, address
        page.goto(address)
        self.own = address.partition("?")[0].removesuffix("/")
        page.wait_for_url(f"{self.own}/")

    def go(self, path: str) -> None:
        self.page.goto(self.own + path)

    def shot(self, name: str) -> None:
        if SHOTS:
            self.page.screenshot(path=f"{SHOTS}/{name}.png", full_page=True)

    @property
    def text(self) -> str:
        return " ".join(self.page.inner_text("main").split())

    def planned(self) -> str:
        """Sends the form of a plan, and returns the text of the page once it is made."""
        self.page.click("text=Make the plan")
        self.page.wait_for_selector("text=On the command line", timeout=60_000)
        return self.text

    def carried_out(self) -> str:
        """Confirms the plan, and returns the text of the page once it has ended."""
        self.page.click(".confirm button.main")
        return self.ended()

    def ended(self) -> str:
        self.page.wait_for_selector("section.sentence", timeout=60_000)
        return self.text


@contextmanager
def ui(workspace: Workspace, opened: Opened, *arguments: str) -> Iterator[Ui]:
    process = workspace.process("ui", *arguments)
    assert process.stdout is not None
    try:
        yield Ui(process.stdout.readline().strip(), opened.page)
    finally:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert "Traceback" not in errors, errors
    assert process.returncode == 0


def plans(workspace: Workspace) -> list[Path]:
    return list((workspace.folder / ".kodoctl/plans").glob("*"))


def test_letters_of_a_cause_are_sent_again(workspace: Workspace, opened: Opened) -> None:
    recalls = Recalls(workspace)
    recalls.die(range(6))
    with ui(workspace, opened) as console:
        page = console.page
        console.shot("home")
        page.click(".cards >> text=Look at its messages")
        console.shot("lane")
        page.click("tr:has-text('timeout') >> text=send again")
        console.shot("form")
        assert page.input_value("#where") == "cause = 'timeout'"
        page.fill("#because", "the bank is back")
        text = console.planned()
        console.shot("plan")
        assert "3 letters to send" in text
        assert "why the bank is back" in text
        assert re.search(r"to \S+orders-billing-RETRYING \(3\)", text)
        assert "kodoctl recall plan " in text
        assert plans(workspace) == [], "nothing is written before the confirmation"
        assert not recalls.arrived()
        text = console.carried_out()
        console.shot("done")
        assert "Done: 3 sent, 3 old letters settled" in text
        assert page.locator("section.sentence.good").count() == 0, "nobody has handled them"
        assert "Handled: " not in text
        page.wait_for_selector("text=3 sent: 3 not handled yet")
        page.reload()
        assert "Done: 3 sent" in console.text
        assert page.locator(".confirm").count() == 0
        page.click("text=Actions")
        assert "3 sent: 3 not handled yet" in console.text
        console.shot("acts")
        page.click("text=Plans and history")
        assert "3 sent of orders-billing-DLQ 3 sent: 3 not handled yet" in console.text
        console.shot("plans")
    rows = run_main("recall", "list", workspace.namespace, "--format", "json").json()["recalls"]
    assert [(one["source"], one["sent"], one["open"]) for one in rows] == [("orders-billing-DLQ", 3, 0)]
    assert "3 sent" in workspace.run("history", workspace.namespace).out
    assert recalls.arrived(RETRYING) == {1: 1, 3: 1, 5: 1}
    assert plans(workspace) == []
    assert recalls.plan("cause = 'timeout'", file="again.json")["summary"]["left_out"] == {}
    assert opened.complaints == []


def test_a_discard_in_a_protected_context_wants_hash_and_name(workspace: Workspace, opened: Opened) -> None:
    recalls = Recalls(workspace)
    recalls.die(range(4))
    protect(workspace)
    with ui(workspace, opened) as console:
        page = console.page
        console.go(f"{LETTERS}&action=discard")
        page.fill("#tenant", "u1")
        assert "1 letter to discard" in console.planned()
        hash_ = re.search(r"plan's hash \((\w{12})\)", console.text)
        assert hash_ is not None
        for context, text in (("dev", hash_[1]), ("prod", "0" * 12)):
            page.fill("#context", context)
            page.fill("#hash", text)
            page.click(".confirm button.main")
            page.wait_for_selector(".finding")
            assert "nothing was written" in page.inner_text(".finding")
        console.shot("discard")
        assert plans(workspace) == []
        page.fill("#context", "prod")
        page.fill("#hash", hash_[1])
        assert "Done: 1 discarded" in console.carried_out()
    assert not recalls.arrived()
    assert recalls.plan()["summary"]["chosen"] == 3


def protect(workspace: Workspace) -> None:
    """The broker becomes the protected context `prod`."""
    place = workspace.connection()
    config = f'[contexts.prod]\nadmin_url = "{place[1]}"\nbroker_url = "{place[3]}"\nprotected = true\n'
    (workspace.folder / "kodoctl.toml").write_text(config, encoding="utf-8")
    workspace.options = ["--context", "prod"]


WAITING = "/action?topology=trade&topic=orders-billing-{}&subscription=billing"


@pytest.mark.full
def test_waiting_messages_are_released_moved_and_discarded(workspace: Workspace, opened: Opened) -> None:
    waits = Waits(workspace)
    waits.put("L1/retrying", range(6))
    waits.put("L1/blocking", range(10, 14))
    with ui(workspace, opened) as console:
        page = console.page
        console.go("/lane?topology=trade&topic=orders-billing-RETRYING&subscription=billing&where=payload.n+<+4")
        page.click("text=Release, move or discard what meets the condition")
        assert page.input_value("#where") == "payload.n < 4"
        text = console.planned()
        assert "4 messages to release" in text
        assert "kodoctl waiting plan " in text
        assert "--lane L1/retrying --action release --where 'payload.n < 4'" in text
        assert "Done: 4 sent, 4 old messages settled" in console.carried_out()
        console.go(WAITING.format("BLOCKING"))
        page.check("input[value=move]")
        page.fill("#where", "payload.n < 12")
        refused = console_refuses(console)
        assert "--action move needs --to" in refused
        page.click("text=Back to the form")
        assert page.input_value("#where") == "payload.n < 12"
        page.select_option("#to", "L2/ready")
        assert "2 messages to move" in console.planned()
        assert "Done: 2 sent" in console.carried_out()
        console.go(WAITING.format("BLOCKING"))
        page.check("input[value=discard]")
        console.planned()
        page.fill("#hash", re.findall(r"plan's hash \((\w{12})\)", console.text)[0])
        assert "Done: 2 discarded" in console.carried_out()
    assert waits.left("L2/ready") == Counter([10, 11])
    assert waits.left("L1/blocking") == Counter()
    assert waits.orders() == (), "no lane stays paused"


def console_refuses(console: Ui) -> str:
    """Sends the form of a plan that is refused, and returns the text of the page."""
    console.page.click("text=Make the plan")
    console.page.wait_for_selector(".finding", timeout=60_000)
    return console.text


@pytest.mark.full
def test_orders_are_given_and_taken_back_and_two_consoles_see_each_other(workspace: Workspace, opened: Opened) -> None:
    waits = Waits(workspace, LIMITED)
    with ui(workspace, opened) as console:
        page = console.page
        page.click("text=Pause, limit, move")
        console.shot("orders")
        assert "No live orders: everything is as the file says." in console.text
        page.fill("#pause-tenant", "bank")
        page.fill("#why-tenant", "they asked")
        page.fill("#lasting-tenant", "2h")
        text = plan_in(console, "Pause a tenant")
        assert "tenant bank paused" in text
        assert "kodo-consumer pause topologies/trade.yaml" in text
        assert "--tenant bank --for 2h --why 'they asked'" in text
        assert waits.orders() == ()
        assert "In force now: tenant bank paused until" in console.carried_out()
        assert [(str(one), one.why) for one in waits.orders()] == [("tenant bank paused", "they asked")]
        console.go(ORDERS)
        page.fill("#limit-to-1", "5/s")
        page.fill("#limit-value-1", "gold")
        assert "--kind rate --by uid --value gold --to 5/s --for 1h" in plan_in(
            console, "Change the limit: rate by uid"
        )
        console.carried_out()
        console.go(ORDERS)
        page.fill("#move-tenant", "gold")
        page.select_option("#move-to", "L2")
        assert "tenant gold moved to L2" in plan_in(console, "Move a tenant")
        console.carried_out()
        assert len(waits.orders()) == 3
        console.go("/")
        console.shot("badges")
        page.click("text=Pause, limit, move, resume")
        console.shot("orders-given")
        page.click("form.order:has-text('tenant bank paused') button")
        page.wait_for_selector("text=On the command line")
        assert "kodo-consumer resume topologies/trade.yaml" in console.text
        consume(workspace, "resume")
        page.click(".confirm button.main")
        page.wait_for_selector(".finding")
        assert "there is no such order" in console.text
        console.go(ORDERS)
        page.fill("#pause-tenant", "bank")
        plan_in(console, "Pause a tenant")
        consume(workspace, "pause")
        page.click(".confirm button.main")
        page.wait_for_selector(".finding")
        assert "K533" in console.text, "somebody gave an order meanwhile that this one would replace"
        consume(workspace, "resume")
    assert [str(one) for one in waits.orders()] == ["rate limit of uid gold 5/s", "tenant gold moved to L2"]


def consume(workspace: Workspace, command: str) -> None:
    """Another person's `kodo-consumer pause` or `resume` of a tenant."""
    words = [sys.executable, "-c", "from kodo_consumer.cli.main import main; main()", command, "topologies/trade.yaml"]
    words += ["--topic", "orders", "--subscription", "billing", "--tenant", "bank", *workspace.connection()]
    subprocess.run(words, cwd=workspace.folder, check=True)


ORDERS = "/orders?topology=trade&ground=orders&subscription=billing"
LIMITED = """
orders:
  fair_by: uid
  levels: double
  message_properties: {uid: required}
  subscriptions:
    billing: {states: [retrying, pending, blocking], limits: [{kind: rate, by: uid, limit: 100/s}]}
"""


def plan_in(console: Ui, legend: str) -> str:
    """Sends the form with this legend, and returns the text of the page once its plan is made."""
    console.page.click(f"fieldset:has-text('{legend}') >> text=Make the plan")
    console.page.wait_for_selector("text=On the command line", timeout=60_000)
    return console.text


@pytest.mark.full
def test_an_apply_is_taken_back_and_history_says_so(workspace: Workspace, opened: Opened) -> None:
    workspace.topology("orders: {partitions: 1, policies: {ttl: 8d}}")
    workspace.apply()
    workspace.topology("orders: {partitions: 1, policies: {ttl: 9d}}")
    workspace.apply()
    with ui(workspace, opened) as console:
        console.page.click("text=Actions")
        console.page.click("text=Applies of trade, to take one back")
        console.shot("applies")
        console.page.click("form.order >> nth=0 >> text=Plan to take it back")
        console.page.wait_for_selector("text=On the command line", timeout=60_000)
        console.shot("undo")
        text = console.text
        assert "ttl 9d → 8d" in text
        assert re.search(r"kodoctl undo \w{8} \S+/ns", text)
        assert "Applied: 1 done" in console.carried_out()
        assert "kodoctl history" in console.text
        console.go("/undo?topology=trade")
        assert "undo: complete" in console.text
    applies = workspace.run("history", workspace.namespace, "--format", "json").json()["applies"]
    assert [one["verb"] for one in applies] == ["apply", "apply", "undo"]
    assert workspace.plan().summary.startswith("Plan: ")


def test_everything_can_be_done_by_keyboard_without_scripts_in_the_dark_on_a_phone(
    workspace: Workspace, browser: Browser
) -> None:
    recalls = Recalls(workspace)
    recalls.die(range(4))
    context = browser.new_context(
        java_script_enabled=False, color_scheme="dark", viewport={"width": 360, "height": 740}
    )
    with closing(context), ui(workspace, Opened(context.new_page())) as console:
        page = console.page
        console.go("/lane?topology=trade&topic=orders-billing-DLQ&subscription=billing")
        focus(page, "Send again or discard what meets the condition")
        page.keyboard.press("Enter")
        page.wait_for_url("**/action?*")
        console.shot("phone-form")
        page.focus("#where")
        page.keyboard.press("Tab")
        page.keyboard.type("u0")
        page.keyboard.press("Enter")
        page.wait_for_selector("text=2 letters to send", timeout=60_000)
        console.shot("phone-plan")
        assert page.evaluate is not None
        focus(page, "Send 2 letters again")
        page.keyboard.press("Enter")
        page.wait_for_selector("text=Done: 2 sent", timeout=60_000)
        console.shot("phone-done")
    assert recalls.arrived() == {0: 1, 3: 1}


def focus(page: Page, text: str) -> None:
    """Presses Tab until the link or button of this text has the focus."""
    for _ in range(80):
        page.keyboard.press("Tab")
        if page.locator("*:focus").count() and page.locator("*:focus").inner_text() == text:
            return
    raise AssertionError(text)


@pytest.mark.full
def test_wrong_input_is_a_page_that_says_what_to_do(workspace: Workspace, opened: Opened) -> None:
    Recalls(workspace)
    with ui(workspace, opened) as console:
        page = console.page
        for where, code in (("kye = 1", "did you mean key?"), ("(((", "K550")):
            console.go(LETTERS)
            page.fill("#where", where)
            assert code in console_refuses(console)
            page.click("text=Back to the form")
            assert page.input_value("#where") == where
        page.fill("#where", "true")
        page.fill("#limit", "a few")
        assert "K567" in console_refuses(console)
        for path, code in (
            ("/action?topology=trade&topic=nothing&subscription=billing", "K022"),
            ("/action?topology=x&topic=orders&subscription=billing", "K022"),
            ("/orders?topology=trade&ground=orders&subscription=nobody", "K"),
            ("/undo?topology=x", "K022"),
            ("/act?id=nothing", "K038"),
        ):
            console.go(path)
            assert code in console.text, path
            assert "kodoctl explain" in console.text
        console.go(ORDERS)
        page.fill("#pause-tenant", "bank")
        page.fill("#lasting-tenant", "often")
        page.click("fieldset:has-text('Pause a tenant') >> text=Make the plan")
        page.wait_for_selector(".finding")
        assert "K780" in console.text
        console.go(LETTERS)
        assert "There is nothing to carry out" in console.planned()
        (workspace.folder / "topologies/trade.yaml").write_text("version: 1\nname: [", encoding="utf-8")
        console.go(LETTERS)
        assert "K001" in console_refuses(console)


@pytest.mark.full
def test_a_plan_is_carried_out_once_however_often_its_form_is_sent(workspace: Workspace, opened: Opened) -> None:
    recalls = Recalls(workspace)
    recalls.die(range(300))
    with ui(workspace, opened) as console:
        page = console.page
        console.go(LETTERS)
        console.planned()
        plan = page.url
        fields = {name: page.locator(f".confirm input[name={name}]").input_value() for name in ("id", "token")}
        headers = {"Origin": console.own[: console.own.index("/", 8)]}
        send = lambda **more: page.request.post(  # noqa: E731
            f"{console.own}/carry-out", form={**fields, **more}, headers=headers, max_redirects=0
        )
        assert send(token="0" * 64).status == 403
        assert send(id="nothing").status == 400
        assert page.request.get(f"{console.own}/carry-out", params={"id": fields["id"]}).url == plan
        assert page.request.post(f"{console.own}/carry-out", data="{}", headers=headers).status == 400
        assert [send().status for _ in range(3)] == [303] * 3
        page.goto(plan)
        console.shot("running")
        page.goto("about:blank")
        page.wait_for_timeout(500)
        page.goto(plan)
        assert "Done: 300 sent" in console.ended()
        assert send().status == 303
        page.wait_for_timeout(500)
        page.goto(plan)
        assert "Done: 300 sent" in console.text
    assert set(recalls.arrived().values()) == {1}


@pytest.mark.full
def test_an_end_of_the_console_leaves_a_plan_that_the_command_line_continues(
    workspace: Workspace, opened: Opened
) -> None:
    recalls = Recalls(workspace)
    recalls.die(range(1500))
    process = workspace.process("ui")
    assert process.stdout is not None
    console = Ui(process.stdout.readline().strip(), opened.page)
    console.go(LETTERS)
    console.planned()
    console.page.click(".confirm button.main")
    console.page.wait_for_selector("progress", timeout=60_000)
    process.send_signal(signal.SIGKILL)
    process.wait()
    (file,) = (one for one in plans(workspace) if one.suffix == ".json")
    with ui(workspace, opened) as console:
        console.page.click("text=Actions")
        assert f"kodoctl recall apply .kodoctl/plans/{file.name}" in console.text
        report = recalls.apply(file=str(file))
        assert report["complete"]
        assert plans(workspace) == [], "everything in it is done"
        recalls.die(range(2000, 3000))
        console.go(LETTERS)
        console.planned()
        console.page.click(".confirm button.main")
        console.page.wait_for_selector("progress", timeout=60_000)
        console.page.click("text=Stop in order")
        text = console.ended()
        assert "Interrupted: " in text
        assert "kodoctl recall apply" in text
        console.shot("stopped")
        console.page.click("text=go on")
        console.page.wait_for_selector("text=Done: ", timeout=60_000)
    assert set(recalls.arrived().values()) == {1}
    assert len(recalls.arrived()) == 2500


def test_a_page_of_another_port_cannot_act(workspace: Workspace, opened: Opened) -> None:
    recalls = Recalls(workspace)
    recalls.die(range(2))
    with ui(workspace, opened) as console:
        page = console.page
        console.go(LETTERS)
        console.planned()
        plan = page.url
        fields = {name: page.locator(f".confirm input[name={name}]").input_value() for name in ("id", "token")}
        form = "".join(f'<input name="{name}" value="{value}">' for name, value in fields.items())
        html = f'<form id="form" method="post" action="{console.own}/carry-out">{form}<button>go</button></form>'
        with other_port(html) as address:
            page.goto(address)
            page.click("button")
            page.wait_for_url("**/carry-out")
            assert page.inner_text("body").strip() == "Only a page of this console may do that."
            page.goto(address)
            body = "&".join(f"{name}={value}" for name, value in fields.items())
            send = (
                f"fetch('{console.own}/carry-out', {{method: 'POST', mode: 'no-cors', credentials: 'include',"
                f" headers: {{'Content-Type': 'application/x-www-form-urlencoded'}}, body: '{body}'}}).catch(() => 'no answer')"
            )
            page.evaluate(send)
        page.goto(plan)
        assert page.locator(".confirm").count() == 1, "still not carried out"
    assert not recalls.arrived()


@contextmanager
def other_port(html: str) -> Iterator[str]:
    """Address of a page on another port of this machine, which knows the address and the form of a plan."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(html)))
            self.end_headers()
            self.wfile.write(html.encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.mark.full
def test_a_console_that_only_reads_has_no_form(workspace: Workspace, opened: Opened) -> None:
    Recalls(workspace).die(range(2))
    with ui(workspace, opened, "--read-only") as console:
        page = console.page
        assert "changes nothing" in page.inner_text("footer")
        console.go("/lane?topology=trade&topic=orders-billing-DLQ&subscription=billing")
        assert "Send again" not in page.inner_text("body")
        assert page.locator("form[method=post]").count() == 0
        for path in ("/action", "/acts", "/carry-out"):
            answer = page.goto(console.own + path)
            assert answer is not None
            assert answer.status == 404


@pytest.mark.full
def test_two_consoles_send_each_letter_once(workspace: Workspace, opened: Opened, browser: Browser) -> None:
    recalls = Recalls(workspace)
    recalls.die(range(400))
    other = Opened(browser.new_page())
    with ui(workspace, opened) as one, ui(workspace, other) as two:
        for console in (one, two):
            console.go(LETTERS)
            console.planned()
        for console in (one, two):
            console.page.click(".confirm button.main")
        assert "Done: 400 sent" in one.ended()
        text = two.ended()
        assert "K563" in text or "Done: 0 sent, 400 done before" in text, "as a second command would say"
    assert set(recalls.arrived().values()) == {1}
    assert len(recalls.arrived()) == 400


@pytest.mark.full
def test_a_cluster_that_is_gone_meanwhile_is_told_and_asked_again(workspace: Workspace, opened: Opened) -> None:
    recalls = Recalls(workspace)
    recalls.die(range(2))
    broker_url, admin = workspace.broker.broker_url, Proxy(workspace.broker.admin_url)
    workspace.options = ["--admin-url", admin.url, "--broker-url", broker_url]
    with ui(workspace, opened) as console:
        console.go(LETTERS)
        console.planned()
        admin.close()
        text = console.carried_out()
        assert "Not carried out" in text
        assert re.search(r"K51\d", text)
        assert "Send 2 letters again: go on" in text
        console.go(LETTERS)
        assert re.search(r"K51\d", console_refuses(console))
    assert plans(workspace) == [], "nothing was sent"
    assert not recalls.arrived()


def test_an_end_of_the_console_while_it_plans_is_quiet(workspace: Workspace, opened: Opened) -> None:
    Recalls(workspace).die(range(8_000), batch=100)
    with ui(workspace, opened) as console:
        console.go(LETTERS)
        console.page.click("text=Make the plan")
        console.page.wait_for_selector("#act-live")
        console.page.wait_for_timeout(400)
