"""What a file means where it says nothing."""

import pytest

from kodoctl.topology import defaults
from kodoctl.topology.model.topology import GroundTopic, Subscription
from kodoctl.topology.names import Level, State
from kodoctl.topology.units import Duration
from tests.unit.topology.topology_files import expanded, loaded


def parts(topic: str = "", subscription: str = "") -> tuple[GroundTopic, Subscription]:
    spec = loaded(f"topics: {{J: {{{topic}subscriptions: {{s: {{{subscription}}}}}}}}}").spec
    return spec.topics["J"], spec.topics["J"].subscriptions["s"]


def test_the_defaults_are_those_of_the_design() -> None:
    ground, sub = parts()
    assert [
        (str(defaults.waits(sub, state)), defaults.waits(sub, state).attempts)
        for state in (State.RETRYING, State.PENDING, State.BLOCKING, None)
    ] == [
        ("ResolvedWaits(delays=(10s, 1m, 5m), attempts=12)", 12),
        ("ResolvedWaits(delays=(1m,), attempts=60)", 60),
        ("ResolvedWaits(delays=(1h,), attempts=24)", 24),
        ("ResolvedWaits(delays=(1m, 5m, 30m, 1h), attempts=24)", 24),
    ]
    assert [str(wait) for wait in sub.in_place] == ["2s", "3s", "5s"]
    assert (sub.lookahead.messages, str(sub.lookahead.size)) == (50_000, "128MiB")
    assert (sub.type, sub.start, sub.concurrency, str(sub.handler_timeout), sub.expected_workers) == (
        "shared",
        "earliest",
        32,
        "30s",
        1,
    )
    assert [
        defaults.state_weight(sub, Level.L1, state)
        for state in (State.READY, State.RETRYING, State.PENDING, State.BLOCKING)
    ] == [50, 30, 15, 5]
    assert {level.value: defaults.level_weight(sub, level) for level in Level} == {
        **dict.fromkeys(("S3", "S2", "S1"), 30), **dict.fromkeys(("L8", "L7", "L6", "L5", "L4", "L3", "L2"), 20), "L1": 10,
        **dict.fromkeys(("B1", "B2", "B3"), 5), "D1": 2,
    }  # fmt: skip
    assert (sub.isolate.share, sub.isolate.min) == ("25%", 1000)  # type: ignore[union-attr]
    assert ground.fair_by is None


def test_declared_shares_win_and_a_backup_level_has_one_lane() -> None:
    _, sub = parts("backup: true, ", "level_weights: {B1: 7}, weights: {ready: 1}")
    assert defaults.level_weight(sub, Level.B1) == 7
    assert defaults.state_weight(sub, Level.L1, State.READY) == 1
    assert defaults.state_weight(sub, Level.B1, State.READY) == 1


def test_the_last_delay_repeats() -> None:
    _, sub = parts("", "retrying: {delays: [1s, 10s], attempts: 4}")
    waits = defaults.waits(sub, State.RETRYING)
    assert [str(waits.delay(attempt)) for attempt in range(1, 5)] == ["1s", "10s", "10s", "10s"]
    assert waits.total == Duration(31_000)
    _, sub = parts("", "retrying: {delays: [1s, 10s, 20s], attempts: 2}")
    assert defaults.waits(sub, State.RETRYING).total == Duration(11_000), "delays beyond the attempts do not count"


def test_the_sum_of_very_many_waits_takes_no_time() -> None:
    _, sub = parts("", "retrying: {delays: [1s, 10s], attempts: 2147483647}")
    assert defaults.waits(sub, State.RETRYING).total == 1_000 + 2_147_483_646 * 10_000


@pytest.mark.parametrize(
    ("levels", "active", "read"),
    [
        ("", "L1", "L1"),
        ("levels: double, ", "L2 L1", "L2 L1"),
        ("levels: [L1, S1, D1], backup: true, ", "S1 L1 B1 D1", "S1 L1 B1 D1"),
        ("backup: true, draining: [L2], ", "L1 B1", "L2 L1 B1"),
    ],
)
def test_levels_are_ordered_and_draining_ones_are_still_read(levels: str, active: str, read: str) -> None:
    ground, _ = parts(levels)
    assert defaults.active_levels(ground) == tuple(active.split())
    assert defaults.read_levels(ground) == tuple(read.split())


