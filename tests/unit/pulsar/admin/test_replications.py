"""What a topic's answer says of other clusters."""

from __future__ import annotations

from kodoctl.pulsar.admin.admin_http import HttpAdmin
from kodoctl.pulsar.admin.topic_stats import parse, read_stats, replications
from kodoctl.pulsar.connection.connection import Connection
from kodoctl.status.lane_status import Replication, StatusReading, TopologyStatus
from kodoctl.status.status_text import status_lines
from kodoctl.topology.names import TopicName
from tests.services.servers import Answer, Request, answer_json, serving

BEHIND = {"replication": {"west": {"replicationBacklog": 3, "connected": True}}}
CUT = {"replication": {"west": {"replicationBacklog": 4, "connected": False}, "east": {"connected": True}}}


def test_entries_are_summed_and_one_cut_partition_is_not_connected():
    assert replications([BEHIND, CUT, {}]) == {"east": (0, True), "west": (7, False)}


def test_a_topic_that_another_cluster_does_not_have_yet_is_known_as_that():
    topic = TopicName.parse("persistent://t/n/orders")
    parts = {f"{topic}-partition-{number}": part for number, part in enumerate((BEHIND, CUT))}
    found = parse(topic, {"metadata": {"partitions": 2}, "partitions": parts})
    assert found.facts.unreplicated == (("west", 7),)


def test_status_tells_how_far_the_others_are():
    here = TopologyStatus(
        "geo", "geo/ns", (), (), (Replication("o", "west", 7, False), Replication("o", "east", 0, True))
    )
    lines = [line.text for line in status_lines(StatusReading(0, (here,)))]
    assert "o: replicated to west, 7 entries behind, NOT CONNECTED" in lines
    assert "o: replicated to east, up to date" in lines


def test_a_key_that_names_no_partition_is_none():
    """A broker that can ask no partition answers with one entry of the topic's own name, which holds nothing."""
    topic = TopicName.parse("persistent://t/n/old-6")
    whole = {str(topic): {}, f"{topic}-partition-0": {"storageSize": 5}}

    def answer(_: Request) -> Answer:
        return answer_json({"metadata": {"partitions": 1}, "partitions": whole})

    with serving(answer) as server:
        found = read_stats(HttpAdmin(Connection(server.url)), topic)
    assert found is not None
    assert found["partitions"] == {f"{topic}-partition-0": {"storageSize": 5}}
