"""Replays of a few messages by kodo_consumer.simulation.simulator."""

from __future__ import annotations

import json

from kodo_consumer.simulation.simulator import STATES, answer

FILE = """\
version: 1
name: trade
tenant: kodo
namespace: trade
topics:
  orders:
    fair_by: uid
    message_properties: {uid: required}
    levels: double
    backup: true
    subscriptions:
      billing:
        audit: true
        concurrency: 1
"""


def sent(at, tenant="u1", *, seconds=0.1, outcomes="", level="L1", size=100, key=""):
    return [at, level, key, {"uid": tenant}, size, tenant, outcomes], seconds


def flood(many, tenant="noisy", at=0.0, **more):
    return [sent(at, tenant, **more) for _ in range(many)]


def times(arrivals):
    """Run times of handlers: what their tenants' messages say, in every state."""
    return {line[5]: dict.fromkeys(STATES, seconds) for line, seconds in arrivals}


def asked(text, arrivals, **other):
    request = {
        "text": text,
        "path": "t.yaml",
        "environment": None,
        "topic": "orders",
        "subscription": "billing",
        "slots": None,
        "workers": None,
        "seconds": times(arrivals),
        "outages": [],
    }
    arrivals = sorted((line for line, _ in arrivals), key=lambda one: one[0])
    return answer(iter(json.dumps(one) for one in (request | other, *arrivals)))


def of(found, tenant):
    return next(one for one in found["tenants"] if one["tenant"] == tenant)
