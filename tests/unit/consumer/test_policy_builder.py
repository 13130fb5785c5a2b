"""A topology file becomes a policy: every shape, every value, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kodo_consumer.core.checks.message_validation import MessageValidator
from kodo_consumer.core.payloads.codec import Payloads
from kodo_consumer.core.values.delay_schedule import DelaySchedule
from kodo_consumer.core.values.envelope import Level, State
from kodo_consumer.core.values.lane_set import Bulkhead, LaneSet
from kodo_consumer.core.values.limit_policy import Concurrency, Pace, Quota, Rate
from kodo_consumer.core.values.policy import IsolationPolicy, Policy
from kodo_consumer.outbox.target_topics import OutboxTopics
from kodo_consumer.policy_builder import load, policy_of, send_target_of

from kodoctl.errors import InvalidFileError, KodoctlError, UsageError
from kodoctl.topology.route_facts import RouteFacts
from tests.unit.consumer.topologies import DOUBLE, write


def _facts(level: Level = Level.L1, **properties: str) -> RouteFacts:
    return RouteFacts(properties, "", "(none)", "m", 0, level)


def _policy(folder: Path, topics: str, topic: str = "J", subscription: str = "s") -> Policy:
    return policy_of(load(write(folder, topics), None), topic, subscription)


@pytest.mark.parametrize(
    ("spec", "ground", "topics"),
    [
        ("states: [], dead_letter: false", "", ["J"]),
        ("states: [retrying]", "", ["J", "J-s-RETRYING"]),
        ("", "", ["J", "J-s-RETRYING", "J-s-PENDING", "J-s-BLOCKING"]),
        ("", "backup: true", ["J", "J-s-RETRYING", "J-s-PENDING", "J-s-BLOCKING", "J-B1"]),
        (
            "", "levels: double, backup: true",
            ["J-L2", "J-L2-s-RETRYING", "J-L2-s-PENDING", "J-L2-s-BLOCKING", "J", "J-s-RETRYING", "J-s-PENDING",
             "J-s-BLOCKING", "J-B1"],
        ),
    ],
)  # fmt: skip
def test_the_five_shapes_have_their_lanes(tmp_path: Path, spec: str, ground: str, topics: list[str]) -> None:
    comma = ", " if ground else ""
    policy = _policy(tmp_path, f"  J: {{{ground}{comma}subscriptions: {{s: {{{spec}}}}}}}\n")
    assert [lane.topic for lane in policy.lanes] == [f"persistent://p/n/{topic}" for topic in topics]
    assert {target.topic for target in policy.targets.values()} == {lane.topic for lane in policy.lanes}
    dead = None if "dead_letter: false" in spec else "persistent://p/n/J-s-DLQ"
    assert (policy.dead_letter.topic if policy.dead_letter else None) == dead


def test_a_lanes_share_is_its_levels_share_times_its_states_share(tmp_path: Path) -> None:
    policy = _policy(tmp_path, DOUBLE, "orders", "billing")
    weights = {lane.name: lane.weight for lane in policy.lanes}
    assert weights == {
        "L2/ready": 20, "L2/retrying": 12, "L2/pending": 6, "L2/blocking": 2,
        "L1/ready": 10, "L1/retrying": 6, "L1/pending": 3, "L1/blocking": 1, "B1/ready": 10,
    }  # fmt: skip
    assert sum(lane.share for lane in policy.lanes) == pytest.approx(1)
    assert policy.lanes[-1].share == pytest.approx(5 / 35)


def test_weights_of_nothing_at_all_are_no_error(tmp_path: Path) -> None:
    policy = _policy(
        tmp_path, "  J: {subscriptions: {s: {weights: {ready: 0, retrying: 0, pending: 0, blocking: 0}}}}\n"
    )
    assert {lane.weight for lane in policy.lanes} == {0}


def test_defaults_are_those_of_the_topology(tmp_path: Path) -> None:
    policy = _policy(tmp_path, "  J: {subscriptions: {s: {}}}\n")
    assert policy.waits[State.RETRYING] == DelaySchedule((10_000, 60_000, 300_000), 12)
    assert policy.waits[None] == DelaySchedule((60_000, 300_000, 1_800_000, 3_600_000), 24)
    assert (policy.in_place, policy.concurrency, policy.handler_timeout) == ((2_000, 3_000, 5_000), 32, 30_000)
    assert (policy.lookahead_messages, policy.lookahead_bytes) == (50_000, 128 << 20)
    assert (policy.fair_by, policy.subscription_type, policy.horizon) == (None, "shared", 3_600_000)


def test_limits_routes_and_produces_are_read(tmp_path: Path) -> None:
    topics = """
  J:
    backup: true
    draining: [L2]
    subscriptions:
      s:
        produces: [K, other/ns/topic]
        limits:
          - {kind: rate, by: uid, limit: 100/s, overrides: {u1: 6/m}}
          - {kind: rate, limit: 3/h, burst: 7, scope: worker}
          - {kind: concurrency, by: key, limit: 8, overrides: {u1: 2}}
          - {kind: quota, by: bucket, limit: 5000/h, overrides: {b: 1/d}}
        routes:
          - {when: {property: size, greater_than: 10}, to: B1}
          - {when: {property: vip, exists: true}, to: L2}
