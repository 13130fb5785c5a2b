"""Outages as people ask for them, and everything that may be wrong with one."""

from __future__ import annotations

import pytest
from kodo_pipeline.simulate.outage_request import OutageRequest, outage_of

from kodoctl.errors import UsageError


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("tenants=60,state=retrying,duration=8s", OutageRequest(60, (), "retrying", 8_000)),
        (
            'tenant=acme,"tenant=a,b",state=ready, duration = 20s ,begin=5m,length=10m,outcome=done',
            OutageRequest(None, ("acme", "a,b"), "ready", 20_000, 300_000, 600_000, done=True),
        ),
        ("tenant=x=y,state=backup,duration=1ms,begin=0s,outcome=failed", OutageRequest(None, ("x=y",), "backup", 1)),
    ],
)
def test_an_outage_is_read(text, meant):
    assert outage_of(text) == meant


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", ["say how many", "state is missing", "duration is missing"]),
        (
            "tenants=0,state=dead,duration=0s",
            ["'0' is no number of tenants", "'dead' is none of ready", "longer than zero"],
        ),
        ("tenants=6,tenant=u1,state=ready,duration=8", ["say how many, tenants=60, or which", "duration: "]),
        ("tenants=6,state=ready,state=ready2,duration=1s", ["state is there 2 times"]),
        ("tenants=6,state=,duration=1s,speed=5", ["state: name one", "'speed' is none of begin, duration, length"]),
        (
            "tenants=6,state=ready,duration=1s,outcome=bad,begin=x",
            ["outcome: 'bad' is none of failed, done", "begin: "],
        ),
        ('tenants=6,"state=ready', ["unexpected end of data"]),
    ],
)
def test_everything_that_is_wrong_is_told_at_once(text, wrong):
    with pytest.raises(UsageError) as refused:
        outage_of(text)
    told = [one.detail for one in refused.value.diagnostics]
    assert {one.code for one in refused.value.diagnostics} == {"K808"}
    assert all(any(word in one for one in told) for word in wrong), told
    assert len(told) >= len(wrong)


def test_the_tenants_are_the_busiest_or_those_named():
    ordered = ["busy", "next", "calm"]
    assert OutageRequest(2, (), "ready", 1).tenants_of(ordered, "orders / billing") == ["busy", "next"]
    assert OutageRequest(None, ("calm",), "ready", 1).tenants_of(ordered, "") == ["calm"]
    with pytest.raises(UsageError, match="orders / billing: 4 tenants are asked for, messages of 3 arrived"):
        OutageRequest(4, (), "ready", 1).tenants_of(ordered, "orders / billing")
    with pytest.raises(UsageError, match="no message of u1, u2 arrived"):
        OutageRequest(None, ("u1", "calm", "u2"), "ready", 1).tenants_of(ordered, "orders / billing")


def test_an_outage_that_would_begin_after_everything_is_refused():
    never = OutageRequest(1, (), "ready", 1, 300_000)
    with pytest.raises(UsageError, match=r"orders / billing: it begins after 5m, .* arrived after 1m"):
        never.check_begin(60_000, "orders / billing")
    with pytest.raises(UsageError, match="K808"):
        never.check_begin(300_000, "")
    never.check_begin(300_001, "")
    OutageRequest(1, (), "ready", 1, 300_000, 1).check_begin(60_000, "")  # messages may still wait then
    OutageRequest(1, (), "ready", 1).check_begin(0, "")


def test_an_outage_ends_after_its_length_or_with_the_last_arrival():
    assert OutageRequest(1, (), "ready", 1, 500, 2_000).asked(["u1"], 60.0)["until"] == 2.5
    assert OutageRequest(1, (), "ready", 1, 500).asked(["u1"], 60.0)["until"] == 60.0
