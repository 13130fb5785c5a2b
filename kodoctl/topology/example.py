"""Commented example files to begin with, one for each of five shapes. Lint finds nothing in any of them."""

from __future__ import annotations

import re
from typing import Final

from kodoctl.topology.names import RESERVED_NAMESPACE, InvalidNameError, why_not_pulsar_name

_PLAIN: Final = re.compile(r"(?!true$|false$|null$)[a-z][-.\w]*", re.ASCII | re.IGNORECASE)  # no quotes needed

_HEAD: Final = """\
# A topology: one business topic (the ground topic) and the family of topics around it.
{schema}version: 1
name: {quoted}  # who owns the topics: a marker on each of them
tenant: public  # the Pulsar tenant
namespace: {quoted}  # topics are public/{name}/…

# The namespace object belongs to this file: at most one file has this key.
namespace_policies:
  retention: {{time: 3d, size: 10GiB}}  # acknowledged messages are kept so long, and so much of them
  backlog_quota: {{size: 5GiB, when_full: hold_producers}}  # below retention, or Pulsar refuses it
  auto_topic_creation: false  # a misspelt name is an error, not a new topic

topics:
  orders:  # persistent://public/{name}/orders
"""

_EDITORS: Final = "# Editors complete and explain every key with this schema, which `kodoctl schema` prints:\n"

_LEVELS: Final[dict[str, str]] = {
    "backup": "    backup: true  # adds orders-B1: the last stop before dead letters, with waits of its own\n",
    "double": """\
    levels: double  # L1 is the ground topic, L2 (orders-L2) goes first
    backup: true  # adds orders-B1: the last stop before dead letters, with waits of its own
""",
}

_FAIR: Final = """\
    message_properties: {customer: required}  # what producers send along; checked by Producer.load
    fair_by: customer  # a customer with 100,000 messages waiting delays the others by one turn
    producers: []  # roles that may produce
    subscriptions:
      billing:
"""

_STATES: Final[dict[str, str]] = {
    "simplest": """\
        states: []  # no topics but orders: what fails stays there and is tried again
        dead_letter: false
""",
    "simple": """\
        states: [retrying]  # what fails waits in orders-billing-RETRYING, at last it goes to orders-billing-DLQ
""",
}

_ALL_STATES: Final = """\
        states: [retrying, pending, blocking]  # waits of what failed, is over a rate, is over a quota
"""

_WORKERS: Final = """\
        workers: []  # roles of the workers, expanded to least privilege
"""

_RETRYING: Final = """\
        retrying: {delays: [10s, 1m, 5m], attempts: 12}  # waits before each attempt, the last one repeats
"""

_BACKUP: Final = """\
        backup: {delays: [1m, 5m, 30m, 1h], attempts: 24}  # in orders-B1, then dead letters
"""

_LIMITS: Final = """\
        limits:
          - {kind: rate, by: customer, limit: 100/s, burst: 200}  # over it: pending
          - {kind: quota, by: customer, limit: 50000/d}  # over it: blocking
"""

_ROUTES: Final = """\
        routes:  # as messages are sent; the first match wins
          - {when: {property: customer, in: [vip]}, to: L2}
"""

_TAIL: Final = """\

# environments:  # overlays: null deletes, lists replace
#   prod:
#     production: true  # stricter rules
#     defaults: {partitions: 16}
"""


def example(name: str, shape: str, schema: str = "") -> str:
    """Text of a topology file with the name `name`. `shape`: simplest, simple, single, backup or double; `schema`:
    comment line that names the schema to editors, with its line end, "" for none.

    Raises InvalidNameError for a name that Pulsar refuses, and for `kodoctl`, because the namespace has that name too.
    """
    if reason := why_not_pulsar_name(name):
        raise InvalidNameError(f"{name!r} is no name: {reason}")
    if name == RESERVED_NAMESPACE:
        raise InvalidNameError(f"a namespace {name!r} holds kodoctl's own lease and journal topics: choose another")
    several = shape not in _STATES
    parts = [
        _HEAD.format(
            schema=f"{_EDITORS}{schema}" if schema else "",
            name=name,
            quoted=name if _PLAIN.fullmatch(name) else f'"{name}"',
        ),
        _LEVELS.get(shape, ""),
        _FAIR,
        _STATES.get(shape, _ALL_STATES),
        _WORKERS,
        _RETRYING if shape != "simplest" else "",
        _BACKUP if shape in _LEVELS else "",
        _LIMITS if several else "",
        _ROUTES if shape == "double" else "",
        _TAIL,
    ]
    return "".join(parts)