"""
    policy = _policy(tmp_path, topics)
    assert policy.limits == (
        Rate("uid", Pace(100, 1_000, 100), shared=True, overrides={"u1": Pace(6, 60_000, 1)}),
        Rate(None, Pace(3, 3_600_000, 7), shared=False),
        Concurrency("key", 8, shared=True, overrides={"u1": 2}),
        Quota("bucket", 5_000, 3_600_000, shared=True, overrides={"b": (1, 86_400_000)}),
    )
    assert policy.produces == {"K": "persistent://p/n/K", "other/ns/topic": "persistent://other/ns/topic"}
    route, vip = policy.routes
    assert vip.to == "L2", "it wins where it matches, and the message stays: L2 is draining"
    assert policy.route_table.on_dispatch(_facts(vip="")).to is None
    assert route.to is Level.B1
    assert route.holds(_facts(size="11"))
    assert route.holds(_facts(size="9")) is False
    assert route.holds(_facts()) is None


def test_draining_lanes_are_read_and_no_targets(tmp_path: Path) -> None:
    policy = _policy(tmp_path, "  J: {draining: [L2], subscriptions: {s: {states: [retrying], draining: [pending]}}}\n")
    assert {lane.name for lane in policy.lanes if lane.draining} == {
        "L2/ready",
        "L2/retrying",
        "L2/pending",
        "L1/pending",
    }
    assert {f"{level}/{state}" for level, state in policy.targets} == {"L1/ready", "L1/retrying"}


def test_only_ready_lanes_of_ordered_subscriptions_keep_order(tmp_path: Path) -> None:
    policy = _policy(tmp_path, "  J: {subscriptions: {s: {type: key_shared, on_failure: block}}}\n")
    assert [lane.name for lane in policy.lanes if lane.ordered] == ["L1/ready"]
    assert (policy.on_failure, policy.subscription_type) == ("block", "key_shared")


def test_a_payload_schema_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KodoctlError, match="K705"):
        _policy(tmp_path, "  J: {payload: {type: json, schema: missing.json}, subscriptions: {s: {}}}\n")


@pytest.mark.parametrize(
    ("kind", "content", "said"),
    [
        ("json", '{"properties": {"a": {"pattern": "(?=x)"}}}', "its pattern (?=x) at $.properties.a cannot be used: it looks ahead"),
        ("json", '{"$ref": "http://127.0.0.1:9/x"}', "leads out of the file, and nothing is fetched"),
        ("json", '{"type": 5}', "not valid JSON Schema"), ("json", "[]", "it should be an object"), ("json", "true", "it is not a map"),
        ("avro", '{"type": "record", "name": "R"}', "a record has no list of `fields`"), ("avro", '"string"', "it is not a map"),
        ("json", None, "No such file"),
    ],
)  # fmt: skip
def test_a_payload_schema_that_cannot_be_used_is_refused_by_workers_and_producers(
    tmp_path: Path, kind: str, content: str | None, said: str
) -> None:
    if content is not None:
        (tmp_path / "o").write_text(content, encoding="utf-8")
    used = f"payload: {{type: {kind}, schema: o}}, "
    topology = load(
        write(
            tmp_path, f"  J: {{{used}subscriptions: {{s: {{}}}}}}\n  K: {{subscriptions: {{s: {{produces: [J]}}}}}}\n"
        ),
        None,
    )
    for topic in ("J", "K"):
        with pytest.raises(KodoctlError, match="K705") as raised:
            policy_of(topology, topic, "s")
        assert said in str(raised.value)
    with pytest.raises(KodoctlError, match="K705"):
        send_target_of(topology, "J", "L1")


def test_concurrency_may_be_found_out(tmp_path: Path) -> None:
    topics = "  J: {subscriptions: {s: {concurrency: adaptive}, r: {concurrency: 5}}}\n"
    found = [_policy(tmp_path, topics, "J", name) for name in "sr"]
    assert [(policy.adaptive, policy.concurrency) for policy in found] == [(True, 128), (False, 5)]


def test_a_payload_schema_is_read(tmp_path: Path) -> None:
    (tmp_path / "o.json").write_text('{"type": "object"}', encoding="utf-8")
    topics = "  J: {payload: {type: json, schema: o.json}, subscriptions: {s: {}}}\n"
    assert _policy(tmp_path, topics).payload_schema == {"type": "object"}


@pytest.mark.parametrize(("topic", "subscription", "code"), [("X", "s", "K702"), ("orders", "x", "K703")])
def test_unknown_names_are_answered_with_the_known_ones(
    tmp_path: Path, topic: str, subscription: str, code: str
) -> None:
    with pytest.raises(UsageError, match=code) as refused:
        _policy(tmp_path, DOUBLE, topic, subscription)
    assert "orders, shipments" in str(refused.value) or "billing" in str(refused.value)


def test_an_environment_must_be_named_where_there_are_some(tmp_path: Path) -> None:
    path = write(tmp_path, "  J: {subscriptions: {s: {}}}\n", "environments: {prod: {namespace: live}}\n")
    with pytest.raises(UsageError, match="K017"):
        load(path, None)
    assert load(path, "prod").spec.namespace == "live"
    assert load(path, "base").spec.namespace == "n"


def test_a_broken_file_tells_everything(tmp_path: Path) -> None:
    with pytest.raises(InvalidFileError):
        load(write(tmp_path, "  J: {subscriptions: {s: {in_place: 3}}}\n"), None)
    (tmp_path / "t.yaml").write_text("version: [", encoding="utf-8")
    with pytest.raises(InvalidFileError):
        load(str(tmp_path / "t.yaml"), None)
    (tmp_path / "u.yaml").write_text("version: 1", encoding="utf-8")
    with pytest.raises(UsageError, match="K701"):
        load(str(tmp_path), None)


def test_isolation_is_as_declared_and_names_where_to(tmp_path: Path) -> None:
    topics = """
  J:
    fair_by: u
    subscriptions: {s: {}, r: {isolate: 'off'}, t: {isolate: {share: 12.5%, min: 10}}, n: {states: [retrying]}}
