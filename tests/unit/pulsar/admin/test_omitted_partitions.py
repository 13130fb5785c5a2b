"""A partition that an answer about the whole topic leaves out is asked for itself: absent by two sources, or unknown, which refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from kodoctl.apply.deletes import delete_subscription, delete_topic, what_is_left
from kodoctl.errors import ClusterError
from kodoctl.plan.changes import ChangeContext, Delete
from kodoctl.pulsar.admin import admin_errors
from kodoctl.pulsar.admin.admin import AdminError
from kodoctl.pulsar.admin.admin_http import HttpAdmin
from kodoctl.pulsar.admin.omitted_partitions import NotAwaitedError, UnknownPartitionsError, may_be_left_out
from kodoctl.pulsar.admin.topic_stats import read_stats, read_topic
from kodoctl.pulsar.connection.connection import Connection
from kodoctl.pulsar.inventory.evidence_reader import read_evidence
from kodoctl.pulsar.values.live_objects import ClusterIdentity, Live, LiveObject
from kodoctl.topology.names import NamespaceName, TopicName
from kodoctl.topology.resources import SubscriptionResource, TopicResource
from tests.services.servers import Answer, Request, answer_html, answer_json, serving

HERE = NamespaceName("acme", "ns")
TOPIC = TopicName(HERE, "J")
GONE = answer_json({"reason": "Topic partitions were not yet created"}, 404)
UNKNOWN = {
    "moves": answer_json({"reason": "Can't find owner for topic persistent://acme/ns/J-partition-1"}, 412),
    "is loaded": answer_json({"reason": ""}, 500),
    "no time": Answer(503),
    "a page before the broker": answer_html("<html>404</html>", 404),
    "no body": Answer(200),
    "no words": Answer(204),
    "not an object": answer_json([]),
    "no connection": Answer(cut=True),
    "another host": Answer(307, headers={"Location": "http://192.0.2.1:8080/admin/v2/persistent/acme/ns/J-partition-1/stats"}),
}  # fmt: skip
unknown = pytest.mark.parametrize("said", UNKNOWN.values(), ids=UNKNOWN)


def part(backlog: int = 0) -> dict[str, Any]:
    sub = {"msgBacklog": backlog, "backlogSize": 10 * backlog, "subscriptionProperties": {"kodoctl": "trade"}}
    return {"subscriptions": {"s": sub}, "publishers": [], "storageSize": 10 * backlog, "backlogSize": 10 * backlog}


@dataclass
class Cluster:
    """One topic of three partitions, of which the answer for all leaves out those of `alone`."""

    alone: dict[int, Answer]
    listed: set[int] | Answer = field(default_factory=lambda: {0, 1, 2})
    deletes: int = 0
    asked: list[str] = field(default_factory=list)

    def __call__(self, request: Request) -> Answer:
        path = request.path.removeprefix("/admin/v2/")
        self.asked.append(path)
        if request.method == "DELETE":
            self.deletes += 1
            return Answer(204)
        if path == "persistent/acme/ns":
            if isinstance(self.listed, Answer):
                return self.listed
            return answer_json([TOPIC.partition(number) for number in sorted(self.listed)])
        if path.startswith("persistent/acme/ns/J/partitioned-stats"):
            there = {TOPIC.partition(number): part() for number in range(3) if number not in self.alone}
            return answer_json({"metadata": {"partitions": 3, "properties": {"kodoctl": "trade"}}, "partitions": there})
        if path == "brokers":
            return answer_json([])
        number = int(path.partition("-partition-")[2].partition("/")[0])
        return self.alone[number]


@pytest.fixture(autouse=True)
def _asks_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """What answers in place of a broker is not waited for."""
    monkeypatch.setattr(admin_errors, "_ASK_S", 0.05)


@contextmanager
def admin_of(cluster: Callable[[Request], Answer]) -> Iterator[HttpAdmin]:
    with serving(cluster) as server:
        admin = HttpAdmin(Connection(server.url), pause=lambda _: None)
        yield admin
        admin.close()


def test_one_that_answers_for_itself_counts_like_the_others() -> None:
    cluster = Cluster({1: answer_json(part(7))})
    with admin_of(cluster) as admin:
        stats = read_stats(admin, TOPIC, getEarliestTimeInBacklog="true")
        assert stats is not None
        assert sorted(stats["partitions"]) == [TOPIC.partition(number) for number in range(3)]
        assert cluster.asked[-1] == "persistent/acme/ns/J-partition-1/stats?getEarliestTimeInBacklog=true"
        found = read_topic(admin, TOPIC)
    assert found is not None
    assert found.missing == ()
    assert found.facts.backlog_bytes == 70
    assert [(sub.missing_on, sub.facts.backlog_entries) for sub in found.subscriptions] == [((), 7)]


def test_one_that_its_owner_and_the_list_do_not_know_is_absent() -> None:
    with admin_of(Cluster({1: GONE}, {0, 2})) as admin:
        found = read_topic(admin, TOPIC)
    assert found is not None
    assert (found.partitions, found.missing) == (3, (1,))


@unknown
def test_one_that_gives_no_answer_is_unknown_and_that_refuses(said: Answer) -> None:
    with admin_of(Cluster({1: said, 2: said})) as admin, pytest.raises(UnknownPartitionsError) as caught:
        read_topic(admin, TOPIC)
    [finding] = caught.value.diagnostics
    assert finding.code == "K580"
    assert finding.detail.startswith(f"{TOPIC}: nothing is known of partition 1, 2: ")
    passing = "try again in a minute; if it stays so, the broker cannot load the topic"
    advice = "waiting does not mend this" if said.status == 500 else passing  # a 500 was asked again for a minute
    assert advice in finding.detail


def test_a_driver_that_no_broker_has_is_told_with_the_way_out() -> None:
    said = answer_json({"reason": "No offloader found for driver 'aws-s3'."}, 500)
    with admin_of(Cluster({1: said})) as admin, pytest.raises(UnknownPartitionsError) as caught:
        read_topic(admin, TOPIC)
    assert f"`pulsar-admin topicPolicies remove-offload-policies {TOPIC}`" in caught.value.diagnostics[0].detail


def test_those_that_answered_are_not_among_the_unknown() -> None:
    with (
        admin_of(Cluster({0: answer_json(part()), 2: UNKNOWN["moves"]})) as admin,
        pytest.raises(UnknownPartitionsError, match=r"partition 2: GET .*J-partition-2/stats answered 412"),
    ):
        read_topic(admin, TOPIC)


def test_an_owner_that_says_404_of_what_the_list_has_is_asked_once_more() -> None:
    """It may have been made or deleted in between; else one of both is wrong."""
    cluster = Cluster({1: GONE})
    with (
        admin_of(cluster) as admin,
        pytest.raises(UnknownPartitionsError, match="and its namespace's list of topics has it"),
    ):
        read_topic(admin, TOPIC)
    assert cluster.asked.count("persistent/acme/ns/J-partition-1/stats") == 2


@pytest.mark.parametrize("listed", [answer_json({"reason": ""}, 500), answer_html("<html>404</html>", 404)])
def test_a_list_that_cannot_be_read_confirms_nothing(listed: Answer) -> None:
    refused = pytest.raises((UnknownPartitionsError, AdminError), match="listing topics")
    with admin_of(Cluster({1: GONE}, listed)) as admin, refused:
        read_topic(admin, TOPIC)


def test_whoever_may_not_ask_is_told_so() -> None:
    denied = answer_json({"reason": "Unauthorized"}, 401)
    for cluster in (Cluster({1: denied}), Cluster({1: GONE}, denied)):
        with admin_of(cluster) as admin, pytest.raises(AdminError, match="needs a role with more rights"):
            read_topic(admin, TOPIC)


def test_a_token_that_is_refused_is_told_as_that() -> None:
    with admin_of(Cluster({1: Answer(401)})) as admin, pytest.raises(ClusterError) as caught:
        read_topic(admin, TOPIC)
    assert caught.value.diagnostics[0].code == "K511"


def test_an_answer_for_all_without_a_body_says_nothing() -> None:
    with admin_of(lambda _: Answer(200)) as admin, pytest.raises(ClusterError, match="says nothing of it") as caught:
        read_topic(admin, TOPIC)
    assert caught.value.diagnostics[0].code == "K580"


# --- what follows from it

PASSING, LASTING = (UnknownPartitionsError(TOPIC, [1], "no owner", lasting=lasting) for lasting in (False, True))
NOT_AWAITED = NotAwaitedError(TOPIC, [1], "it moves")


@pytest.mark.parametrize(
    ("problem", "ours", "of_others"),
    [
        (ClusterError(), "", ""),  # no broker answers at all
        (PASSING, "", "everything lenient"),
        (LASTING, "lenient", "everything lenient"),
        (NOT_AWAITED, "", "everything lenient plan"),
    ],
)
def test_a_comparison_goes_on_without_a_topic_of_ours_only_if_waiting_does_not_mend_it(
    problem: ClusterError, ours: str, of_others: str
) -> None:
    """Else its exit code would speak of a moment in which a broker ended, as if a topic could not be compared."""
    for is_ours, reads in ((True, ours), (False, of_others)):
        found = {
            name: may_be_left_out(problem, is_ours=is_ours, everything=name == "everything", lenient=name == "lenient")
            for name in ("everything", "lenient", "plan")
        }
        assert {name for name, goes_on in found.items() if goes_on} == set(reads.split()), is_ours


@unknown
def test_the_last_look_before_a_delete_refuses(said: Answer) -> None:
    about = ChangeContext("trade", "no longer declared")
    for before, delete in (
        (TopicResource(TOPIC, 3, {}), delete_topic),
        (SubscriptionResource(TOPIC, "s"), delete_subscription),
    ):
        cluster = Cluster({1: said})
        with admin_of(cluster) as admin, pytest.raises(UnknownPartitionsError):
            delete(admin, Delete(before, about), marker="trade", allowed=False)
        assert cluster.deletes == 0


@unknown
def test_figures_of_what_is_at_stake_are_unknown_as_well(said: Answer) -> None:
    topic = TopicResource(TOPIC, 3, {})
    live = Live(ClusterIdentity("c", {}), {topic.address: LiveObject(topic)}, {})
    with admin_of(Cluster({1: said})) as admin, pytest.raises(UnknownPartitionsError):
        read_evidence(admin, live, [topic.address], ledgers_of=frozenset())


def test_what_is_left_of_a_topic_is_not_told_where_it_is_unknown() -> None:
    doomed = TopicResource(TOPIC, 3, {})
    with admin_of(Cluster({1: UNKNOWN["moves"]})) as admin:
        assert "cannot be read" in what_is_left(admin, doomed)
    with admin_of(Cluster({1: GONE}, {0, 2})) as admin:
        assert what_is_left(admin, doomed) == "partitions 1 are gone, the others are there"
