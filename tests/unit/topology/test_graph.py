"""Lanes and moves: where a message may go from where, and why; and rings in the flow between topics."""

import pytest

from kodoctl.topology.graph import find_rings, ground_lane_graphs, lane_graph
from kodoctl.topology.names import NamespaceName, TopicName
from tests.unit.topology.topology_files import expanded


def moves(body: str, ground: str | None = None) -> set[str]:
    graph = lane_graph([expanded(body)], ground)
    return {
        f"{source.topic.local} → {target.topic.local}: {move.label}"
        for source, target, move in graph.edges(data="move")
    }


def one(topic: str = "", subscription: str = "") -> set[str]:
    return moves(f"topics: {{J: {{{topic}subscriptions: {{s: {{{subscription}}}}}}}}}")


def test_the_graphs_of_all_ground_topics_are_those_of_each() -> None:
    body = "topics: {J: {subscriptions: {s: {}}}, K: {levels: double, subscriptions: {s: {produces: [J]}}}, L: {}}"
    whole = expanded(body)
    graphs = dict(ground_lane_graphs(whole))
    assert list(graphs) == ["J", "K", "L"]
    for ground, graph in graphs.items():
        alone = lane_graph([whole], ground)
        assert list(graph.nodes) == list(alone.nodes)
        assert list(graph.edges(data="move")) == list(alone.edges(data="move"))


def test_the_simplest_shape_moves_nothing() -> None:
    assert one("", "states: [], dead_letter: false") == set()


def test_the_simple_shape() -> None:
    assert one("", "states: [retrying]") == {
        "J → J-s-RETRYING: failed",
        "J-s-RETRYING → J-s-DLQ: attempts used up",
        "J-s-DLQ → J-s-RETRYING: recall",
    }


def test_a_single_level_with_limits() -> None:
    assert one("", "limits: [{kind: rate, limit: 1/s}, {kind: quota, limit: 1/h}]") == {
        "J → J-s-RETRYING: failed",
        "J → J-s-PENDING: over rate",
        "J → J-s-BLOCKING: over quota",
        "J-s-RETRYING → J-s-DLQ: attempts used up",
        "J-s-PENDING → J-s-RETRYING: attempts used up",
        "J-s-BLOCKING → J-s-RETRYING: attempts used up",
        "J-s-DLQ → J-s-RETRYING: recall",
    }


def test_without_limits_only_the_handler_sends_to_pending_and_blocking() -> None:
    assert {"J → J-s-PENDING: Pending raised", "J → J-s-BLOCKING: Blocking raised"} < one()


def test_the_double_shape_with_backup() -> None:
    assert one("levels: double, backup: true, ", "states: [retrying]") == {
        "J-L2 → J-L2-s-RETRYING: failed",
        "J → J-s-RETRYING: failed",
        "J-L2-s-RETRYING → J-B1: attempts used up",
        "J-s-RETRYING → J-B1: attempts used up",
        "J-B1 → J-s-DLQ: attempts used up",
        "J-s-DLQ → J-L2-s-RETRYING: recall",
        "J-s-DLQ → J-s-RETRYING: recall",
    }


def test_a_level_below_the_backup_skips_it() -> None:
    assert one("levels: [L1, D1], backup: true, ", "states: []") == {
        "J → J-B1: failed",
        "J-D1 → J-s-DLQ: failed",
        "J-B1 → J-s-DLQ: attempts used up",
        "J-s-DLQ → J: recall --to L1",
    }


def test_a_quota_without_blocking_goes_to_pending() -> None:
    assert "J → J-s-PENDING: over quota" in one("", "states: [pending], limits: [{kind: quota, limit: 1/h}]")
    assert not [move for move in one("", "states: [pending]") if "Blocking" in move]


def test_a_noisy_tenant_is_moved_aside_to_the_backup_or_to_pending() -> None:
    assert {"J → J-B1: isolated", "J-L2 → J-B1: isolated"} < one("levels: double, backup: true, fair_by: key, ")
    assert "J → J-s-PENDING: isolated" in one("fair_by: key, ")
    assert "J-D1 → J-B1: isolated" not in one("levels: [L1, D1], backup: true, fair_by: key, ")


def test_routes_go_from_the_ground_topic_and_not_in_place() -> None:
    found = one(
        "levels: double, ",
        "routes: [{when: {property: a, equals: x}, to: L2}, {when: {property: b, exists: true}, to: L1}]",
    )
    assert {move for move in found if "is x" in move or "exists" in move} == {"J → J-L2: a is x"}


def test_exclusive_levels_name_their_tenants() -> None:
    found = one(
        "levels: [L1, L2, S1], fair_by: uid, exclusive_levels: {S1: [u1, u2, u3, u4, u5], L2: [u7], L5: [u8]}, "
    )
    assert {move for move in found if "only" in move} == {
        "J → J-S1: only u1, u2, u3 and 2 tenants more",
        "J → J-L2: only u7",
    }