"""
    found = {name: _policy(tmp_path, topics, "J", name).isolate for name in "srtn"}
    assert found == {
        "s": IsolationPolicy(0.25, 1000, "pending"),
        "r": None,
        "t": IsolationPolicy(0.125, 10, "pending"),
        "n": None,
    }


def test_producers_send_to_levels_that_take_messages(tmp_path: Path) -> None:
    topics = "  J: {levels: double, draining: [S1], message_properties: {uid: required}, subscriptions: {s: {type: key_shared}}}\n"
    topology = load(write(tmp_path, topics), None)
    send_target = send_target_of(topology, "J", "L2")
    assert (send_target.topic, send_target.by_key, send_target.properties) == (
        "persistent://p/n/J-L2",
        True,
        {"uid": "required"},
    )
    for level, what in (("S1", "draining"), ("B1", "L2, L1"), ("??", "L2, L1")):
        with pytest.raises(UsageError, match=what):
            send_target_of(topology, "J", level)


def test_avro_is_known_with_what_is_transferred_to_and_unsafe_schemas_and_encryption_are_refused(
    tmp_path: Path,
) -> None:
    for name, item in (("a", "int"), ("b", "null")):
        fields = [{"name": "list", "type": {"type": "array", "items": item}}]
        schema = json.dumps({"type": "record", "name": name, "fields": fields})
        (tmp_path / f"{name}.avsc").write_text(schema, encoding="utf-8")
    topics = """
  J: {payload: {type: avro, schema: a.avsc}, subscriptions: {s: {produces: [K, other]}}}
  K: {payload: {type: avro, schema: b.avsc}, subscriptions: {s: {produces: [J]}}}
