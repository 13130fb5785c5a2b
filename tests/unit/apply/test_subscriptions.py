"""Subscriptions that somebody else made or changed since the plan are not taken for ours; ours begin where they are to."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kodoctl.apply.subscriptions import create_subscription, heal_subscription, mark_subscription
from kodoctl.protocol.properties import OWNER_PROPERTY
from kodoctl.pulsar.admin.admin_http import HttpAdmin
from kodoctl.pulsar.admin.confirmed_write import WriteFailedError
from kodoctl.pulsar.connection.connection import Connection
from kodoctl.topology.names import TopicName
from kodoctl.topology.resources import SubscriptionResource
from tests.services.servers import Answer, Request, answer_html, answer_json, serving

SUB = SubscriptionResource(TopicName.parse("acme/ns/J"), "s")


class Broker:
    """A topic of one partition; `first`: the answer to the first PUT of a subscription, which is carried out or not."""

    def __init__(self, marker: str | None, first: int | None) -> None:
        self.subscriptions: dict[str, dict[str, str]] = {}
        if marker is not None:
            self.subscriptions["s"] = {OWNER_PROPERTY: marker} if marker else {"owner": "somebody"}
        self.first = first
        self.moved: list[tuple[str, object]] = []

    def __call__(self, request: Request) -> Answer:
        if not request.is_write:
            subs = {name: {"subscriptionProperties": kept} for name, kept in self.subscriptions.items()}
            part = {"persistent://acme/ns/J-partition-0": {"subscriptions": subs}}
            return answer_json({"metadata": {"partitions": 1}, "partitions": part})
        if request.method == "POST":
            self.moved.append((request.path, json.loads(request.body)))
            return Answer(204)
        if "s" in self.subscriptions:
            return answer_json({"reason": "Subscription already exists for topic"}, 409)
        self.subscriptions["s"] = json.loads(request.body).get("properties", {})
        first, self.first = self.first, None
        return Answer(first or 204)


@pytest.mark.parametrize("first", [None, 503, 409, 500])
def test_ours_is_made_whatever_the_first_answer_was(first: int | None) -> None:
    broker = Broker(None, first)
    with serving(broker) as server:
        create_subscription(HttpAdmin(Connection(server.url)), SUB, "trade")
    where = "/admin/v2/persistent/acme/ns/J-partition-0/subscription/s/resetcursor"
    start = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
    assert broker.moved == ([] if first is None else [(where, start)]), "it was made, and nobody knows where it begins"


def test_one_that_begins_at_the_end_is_made_there_already() -> None:
    broker = Broker(None, 503)
    with serving(broker) as server:
        create_subscription(HttpAdmin(Connection(server.url)), replace(SUB, start="latest"), "trade")
    assert broker.moved == []


def test_one_that_cannot_be_moved_says_what_to_do() -> None:
    broker = Broker(None, 503)

    def answered(request: Request) -> Answer:
        return answer_json({"reason": "no"}, 403) if request.method == "POST" else broker(request)

    with serving(answered) as server, pytest.raises(WriteFailedError) as failure:
        create_subscription(HttpAdmin(Connection(server.url), pause=lambda _: None), SUB, "trade")
    assert "pulsar-admin topics reset-cursor persistent://acme/ns/J-partition-0 -s s -m earliest" in str(failure.value)


def test_one_that_is_healed_is_moved_where_it_was_lacking_alone() -> None:
    broker = Broker("trade", None)
    with serving(broker) as server:
        heal_subscription(HttpAdmin(Connection(server.url)), SUB, "trade", [2])
    assert [path.rpartition("/J-")[2].partition("/")[0] for path, _ in broker.moved] == ["partition-2"]


@pytest.mark.parametrize("marker", ["", "other"])
def test_one_that_somebody_made_since_the_plan_is_refused(marker: str) -> None:
    with serving(Broker(marker, None)) as server:
        admin = HttpAdmin(Connection(server.url))
        with pytest.raises(WriteFailedError, match="somebody created it since the plan: plan again"):
            create_subscription(admin, SUB, "trade")
        heal_subscription(admin, SUB, None, ())  # to heal one that the plan saw is another matter


def test_one_that_is_made_at_once_costs_no_other_request() -> None:
    with serving(Broker(None, None)) as server:
        create_subscription(HttpAdmin(Connection(server.url)), SUB, "trade")
        assert [request.method for request in server.requests] == ["PUT"]


def _marked(properties: dict[str, str], owner: str | None, planned: str | None) -> list[dict[str, str]]:
    """What is written where a subscription has these properties now."""

    def answer(request: Request) -> Answer:
        return Answer(204) if request.is_write else answer_json(properties)

    with serving(answer) as server:
        mark_subscription(HttpAdmin(Connection(server.url)), SUB, owner, planned)
        return [json.loads(request.body) for request in server.requests if request.is_write]


def test_a_marker_is_set_and_taken_off_beside_what_others_wrote() -> None:
    orders = {"kodo-steer": "{}"}
    assert _marked(orders, "trade", None) == [{**orders, OWNER_PROPERTY: "trade"}]
    assert _marked({**orders, OWNER_PROPERTY: "trade"}, None, "trade") == [orders]
    assert _marked({OWNER_PROPERTY: "bank"}, "trade", "bank") == [{OWNER_PROPERTY: "trade"}]
    assert _marked({OWNER_PROPERTY: "trade"}, "trade", None) == []


@pytest.mark.parametrize("is_done", [True, False])
@pytest.mark.parametrize("owner", ["trade", None])
def test_a_live_order_that_is_given_between_two_tries_of_a_marker_stays(owner: str | None, is_done: bool) -> None:
    """The topic moved between brokers: the answer was 503, and somebody paused the subscription meanwhile."""
    planned, orders = None if owner else "trade", {"kodo-steer": "{}"}
    properties = {OWNER_PROPERTY: planned} if planned else {}
    tries = []

    def answer(request: Request) -> Answer:
        nonlocal properties
        if not request.is_write:
            return answer_json(properties)
        tries.append(json.loads(request.body))
        if len(tries) > 1:
            properties = tries[-1]
            return Answer(204)
        properties = {**(tries[0] if is_done else properties), **orders}
        return Answer(503)

    with serving(answer) as server:
        mark_subscription(HttpAdmin(Connection(server.url), pause=lambda _: None), SUB, owner, planned)
    assert properties == {**orders, **({OWNER_PROPERTY: owner} if owner else {})}
    assert len(tries) == (1 if is_done else 2)


def test_a_marker_that_another_owner_sets_between_two_tries_stays() -> None:
    def answer(request: Request) -> Answer:
        return Answer(503) if request.is_write else answer_json({OWNER_PROPERTY: "bank"} if request.number > 2 else {})

    with serving(answer) as server, pytest.raises(WriteFailedError, match="it belongs to 'bank' since the plan"):
        mark_subscription(HttpAdmin(Connection(server.url), pause=lambda _: None), SUB, "trade", None)
    assert len([request for request in server.requests if request.is_write]) == 1


def test_a_marker_is_not_taken_for_gone_where_nobody_says_so() -> None:
    """What stands before a broker answers with a page, which has no properties either."""
    page, first = answer_html("<html>busy</html>", 503), answer_json({OWNER_PROPERTY: "trade"})

    def answer(request: Request) -> Answer:
        return first if request.number == 1 else page

    with serving(answer) as server, pytest.raises(WriteFailedError, match="given up"):
        mark_subscription(HttpAdmin(Connection(server.url), pause=lambda _: None, limit=5.0), SUB, None, "trade")


@pytest.mark.parametrize("owner", ["trade", None])
@pytest.mark.parametrize("planned", ["trade", None])
def test_a_marker_that_is_anothers_since_the_plan_stays(owner: str | None, planned: str | None) -> None:
    with pytest.raises(WriteFailedError, match="it belongs to 'bank' since the plan: plan again"):
        _marked({OWNER_PROPERTY: "bank"}, owner, planned)


def test_a_subscription_that_some_partition_lacks_is_not_made() -> None:
    def answered(request: Request) -> Answer:
        if request.is_write:
            return answer_json({"reason": "Subscription already exists for topic"}, 409)
        parts = {f"persistent://acme/ns/J-partition-{n}": {"subscriptions": {"s": {}} if n else {}} for n in range(2)}
        return answer_json({"metadata": {"partitions": 2}, "partitions": parts})

    with serving(answered) as server, pytest.raises(WriteFailedError, match=r"not every partition has it, and .*409"):
        heal_subscription(HttpAdmin(Connection(server.url), pause=lambda _: None), SUB, "trade", ())


def test_a_subscription_is_put_until_partitions_that_were_between_brokers_have_it() -> None:
    """A PUT made it on one partition while another had no broker; from then on the broker answers 409."""
    puts: list[Request] = []

    def answered(request: Request) -> Answer:
        if request.is_write:
            puts.append(request)
            return answer_json({"reason": "Subscription already exists for topic"}, 409)
        there = 2 if len(puts) > 2 else 1
        parts = {
            f"persistent://acme/ns/J-partition-{n}": {"subscriptions": {"s": {}} if n < there else {}} for n in range(2)
        }
        return answer_json({"metadata": {"partitions": 2}, "partitions": parts})

    with serving(answered) as server:
        heal_subscription(HttpAdmin(Connection(server.url), pause=lambda _: None), SUB, "trade", ())
    assert len(puts) == 3
