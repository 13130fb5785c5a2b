"""`kodoctl ui` as a process of its own on the real broker: what waits, where a message is, and that nothing is consumed."""

from __future__ import annotations

import html
import http.client
import json
import re
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from subprocess import Popen
from urllib.parse import urlencode, urlsplit

import pytest
from kodo_consumer import Consumer, Dead, Message, Producer

from kodoctl.pulsar.control.control_namespace import lease_topic
from kodoctl.topology.names import NamespaceName
from tests.broker.test_consumer_steering import Console as Steering
from tests.brokers.topics import backlog
from tests.brokers.workspace import Workspace
from tests.services.polling import eventually

pytestmark = pytest.mark.broker
TOPICS = """\
orders:
  partitions: 2
  message_properties: {order: optional, uid: optional}
  fair_by: uid
  subscriptions:
    billing: {in_place: [], audit: true, error_text: {redact: ['^4111$']}, retrying: {delays: [1s], attempts: 1}}
    mailing: {states: [], dead_letter: false}
archive: {}
"""


class Console:
    """A running console, read as its browser reads it."""

    def __init__(self, process: Popen[str]) -> None:
        assert process.stdout is not None
        address = urlsplit(process.stdout.readline().strip())
        self.port, self.folder, token = address.port, address.path.rstrip("/"), address.query.partition("=")[2]
        self.headers = {"Cookie": f"kodoctl-ui-{address.port}={token}"}

    def get(self, path: str, status: int = 200, /, **query: str) -> str:
        """The text of a page, on one line."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port or 0, timeout=60)) as connection:
            connection.request("GET", f"{self.folder}{path}?{urlencode(query)}", headers=self.headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        assert answer.status == status, text
        if path == "/export":
            return text
        return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split())

    def token(self, path: str, /, **query: str) -> str:
        """Token of the first form of a page."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port or 0, timeout=60)) as connection:
            connection.request("GET", f"{self.folder}{path}?{urlencode(query)}", headers=self.headers)
            found = re.search(r'name="token" value="(\w+)"', connection.getresponse().read().decode())
        assert found is not None
        return found[1]

    def post(self, path: str, /, **fields: str) -> str:
        """Sends a form, and returns where it leads."""
        origin = {"Origin": f"http://127.0.0.1:{self.port}", "Content-Type": "application/x-www-form-urlencoded"}
        with closing(http.client.HTTPConnection("127.0.0.1", self.port or 0, timeout=60)) as connection:
            connection.request("POST", f"{self.folder}{path}", urlencode(fields), {**self.headers, **origin})
            answer = connection.getresponse()
            text = answer.read().decode()
        assert answer.status == 303, text
        return answer.headers["location"] or ""


@contextmanager
def console(workspace: Workspace, *arguments: str) -> Iterator[Console]:
    process = workspace.process("ui", *arguments)
    try:
        yield Console(process)
    finally:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert "Traceback" not in errors, errors
    assert process.returncode == 0


LANE = {"topology": "trade", "topic": "orders-billing-DLQ", "subscription": "billing"}


def test_lanes_that_are_missing_are_named_with_the_command(workspace: Workspace) -> None:
    workspace.topology(TOPICS)
    with console(workspace) as ui:
        page = ui.get("/")
        assert re.search(r"\d+ lanes of trade missing .*kodoctl plan \S*trade.yaml --admin-url", page)
        assert "Not judged whether a message was lost How to find out" in page
        assert re.search(
            r"Write audit: true below orders / mailing \(\S*trade.yaml:\d+:\d+\)\. Apply it\. kodoctl apply", page
        )
        assert re.search(r"kodoctl pipeline audit \S*trade.yaml --format json .* > trade-audit.json", page)
        assert "Not on the cluster: orders, orders-billing-RETRYING" in ui.get("/find", q="4711")
        assert "K560" in ui.get("/lane", 400, **LANE)