"""
    policy = _policy(tmp_path, topics)
    assert policy.payload_type == "avro"
    assert list(policy.produced_schemas) == ["persistent://p/n/K"]
    with pytest.raises(KodoctlError, match=r"K756.*b\.avsc"):
        _policy(tmp_path, topics, "K")


def test_delays_by_code_are_known_and_part_of_the_horizon(tmp_path: Path) -> None:
    waits = "{delays: [1s], by_code: {bank-busy: [30s, 2h]}}"
    policy = _policy(tmp_path, f"  J: {{subscriptions: {{s: {{states: [retrying], retrying: {waits}}}}}}}\n")
    assert [policy.delay_of("bank-busy", attempt) for attempt in (1, 2, 3)] == [30_000, 7_200_000, 7_200_000]
    assert policy.delay_of("other", 1) is None
    assert policy.horizon >= 7_200_000


def test_a_namespace_that_requires_encryption_is_refused(tmp_path: Path) -> None:
    more = "namespace_policies: {encryption_required: true}\n"
    with pytest.raises(KodoctlError, match="K757"):
        policy_of(load(write(tmp_path, "  J: {subscriptions: {s: {}}}\n", more), None), "J", "s")


def test_a_route_to_a_level_that_is_not_there_is_none(tmp_path: Path) -> None:
    routes = "[{when: {property: a, equals: b}, to: L2}]"
    assert _policy(tmp_path, f"  J: {{subscriptions: {{s: {{routes: {routes}}}}}}}\n").routes == ()


def test_an_avro_payload_is_encoded_by_its_form() -> None:
    form = MessageValidator(Payloads("avro", {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}))
    assert (form.encode({"n": 1}), form.encode(None)) == (b"\x02", None)


def test_limits_of_some_lanes_and_slots_of_states_and_levels_are_read(tmp_path: Path) -> None:
    topics = """
  J:
    levels: double
    subscriptions:
      s:
        concurrency:
          total: 16
          states: {retrying: {max: 8}}
          levels: {L2: {min: 4}}
          lanes: {L2/retrying: {max: 2, min: 1}, L3/ready: {max: 1}}
        limits:
          - {kind: rate, limit: 100/s, in: {states: [pending, retrying], levels: [L1, L2]}}
          - {kind: concurrency, limit: 8, in: {states: [retrying]}}
          - {kind: quota, limit: 5/h, in: {levels: [L2]}}
      a: {concurrency: {total: adaptive, levels: {L2: {min: 4}}}}
      m: {concurrency: {}}
