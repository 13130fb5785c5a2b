"""The flow: who sends to which ground topic, and who reads it, within a file and between files."""

from __future__ import annotations

from dataclasses import replace

from kodoctl.topology.expand import Expansion, expand
from kodoctl.topology.flow_graph import FlowKind, FlowNode, flow_between, flow_graph, flow_of
from kodoctl.topology.load import load_set, source_of
from tests.unit.topology.topology_files import FILE, expanded

TRADE = """\
topics:
  orders: {producers: [checkout], subscriptions: {billing: {produces: [shipments, acme/ns/far, kodo/depot/parcels-L2]}}}
  shipments: {}
sources:
  db: {database: DB_URL, tables: {public.orders: {topic: orders}}}
"""
DEPOT = """\
version: 1
name: depot
tenant: kodo
namespace: depot
topics: {parcels: {levels: double}}
"""


def depot() -> Expansion:
    loaded = load_set([source_of(DEPOT.encode(), "depot.yaml")], None)
    assert not loaded.findings
    return expand(loaded.topologies[0])


def topic(name: str, file: str = FILE) -> FlowNode:
    return FlowNode(FlowKind.TOPIC, file, name)


BILLING = FlowNode(FlowKind.CONSUMER, FILE, "billing", "orders")


def test_roles_and_tables_send_and_subscriptions_read_and_send_on() -> None:
    graph = flow_graph([expanded(TRADE), depot()])
    assert set(graph.edges) == {
        (FlowNode(FlowKind.PRODUCER, FILE, "checkout"), topic("orders")),
        (FlowNode(FlowKind.TABLE, FILE, "db: public.orders"), topic("orders")),
        (topic("orders"), BILLING),
        (BILLING, topic("shipments")),
        (BILLING, FlowNode(FlowKind.ELSEWHERE, "", "acme/ns/far")),
        (BILLING, topic("parcels", "depot.yaml")),
    }


def test_a_lane_of_another_file_is_its_ground_topic_and_unknown_without_that_file() -> None:
    alone = flow_graph([expanded(TRADE)])
    assert FlowNode(FlowKind.ELSEWHERE, "", "kodo/depot/parcels-L2") in alone
    assert flow_between(alone) == []


def test_the_flow_of_a_file_has_its_neighbours() -> None:
    graph = flow_graph([expanded(TRADE), depot()])
    assert set(flow_of(graph, "depot.yaml")) == {topic("parcels", "depot.yaml"), BILLING}
    assert flow_between(graph) == [(FILE, "depot.yaml")]


def test_a_topic_without_traffic_is_a_node() -> None:
    assert set(flow_graph([depot()])) == {topic("parcels", "depot.yaml")}
    assert replace(topic("x"), file="") not in flow_graph([])
