"""What somebody else made or changed since the plan is not taken for ours, nor written over."""

from __future__ import annotations

import json

import pytest

from kodoctl.apply import topics
from kodoctl.apply.topics import create_topic, mark_topic, update_topic, upload_schema
from kodoctl.plan.changes import FieldChange, PolicyChange
from kodoctl.plan.policy_levels import PolicyLevels
from kodoctl.protocol.properties import OWNER_PROPERTY
from kodoctl.pulsar.admin.admin_http import HttpAdmin
from kodoctl.pulsar.admin.confirmed_write import WriteFailedError
from kodoctl.pulsar.connection.connection import Connection
from kodoctl.topology.model.policies import Retention
from kodoctl.topology.names import TopicName
from kodoctl.topology.resources import SchemaResource, SubscriptionResource, TopicResource
from kodoctl.topology.units import Duration, Size
from tests.services.servers import Answer, Request, answer_json, serving

SIZE = Size(1 << 20)
SUB = SubscriptionResource(TopicName.parse("acme/ns/J"), "s")


@pytest.mark.parametrize("marker", ["trade", "bank", None])
def test_a_topic_that_somebody_made_since_the_plan_is_refused_and_ours_is_made(marker: str | None) -> None:
    def answered(request: Request) -> Answer:
        return answer_json({"reason": "This topic already exists"}, 409) if request.is_write else found(request)

    found, topic = Marked(marker), TopicResource(SUB.topic, 1, {})
    with serving(answered) as server:
        if marker == "trade":  # by the request whose answer was lost
            create_topic(HttpAdmin(Connection(server.url)), topic, "trade", PolicyLevels({}, {}, {}))
            return
        with pytest.raises(WriteFailedError, match="somebody created it since the plan: plan again"):
            create_topic(HttpAdmin(Connection(server.url)), topic, "trade", PolicyLevels({}, {}, {}))


@pytest.mark.parametrize(
    ("clusters", "partitions", "size", "is_replica"),
    [
        (["east", "west"], 1, 0, True),
        (["west"], 1, 0, False),
        (["east", "west"], 2, 0, False),
        (["east", "west"], 1, 9, False),
    ],
)
def test_an_empty_topic_that_replication_made_since_the_plan_gets_the_marker(
    clusters: list[str], partitions: int, size: int, is_replica: bool
) -> None:
    """Between the namespace of this cluster and its topics another cluster may create them here."""
    marked: list[str] = []

    def answered(request: Request) -> Answer:
        if request.is_write and request.path.endswith("/properties"):
            marked.append(json.loads(request.body)[OWNER_PROPERTY])
            return Answer(204)
        if request.is_write:
            return answer_json({"reason": "This topic already exists"}, 409)
        properties = {OWNER_PROPERTY: marked[0]} if marked else {}
        parts = {str(SUB.topic.partition(index)): {"storageSize": size} for index in range(partitions)}
        return answer_json({"metadata": {"partitions": partitions, "properties": properties}, "partitions": parts})

    topic, levels = TopicResource(SUB.topic, 1, {}), PolicyLevels({}, {}, {"replication": clusters})
    with serving(answered) as server:
        if is_replica:
            create_topic(HttpAdmin(Connection(server.url)), topic, "trade", levels)
        else:
            with pytest.raises(WriteFailedError, match="somebody created it since the plan: plan again"):
                create_topic(HttpAdmin(Connection(server.url)), topic, "trade", levels)
    assert marked == ["trade"] * is_replica


@pytest.mark.parametrize("quicker", [False, True])
def test_a_plain_topic_that_a_client_makes_at_the_same_moment_gets_the_marker_afterwards(quicker: bool) -> None:
    """As measured: of a PUT that meets the creation by a client the broker may keep no properties, and answer 204."""
    writes: list[tuple[str, str]] = []
    properties: dict[str, str] = {}

    def answered(request: Request) -> Answer:
        if request.is_write:
            writes.append((request.method, request.path.rpartition("/ns/")[2]))
            if not quicker or request.path.endswith("/properties"):
                properties.update(json.loads(request.body))
            return Answer(204)
        if request.path.endswith("/partitions"):
            return answer_json({"partitions": 0})
        if request.path.endswith("/properties"):
            return answer_json(properties)
        return answer_json({}, 404 if "partitioned-stats" in request.path else 200)

    with serving(answered) as server:
        admin = HttpAdmin(Connection(server.url))
        create_topic(admin, TopicResource(SUB.topic, 0, {}), "trade", PolicyLevels({}, {}, {}))
    assert writes == [("PUT", "J"), ("PUT", "J/properties")][: 1 + quicker]
    assert properties == {OWNER_PROPERTY: "trade"}


