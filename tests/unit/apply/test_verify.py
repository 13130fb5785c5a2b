"""What an apply wrote is looked at before the apply counts it as done."""

from __future__ import annotations

from typing import Any

import pytest

from kodoctl.apply.source_writer import SourceWriter
from kodoctl.apply.verify import Verifier
from kodoctl.plan.changes import ChangeContext, Create, Delete, PolicyChange, Update
from kodoctl.plan.policy_levels import PolicyLevels
from kodoctl.plan.schedule import Step
from kodoctl.pulsar.admin import confirmed_write
from kodoctl.pulsar.admin.admin_http import HttpAdmin
from kodoctl.pulsar.binary.client import BrokerClient
from kodoctl.pulsar.connection.connection import Connection
from kodoctl.pulsar.inventory import topic_policy_reader
from kodoctl.topology.model.policies import from_json
from kodoctl.topology.names import TopicName
from kodoctl.topology.resources import GrantResource, SubscriptionResource, TopicResource
from tests.samples.inventories import HERE, empty
from tests.services.servers import Answer, answer_json, serving

ABOUT = ChangeContext("trade")


def test_a_grant_is_looked_at_behind_changes_of_other_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confirmed_write, "PATIENCE_S", 0.0)
    grant = GrantResource(HERE, "ann", frozenset({"produce"}))
    topic, granting = Step(Create(TopicResource(TopicName(HERE, "J"), 1, {}), ABOUT)), Step(Create(grant, ABOUT))
    unused: Any = None
    with serving(lambda _: answer_json({"auth_policies": {"namespace_auth": {}}})) as server:
        problems = Verifier(HttpAdmin(Connection(server.url)), unused, unused, SourceWriter({}, empty())).verify(
            [topic, granting]
        )
    assert problems == [(granting, "written produce, the broker shows nothing")]


OURS, CONSUMERS = {"subscriptionProperties": {"kodoctl": "trade"}}, {"consumers": [{"consumerName": "c"}]}


@pytest.mark.parametrize(
    ("left", "why"),
    [
        ([{}, {}, {}], ""),
        ([{}, {"s": OURS}, {}], "the broker did not delete it; it is gone from partitions 0, 2, the others have it"),
        ([{"s": OURS}] * 3, "the broker did not delete it; all partitions have it"),
        ([{"s": {}}] * 3, "the broker did not delete it; all partitions have it"),
        ([{"s": CONSUMERS}] * 3, ""),  # they were cut off, and connected again
        ([{"s": {"subscriptionProperties": {"kodoctl": "bank"}}}] * 3, ""),
    ],
)
def test_a_deleted_subscription_is_looked_at_on_every_partition(
    left: list[dict[str, Any]], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of three brokers failed when its partition's was deleted, and the answer was another's."""
    monkeypatch.setattr(confirmed_write, "PATIENCE_S", 0.0)
    topic, other = (TopicName(HERE, name) for name in "JK")
    parts = {f"{topic}-partition-{number}": {"subscriptions": found} for number, found in enumerate(left)}
    steps = [Step(Delete(SubscriptionResource(one, "s"), ABOUT)) for one in (topic, other)]
    shown = answer_json({"metadata": {"partitions": 3}, "partitions": parts})
    unused: Any = None
    with serving(lambda request: shown if "/J/" in request.path else Answer(404)) as server:
        problems = Verifier(HttpAdmin(Connection(server.url)), unused, unused, SourceWriter({}, empty())).verify(steps)
    assert problems == ([(steps[0], why)] if why else [])


def test_subscriptions_of_many_deleted_topics_are_known_gone_by_one_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """A destroy read each of its topics twice more, to see that they were gone."""
    monkeypatch.setattr(confirmed_write, "PATIENCE_S", 0.0)
    topics = [TopicName(HERE, name) for name in ("__J", "K", "L")]
    steps = [Step(Delete(SubscriptionResource(one, "s"), ABOUT)) for one in topics]
    stored = answer_json(
        {"metadata": {"partitions": 1}, "partitions": {f"{topics[0]}-partition-0": {"subscriptions": {"s": OURS}}}}
    )
    unused: Any = None

    def answer(request: Any) -> Answer:
        path = request.path.partition("?")[0]
        if path.endswith(f"persistent/{HERE}/partitioned"):
            return answer_json([topics[0].full])
        if path.endswith(f"persistent/{HERE}"):
            return answer_json([f"{topics[0].full}-partition-0"])
        assert "/__J/" in path, "the others are in no list"
        return stored

    with serving(answer) as server:
        problems = Verifier(HttpAdmin(Connection(server.url)), unused, unused, SourceWriter({}, empty())).verify(steps)
    assert problems == [(steps[0], "the broker did not delete it; all partitions have it")]


@pytest.mark.parametrize("stored", [True, False])
def test_a_rate_of_a_subscription_that_is_made_later_is_looked_at_without_the_binary_port(
    stored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic's step comes before that of the subscription, which no list of the topic's subscriptions has yet."""
    monkeypatch.setattr(confirmed_write, "PATIENCE_S", 0.0)
    monkeypatch.setattr(topic_policy_reader, "_APART_S", 0.0)
    rates = from_json("subscription_rates", {"billing": {"messages": 100}})
    before, after = (
        TopicResource(TopicName(HERE, "J"), 1, policies) for policies in ({}, {"subscription_rates": rates})
    )
    step = Step(Update(before, after, (PolicyChange("subscription_rates", None, rates),), ABOUT))
    rate = {"dispatchThrottlingRateInMsg": 100, "dispatchThrottlingRateInByte": -1, "ratePeriodInSecond": 1}

    def answer(request: Any) -> Answer:
        if request.path.endswith("/J/subscriptions"):
            return answer_json([])
        return answer_json(rate) if stored and request.path.endswith("/J/billing/dispatchRate") else Answer(204)

    levels, databases = PolicyLevels({}, {}, {}), SourceWriter({}, empty())
    with serving(answer) as server:
        admin, client = HttpAdmin(Connection(server.url)), BrokerClient(Connection(server.url))
        problems = Verifier(admin, client, lambda _: levels, databases).verify([step])
    assert problems == ([] if stored else [(step, f"subscription_rates: written {rates}, the broker shows None")])
