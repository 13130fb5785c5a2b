"""Every DELETE follows a look, each time it is sent: what came since the one before is refused, and is still there after."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest

from kodoctl.apply.deletes import delete_namespace, delete_subscription, delete_topic, what_is_left
from kodoctl.apply.namespaces import revoke_grant, update_namespace
from kodoctl.apply.topics import mark_topic
from kodoctl.plan.changes import ChangeContext, Delete, PolicyChange
from kodoctl.pulsar.admin import confirmed_write
from kodoctl.pulsar.admin.admin_http import HttpAdmin
from kodoctl.pulsar.admin.confirmed_write import WriteFailedError
from kodoctl.pulsar.connection import wait_monitor
from kodoctl.pulsar.connection.connection import Connection
from kodoctl.pulsar.control.topic_lock import Lock, break_lock, lock_token
from kodoctl.topology.model.policies import BacklogQuota
from kodoctl.topology.names import NamespaceName, TopicName
from kodoctl.topology.resources import GrantResource, SubscriptionResource, TopicResource
from kodoctl.topology.units import Duration, Size
from tests.services.servers import Answer, Request, answer_html, answer_json, serving

HERE = NamespaceName("acme", "ns")
TOPIC = TopicName.parse("persistent://acme/ns/orders")
BUSY = [Answer(409), Answer(429), Answer(500), Answer(503), Answer(cut=True)]
WORDS = ["409", "429", "500", "503", "no answer to a write"]
busy = pytest.mark.parametrize("trouble", BUSY, ids=WORDS)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait_monitor, "_gap", lambda _: 0.01)
    monkeypatch.setattr(confirmed_write, "PATIENCE_S", 0.0)


@dataclass
class Cluster:
    """One namespace with one topic. The first DELETE meets `trouble`, and then `meanwhile` happens."""

    trouble: Answer
    meanwhile: Callable[[Cluster], None] = lambda _: None
    partition: dict[str, Any] = field(
        default_factory=lambda: {
            "publishers": [],
            "subscriptions": {"s": {"subscriptionProperties": {"kodoctl": "trade"}}},
        }
    )
    marker: str | None = "trade"
    namespace: dict[str, Any] = field(default_factory=lambda: {"properties": {"kodoctl.topology/trade": "x"}})
    functions: Answer = field(default_factory=lambda: answer_json([]))
    lock: dict[str, str] = field(default_factory=lambda: {"token": "ours"})
    deleted: bool = False
    deletes: list[str] = field(default_factory=list)

    def __call__(self, request: Request) -> Answer:
        if request.method == "DELETE":
            self.deletes.append(request.path.partition("?")[2])
            if len(self.deletes) == 1:
                self.meanwhile(self)
                return self.trouble
            self.deleted = True
            return Answer(204)
        if self.deleted:
            return Answer(404)
        if "/v3/s" in request.path:  # sinks, sources
            return answer_json([])
        if "/v3/functions/" in request.path:
            return self.functions if request.path.endswith("/functions/acme/ns") else answer_json({"runtime": "JAVA"})
        if "partitioned-stats" in request.path:
            properties = {"kodoctl": self.marker} if self.marker else {}
            part = {f"{TOPIC}-partition-0": self.partition}
            return answer_json({"metadata": {"partitions": 1, "properties": properties}, "partitions": part})
        return answer_json(self.lock if "/lock-" in request.path else self.namespace)


@contextmanager
def _admin(cluster: Cluster) -> Iterator[HttpAdmin]:
    with serving(cluster) as server:
        admin = HttpAdmin(Connection(server.url))
        yield admin
        admin.close()


def _topic(admin: HttpAdmin, *, allowed: bool = False, clients: bool = False) -> None:
    about = ChangeContext("trade", "no longer declared", evidence={"clients": 1} if clients else {})
    delete_topic(admin, Delete(TopicResource(TOPIC, 1, {}), about), marker="trade", allowed=allowed)


def _subscription(admin: HttpAdmin, *, allowed: bool = False) -> None:
    change = Delete(SubscriptionResource(TOPIC, "s"), ChangeContext("trade", "no longer declared"))
    delete_subscription(admin, change, marker="trade", allowed=allowed)


def _namespace(admin: HttpAdmin) -> None:
    delete_namespace(admin, HERE, frozenset({"trade"}), allowed=False)


def test_a_namespace_that_functions_may_be_in_is_deleted_by_leave() -> None:
    cluster = Cluster(Answer(204), lambda cluster: setattr(cluster, "deleted", True), functions=Answer(403))
    with _admin(cluster) as admin:
        delete_namespace(admin, HERE, frozenset({"trade"}), allowed=True)
    assert len(cluster.deletes) == 1


def _grant(admin: HttpAdmin) -> None:
    revoke_grant(admin, GrantResource(HERE, "billing", frozenset({"consume"})))


def _forget(admin: HttpAdmin) -> None:
    mark_topic(admin, TOPIC, None, "trade")


def _no_quota(admin: HttpAdmin) -> None:
    before = BacklogQuota(size=Size.parse("1GiB"), time=Duration.parse("1d"))
    update_namespace(admin, HERE, (PolicyChange("backlog_quota", before, None),), "standalone")


def _messages(cluster: Cluster) -> None:
    cluster.partition |= {"storageSize": 10_000_000, "backlogSize": 10_000_000}
    cluster.partition["subscriptions"]["s"]["msgBacklog"] = 100


def _client(cluster: Cluster) -> None:
    cluster.partition["publishers"] = [{"producerName": "p"}]
    cluster.partition["subscriptions"]["s"]["consumers"] = [{"consumerName": "c"}]


def _stranger(cluster: Cluster) -> None:
    """Ours is gone, and somebody made another one of the same name."""
    cluster.marker = None
    cluster.partition["subscriptions"]["s"]["subscriptionProperties"] = {}
    cluster.namespace = {"properties": {}}


def _another_topology(cluster: Cluster) -> None:
    cluster.marker = "bank"
    cluster.namespace["properties"]["kodoctl.topology/bank"] = "x"


def _wider(cluster: Cluster) -> None:
    cluster.namespace["auth_policies"] = {"namespace_auth": {"billing": ["consume", "produce"]}}


def _other_quota(cluster: Cluster) -> None:
    cluster.namespace["backlog_quota_map"] = {
        "message_age": {"limitTime": 60, "limitSize": -1, "policy": "producer_request_hold"}
    }


GRANTED = {"auth_policies": {"namespace_auth": {"billing": ["consume"]}}}
QUOTAS = {
    "backlog_quota_map": {
        "destination_storage": {"limitSize": 1 << 30, "limitTime": -1, "policy": "producer_request_hold"},
        "message_age": {"limitSize": -1, "limitTime": 86_400, "policy": "producer_request_hold"},
    }
}


@busy
@pytest.mark.parametrize(
    ("delete", "meanwhile", "namespace", "why"),
    [
        (_topic, _messages, None, "it holds messages that nobody allowed to destroy"),
        (_topic, _client, None, "clients are connected on partition 0"),
        (lambda admin: _topic(admin, allowed=True), _client, None, "clients are connected on partition 0"),
        (_topic, _stranger, None, "it belongs to nobody since the plan, to trade before"),
        (_topic, _another_topology, None, "it belongs to bank since the plan"),
        (_subscription, _messages, None, "it holds 100 unread entries that nobody allowed to destroy"),
        (_subscription, _client, None, "consumers are connected"),
        (_subscription, _stranger, None, "it belongs to nobody since the plan"),
        (_namespace, _another_topology, None, "bank lives there since the plan"),
        (_namespace, _stranger, None, "no ledger says any more that kodoctl made it"),
        (_grant, _wider, GRANTED, "planned from consume, now consume, produce"),
        (_forget, _another_topology, None, "it belongs to 'bank' since the plan"),
        (_no_quota, _other_quota, QUOTAS, "backlog_quota changed since the plan"),
    ],
)  # fmt: skip
def test_what_came_between_two_tries_is_seen_and_stays(
    trouble: Answer,
    delete: Callable[[HttpAdmin], None],
    meanwhile: Callable[[Cluster], None],
    namespace: dict[str, Any] | None,
    why: str,
) -> None:
    cluster = Cluster(trouble, meanwhile)
    cluster.namespace = {**(namespace or cluster.namespace)}
    with _admin(cluster) as admin, pytest.raises(WriteFailedError) as stopped:
        delete(admin)
    assert len(cluster.deletes) == 1
    assert not cluster.deleted
    assert why in str(stopped.value)
    assert WORDS[BUSY.index(trouble)] in str(stopped.value)
    assert "and none was sent again" in str(stopped.value)
    assert "no request was sent" not in str(stopped.value)


@busy
@pytest.mark.parametrize("delete", [_topic, _subscription, _namespace])
def test_where_nothing_came_it_is_sent_again(trouble: Answer, delete: Callable[[HttpAdmin], None]) -> None:
    cluster = Cluster(trouble)
    with _admin(cluster) as admin:
        delete(admin)
    assert cluster.deleted
    assert cluster.deletes[1] == cluster.deletes[0]


class Brokers:
    """Three brokers with a partition each, of which the last fails `failures` times. As Pulsar's, the broker that is
    asked passes on a refusal of whichever partition, and a partition that lacks the subscription refuses.
    """

    def __init__(self, failures: int) -> None:
        self.failures, self.deletes = failures, 0
        self.having = {0, 1, 2}

    def __call__(self, request: Request) -> Answer:
        if request.method != "DELETE":
            found = {"subscriptions": {"s": {"subscriptionProperties": {"kodoctl": "trade"}}}}
            parts = {f"{TOPIC}-partition-{n}": found if n in self.having else {} for n in range(3)}
            return answer_json({"metadata": {"partitions": 3}, "partitions": parts})
        self.deletes += 1
        lacking = {0, 1, 2} - self.having
        self.having &= {2} if self.deletes <= self.failures else set()
        if lacking:
            return answer_json({"reason": "Subscription not found"}, 404)
        return Answer(503) if self.having else Answer(204)


@pytest.mark.parametrize(("failures", "deletes"), [(0, 1), (1, 2), (3, 4)])
def test_a_subscription_is_deleted_from_a_partition_whose_broker_failed(failures: int, deletes: int) -> None:
    brokers = Brokers(failures)
    with serving(brokers) as server:
        _subscription(HttpAdmin(Connection(server.url)))
    assert (brokers.having, brokers.deletes) == (set(), deletes)


def test_a_subscription_that_stays_on_a_partition_is_not_called_deleted() -> None:
    brokers = Brokers(1_000_000)
    with serving(brokers) as server, pytest.raises(WriteFailedError) as failure:
        _subscription(HttpAdmin(Connection(server.url), limit=0.05))
    assert "Subscription not found; it is gone from partitions 0, 1, the others have it" in str(failure.value)


def test_a_namespace_that_a_broker_still_shows_is_not_called_deleted() -> None:
    def answer(request: Request) -> Answer:
        if request.method == "DELETE":
            return Answer(204)
        return answer_json([] if "/v3/" in request.path else {"properties": {"kodoctl.topology/trade": "x"}})

    with serving(answer) as server, pytest.raises(WriteFailedError, match="and still shows it: apply again"):
        _namespace(HttpAdmin(Connection(server.url)))


def test_clients_are_cut_off_by_the_try_that_finds_them_and_only_where_the_plan_named_some() -> None:
    cluster = Cluster(Answer(503), _client)
    with _admin(cluster) as admin:
        _topic(admin, allowed=True, clients=True)
    assert cluster.deletes == ["", "force=true"]


def test_what_the_first_request_did_without_an_answer_is_not_done_twice() -> None:
    def gone(cluster: Cluster) -> None:
        cluster.deleted = True

    cluster = Cluster(Answer(cut=True), gone)
    with _admin(cluster) as admin:
        _topic(admin)
    assert len(cluster.deletes) == 1


def test_nothing_is_sent_while_nobody_can_look() -> None:
    cluster = Cluster(Answer(503))

    def answer(request: Request) -> Answer:
        return Answer(403) if cluster.deletes and request.method == "GET" else cluster(request)

    with serving(answer) as server, pytest.raises(WriteFailedError, match=r"503.*given up after 1 tries"):
        _topic(HttpAdmin(Connection(server.url), limit=1.0))
    assert len(cluster.deletes) == 1


def test_a_lock_that_somebody_else_made_meanwhile_is_not_broken() -> None:
    def another(cluster: Cluster) -> None:
        cluster.lock = {"token": "another's"}

    cluster = Cluster(Answer(503), another)
    with _admin(cluster) as admin:
        Lock(admin, HERE, "ours").close()
        assert lock_token(admin, HERE) == "another's"
        break_lock(admin, HERE, "ours")
    assert len(cluster.deletes) == 1


def test_a_quota_is_unset_part_by_part() -> None:
    cluster = Cluster(Answer(204), lambda cluster: cluster.namespace["backlog_quota_map"].pop("destination_storage"))
    cluster.namespace = {"backlog_quota_map": dict(QUOTAS["backlog_quota_map"])}

    def answer(request: Request) -> Answer:
        said = cluster(request)
        if len(cluster.deletes) == 2:
            cluster.deleted, cluster.namespace = False, {}
        return said

    with serving(answer) as server:
        _no_quota(HttpAdmin(Connection(server.url)))
    assert cluster.deletes == ["backlogQuotaType=destination_storage", "backlogQuotaType=message_age"]


@pytest.mark.parametrize("delete", [_topic, _subscription, _namespace, _forget])
def test_a_web_page_that_says_404_is_not_a_delete_that_was_done(delete: Callable[[HttpAdmin], None]) -> None:
    with _admin(Cluster(answer_html("<html>404</html>", 404))) as admin, pytest.raises(WriteFailedError, match="404"):
        delete(admin)


@pytest.mark.parametrize(("subscription", "why"), [({}, ""), ({"consumers": [{}]}, "clients are connected: stop them")])
def test_a_plain_topic_is_deleted_by_its_own_name_unless_somebody_uses_it(
    subscription: dict[str, Any], why: str
) -> None:
    deleted: list[str] = []

    def answered(request: Request) -> Answer:
        if request.method == "DELETE":
            deleted.append(request.path)
            return Answer(204)
        if "partitioned-stats" in request.path:
            return Answer(404)
        last = request.path.partition("?")[0].rpartition("/")[2]
        return answer_json(
            {"partitions": {"partitions": 0}, "properties": {"kodoctl": "trade"}}.get(
                last, {"subscriptions": {"s": subscription}}
            )
        )

    about = ChangeContext("trade", "no longer declared")
    change = Delete(TopicResource(TOPIC, 0, {}), about)
    with serving(answered) as server:
        admin = HttpAdmin(Connection(server.url))
        if why:
            with pytest.raises(WriteFailedError, match=why):
                delete_topic(admin, change, marker="trade", allowed=False)
            assert what_is_left(admin, TopicResource(TOPIC, 0, {})) == "the topic is still there"
        else:
            delete_topic(admin, change, marker="trade", allowed=False)
        assert what_is_left(admin, TopicResource(TOPIC, 1, {})) == "the topic is gone", "it is another kind"
    assert deleted == ([] if why else ["/admin/v2/persistent/acme/ns/orders"])


@pytest.mark.parametrize(
    ("functions", "refused"),
    [
        (answer_json(["enrich"]), "functions live there, and would lose their namespace: function.acme/ns/enrich"),
        (Answer(403), "whether functions live there is not known"),
        (
            Answer(503, b'{"reason": "Function Worker is not enabled on this Pulsar service"}'),
            "whether functions live there is not known: .*run apart",
        ),
        (answer_json([]), None),
    ],
)
def test_a_namespace_with_functions_of_others_stays(functions: Answer, refused: str | None) -> None:
    cluster = Cluster(Answer(204), lambda cluster: setattr(cluster, "deleted", True), functions=functions)
    outcome = pytest.raises(WriteFailedError, match=refused) if refused else nullcontext()
    with _admin(cluster) as admin, outcome:
        _namespace(admin)
    assert len(cluster.deletes) == (0 if refused else 1)
