"""Ten thousand failures of twelve causes on the real broker: a dozen lines in every view, one recall a cause, and no secret."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kodo_consumer import Consumer, Message, Producer

from tests.brokers.workspace import Workspace
from tests.services.polling import eventually
from tests.unit.consumer.watching import get, series

pytestmark = [pytest.mark.broker, pytest.mark.timeout(900)]
MESSAGES = 10_000
CANARY = "4111222233334444"
WORDS = ("ash", "birch", "cedar", "elm", "fir", "hazel", "larch", "maple", "oak", "pine", "rowan", "yew")
CAUSES = {f"ConnectionError: {word} answered # for card [redacted] of order #" for word in WORDS}
ERROR_TEXT = "error_text: {keep: 500B, redact: ['[0-9]{16}']}"
TOPICS = f"""
orders:
  partitions: 1
  fair_by: uid
  policies: {{deduplication: true}}
  message_properties: {{uid: required}}
  subscriptions:
    dead: {{in_place: [], states: [], audit: true, {ERROR_TEXT}}}
    later: {{in_place: [], states: [retrying], retrying: {{delays: [1h]}}, {ERROR_TEXT}}}
"""


def fail(message: Message) -> None:
    """One of twelve causes, no two texts alike, a card number in each."""
    number = int(message.data)
    raise ConnectionError(f"{WORDS[number % 12]} answered {500 + number % 4} for card {CANARY} of order {number}")


class Failures:
    """Messages of `orders` that all fail: dead letters of one subscription, retries of the other."""

    def __init__(self, workspace: Workspace, messages: int = MESSAGES) -> None:
        self.file = str(workspace.topology(TOPICS))
        self._messages = messages
        self._place: dict[str, Any] = {
            "admin_url": workspace.broker.admin_url,
            "broker_url": workspace.broker.broker_url,
            "environ": {"KODO_CONSUMER_PORT": "0"},
        }
        workspace.apply("topologies")

    def send(self) -> None:
        """All of them; of nine tenants, so that the breaker does not open."""
        with Producer.load(self.file, topic="orders", **self._place) as producer:
            for number in range(self._messages):
                producer.post(b"%d" % number, id=f"order-{number}", properties={"uid": f"u{number % 9}"})

    def work(self, subscription: str, name: str) -> str:
        """A worker until all have failed: its metrics."""
        consumer = Consumer.load(self.file, topic="orders", subscription=subscription, **self._place)
        consumer.handler(fail)
        consumer.start()
        try:
            running = consumer._running
            assert running is not None
            assert running.window is not None
            causes = running.worker.engine.context.causes
            eventually(lambda: getattr(causes, name).total() == self._messages, within=300, every=0.5)
            return get(running.window.address, "/metrics")[1]
        finally:
            consumer.stop()


@pytest.mark.full
def test_ten_thousand_failures_of_twelve_causes_are_a_dozen_lines_everywhere(workspace: Workspace) -> None:
    failures = Failures(workspace)
    file = failures.file
    failures.send()
    outputs = []
    for subscription, name in (("dead", "dead"), ("later", "failed")):
        metrics = failures.work(subscription, name)
        found = {labels["cause"]: value for labels, value in series(metrics, f"kodo_consumer_{name}_causes_total", {})}
        assert found == dict.fromkeys(CAUSES, pytest.approx(MESSAGES / 12, abs=1)) | {"other": 0}
        outputs.append(metrics)

    outputs.append(workspace.run("waiting", "list", file, "--by", "cause", "--format", "json").out)
    waiting = json.loads(outputs[-1])
    assert {one["cause"] for one in waiting["groups"]} == CAUSES
    assert sum(one["messages"] for one in waiting["groups"]) == MESSAGES
    outputs.append(workspace.run("waiting", "list", file, "--by", "cause").out)
    assert len(outputs[-1].splitlines()) <= 24

    outputs.append(workspace.run("peek", workspace.full("orders-dead-DLQ"), "--json").out)
    peeked = json.loads(outputs[-1])
    assert (peeked["matched"], set(peeked["by_cause"]), sum(peeked["by_cause"].values())) == (
        MESSAGES,
        CAUSES,
        MESSAGES,
    )
    outputs.append(workspace.run("peek", workspace.full("orders-dead-DLQ"), "--limit", "0").out)
    assert len(outputs[-1].splitlines()) <= 24

    one = min(CAUSES)
    for where, causes in (("true", CAUSES), (f"cause = '{one}'", {one})):
        plan = workspace.folder / f"{len(outputs)}.json"
        of = ("--topic", "orders", "--subscription", "dead", "--to", "L1", "--out", str(plan))
        outputs += [workspace.run("recall", "plan", file, *of, "--where", where).out, plan.read_text()]
        assert json.loads(outputs[-1])["summary"]["by_cause"].keys() == causes
        assert sum(json.loads(outputs[-1])["summary"]["by_cause"].values()) == pytest.approx(
            MESSAGES * len(causes) / 12, abs=1
        )
    for output in outputs:
        assert CANARY not in output
