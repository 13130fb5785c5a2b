"""Live orders as text: there and back, who may take whose place, and what is no order."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kodoctl.protocol.overrides import (
    LEAVE,
    MAX_AHEAD,
    MAX_SPAN,
    STAY,
    InvalidOverridesError,
    Override,
    OverrideKind,
    active_overrides,
    overrides_text,
    parse,
    steered_text,
    why_invalid,
    with_override,
)
from kodoctl.protocol.slot_bounds import SlotBounds
from kodoctl.text.escaping import printable
from kodoctl.topology.units import LATEST

NOW = 1_800_000_000_000
HOUR = 3_600_000
LANE = Override(OverrideKind.PAUSE, NOW, NOW + HOUR, "ann@desk", "psp is down", lane="L1/retrying")
TENANT = Override(OverrideKind.PAUSE, NOW, NOW + 2 * HOUR, "bob@desk", tenant="u1")
WEIGHT = Override(OverrideKind.WEIGHT, NOW, NOW + HOUR, "bob@desk", tenant="u1", to="3")
LIMIT = Override(OverrideKind.LIMIT, NOW, NOW + HOUR, "bob@desk", limit="rate", by="uid", value="u1", to="10/s")
CAP = Override(OverrideKind.LIMIT, NOW, NOW + HOUR, "bob@desk", limit="concurrency", to="8")
WITHIN = Override(OverrideKind.LIMIT, NOW, NOW + HOUR, "bob@desk", limit="concurrency", to="8", within="L2/retrying")
SLOTS = Override(OverrideKind.SLOTS, NOW, NOW + HOUR, "bob@desk", within="L2/retrying", to="max 8 min 2")
ALL = (LANE, TENANT, WEIGHT, LIMIT, CAP)
MOVE = Override(OverrideKind.MOVE, NOW, NOW + HOUR, "bob@desk", tenant="u1", to="L2")


def test_orders_come_back_as_they_were() -> None:
    assert parse(overrides_text(ALL)) == ALL
    assert all(not why_invalid(order) for order in ALL)


def test_a_move_of_a_tenant_says_what_becomes_of_what_waits() -> None:
    stays = replace(MOVE, to="S1", waiting=STAY)
    assert parse(overrides_text((MOVE, stays))) == (MOVE, stays)
    assert [str(MOVE), str(stays)] == ["tenant u1 moved to L2", "tenant u1 moved to S1, what waits stays"]
    assert with_override((MOVE, WEIGHT), stays) == (WEIGHT, stays), "a tenant has one level"
    wrong: tuple[dict[str, str], ...] = (
        {"to": "L9"},
        {"to": ""},
        {"tenant": ""},
        {"lane": "L1/ready"},
        {"waiting": "x"},
    )
    for change in wrong:
        assert why_invalid(replace(MOVE, **change)).startswith("name a tenant and a level: S3, S2")  # type: ignore[arg-type]


def test_orders_end_by_themselves_and_a_later_one_takes_the_place_of_one_about_the_same() -> None:
    assert active_overrides(ALL, NOW + HOUR) == (TENANT,)
    longer = Override(OverrideKind.PAUSE, NOW, NOW + 9 * HOUR, "eve@desk", lane="L1/retrying")
    assert with_override(ALL, longer) == (TENANT, WEIGHT, LIMIT, CAP, longer)
    assert with_override((), LANE) == (LANE,)


def test_an_order_that_begins_later_than_clocks_differ_is_told_and_not_followed() -> None:
    """Its span would be 30 days, and its end in thousands of years."""
    ahead = replace(TENANT, since=NOW + MAX_AHEAD, until=NOW + MAX_AHEAD + HOUR)
    sleeper = replace(LANE, since=NOW + MAX_AHEAD + 1, until=NOW + MAX_AHEAD + MAX_SPAN)
    assert active_overrides((ahead, sleeper), NOW) == (ahead,)
    text = steered_text(overrides_text((ahead, sleeper)), NOW)
    assert text == (
        "steered until 2027-01-15 10:00 UTC: tenant u1 paused; not steered by what begins at 2027-01-15 09:00 UTC:"
        " lane L1/retrying paused"
    )
    only = steered_text(overrides_text((sleeper,)), NOW)
    assert only is not None
    assert only.startswith("not steered by what begins at")


@given(st.integers(0, LATEST), st.integers(0, MAX_SPAN), st.integers(0, LATEST))
def test_whatever_an_order_says_it_is_over_a_month_later(since: int, span: int, now: int) -> None:
    order = replace(TENANT, since=since, until=min(LATEST, since + span))
    if active_overrides((order,), now):
        assert order.until <= now + MAX_AHEAD + MAX_SPAN


def test_what_people_read() -> None:
    assert [str(order) for order in ALL] == [
        "lane L1/retrying paused", "tenant u1 paused", "tenant u1 weighs 3", "rate limit of uid u1 10/s",
        "concurrency limit 8",
    ]  # fmt: skip
    told = "steered until 2027-01-15 10:00 UTC: lane L1/retrying paused, tenant u1 paused"
    assert steered_text(overrides_text((LANE, TENANT)), NOW) == told
    assert steered_text(overrides_text(ALL), NOW + 9 * HOUR) is None
    told_broken = steered_text("{", NOW)
    assert told_broken is not None
    assert told_broken.startswith("steered by something workers cannot read (JSONDecodeError")


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '{"format": 1}', '{"format": 1, "orders": [7]}', "[" * 100_000])
def test_what_is_no_order_is_told(text: str) -> None:
    with pytest.raises(InvalidOverridesError):
        parse(text)


@pytest.mark.parametrize(
    "changes",
    [
        {"what": "stop"},
        {"until": "soon"},
        {"until": True},
        {"key": "x"},
        {"who": "x" * 201},
        {"lane": ""},
        {"until": NOW * 2},
    ],
)
def test_a_damaged_order_is_told(changes: dict[str, object]) -> None:
    document = json.loads(overrides_text([LANE]))
    document["orders"][0] |= changes
    with pytest.raises(InvalidOverridesError):
        parse(json.dumps(document))


def test_a_newer_form_is_told() -> None:
    with pytest.raises(InvalidOverridesError, match="form 2: a newer kodoctl reads it"):
        parse('{"format": 2, "orders": []}')


@pytest.mark.parametrize(
    ("order", "said"),
    [
        (Override(OverrideKind.PAUSE, NOW, NOW + MAX_SPAN + 1, "a", tenant="u1"), "30 days at most"),
        (Override(OverrideKind.PAUSE, NOW, NOW, "a"), "name a lane or a tenant"),
        (Override(OverrideKind.PAUSE, NOW, NOW, "a", lane="L1/ready", to="L2"), "goes to nothing else"),
        (Override(OverrideKind.PAUSE, NOW, NOW, "a", tenant="u1", to=LEAVE), "goes to nothing else"),
        (Override(OverrideKind.PAUSE, NOW, NOW, "a", lane="L1/ready", tenant="u1"), "name a lane or a tenant"),
        (Override(OverrideKind.WEIGHT, NOW, NOW, "a", tenant="u1", to="0"), "weight from 1 to 1000"),
        (Override(OverrideKind.WEIGHT, NOW, NOW, "a", tenant="u1", to="²"), "weight from 1 to 1000"),
        (Override(OverrideKind.WEIGHT, NOW, NOW, "a", tenant="u1", to="0000010000000"), "weight from 1 to 1000"),
        (Override(OverrideKind.WEIGHT, NOW, NOW, "a", tenant="u1", lane="L1/ready", to="1"), "weight from 1 to 1000"),
        (
            Override(OverrideKind.LIMIT, NOW, NOW, "a", lane="L1/ready", limit="rate", to="1/s"),
            "a rate, a concurrency or a quota",
        ),
        (Override(OverrideKind.LIMIT, NOW, NOW, "a", limit="concurrency", to="many"), "whole number from 1 on"),
        (Override(OverrideKind.LIMIT, NOW, NOW, "a", limit="speed", to="1/s"), "a rate, a concurrency or a quota"),
        (Override(OverrideKind.LIMIT, NOW, NOW, "a", limit="rate", to="10"), "not a rate"),
        (Override(OverrideKind.LIMIT, NOW, NOW, "a", limit="quota", to="0/h"), "pause the tenant instead"),
        (Override(OverrideKind.PAUSE, NOW, NOW, "a", tenant="u" * 201), "tenant: longer than 200 characters"),
        (replace(LIMIT, value="u" * 201, by="p" * 201), "by, value: longer than 200 characters"),
    ],
)
def test_orders_that_cannot_be(order: Override, said: str) -> None:
    assert said in why_invalid(order)


@pytest.mark.parametrize("name", ["tenant", "why", "who"])
def test_what_may_be_ordered_can_be_read(name: str) -> None:
    order = replace(TENANT, **{name: "u" * 200})  # type: ignore[arg-type]
    assert why_invalid(order) == ""
    assert parse(overrides_text([order])) == (order,)


_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
_FIELDS = ("what", "since", "until", "by", "lane", "tenant", "limit", "value", "to", "who")
_TIMES = st.integers(-(10**20), 10**20) | st.integers(NOW - 10**10, NOW + 10**10)
_NEARLY = st.fixed_dictionaries(
    {"what": st.sampled_from([*OverrideKind]), "since": _TIMES, "until": _TIMES, "who": st.text(max_size=9)},
    optional={"tenant": st.text(max_size=9), "lane": st.text(max_size=9), "to": st.text(max_size=9)},
)


@given(st.one_of(_ANY, st.dictionaries(st.sampled_from(_FIELDS), _ANY), _NEARLY), st.booleans())
def test_whatever_stands_in_the_property_is_told_and_ends_nothing(order: object, several: bool) -> None:
    """Whoever may consume may write it: two numbers that no calendar has ended every plan, apply and drift."""
    for document in ({"format": 1, "orders": [order] * (1 + several)}, order, {"format": order, "orders": order}):
        told = steered_text(json.dumps(document), NOW)
        assert told is None or printable(told).encode()


def test_an_order_of_nobody_stays_readable_when_another_is_given() -> None:
    """Its `who` was left out when the orders were written again, and nobody could read them from then on."""
    foreign = parse(
        json.dumps({"format": 1, "orders": [{"what": "pause", "since": 0, "until": 9, "who": "", "tenant": "u"}]})
    )
    assert parse(overrides_text(foreign)) == foreign


@pytest.mark.parametrize("text", ["", "[" * 100_000, '{"format": 1, "orders": {}}', "\x00", '"\\ud800"'])
def test_a_property_that_is_no_list_of_orders_is_told(text: str) -> None:
    assert printable(str(steered_text(text, NOW))).startswith("steered by something workers cannot read")


@pytest.mark.parametrize(("since", "until"), [(10**18, 10**18), (-1, 10), (NOW, LATEST + 1), (10**18, NOW)])
def test_times_beyond_every_calendar_are_no_order(since: int, until: int) -> None:
    order = {"what": "pause", "since": since, "until": until, "who": "x", "tenant": "u"}
    told = steered_text(json.dumps({"format": 1, "orders": [order]}), NOW)
    assert "no calendar has" in str(told)


def test_an_order_that_continues_a_pause_knows_when_that_began() -> None:
    later = replace(LANE, first=str(NOW - HOUR))
    assert (LANE.began, later.began) == (LANE.since, NOW - HOUR)
    assert parse(overrides_text([later])) == (later,)
    for wrong in ("-1", "x", "0", "²", "9" * 15, "9" * 16):
        assert "no calendar has" in str(steered_text(overrides_text([replace(LANE, first=wrong)]), NOW))


def test_an_order_about_a_limit_of_some_lanes_is_one_of_its_own() -> None:
    assert str(WITHIN) == "concurrency limit in L2/retrying 8"
    assert parse(overrides_text([CAP, WITHIN])) == (CAP, WITHIN)
    assert with_override((CAP, WITHIN), replace(CAP, to="9")) == (WITHIN, replace(CAP, to="9"))
    assert "within" not in overrides_text([CAP]), "older workers read what older orders say"


def test_orders_about_slots() -> None:
    assert parse(overrides_text((SLOTS,))) == (SLOTS,)
    assert str(SLOTS) == "slots of L2/retrying max 8 min 2"
    less = replace(SLOTS, to="max 3")
    assert with_override((SLOTS, LANE), less) == (LANE, less)
    assert with_override((SLOTS,), replace(less, within="L2")) == (SLOTS, replace(less, within="L2"))
    for wrong in (replace(SLOTS, within=""), replace(SLOTS, to=""), replace(SLOTS, to="max 0")):
        assert why_invalid(wrong) == "name lanes, and a max from 1 on or a min, such as max 8 min 2"


@pytest.mark.parametrize(
    ("text", "bounds"),
    [
        ("max 8", SlotBounds(8, None)),
        ("min 0", SlotBounds(None, 0)),
        ("max 8 min 2", SlotBounds(8, 2)),
        *(
            (text, None)
            for text in (
                "",
                " min 2",
                "max 0",
                "min 2 max 8",
                "max8",
                "max 1000000",
                "min 999999",
                "max -1",
                "8",
                "max ٣",
            )
        ),
    ],
)
def test_bounds_of_slots_are_read_and_written(text: str, bounds: SlotBounds | None) -> None:
    assert SlotBounds.parse(text) == bounds
    assert bounds is None or str(bounds) == text


def test_a_pause_of_which_workers_leave_the_lane_is_an_order() -> None:
    order = Override(OverrideKind.PAUSE, NOW, NOW + HOUR, "a", lane="L1/ready", to=LEAVE)
    assert parse(overrides_text([order])) == (order,)
    assert str(order) == "lane L1/ready paused and left"