def test_a_dead_letter_is_seen_found_and_followed_and_nothing_is_consumed(workspace: Workspace) -> None:
    file = str(workspace.topology(TOPICS))
    workspace.apply()
    place = workspace.broker.client_options
    consumer = Consumer.load(file, topic="orders", subscription="billing", **place)

    @consumer.handler
    def handle(message: Message) -> None:
        if message.json()["is"] == "bad":
            raise ValueError(f"card of order {message.properties['order']} was refused")

    with Producer.load(file, topic="orders", **place) as producer:
        for number in range(20):
            properties = {"uid": f"u{number % 3}", "order": str(4700 + number)}
            payload = {"is": "bad" if number in (11, 12) else "good", "n": number * 10 + 1, "card": "4111"}
            producer.post(json.dumps(payload).encode(), id=f"order-{number}", properties=properties)
    with Producer.load(file, topic="archive", **place) as producer:
        producer.post(b"{}", id="kept-1")
    audit = {"verdict": "no loss", "reasons": [], "read_at": 1, "coverage": [{"topic": workspace.full("orders")}]}
    (workspace.folder / "audit.json").write_text(json.dumps(audit))
    consumer.start()
    try:
        eventually(lambda: consumer._running and consumer._running.worker.counts.finished["dead"] == 2)
        eventually(lambda: not backlog(workspace.broker, workspace.full("orders"), "billing"))
        with console(workspace, "--audit", "audit.json") as ui:
            eventually(lambda: re.search(r"orders / billing: \d dead letters?, the oldest sent", ui.get("/lanes")))
            page = ui.get("/")
            assert "No message was lost, as read" in page
            assert "not judged" not in page
            assert re.search(r"orders / mailing: \d+ (message|batch)\w* or batch\w* and no worker", page)
            assert re.search(
                r"orders / billing (Pause, limit, move )?no messages in \d+ lanes in \S+/s, out \S+/s .*?1 dead letters \d oldest ",
                page,
            ), page
            lanes_are_read(ui)
            messages_are_found(ui)
            cause = r"2 × ValueError: card of order # was refused \(u\d 1, u\d 1\)"
            eventually(lambda: re.search(cause, ui.get("/lanes")))
    finally:
        consumer.stop()
    assert backlog(workspace.broker, workspace.full("orders-billing-DLQ"), "kodo-hold") > 0
    assert backlog(workspace.broker, workspace.full("orders"), "mailing") > 0


WAITING = """\
orders:
  message_properties: {uid: optional}
  fair_by: uid
  subscriptions:
    billing:
      in_place: []
      error_text: true
      retrying: {delays: [1s, 1h], attempts: 3}
      limits: [{kind: quota, limit: 8/h}]
"""


def test_waiting_lanes_name_cause_tenant_limit_and_the_next_try(workspace: Workspace) -> None:
    file = str(workspace.topology(WAITING))
    workspace.apply()
    place = workspace.broker.client_options
    consumer = Consumer.load(file, topic="orders", subscription="billing", **place)

    @consumer.handler
    def handle(message: Message) -> None:
        if message.properties["uid"] == "acme":
            raise ConnectionError("no route to acme")

    consumer.start()
    try:
        with Producer.load(file, topic="orders", **place) as producer, console(workspace) as ui:
            for uid, most in (("acme", 4), ("mega", 12)):
                for number in range(most):
                    producer.post(b"{}", id=f"{uid}-{number}", properties={"uid": uid})
                producer.flush()
                eventually(lambda: "L1 retrying 4" in ui.get("/lanes"))  # else partitions decide who has the quota
            quota = r"L1 blocking 8 .*?over its quota 8/h \(all of mega\)"
            tried = r"next try at (\S+ )?\d\d:\d\d(:\d\d)? UTC"
            tries = "Each failed at least 2 times, 2 tries left, then dead letters"
            failing = rf"4 messages of uid acme keep failing with ConnectionError: no route to acme .*?{tries}; {tried}"
            eventually(lambda: re.search(rf"{quota}; {tried}", ui.get("/lanes")))
            eventually(lambda: re.search(failing, ui.get("/lanes")))
            page = ui.get("/lanes")
            assert re.search(
                rf"L1 retrying 4 .*?ConnectionError: no route to acme \(all of acme\); .*?{tried}", page
            ), page
            assert "handlers hang" not in page
        status = workspace.run("status", file, "--format", "json").json()
        delivered = {
            lane["state"]: lane["delivered"] for lane in status["topologies"][0]["lanes"] if lane["level"] == "L1"
        }
        assert delivered["ready"] >= 16, "marks of producers included"
        assert delivered["blocking"] == 0
    finally:
        consumer.stop()