"""
    policy = _policy(tmp_path, topics)
    assert (policy.concurrency, policy.adaptive) == (16, False)
    assert policy.bulkheads == (
        Bulkhead(LaneSet((State.RETRYING,)), 8),
        Bulkhead(LaneSet(levels=(Level.L2,)), None, 4),
        Bulkhead(LaneSet((State.RETRYING,), (Level.L2,)), 2, 1),
    )
    assert [str(limit.within) for limit in policy.limits] == ["L2,L1/retrying,pending", "retrying", "L2"]
    found_out = _policy(tmp_path, topics, subscription="a")
    assert (found_out.concurrency, found_out.adaptive, len(found_out.bulkheads)) == (128, True, 1)
    plain = _policy(tmp_path, topics, subscription="m")
    assert (plain.concurrency, plain.adaptive, plain.bulkheads) == (32, False, ())


def test_senders_evaluate_the_routes_of_all_subscriptions_unless_one_keeps_an_order(tmp_path: Path) -> None:
    routes = "routes: [{when: {property: vip, exists: true}, to: L2}, {when: \"tenant = 'u'\", share: 50%, to: L3}]"
    waiting = "routes: [{when: 'true', at: [retrying], to: L2}]"
    topics = f"""\
  J: {{levels: [L1, L2], draining: [L3], fair_by: uid, subscriptions: {{s: {{{routes}}}, t: {{{routes}}}}}}}
  K: {{levels: double, subscriptions: {{s: {{{routes}}}, t: {{type: key_shared}}}}}}
  L: {{levels: double, subscriptions: {{s: {{{waiting}}}}}}}
"""
    topology = load(write(tmp_path, topics), None)
    send_target = send_target_of(topology, "J", "L1")
    assert (send_target.ground, send_target.level, send_target.fair_by) == ("J", Level.L1, "uid")
    assert send_target.dispatch is not None
    assert send_target.dispatch.choose(_facts(vip="1")) is Level.L2
    assert send_target.dispatch.choose(_facts()) is Level.L1
    assert [rule.share for rule in send_target.dispatch.tables[0].rules] == [1.0, 0.5]
    assert send_target_of(topology, "K", "L1").dispatch is None
    assert send_target_of(topology, "L", "L1").dispatch is None
    assert OutboxTopics(topology).sibling(send_target, "L2").topic.endswith("J-L2")


def test_exclusive_levels_are_known_to_workers_and_senders(tmp_path: Path) -> None:
    topics = """\
  J: {levels: [L1, S1], fair_by: uid, draining: [S2], exclusive_levels: {S1: [u7], S2: [u8]}, subscriptions: {s: {}, t: {}}}
  K: {levels: [L1, S1], fair_by: uid, exclusive_levels: {S1: [u7]}, subscriptions: {s: {type: key_shared}}}
"""
    topology = load(write(tmp_path, topics), None)
    assert policy_of(topology, "J", "s").exclusive_levels == {Level.S1: frozenset({"u7"})}
    dispatch = send_target_of(topology, "J", "L1").dispatch
    assert dispatch is not None
    assert dispatch.choose(RouteFacts({}, "", "u7", "m", 0, Level.L1)) is Level.S1
    assert dispatch.choose(RouteFacts({}, "", "u1", "m", 0, Level.S1)) is Level.L1
    assert send_target_of(topology, "K", "L1").dispatch is None


def test_what_keeps_a_message_from_being_delayed_is_read(tmp_path: Path) -> None:
    topics = """
  J: {policies: {ttl: 1h}, subscriptions: {s: {type: exclusive}, t: {type: failover}, u: {type: key_shared}, v: {}}}
  K: {subscriptions: {s: {}}}
  L: {policies: {ttl: unlimited}, subscriptions: {s: {}}}
"""
    topology = load(write(tmp_path, topics, "namespace_policies: {ttl: 2d}\n"), None)
    found = {topic: send_target_of(topology, topic, "L1") for topic in "JKL"}
    assert {topic: target.undelayed for topic, target in found.items()} == {"J": ("s", "t"), "K": (), "L": ()}
    assert {topic: target.ttl for topic, target in found.items()} == {"J": 3_600_000, "K": 2 * 86_400_000, "L": 0}
    policy = policy_of(topology, "K", "s")
    assert policy.own_targets == {Level.L1: found["K"]}
