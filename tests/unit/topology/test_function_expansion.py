"""Resources of the functions and connectors that a file declares."""

from __future__ import annotations

from kodoctl.topology.function_expansion import function_resources
from kodoctl.topology.resources import FunctionResource
from tests.samples.inventories import HERE, topology, wanted

KEYS = """\
functions:
  plain: {package: 'builtin://x', inputs: [a/b/c]}
  enrich:
    package: 'file:///x'
    class: a.B
    runtime: go
    inputs: [orders]
    output: a/b/d
    subscription: s
    start: latest
    resources: {cpu: 1, memory: 1KiB, disk: 2KiB}
    secrets: {password: {path: p, key: k}}
sinks:
  bare: {package: 'builtin://x', inputs: [orders], resources: {cpu: 2}}
  keep: {package: 'builtin://x', inputs: [orders], retries: 2, dead_letter_topic: failed, redelivery_delay: 2s}
io_sources:
  tick: {package: 'builtin://x', output: orders, config: {a: 1}}
"""


def declared() -> dict[str, FunctionResource]:
    """The resources by name."""
    file = wanted(topology("{orders: {levels: double}, failed: {}}", KEYS))
    return {one.name: one for one in function_resources(file.expansions[0].topology.spec, HERE)}


def test_each_kind_has_its_own_parts() -> None:
    found = declared()
    assert [(one.kind, one.address) for one in found.values()] == [
        ("function", "function.acme/ns/plain"),
        ("function", "function.acme/ns/enrich"),
        ("sink", "sink.acme/ns/bare"),
        ("sink", "sink.acme/ns/keep"),
        ("io_source", "io_source.acme/ns/tick"),
    ]
    plain, enrich = found["plain"], found["enrich"]
    assert (plain.inputs, plain.output, plain.subscription) == ({"persistent://a/b/c"}, "", "acme/ns/plain")
    assert (plain.secrets, plain.cpu, plain.memory, plain.disk) == (None, None, None, None)
    assert enrich.inputs == {"persistent://acme/ns/orders", "persistent://acme/ns/orders-L2"}
    assert (enrich.runtime, enrich.output, enrich.start) == ("go", "persistent://a/b/d", "latest")
    assert (enrich.subscription, enrich.memory, enrich.disk) == ("s", 1024, 2048)
    assert enrich.secrets == '{"password":{"key":"k","path":"p"}}'
    bare, keep, tick = found["bare"], found["keep"], found["tick"]
    assert (bare.retries, bare.dead_letter_topic, bare.redelivery_delay) == (None, None, None)
    assert (bare.cpu, bare.memory, bare.disk) == (2, None, None)
    assert (keep.retries, keep.redelivery_delay) == (2, 2000)
    assert keep.dead_letter_topic == "persistent://acme/ns/failed"
    assert {topic.local for topic in keep.topics} == {"orders", "orders-L2", "failed"}
    assert (tick.output, tick.inputs, tick.subscription) == ("persistent://acme/ns/orders", frozenset(), "")
    assert list(tick.subscriptions) == []