def lanes_are_read(ui: Console) -> None:
    letters = ui.get("/lane", 200, **LANE)
    assert "2 of 2 messages meet the condition." in letters
    assert re.search(
        r"Causes and tenants Messages Cause Tenants, by uid 2 ValueError: card of order # was refused · send again u\d 1",
        letters,
    )
    assert re.search(r"order-11 sent \d+ (s|min) ago, here for \d+ (s|min)", letters)
    chosen = ui.get("/lane", 200, **LANE, where="properties['order'] = '4711'")
    assert "1 of 2 messages meet the condition." in chosen
    assert "order-11" in chosen
    assert "order-12" not in chosen
    padded = f"properties['order'] = '4711'{' ' * 500} AND key = 'nobody'"
    assert "0 of 2 messages meet the condition." in ui.get("/lane", 200, **LANE, where=padded), "no part is cut off"
    ready = {**LANE, "topic": "orders"}
    assert "0 of 0 messages meet the condition." in ui.get("/lane", 200, **ready), "all are acknowledged"
    assert "20 of 20 messages" in ui.get("/lane", 200, **{**ready, "subscription": "mailing"})
    assert "K022" in ui.get("/lane", 400, **{**LANE, "topic": "../../x"})
    assert "K560" in ui.get("/lane", 400, **{**ready, "subscription": "nobody"})


def messages_are_found(ui: Console) -> None:
    for fact, text in (("order", "4711"), ("kodo-id", "order-11"), ("payload.n", "111")):
        found = ui.get("/find", q=text)
        assert f"1 message with {fact} {text}" in found, found
        assert re.search(r"dead letters of orders / billing , here now, ValueError ", found), found
        assert "L1 ready of orders / mailing , here now" in found
        assert "History for billing" in found
    done = ui.get("/find", q="order-3")
    assert "Not waiting for billing any more: its history says what was done with it." in done
    assert "L1 ready of orders / mailing , here now" in done
    for condition in ("payload.n = 111", "tenant = 'u2' AND payload.n = 111"):
        assert f"1 message meets {condition}" in ui.get("/find", q=condition)
    assert 'No stored message has the value "4111"' in ui.get("/find", q="4111"), "it is redacted"
    nothing = ui.get("/find", q="order = 1")
    assert "a JSON value payload.order" in nothing
    assert "6 messages with tenant u2" in ui.get("/find", q="u2")
    assert "archive: Stored, and no subscription reads this topic." in ui.get("/find", q="kept-1")
    message = {"topology": "trade", "ground": "orders", "subscription": "billing", "span": "all"}
    history = ui.get("/message", 200, **message, message="order-11")
    assert re.search(r"first sent \S+ \S+ UTC, \d+ (s|min) ago", history)
    assert re.search(r"L1/ready .* moved on to L1/retrying .* dead letters is here now", history)
    shown = r'"is": "bad", "n": 111, "card": "\[redacted\]" }'
    assert re.search(rf"As it is stored \S+orders-billing-DLQ order-11 .* {shown} \d+ properties", history), history
    assert "Not found" in ui.get("/message", 404, **message, message="order-99")
    assert "K005" in ui.get("/find", 400, q="x", span="1y")


def test_no_answer_of_a_broker_is_told_and_asked_again(workspace: Workspace) -> None:
    workspace.topology(TOPICS)
    workspace.options[:] = ["--admin-url", "http://127.0.0.1:1", "--broker-url", "pulsar://127.0.0.1:1"]
    with console(workspace) as ui:
        for _ in range(2):
            assert "The cluster does not answer" in ui.get("/")
            assert "K514" in ui.get("/find", 502, q="4711")


