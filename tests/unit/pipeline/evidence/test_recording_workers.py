"""Consumers that do not say that they record what they acknowledge."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kodo_pipeline.evidence import cursors
from kodo_pipeline.evidence.cursors import unrecorded_subscriptions

from kodoctl.topology.expand import Expansion, expand
from kodoctl.topology.load import load_topology

FILE = """version: 1
name: trade
tenant: kodo
namespace: trade
topics:
  orders:
    subscriptions:
      billing: {audit: true}
      shipping: {audit: best_effort}
      stock: {audit: true}
  bills: {subscriptions: {ledger: {}}}
"""
ORDERS = "persistent://kodo/trade/orders"
RECORDS = {"metadata": {"kodo-records": "wait"}}


@pytest.fixture
def expansion(tmp_path) -> Expansion:
    file = tmp_path / "trade.yaml"
    file.write_text(FILE, encoding="utf-8")
    return expand(load_topology(str(file)))


@pytest.fixture
def found(expansion, monkeypatch):
    """What is found where these consumers are connected: by topic and subscription."""
    asked: list[str] = []

    def among(**consumers: Any):
        def stats(_: Any, topic: Any) -> Any:
            asked.append(topic.full)
            of = {
                name.removeprefix("of_"): {"consumers": some}
                for name, some in consumers.get("at", {}).get(topic.full, {}).items()
            }
            return {"partitions": {f"{topic.full}-partition-0": {"subscriptions": of}}} if of else consumers.get("none")

        monkeypatch.setattr(cursors, "read_stats", stats)
        return unrecorded_subscriptions(SimpleNamespace(), expansion)

    return SimpleNamespace(among=among, asked=asked)


def test_who_says_that_it_records_and_who_is_not_audited_counts_for_nothing(found):
    assert found.among(at={ORDERS: {"billing": [RECORDS], "shipping": [{}], "stock": []}}) == set()
    assert not [topic for topic in found.asked if topic.endswith(("-DLQ", "-AUDIT")) or "bills" in topic]


@pytest.mark.parametrize("consumer", [{}, {"metadata": None}, {"metadata": {"kodo-records": "best_effort"}}])
def test_one_that_does_not_say_so_is_enough_on_any_topic_of_the_subscription(found, consumer):
    assert found.among(at={ORDERS: {"billing": [RECORDS, consumer]}}) == {("orders", "billing")}
    assert found.among(at={f"{ORDERS}-stock-RETRYING": {"stock": [consumer]}}) == {("orders", "stock")}


def test_topics_that_are_not_there_and_subscriptions_without_consumers_say_nothing(found):
    assert found.among() == set()
    assert found.among(none={}) == set()