class Marked:
    """A topic with an owner's marker, or none; `gone`: no topic."""

    def __init__(self, marker: str | None, *, gone: bool = False) -> None:
        self.marker, self.gone = marker, gone

    def __call__(self, request: Request) -> Answer:
        if request.method == "PUT":
            self.marker = json.loads(request.body)[OWNER_PROPERTY]
        if request.method == "DELETE":
            self.marker = None
        if request.is_write:
            return Answer(204)
        properties = {OWNER_PROPERTY: self.marker} if self.marker else {}
        stats = {"metadata": {"partitions": 1, "properties": properties}, "partitions": {}}
        return Answer(404) if self.gone else answer_json(stats)


@pytest.mark.parametrize("owner", ["trade", None])
@pytest.mark.parametrize(("planned", "found"), [("old", "bank"), (None, "bank")])
def test_the_marker_that_another_topology_set_since_the_plan_stays(
    owner: str | None, planned: str | None, found: str
) -> None:
    with serving(broker := Marked(found)) as server:
        with pytest.raises(WriteFailedError, match="it belongs to 'bank' since the plan: plan again"):
            mark_topic(HttpAdmin(Connection(server.url)), SUB.topic, owner, planned)
        assert not [one for one in server.requests if one.is_write]
    assert broker.marker == "bank"


@pytest.mark.parametrize(("planned", "found"), [("old", "old"), ("old", None), (None, None)])
def test_the_marker_that_the_plan_saw_gives_way_and_so_does_none(planned: str | None, found: str | None) -> None:
    for owner in ("trade", None):
        with serving(broker := Marked(found)) as server:
            mark_topic(HttpAdmin(Connection(server.url)), SUB.topic, owner, planned)
        assert broker.marker == owner


def test_no_marker_is_taken_off_a_topic_that_is_gone() -> None:
    with (
        serving(Marked(None, gone=True)) as server,
        pytest.raises(WriteFailedError, match="it is gone since the plan: plan again"),
    ):
        mark_topic(HttpAdmin(Connection(server.url)), SUB.topic, None, "trade")


def _schema(definition: str) -> SchemaResource:
    return SchemaResource(SUB.topic, "AVRO", definition)


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (None, '"int"', "somebody uploaded another one"),
        ('"string"', '"int"', "somebody uploaded another one"),
        ('"string"', None, "somebody removed it"),
    ],
)
def test_a_schema_that_changed_since_the_plan_gets_no_new_version(
    before: str | None, now: str | None, said: str
) -> None:
    answer = answer_json({"type": "AVRO", "data": now}) if now else Answer(404)
    with serving(lambda _: answer) as server:
        with pytest.raises(WriteFailedError, match=f"the schema changed since the plan: {said}; plan again"):
            upload_schema(HttpAdmin(Connection(server.url)), _schema('"long"'), _schema(before) if before else None)
        assert [one.method for one in server.requests] == ["GET"]


@pytest.mark.parametrize("status", [409, 422])
def test_a_schema_that_the_broker_refuses_is_no_success(status: int) -> None:
    refusal = answer_json({"reason": "Incompatible schema"}, status)
    with (
        serving(lambda request: refusal if request.is_write else Answer(404)) as server,
        pytest.raises(WriteFailedError, match="the broker refuses the schema: Incompatible schema"),
    ):
        upload_schema(HttpAdmin(Connection(server.url)), _schema('"long"'), None)


def test_a_policy_that_one_answer_alone_calls_unset_has_not_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a broker answers that is shut down."""
    topic, old, new = (
        SUB.topic,
        Retention(time=Duration(60_000), size=SIZE),
        Retention(time=Duration(120_000), size=SIZE),
    )
    before, after = (TopicResource(topic, 1, {"retention": value}) for value in (old, new))
    change = (PolicyChange("retention", old, new),)
    shown = answer_json({"retentionTimeInMinutes": 1, "retentionSizeInMB": 1})

    def answer(request: Request) -> Answer:
        return Answer(204) if request.is_write or request.number == 1 else shown

    with serving(answer) as server:
        update_topic(HttpAdmin(Connection(server.url)), before, after, change, PolicyLevels({}, {}, {}))
    assert [request.method for request in server.requests].count("POST") == 1
    monkeypatch.setattr(topics, "_MOMENT_S", 0.5)
    more = (FieldChange("partitions", 1, 3), *change)
    with serving(lambda _: Answer(204)) as server, pytest.raises(WriteFailedError, match="changed since the plan"):
        update_topic(HttpAdmin(Connection(server.url)), before, after, more, PolicyLevels({}, {}, {}))
    assert not [request for request in server.requests if request.is_write], "partitions cannot be taken back"