def test_history_orders_drift_and_a_stopped_apply_are_shown(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(workspace.topology(TOPICS))
    workspace.apply()
    steering = Steering(workspace, monkeypatch, capsys)
    steering.file = file
    steering.run("pause", "--lane", "L1/retrying", "--for", "1h", "--why", "bank")
    steering.run("resume", "--lane", "L1/retrying")
    steering.run("pause", "--lane", "L1/retrying", "--for", "1h", "--why", "bank")
    history = workspace.run("history", workspace.namespace, "--format", "json").json()
    assert [(one["subscription"], one["order"], one["back"], one["why"]) for one in history["orders"]] == [
        ("billing", "lane L1/retrying paused", back, "bank") for back in (False, True, False)
    ]
    assert history["recalls"] is None
    assert [one.split(":")[0] for one in history["unknown"]] == ["recalls, releases and discards"]
    shown = workspace.run("history", workspace.namespace)
    assert re.search(
        r" order 20\S+ \S+ UTC orders / billing: taken back: lane L1/retrying paused by ", " ".join(shown.out.split())
    )
    assert shown.out.endswith(".kodoctl/recall\n  here; --ledger names another\n")
    workspace.admin("DELETE", f"{workspace.path('orders-billing-RETRYING')}/partitions", force="true")
    with console(workspace) as ui:
        assert "lane L1/retrying paused until" in ui.get("/")
        page = ui.get("/plans")
        assert re.search(r"[0-9a-f]+ \S+ \S+ UTC apply: complete, (\d+) of \1 changes done", page)
        assert re.search(r"orders / billing lane L1/retrying paused until .*: bank", page)
        assert "Nobody has asked for it" in page
        drift = ui.get("/plans", drift="read")
        assert "Changed by hand (the next apply puts it back):" in drift
        assert re.search(r"Drift: \d+ objects?[.;]", drift)
        assert re.search(r"needs? you .*Drift: \d+ objects?[^<]* Read \d+ s ago\.", ui.get("/"))
        assert "K022" in ui.get("/plans", 400, topology="none")
    begin = {
        "kind": "begin", "v": 1, "apply": "4f2a", "at": 1_767_268_500_000, "verb": "apply", "who": "root@vm pid 7",
        "commit": None, "plan": "d", "changes": 9, "ledgers": {}, "packed": None,
    }  # fmt: skip
    with workspace.client() as client:
        journal = client.create_producer(lease_topic(NamespaceName.parse(workspace.namespace)))
        journal.send(json.dumps(begin).encode())
        journal.close()
    with console(workspace) as ui:
        eventually(lambda: "apply 4f2a is cut off: 0 of 9 changes done" in ui.get("/lanes"))
        assert "apply 4f2a is cut off: 0 of 9 changes done" in ui.get("/plans")


def test_letters_that_die_again_after_they_were_sent_again_are_reported(workspace: Workspace) -> None:
    file = str(workspace.topology(TOPICS))
    workspace.apply()
    place = workspace.broker.client_options
    consumer = Consumer.load(file, topic="orders", subscription="billing", **place)
    is_mended = False

    @consumer.handler
    def handle(message: Message) -> None:
        if not (is_mended and message.text() == "2"):
            raise Dead("negative amount")

    with Producer.load(file, topic="orders", **place) as producer:
        for number in range(3):
            producer.post(str(number).encode(), properties={"uid": "eve"})
    consumer.start()
    try:
        eventually(lambda: consumer._running and consumer._running.worker.counts.finished["dead"] == 3)
        is_mended = True
        with console(workspace) as ui:
            form = {**LANE, "action": "send", "token": ui.token("/action", **LANE)}
            action = ui.post("/plan-letters", **form).partition("=")[2]
            eventually(lambda: "3 letters to send" in ui.get("/act", id=action))
            assert "All 3 died without a later attempt" in ui.get("/act", id=action)
            assert "not known yet" in ui.get("/act-outcome", id=action)
            ui.post("/carry-out", id=action, token=ui.token("/act", id=action))
            eventually(lambda: "Done: 3 sent, 3 old letters settled" in ui.get("/act", id=action))
            expected = "3 sent: 1 handled, 2 dead again (negative amount) 2 in dead letters"
            eventually(lambda: expected in ui.get("/act-outcome", id=action))
    finally:
        consumer.stop()


def test_released_messages_that_wait_again_are_reported(workspace: Workspace) -> None:
    limited = "{in_place: [], blocking: {delays: [1h]}, limits: [{kind: quota, by: uid, limit: 1/h}]}"
    file = str(
        workspace.topology(f"orders:\n  message_properties: {{uid: required}}\n  subscriptions: {{billing: {limited}}}")
    )
    workspace.apply()
    place = workspace.broker.client_options
    consumer = Consumer.load(file, topic="orders", subscription="billing", **place)
    consumer.handler(lambda _: None)
    with Producer.load(file, topic="orders", **place) as producer:
        for number in range(3):
            producer.post(str(number).encode(), properties={"uid": "mega"})
    consumer.start()
    lane = {**LANE, "topic": "orders-billing-BLOCKING"}
    try:
        with console(workspace) as ui:
            eventually(lambda: "2 of 2 messages" in ui.get("/lane", 200, **lane), every=1.0)
            action = ui.post("/plan-letters", **lane, action="release", token=ui.token("/action", **lane)).partition(
                "="
            )[2]
            eventually(lambda: "2 messages to release" in ui.get("/act", id=action))
            plan = ui.get("/act", id=action)
            assert "Carrying it out pauses L1/blocking" in plan
            assert "It changes no limit" in plan
            ui.post("/carry-out", id=action, token=ui.token("/act", id=action))
            eventually(lambda: "Done: 2 sent, 2 old messages settled" in ui.get("/act", id=action))
            expected = "2 sent: 2 wait again (L1 blocking) 2 in L1 blocking"
            eventually(lambda: expected in ui.get("/act-outcome", id=action), every=1.0)
    finally:
        consumer.stop()