def test_routes_go_out_of_the_waiting_states_and_backup_levels_that_they_name() -> None:
    routes = (
        "{when: \"NOT (level = 'L2')\", at: [retrying, backup], to: L2}, "
        '{when: "age > 3", at: [pending], to: L2}, {when: "state = \'blocking\'", at: [pending], to: L2}'
    )
    found = one("levels: double, backup: true, ", f"routes: [{routes}]")
    label = "NOT (level = 'L2')"
    assert {move for move in found if "NOT" in move or "age" in move or "blocking'" in move} == {
        f"J-s-RETRYING → J-L2: {label}",
        f"J-B1 → J-L2: {label}",
    }


def test_draining_lanes_are_left_but_not_entered() -> None:
    found = one("draining: [L2, B1], ", "states: [retrying], draining: [pending]")
    assert {move for move in found if "L2" in move or "PENDING" in move or "B1" in move} == {
        "J-L2 → J-s-RETRYING: failed",
        "J-L2-s-RETRYING → J-s-DLQ: attempts used up",
        "J-L2-s-PENDING → J-s-RETRYING: attempts used up",
        "J-s-PENDING → J-s-RETRYING: attempts used up",
        "J-B1 → J-s-DLQ: attempts used up",
    }
    graph = lane_graph(
        [expanded("topics: {J: {draining: [L2], subscriptions: {s: {states: [retrying], draining: [pending]}}}}")]
    )
    assert {lane.topic.local for lane in graph if lane.draining} == {
        "J-L2",
        "J-L2-s-RETRYING",
        "J-L2-s-PENDING",
        "J-s-PENDING",
    }


@pytest.mark.parametrize(
    ("on_failure", "found"),
    [
        ("", {"J → J-s-DLQ: attempts used up"}),
        (", on_failure: park", {"J → J-s-DLQ: attempts used up"}),
        (", on_failure: block", set()),
        (", on_failure: leave", {"J → J-s-RETRYING: failed"}),
    ],
)
def test_an_ordered_subscription_moves_only_what_it_gives_up(on_failure: str, found: set[str]) -> None:
    body = f"type: key_shared, states: [retrying], routes: [{{when: {{property: a, exists: true}}, to: L2}}], limits: [{{kind: rate, limit: 1/s}}]{on_failure}"
    assert {move for move in one("levels: double, fair_by: key, ", body) if move.startswith("J →")} == found


def test_handlers_send_to_other_topics_declared_or_not() -> None:
    body = "topics: {J: {subscriptions: {s: {states: [], dead_letter: false, produces: [K, x/y/z]}}}, K: {}}"
    assert moves(body) == {"J → K: produces (s)", "J → z: produces (s)"}
    graph = lane_graph([expanded(body)])
    assert {lane.topic.local: lane.declared for lane in graph} == {"J": True, "K": True, "z": False}


def test_one_ground_topic_alone() -> None:
    body = "topics: {J: {subscriptions: {s: {states: [], dead_letter: false, produces: [K]}}}, K: {subscriptions: {t: {}}}}"
    assert moves(body, "J") == {"J → K: produces (s)"}
    assert {lane.topic.local for lane in lane_graph([expanded(body)], "J")} == {"J", "K"}


def test_audit_records_are_no_messages_and_have_no_lane() -> None:
    assert {
        lane.topic.local
        for lane in lane_graph([expanded("topics: {J: {subscriptions: {s: {states: [], audit: true}}}}")])
    } == {"J", "J-s-DLQ"}


def test_a_file_that_lint_refuses_is_still_drawn_as_far_as_it_goes() -> None:
    assert moves("topics: {a: {levels: [L2], subscriptions: {s: {}}}}") == set()
    assert moves("topics: {a: {levels: double, subscriptions: {s: {}}}, a-L2: {subscriptions: {s: {}}}}")


def names(text: str) -> dict[TopicName, list[TopicName]]:
    space = NamespaceName("k", "n")
    flows: dict[TopicName, list[TopicName]] = {}
    for pair in text.split():
        flows.setdefault(TopicName(space, pair[0]), []).append(TopicName(space, pair[1]))
    return flows


@pytest.mark.parametrize(
    ("flows", "rings"),
    [
        ("", []),
        ("ab bc ac", []),
        ("aa", ["a"]),
        ("bc cb", ["bc"]),
        ("ca ab bc xy yx", ["abc", "xy"]),
        ("ab ba bb", ["ab"]),
    ],
)
def test_every_ring_is_found_once_from_its_smallest_topic(flows: str, rings: list[str]) -> None:
    assert ["".join(topic.local for topic in ring) for ring in find_rings(names(flows))] == rings


def test_a_limit_moves_messages_only_where_it_holds_as_well() -> None:
    limits = "limits: [{kind: rate, limit: 1/s, in: {states: [%s]}}, {kind: quota, limit: 1/h, in: {states: [%s]}}]"
    both = {"J → J-s-PENDING: over rate", "J → J-s-BLOCKING: over quota"}
    assert both < one("", limits % ("ready, pending", "ready, pending, blocking"))
    assert not both & one("", limits % ("ready", "ready, blocking"))
    assert both < one("", "states: [pending, blocking], " + limits % ("ready, pending", "ready, pending, blocking"))
