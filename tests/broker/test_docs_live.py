"""`kodoctl docs --live`: what a cluster has now, lane by lane; and what could not be read is unknown, never none."""

from __future__ import annotations

import re
from html import unescape

import pytest

from tests.brokers.workspace import Workspace
from tests.services.polling import eventually
from tests.services.servers import Answer, Proxy, Request, answer_json

pytestmark = pytest.mark.broker
TOPICS = """\
orders:
  partitions: 1
  subscriptions:
    billing: {states: [retrying]}
    mailing: {states: [], dead_letter: false}
"""


def page(workspace: Workspace, code: int = 0) -> str:
    """The text of the topology's page, on one line."""
    workspace.run("docs", "--live", code=code)
    html = (workspace.folder / "catalogue/topologies/trade.html").read_text(encoding="utf-8")
    inside = re.sub(r"<(style|script|svg)[^>]*>.*?</\1>", "", html, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", inside)).split())


def test_backlogs_of_several_subscriptions_the_last_apply_and_the_policies_in_effect(workspace: Workspace) -> None:
    workspace.topology(TOPICS)
    assert "L1 ready missing orders 1" in page(workspace)
    assert "last apply in the namespace never" in page(workspace)

    workspace.apply()
    workspace.publish("orders", 5)
    with workspace.client() as client:
        mailing = client.subscribe(workspace.full("orders"), "mailing")
        for _ in range(2):
            mailing.acknowledge(mailing.receive(10_000))
        eventually(lambda: re.search(r"L1 ready 3 \d+ s 1 orders ", page(workspace)))
        shown = page(workspace)
        mailing.close()

    of_billing, of_mailing = shown.split("mailing subscription of orders")
    assert re.search(r"L1 ready 5 \d+ s 0 orders ", of_billing)
    assert "dead letters 0 - held for recalls orders-billing-DLQ" in of_billing
    assert re.search(r"L1 ready 3 \d+ s 1 orders ", of_mailing)
    assert re.search(r"backlog, in entries 8 waiting, oldest \d+ s ", shown)
    assert re.search(r"last apply in the namespace apply complete, \d+ s ago, [0-9a-f]{8} by \S+", shown)
    assert "ttl unlimited broker default, as read" in shown
    assert f"read from {workspace.broker.admin_url} at 20" in shown


def test_what_cannot_be_read_is_unknown(workspace: Workspace, proxy: Proxy) -> None:
    workspace.topology(TOPICS)
    workspace.apply()
    workspace.publish("orders", 2)

    def forbid(request: Request) -> Answer | None:
        hidden = ("orders-billing-DLQ", f"/namespaces/{workspace.namespace}", "/configuration/")
        return answer_json({"reason": "not yours"}, 403) if any(part in request.path for part in hidden) else None

    proxy.choose = forbid
    workspace.options[-1] = "pulsar://127.0.0.1:1"  # the journal is read there
    shown = page(workspace, code=1)
    told = " ".join(workspace.run("docs", "--live", code=1).err.split())
    assert f"persistent://{workspace.full('orders-billing-DLQ').removeprefix('persistent://')}: " in told
    assert "part of a topic cannot be read [K580]" in told
    assert re.search(r"L1 ready 2 \d+ s 0 orders ", shown)
    assert "dead letters unknown unknown unknown orders-billing-DLQ" in shown
    assert "1 topic unknown" in shown
    assert "orders-billing-DLQ: unknown, " in shown
    assert "last apply in the namespace unknown: " in shown
    assert "Namespace or broker default, which no file here declares : retention" in shown


def test_pages_stay_as_they_are_when_no_broker_answers(workspace: Workspace) -> None:
    """Else a nightly run would replace the last figures by pages without any, and pass."""
    workspace.topology(TOPICS)
    workspace.run("docs", "--live")
    pages = workspace.folder / "catalogue"
    before = {path: path.read_bytes() for path in pages.rglob("*.*")}
    workspace.options = ["--admin-url", "http://127.0.0.1:1"]
    refused = workspace.run("docs", "--live", code=1)
    assert "no broker answers [K514]" in refused.err
    assert {path: path.read_bytes() for path in pages.rglob("*.*")} == before


@pytest.mark.full
def test_pages_stay_as_they_are_when_the_broker_stops_answering(workspace: Workspace, proxy: Proxy) -> None:
    workspace.topology(TOPICS)
    workspace.apply()
    workspace.run("docs", "--live")
    pages = workspace.folder / "catalogue"
    before = {path: path.read_bytes() for path in pages.rglob("*.*")}
    ended: list[str] = []

    def end(request: Request) -> Answer | None:
        if "/partitioned-stats" in request.path:
            ended.append(request.path)
        return Answer(cut=True) if ended else None

    proxy.choose = end
    refused = workspace.run("docs", "--live", code=1)
    assert "no broker answers [K514]" in refused.err
    assert {path: path.read_bytes() for path in pages.rglob("*.*")} == before