@pytest.mark.parametrize(
    ("written", "mode", "partitions"),
    [("audit: false", None, 1), ("audit: true", "wait", 1), ("audit: best_effort", "best_effort", 1), ("audit: {mode: best_effort}, dead_letter: {partitions: 3}", "best_effort", 3), ("dead_letter: true", None, 1), ("dead_letter: false", None, None)],
)  # fmt: skip
def test_short_forms_of_audit_and_dead_letters(written: str, mode: str | None, partitions: int | None) -> None:
    _, sub = parts("", written)
    audit, dead = defaults.audit(sub), defaults.dead_letter(sub)
    assert (audit and audit.mode, dead and dead.partitions) == (mode, partitions)


@pytest.mark.parametrize(
    ("topic", "subscription", "to"),
    [
        ("fair_by: key, ", "", "pending"),
        ("fair_by: key, backup: true, ", "", "B1"),
        ("fair_by: key, backup: true, ", "isolate: {to: pending}", "pending"),
        ("fair_by: key, ", "isolate: {to: B1}", None),
        ("fair_by: key, ", "states: []", None),
        ("fair_by: key, ", "isolate: off", None),
        ("", "", None),
    ],
)
def test_a_tenant_is_moved_aside_to_a_lane_that_is_there(topic: str, subscription: str, to: str | None) -> None:
    isolation = defaults.isolation(*parts(topic, subscription))
    assert (isolation and isolation.to) == to


@pytest.mark.parametrize(
    ("topic", "subscription", "horizon"),
    [
        ("", "states: []", "0s"),
        ("", "states: [retrying]", "5m"),
        ("", "", "1h"),
        ("backup: true, ", "states: []", "1h"),
        ("", "states: [retrying], draining: [blocking]", "1h"),
        ("", "states: [retrying], limits: [{kind: rate, limit: 1/s}]", "1h"),
        ("fair_by: key, ", "states: [pending]", "1h"),
        ("", "states: [pending], limits: [{kind: quota, limit: 1/d}, {kind: quota, limit: 1/h}]", "1d"),
        ("", "states: [retrying], limits: [{kind: concurrency, limit: 1}]", "5m"),
    ],
)
def test_the_horizon_is_the_longest_a_message_can_be_told_to_wait(topic: str, subscription: str, horizon: str) -> None:
    assert str(defaults.horizon(*parts(topic, subscription))) == horizon


@pytest.mark.parametrize(
    ("topic", "subscription", "seconds"),
    [
        ("", "states: []", 0),
        ("", "states: [retrying]", 10 + 60 + 10 * 300),
        ("", "states: [pending]", 60 * 60),
        ("", "states: [pending], limits: [{kind: rate, limit: 1/s}]", 60 * 3600),
        ("", "states: [blocking]", 24 * 3600),
        ("", "states: [blocking], limits: [{kind: quota, limit: 1/d}]", 24 * 86400),
        (
            "",
            "states: [pending], limits: [{kind: rate, limit: 1/s}], pending: {delays: [1m, 6h], attempts: 3}",
            13 * 3600,
        ),
        ("", "states: [blocking], limits: [{kind: quota, limit: 1/m}]", 24 * 3600),
        ("backup: true, ", "states: []", 60 + 300 + 1800 + 21 * 3600),
    ],
)
def test_the_longest_life_is_the_sum_of_all_waits(topic: str, subscription: str, seconds: int) -> None:
    assert defaults.max_lifetime(*parts(topic, subscription)) == seconds * 1000


@pytest.mark.parametrize(
    "body",
    [
        "topics: {}",
        "topics: {a: {}, b: {levels: double, backup: true, draining: [S1], subscriptions: {s: {audit: true}, t: {states: [], draining: [pending], dead_letter: false}}}}",
    ],
)
def test_topics_are_counted_without_expanding(body: str) -> None:
    assert defaults.number_of_topics(loaded(body).spec) == len(expanded(body).topics)
